"""Ends a sandbox's machine, or lets it wait: `stop`, `kill`, `pause`, `resume`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from quicksand_tui.model.jobs import JobVerb
from quicksand_tui.verbs import engine
from quicksand_tui.verbs.record import Report, SandboxVerb, attach, no_result
from quicksand_tui.verbs.shared_rows import GRACE_S

if TYPE_CHECKING:
    from quicksand.sandbox import Sandbox


def _open_to_end_it(name: str, report: Report) -> Sandbox:
    return engine.Sandbox.open(name, to_end_it=True)


def stop_within(grace_s: float) -> SandboxVerb[None]:
    """Returns the verb that kills a guest which does not power down in that time."""
    return SandboxVerb(
        name="stop",
        job=JobVerb.STOP,
        doing="stopping",
        done="stopped",
        failed="The sandbox did not stop",
        open=_open_to_end_it,
        act=lambda sandbox, _: sandbox.stop(grace=grace_s),
        there=no_result,
        values={"grace": None if grace_s == GRACE_S else f"{grace_s:g}"},
    )


STOP = stop_within(GRACE_S)

KILL: SandboxVerb[None] = SandboxVerb(
    name="kill",
    job=JobVerb.KILL,
    doing="killing",
    done="killed",
    failed="The sandbox was not killed",
    open=_open_to_end_it,
    act=lambda sandbox, _: sandbox.kill(),
    there=no_result,
)

PAUSE: SandboxVerb[None] = SandboxVerb(
    name="pause",
    job=JobVerb.PAUSE,
    doing="pausing",
    done="paused",
    failed="The sandbox was not paused",
    open=attach,
    act=lambda sandbox, _: sandbox.pause(),
    there=no_result,
)

RESUME: SandboxVerb[None] = SandboxVerb(
    name="resume",
    job=JobVerb.RESUME,
    doing="resuming",
    done="running again",
    failed="The sandbox was not resumed",
    open=attach,
    act=lambda sandbox, _: sandbox.resume(),
    there=no_result,
)
