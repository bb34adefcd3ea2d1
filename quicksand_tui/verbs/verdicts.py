"""Verifies saves: `saves verify`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from quicksand.things.save import Verification

from quicksand_tui.model.amounts import size_text
from quicksand_tui.model.jobs import Failure, JobVerb, OperationError
from quicksand_tui.model.specs import Told
from quicksand_tui.model.text import sanitise
from quicksand_tui.verbs import lazy_engine
from quicksand_tui.verbs.call import Call, Progress, Relayed, Report
from quicksand_tui.verbs.parameters import JSON
from quicksand_tui.verbs.saves import SHOWN_MAX, are, named, names_of, time_text
from quicksand_tui.verbs.verb import Kind, argument, flag, verb

if TYPE_CHECKING:
    from quicksand.saves.save_manifest import Save
    from quicksand.saves.verifying import Verdict

    from quicksand_tui.model.keymap import Keymap

CHECKED_MAX = 20_000
"""The most verdicts that are read of another machine."""
PROBLEMS_MAX = 1000


class Verified(NamedTuple):
    """The result of verifying saves."""

    verdicts: Sequence[Verdict]
    size: int
    """Bytes read."""
    seconds: float
    when: float
    """Unix time."""

    def views(self) -> Mapping[str, tuple[str, Verification]]:
        """Returns by key the id of each save, and its verdict as the app shows it."""
        return {
            str(verdict.save.root): (_id_of(verdict), _checked(verdict).view(self.when))
            for verdict in self.verdicts
        }

    @property
    def checked(self) -> Sequence[Checked]:
        return [_checked(verdict) for verdict in self.verdicts]


class Checked(NamedTuple):
    """One save that was verified, on any machine."""

    path: str
    name: str
    deep: bool
    is_whole: bool
    problems: Mapping[str, str]
    """The problems, by file."""

    def view(self, when: float) -> Verification:
        """Returns the verdict as the app shows it."""
        texts = [f"{file}: {text}" for file, text in self.problems.items()][:PROBLEMS_MAX]
        return Verification(deep=self.deep, when=when, problems=tuple(map(sanitise, texts)))


class VerifiedThere(NamedTuple):
    """The result of verifying saves of another machine."""

    checked: Sequence[Checked]
    when: float

    def views(self) -> Mapping[str, Verification]:
        """Returns the verdicts as the app shows them, by the paths of the saves there."""
        return {one.path: one.view(self.when) for one in self.checked}


def _checked(verdict: Verdict) -> Checked:
    save = verdict.save
    return Checked(
        str(save.root), save.root.name, verdict.deep, verdict.is_whole, dict(verdict.problems)
    )


@verb("saves verify",
    argument("names", Kind.SAVE, "[NAME]...", repeatable=True, required=False),
    flag("--deep", "Read every byte of the saves and their bases."),
    JSON, reads=True)  # fmt: skip
def verify(
    keys: Sequence[str],
    *,
    deep: bool = False,
    find: Callable[[], Sequence[Save]] | None = None,
    shown: Sequence[str] = (),
    host: str = "",
) -> Call[Verified]:
    """Checks the files of saves from outside, or with ``deep`` every byte: of those that ``find``
    returns, or of those with these keys, their paths. Commands call them ``shown``; ``host`` is the
    machine where they are."""

    async def run(_: str, report: Report) -> Verified:
        started, size = time.perf_counter(), 0

        def progress(done: int, total: int) -> None:
            nonlocal size
            size = total
            report(Progress("", "reading", done=done, total=total))

        report(Progress("", "looking"))
        look = find or (lambda: [lazy_engine.load_save(Path(key)) for key in keys])
        saves = await lazy_engine.in_thread_to_the_end(look)
        verdicts = await lazy_engine.verify_saves(
            saves, lazy_engine.paths(), deep=deep, progress=progress
        )
        return Verified(verdicts, size, time.perf_counter() - started, time.time())

    return Call(
        values={"names": named(keys, shown)},
        job=JobVerb.VERIFY,
        failed="The saves were not verified",
        run=run,
        spec=tuple(keys),
        tell=_tell_verified,
        facts=lambda _, verified: [_verdict_facts(verdict) for verdict in verified.verdicts],
        host=host,
        there=_verified_there,
        finds_faults=True,
    )


def _verified_there(told: Relayed) -> VerifiedThere:
    if not isinstance(told.json, list):
        raise TypeError("the verdicts are no list")
    found = []
    for one in told.json[:CHECKED_MAX]:
        facts = lazy_engine.Fields(one, "the verdict")
        problems = facts.any("problems")
        if not isinstance(problems, dict):
            raise TypeError("the problems are no table")
        found.append(
            Checked(
                path=facts.text("path"),
                name=facts.text("name"),
                deep=facts.flag("deep"),
                is_whole=facts.flag("whole"),
                problems={str(file): str(text) for file, text in problems.items()},
            )
        )
    return VerifiedThere(found, time.time())


def _tell_verified(_: str, verified: Verified | VerifiedThere, keymap: Keymap) -> Told:
    found = verified.checked
    what = names_of([one.name for one in found])
    if bad := list(_problems(found)):
        count = sum(not one.is_whole for one in found)
        several = f"{count} of {len(found)} saves are not whole"
        raise OperationError(
            Failure(
                title=several if len(found) > 1 else f"{what} is not whole",
                message=bad[0],
                hint="saves that share its layers may be damaged too: * and F read them all",
                log=tuple(bad[1:SHOWN_MAX]),
            )
        )
    if all(one.deep for one in found):
        read = "every byte was read"
        if isinstance(verified, Verified):
            read = f"{size_text(verified.size)} read in {time_text(verified.seconds)}"
        return Told(summary=f"{what} {are(found)} whole: {read}")
    return Told(summary=f"{what} {are(found)} fine by a quick check; F reads every byte")


def _problems(found: Sequence[Checked]) -> Iterator[str]:
    for one in found:
        for file, text in one.problems.items():
            yield f"{sanitise(one.name, limit=60)}: {sanitise(f'{file}: {text}')}"


def _id_of(verdict: Verdict) -> str:
    manifest = verdict.save.manifest
    return "" if manifest is None else sanitise(manifest.id, limit=200)


def _verdict_facts(verdict: Verdict) -> dict[str, Any]:
    return {
        "name": verdict.save.name,
        "path": str(verdict.save.root),
        "deep": verdict.deep,
        "whole": verdict.is_whole,
        "problems": dict(verdict.problems),
    }
