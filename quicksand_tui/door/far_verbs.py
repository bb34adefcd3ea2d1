"""Carries out verbs on another machine, each once, whatever the connection does."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from quicksand.base.errors import RemoteUnreachableError

from quicksand_tui.door.far_sandbox import patient
from quicksand_tui.model.jobs import Failure, OperationError
from quicksand_tui.model.shown_sandboxes import at_host
from quicksand_tui.model.specs import NewSpec
from quicksand_tui.model.text import sanitise
from quicksand_tui.verbs.call import Progress

if TYPE_CHECKING:
    from quicksand_tui.door.far_host import FarHost
    from quicksand_tui.verbs.call import Call, Report

T = TypeVar("T")


async def carry_out_there(host: FarHost, verb: Call[T], sandbox_id: str, report: Report) -> T:
    """Carries a verb out on a machine, as `Call.carry_out` does here; ``sandbox_id`` is an id
    there. Raises OperationError, and RemoteError if the machine is away, or if it is unknown
    whether the verb was done."""
    if verb.only_here or verb.run is not None:
        message = f"{verb.name} is not done on other machines from here"
        raise OperationError(Failure(title=sanitise(verb.failed), message=sanitise(message)))
    if not host.connection:
        # A machine that is away shows its last known state: nothing is begun with that. A machine
        # that goes away later is waited for.
        raise RemoteUnreachableError(host.away_words)

    def report_there(progress: Progress) -> None:
        report(replace(progress, sandbox_id=_id_of(progress, host, verb.spec)))

    way = patient(host, lambda words: report(Progress("", words)))
    return await verb.carry_out(sandbox_id, report_there, host=way)


def _id_of(progress: Progress, host: FarHost, spec: object) -> str:
    """Returns the id of the sandbox that is worked on; a new one has it as soon as it exists."""
    if isinstance(spec, NewSpec):
        name = at_host(spec.name, host.name)
        return next((view.id for view in host.sandboxes if view.name == name), "")
    return at_host(progress.sandbox_id, host.name) if progress.sandbox_id else ""
