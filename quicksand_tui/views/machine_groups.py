"""The list of sandboxes with those of other machines: a group for each machine, below its header.
Without other machines there are no headers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from quicksand_tui.model.amounts import age_text, size_text
from quicksand_tui.model.shown_sandboxes import SandboxView
from quicksand_tui.model.world import HERE, MachineState, MachineView
from quicksand_tui.views.counts import counted
from quicksand_tui.views.job_rows import bar_of
from quicksand_tui.views.sandbox_rows import arrange_sandboxes, no_answer_text, sandbox_row
from quicksand_tui.views.tables import Line, Row, Words

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from quicksand_tui.model.world import RoomView, World

Listed = SandboxView | MachineView
"""A row of the list: a sandbox, or the header of a machine."""

STATES = {
    MachineState.CONNECTING: "connecting…",
    MachineState.UNANSWERED: "not logged in",
    MachineState.UNFIT: "cannot be used",
}
"""The words for a machine in a state, whatever else is known of it."""

THIS = "this machine"
BELOW = "▾"


def listed(world: World) -> Sequence[Listed]:
    """Returns the sandboxes and headers to list, in any order."""
    if not world.machines:
        return world.sandboxes
    return (HERE, *world.machines, *world.sandboxes)


def arrange_listed(things: Sequence[Listed], query: str, order: str) -> list[Listed]:
    """Returns the sandboxes that match a query, in an order, each machine's below its header. With
    a query, machines without a match are left out."""
    views = [thing for thing in things if isinstance(thing, SandboxView)]
    heads = [thing for thing in things if isinstance(thing, MachineView)]
    arranged = arrange_sandboxes(views, query, order)
    if not heads:
        return [*arranged]
    rows: list[Listed] = []
    for head in heads:
        own = [view for view in arranged if view.host == head.name]
        if own or not query:
            rows += [head, *own]
    return rows


def is_head(thing: object) -> bool:
    return isinstance(thing, MachineView)


def listed_row(thing: Listed, world: World) -> Row:
    if isinstance(thing, MachineView):
        return Row(thing.key, {}, line=tuple(_head(thing, world)))
    return sandbox_row(thing, world)


def name_of(machine: MachineView) -> str:
    return machine.name or THIS


def _head(machine: MachineView, world: World) -> Iterable[Words]:
    is_away = machine.state not in (MachineState.THERE, MachineState.CONNECTING)
    yield f"{BELOW} {name_of(machine)}", "muted" if is_away else "accent"
    if said := state_text(machine, world.taken):
        yield f"  {said}", "error" if machine.state is MachineState.UNFIT else "warning"
    if counts := _counts(machine, world):
        yield f"{' · ' if said else '  '}{counts}", "muted"
    if (room := machine.host.room) and not machine.is_drained:
        yield f"  {_bar(room)} {size_text(room.free)} free", "muted"


def _bar(room: RoomView) -> str:
    """Returns a bar that is full when nothing is free."""
    share = 1 - room.free / room.memory if room.memory > 0 else 1.0
    return bar_of(max(0.0, min(1.0, share)))


def state_text(machine: MachineView, now: float) -> str:
    """Returns words for a machine's state, its silence or its drain; "" if it is there and
    answers."""
    match machine.state:
        case MachineState.THERE if machine.silent_since is not None:
            return no_answer_text(now - machine.silent_since)
        case MachineState.THERE if machine.is_drained:
            return "drained"
        case MachineState.AWAY:
            return f"away for {age_text(max(0.0, now - machine.since), wide=True)}"
    return STATES.get(machine.state, "")


def _counts(machine: MachineView, world: World) -> str:
    views = [view for view in world.sandboxes if view.host == machine.name]
    if not views and machine.state is not MachineState.THERE:
        return ""  # the machine has told nothing yet
    return counted(views) or "no sandboxes"


def describe_machine(machine: MachineView, world: World) -> tuple[str, list[Line]]:
    """Returns a title and the known facts of a machine."""
    lines: list[Line] = []
    if machine.address:
        lines.append(("Address", [(machine.address, "")]))
    said = state_text(machine, world.taken)
    role = {
        MachineState.THERE: "success",
        MachineState.UNFIT: "error",
    }.get(machine.state, "warning")
    lines.append(("State", [(said or "there", role)]))
    if machine.why:
        lines.append(("Why", [(machine.why, role)]))
    if machine.state is MachineState.UNANSWERED:
        lines.append((world.keymap.hint("refresh"), [("connects, and asks again", "muted")]))
    elif machine.hint:
        lines.append(("", [(machine.hint, "muted")]))
    if counts := _counts(machine, world):
        lines.append(("Sandboxes", [(counts, "")]))
    if room := machine.host.room:
        amounts = f"{size_text(room.free)} of {size_text(room.memory)} free for sandboxes"
        lines.append(("Fleet", [(f"{_bar(room)} {amounts}", "")]))
        if room.claims:
            places = "place is" if room.claims == 1 else "places are"
            lines.append(("", [(f"{room.claims} {places} kept for sandboxes that start", "muted")]))
    if machine.is_drained:
        lines.append(("", [("drained: the fleet places nothing new here", "warning")]))
    free = machine.host if machine.name else world.host
    if free.memory_free is not None:
        lines.append(("Memory", [(f"{size_text(free.memory_free)} free", "")]))
        lines.append(("Disk", [(f"{size_text(free.disk_free)} free", "")]))
    images = machine.images if machine.name else world.images
    if images:
        names = ", ".join(image.name for image in images[:10])
        lines.append(("Images", [(names, "muted")]))
    new = world.keymap.hint("new")
    if machine.state is MachineState.THERE:
        lines.append((new, [("starts a sandbox here", "muted")]))
    return name_of(machine), lines
