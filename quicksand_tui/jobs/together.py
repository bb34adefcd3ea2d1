"""Jobs that one key began in several sandboxes, told as one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from quicksand_tui.model.jobs import Failure

if TYPE_CHECKING:
    from collections.abc import Callable

    from quicksand_tui.model.jobs import EndedJob, JobVerb


class Together:
    """Collects the outcomes of the jobs."""

    def __init__(
        self,
        verb: JobVerb,
        count: int,
        *,
        tell: Callable[[str], None],
        show_failure: Callable[[Failure], None],
        way_back: Callable[[], str] = lambda: "",
    ) -> None:
        """When ``count`` jobs have ended, calls ``tell`` with the numbers of outcomes, and
        ``show_failure`` with the reasons of failures. ``way_back`` says how to undo the jobs."""
        self._verb = verb
        self._count = count
        self._tell = tell
        self._show_failure = show_failure
        self._way_back = way_back
        self._ended: list[EndedJob] = []

    def take(self, ended: EndedJob) -> None:
        """Notes the end of one job."""
        self._ended.append(ended)
        if len(self._ended) < self._count:
            return
        done = sum(one.outcome == "done" for one in self._ended)
        cancelled = sum(one.outcome == "cancelled" for one in self._ended)
        failed = [one for one in self._ended if one.outcome == "failed"]
        text = f"{self._verb.value}: done with {_of(done, self._count)}"
        text += f", {cancelled} cancelled" if cancelled else ""
        text += f", {len(failed)} failed" if failed else ""
        text += f" · {way}" if done and (way := self._way_back()) else ""
        self._tell(text)
        if failed:
            self._show_failure(self._failure(failed))

    def _failure(self, failed: list[EndedJob]) -> Failure:
        """Returns the words about the failed jobs: the reason of each, the first in full."""
        reasons = [
            (one.job.name, one.failure or Failure(title="", message=one.told)) for one in failed
        ]
        name, first = reasons[0]
        return Failure(
            title=f"{self._verb.value}: failed with {_of(len(failed), self._count)}",
            message=f"{name}: {first.message}",
            hint=first.hint,
            log=first.log
            if len(failed) == 1
            else tuple(f"{name}: {why.message}" for name, why in reasons[1:]),
        )


def _of(count: int, all_: int) -> str:
    return f"all {all_} sandboxes" if count == all_ else f"{count} of {all_} sandboxes"
