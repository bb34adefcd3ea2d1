"""Verifies saves: `saves verify`."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from quicksand.things.save import Verification

from quicksand_tui.model.amounts import size_text
from quicksand_tui.model.jobs import Failure, JobVerb, OperationError
from quicksand_tui.model.specs import Told
from quicksand_tui.model.text import sanitise
from quicksand_tui.verbs.call import Call, Report, things_of
from quicksand_tui.verbs.parameters import JSON
from quicksand_tui.verbs.saves import SHOWN_MAX, are, bytes_to, named, names_of, time_text
from quicksand_tui.verbs.verb import Kind, argument, flag, verb

if TYPE_CHECKING:
    from quicksand.hosted.remote_host import RemoteHost
    from quicksand.saves.verifying import Verdict

    from quicksand_tui.model.keymap import Keymap

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
            str(verdict.save.root): (_id_of(verdict), _view_of(verdict, self.when))
            for verdict in self.verdicts
        }


def _view_of(verdict: Verdict, when: float) -> Verification:
    """Returns a verdict as the app shows it."""
    texts = [f"{file}: {text}" for file, text in verdict.problems.items()][:PROBLEMS_MAX]
    return Verification(deep=verdict.deep, when=when, problems=tuple(map(sanitise, texts)))


@verb("saves verify",
    argument("names", Kind.SAVE, "[NAME]...", repeatable=True, required=False),
    flag("--deep", "Read every byte of the saves and their bases."),
    JSON, reads=True)  # fmt: skip
def verify(
    keys: Sequence[str],
    *,
    deep: bool = False,
    names: Sequence[str] = (),
    shown: Sequence[str] = (),
    host: str = "",
) -> Call[Verified]:
    """Checks the files of saves from outside, or with ``deep`` every byte: of those with
    these keys, their paths, or of those with these ``names``, or else of all. Commands call them
    ``shown``; ``host`` is the machine where they are."""

    async def anywhere(_: str, report: Report, host: RemoteHost | None) -> Verified:
        started = time.perf_counter()
        found = await things_of(host).verify_saves(
            names, places=[*map(Path, keys)], deep=deep, progress=bytes_to(report)
        )
        spent = time.perf_counter() - started
        return Verified(found.verdicts, found.size, spent, time.time())

    return Call(
        values={"names": named(keys, shown)},
        job=JobVerb.VERIFY,
        failed="The saves were not verified",
        anywhere=anywhere,
        spec=tuple(keys),
        tell=_tell_verified,
        facts=lambda _, verified: [_verdict_facts(verdict) for verdict in verified.verdicts],
        host=host,
    )


def _tell_verified(_: str, verified: Verified, keymap: Keymap) -> Told:
    found = verified.verdicts
    what = names_of([one.save.name for one in found])
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
        read = f"{size_text(verified.size)} read in {time_text(verified.seconds)}"
        return Told(summary=f"{what} {are(found)} whole: {read}")
    return Told(summary=f"{what} {are(found)} fine by a quick check; F reads every byte")


def _problems(found: Sequence[Verdict]) -> Iterator[str]:
    for one in found:
        for file, text in one.problems.items():
            yield f"{sanitise(one.save.name, limit=60)}: {sanitise(f'{file}: {text}')}"


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
