"""The verbs that end a sandbox's machine, or let it wait: `stop`, `kill`, `pause`, `resume`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from quicksand.things.status import CAN_END, HAS_MACHINE

from quicksand_tui.model.jobs import JobVerb
from quicksand_tui.verbs import lazy_engine
from quicksand_tui.verbs.call import Call, Report, attach
from quicksand_tui.verbs.parameters import GRACE_S, MAYBE_SANDBOXES, SANDBOXES
from quicksand_tui.verbs.verb import Kind, flag, option, verb
from quicksand_tui.verbs.written import written_in

if TYPE_CHECKING:
    from quicksand.hosted.remote_host import RemoteHost
    from quicksand.sandbox import Sandbox


def _open_to_end_it(name: str, report: Report, host: RemoteHost | None) -> Sandbox:
    return lazy_engine.Sandbox.open(name, to_end_it=True, host=host)


@verb("stop",
    MAYBE_SANDBOXES,
    option("--grace", Kind.NUMBER, "S",
           "Kill a guest that is still running after so many seconds.", default=GRACE_S,
           shows_default=True, least=0),
    flag("--all", "Stop all running sandboxes.", name="everything"),
    summary="Stop sandboxes: their guests sync and power down.", states=CAN_END)  # fmt: skip
def stop(*, grace: float = GRACE_S) -> Call[None]:
    """Stop sandboxes: their guests sync and power down.

    Sandboxes without a name are removed as well. It is no error if one is stopped already.
    """
    return Call(
        job=JobVerb.STOP,
        doing="stopping",
        done="stopped",
        failed="The sandbox did not stop",
        open=_open_to_end_it,
        warnings=written_in,
        act=lambda sandbox, _: sandbox.stop(grace=grace),
    )


@verb("kill",
    SANDBOXES, summary="Stop sandboxes at once, like pulling the plug.",
    states=CAN_END)  # fmt: skip
def kill() -> Call[None]:
    """Stop sandboxes at once, like pulling the plug.

    Data that the guest has not written to its disk are lost.
    """
    return Call(
        job=JobVerb.KILL,
        doing="killing",
        done="killed",
        failed="The sandbox was not killed",
        open=_open_to_end_it,
        warnings=written_in,
        act=lambda sandbox, _: sandbox.kill(),
    )


@verb("pause", SANDBOXES, summary="Freeze running sandboxes.", states=HAS_MACHINE)
def pause() -> Call[None]:
    """Freeze running sandboxes.

    They keep their memory and take no CPU time until `resume`.
    """
    return Call(
        job=JobVerb.PAUSE,
        doing="pausing",
        done="paused",
        failed="The sandbox was not paused",
        open=attach,
        act=lambda sandbox, _: sandbox.pause(),
    )


@verb("resume", SANDBOXES, summary="Resume paused sandboxes.", states=HAS_MACHINE)
def resume() -> Call[None]:
    """Resume paused sandboxes."""
    return Call(
        job=JobVerb.RESUME,
        doing="resuming",
        done="running again",
        failed="The sandbox was not resumed",
        open=attach,
        act=lambda sandbox, _: sandbox.resume(),
    )
