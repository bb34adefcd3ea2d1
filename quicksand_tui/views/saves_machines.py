"""The lists of saves and of the trash with those of other machines: a group for each machine, below
its header. Without other machines there are no headers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, TypeVar

from quicksand.things.save import SaveFacts, TrashFacts

from quicksand_tui.model.amounts import size_text
from quicksand_tui.model.world import HERE, MachineState, MachineView
from quicksand_tui.views.machine_groups import BELOW, name_of, state_text
from quicksand_tui.views.save_rows import (
    arrange,
    arrange_trash,
    count_text,
    save_row,
    trash_row,
    trouble_of,
)
from quicksand_tui.views.save_rows import marked_text as text_of_marked
from quicksand_tui.views.tables import Line, Row, Words

if TYPE_CHECKING:
    from quicksand_tui.model.shown_saves import SavesView
    from quicksand_tui.model.world import World

Saved = SaveFacts | MachineView
"""A row of the list of saves: a save, or the header of a machine."""
Removed = TrashFacts | MachineView
"""A row of the list of the trash: an entry, or the header of a machine."""

Thing = TypeVar("Thing", SaveFacts, TrashFacts)

Counts = Callable[["SavesView"], str]
"""Returns words about the number and size of a machine's saves or trash."""


def listed_saves(world: World) -> Sequence[Saved]:
    """Returns the saves and headers to list, in any order."""
    saves = world.saves.saves
    return (HERE, *world.machines, *saves) if world.machines else saves


def listed_trash(world: World) -> Sequence[Removed]:
    """Returns the entries of the trash and headers to list, in any order."""
    trash = world.saves.trash
    return (HERE, *world.machines, *trash) if world.machines else trash


def arrange_saves(things: Sequence[Saved], query: str, order: str) -> Sequence[Saved]:
    """Returns the saves that match a query, in an order, each machine's below its header. With a
    query, machines without a match are left out."""
    views = [thing for thing in things if isinstance(thing, SaveFacts)]
    return _grouped(_heads(things), arrange(views, query, order), query)


def arrange_removed(things: Sequence[Removed], query: str, order: str) -> Sequence[Removed]:
    """Does the same as `arrange_saves` for the trash."""
    views = [thing for thing in things if isinstance(thing, TrashFacts)]
    return _grouped(_heads(things), arrange_trash(views, query, order), query)


def _heads(things: Iterable[object]) -> list[MachineView]:
    return [thing for thing in things if isinstance(thing, MachineView)]


def _grouped(
    heads: Sequence[MachineView], arranged: Sequence[Thing], query: str
) -> Sequence[Thing | MachineView]:
    if not heads:
        return arranged
    rows: list[Thing | MachineView] = []
    for head in heads:
        own: Sequence[Thing] = [view for view in arranged if view.host == head.name]
        if own or not query:
            rows.append(head)
            rows.extend(own)
    return rows


def marked_text(marked: Sequence[Saved] | Sequence[Removed]) -> str:
    """Returns the number of marked things, and the bytes that removing them frees. Headers have no
    mark."""
    return text_of_marked([one for one in marked if not isinstance(one, MachineView)])


def saved_row(thing: Saved, world: World) -> Row:
    if isinstance(thing, MachineView):
        return Row(thing.key, {}, line=tuple(_head(thing, world, saves_counts)))
    return save_row(thing, world)


def removed_row(thing: Removed, world: World) -> Row:
    if isinstance(thing, MachineView):
        return Row(thing.key, {}, line=tuple(_head(thing, world, trash_counts)))
    return trash_row(thing, world)


def _head(machine: MachineView, world: World, counts: Counts) -> Iterable[Words]:
    is_away = machine.state not in (MachineState.THERE, MachineState.CONNECTING)
    yield f"{BELOW} {name_of(machine)}", "muted" if is_away else "accent"
    said = _state(machine, world)
    if said:
        yield f"  {said}", "error" if machine.state is MachineState.UNFIT else "warning"
    part = world.saves.of(machine.name)
    if part.loaded and not (part.error and not counts(part)):
        yield f"{' · ' if said else '  '}{counts(part) or 'none'}", "muted"
    elif not said and not part.error:
        yield "  reading…", "muted"
    if part.error and machine.name:
        yield f"  ✗ {part.error}", "error"


def _state(machine: MachineView, world: World) -> str:
    there = machine.state is MachineState.THERE
    return "" if there else state_text(machine, world.taken)


def saves_counts(part: SavesView) -> str:
    """Returns the number and the size of a machine's saves; "" for none."""
    if not part.saves:
        return ""
    text = f"{count_text(len(part.saves), 'save')}, {size_text(part.size)}"
    bad = sum(bool(trouble_of(view)[0]) for view in part.saves)
    return f"{text} · ✗ {bad} with problems" if bad else text


def trash_counts(part: SavesView) -> str:
    """Returns the number and the size of the things in a machine's trash; "" for none."""
    if not part.trash:
        return ""
    return f"{count_text(len(part.trash), 'thing')}, {size_text(part.trash_frees)}"


def describe_head(machine: MachineView, world: World) -> tuple[str, list[Line]]:
    """Returns a title and the known facts of a machine and of its saves or trash."""
    part = world.saves.of(machine.name)
    lines: list[Line] = []
    if machine.name:
        is_there = machine.state is MachineState.THERE
        role = "success" if is_there else "warning"
        lines.append(("State", [(_state(machine, world) or "there", role)]))
    if why := machine.why or part.error:
        lines.append(("Why", [(why, "error")]))
    if machine.hint:
        lines.append(("", [(machine.hint, "muted")]))
    if part.loaded:
        lines.append(("Saves", [(saves_counts(part) or "none", "")]))
        lines.append(("Trash", [(trash_counts(part) or "empty", "")]))
    if machine.name and machine.state is not MachineState.THERE and part.loaded:
        lines.append(("", [("shown as it was; nothing can be done with it now", "muted")]))
    return name_of(machine), lines
