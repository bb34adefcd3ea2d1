"""Saves and the trash as rows, facts and text. If there are other machines, each has a group below
its header."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from quicksand.things.save import SaveFacts, TrashFacts, freed_together

from quicksand_tui.model.amounts import age_text, size_text
from quicksand_tui.model.text import clip, sanitise
from quicksand_tui.model.world import HERE, MachineState, MachineView
from quicksand_tui.views.job_rows import job_text
from quicksand_tui.views.machine_groups import BELOW, name_of, state_text
from quicksand_tui.views.sandbox_rows import PADDING
from quicksand_tui.views.tables import (
    Cell,
    Column,
    Row,
    Words,
    filtered,
    greyed,
    in_order,
    nothing_matches,
)

if TYPE_CHECKING:
    from quicksand_tui.model.jobs import Job
from quicksand_tui.views.tables import Line

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from quicksand_tui.model.shown_saves import SavesView
    from quicksand_tui.model.world import World


HERE_WORD = "local"
"""The word for this machine in filters."""
NAMES_SHOWN = 3
DIGEST_SHOWN = 12
PATH_LIMIT = 1000
NAME_CELLS = 40
"""Width of a name within a sentence."""


def trouble_of(view: SaveFacts) -> tuple[str, tuple[str, ...]]:
    """Returns the problem in a word, and in sentences; ("", ()) if none is known."""
    if view.trouble:
        return view.trouble, view.problems
    if view.verdict is not None and view.verdict.problems:
        return "damaged", view.verdict.problems
    return "", ()


# Filter and order

ORDERS = ("name", "age", "size", "frees")
"""The columns to order saves by; the first is the default."""
TRASH_ORDERS = ("removed", "name", "frees")

_FIELDS: dict[str, Callable[[SaveFacts], str]] = {
    "name": lambda view: view.name,
    "base": lambda view: view.base_text,
    "from": lambda view: view.parent,
    "note": lambda view: view.note,
    "place": lambda view: view.place,
    "host": lambda view: view.host or HERE_WORD,
}
_TESTS: dict[str, Callable[[SaveFacts], bool]] = {
    "problem": lambda view: bool(trouble_of(view)[0]),
}


def arrange(views: Sequence[SaveFacts], query: str, order: str) -> Sequence[SaveFacts]:
    """Returns the saves that match, ordered: by name (the given order, the workspace's first), or
    with the youngest, the largest, or the one that frees most first."""
    keys: dict[str, Callable[[SaveFacts], Any]] = {
        "age": lambda view: -view.created,
        "size": lambda view: -view.size,
        "frees": lambda view: -view.own,
    }
    found = filtered(views, query, _words, _FIELDS, _TESTS)
    return in_order(found, order, keys)


def _words(view: SaveFacts) -> str:
    """Returns the text that filters search."""
    parts = (view.name, view.base_text, view.parent, view.note, view.place, view.trouble, view.id)
    return "\n".join((*parts, view.host, *view.sandboxes)).lower()


def arrange_trash(views: Sequence[TrashFacts], query: str, order: str) -> Sequence[TrashFacts]:
    """Returns the entries that match, ordered: as given (removed last first), by name, or with the
    one that frees most first."""
    keys: dict[str, Callable[[TrashFacts], Any]] = {
        "name": lambda view: view.name.lower(),
        "frees": lambda view: -view.own,
    }
    return in_order(filtered(views, query, _text, _TRASH_FIELDS), order, keys)


def _text(view: TrashFacts) -> str:
    return f"{view.name}\n{view.note}\n{view.id}".lower()


_TRASH_FIELDS: dict[str, Callable[[TrashFacts], str]] = {
    "host": lambda view: view.host or HERE_WORD,
}


# Tables


def _share(columns: list[Column], width: int, *, name_max: int) -> tuple[Column, ...]:
    """Adds the name at the start and the note at the end, which share the rest of the width."""
    left = width - sum(column.width + PADDING for column in columns)
    with_note = width >= 36
    name = left - PADDING if not with_note else min(name_max, (left - 2 * PADDING) * 9 // 20)
    name = max(8, name)
    if not with_note:
        return (Column("named", "Name", name), *columns)
    note = Column("note", "Note", max(6, left - name - 2 * PADDING))
    return (Column("name", "Name", name), *columns, note)


def plan_saves_columns(width: int) -> tuple[Column, ...]:
    """Returns the columns that fit into ``width`` cells."""
    columns = [Column("frees", "Frees", 5, right=True)]
    if width >= 52:
        columns.insert(0, Column("size", "Size", 5, right=True))
    if width >= 106:
        columns.insert(1, Column("shared", "Shared", 6, right=True))
    if width >= 64:
        columns.append(Column("base", "Base", 12 if width >= 100 else 11))
    if width >= 44:
        columns.append(Column("age", "Age", 4, right=True))
    if width >= 90:
        columns.append(Column("from", "From", 10))
    if width >= 98:
        columns.append(Column("children", "Children", 8, right=True))
    return _share(columns, width, name_max=32)


def save_row(view: SaveFacts, world: World) -> Row:
    age = world.taken - view.created if view.created else None
    trouble, _ = trouble_of(view)
    cells = {
        "name": Cell(view.short_name, "error" if trouble else ""),
        "named": _named(view.short_name, trouble),
        "size": Cell(size_text(view.size), "muted"),
        "shared": Cell(size_text(view.shared) if view.shared else "", "muted"),
        "frees": Cell(size_text(view.own)),
        "base": Cell(view.base_text, "muted"),
        "age": Cell(age_text(age), "muted"),
        "from": Cell(view.parent, "muted"),
        "children": Cell(str(len(view.children) or ""), "muted"),
        "note": _note(view, world.job_about(view.key)),
    }
    return Row(view.key, greyed(cells) if view.away else cells)


def _named(name: str, trouble: str) -> Cell:
    """Returns the cell of a name that also tells the problem, for tables without a note."""
    return Cell(f"✗ {trouble}: {name}", "error") if trouble else Cell(name)


def _note(view: SaveFacts, job: Job | None) -> Cell:
    """Returns the running job, else the problem, else the note."""
    if job is not None:
        return Cell(job_text(job), "warning")
    trouble, problems = trouble_of(view)
    if trouble:
        return Cell(f"✗ {trouble}: {'; '.join(problems)}", "error")
    if view.verdict is not None and view.verdict.deep:
        return Cell("✓ whole", "success", view.note)
    return Cell(view.note, "muted")


def plan_trash_columns(width: int) -> tuple[Column, ...]:
    columns = [Column("frees", "Frees", 5, right=True)]
    if width >= 44:
        columns.append(Column("removed", "Removed", 7, right=True))
    if width >= 54:
        columns.append(Column("left", "Left", 4, right=True))
    if width >= 62:
        columns.insert(1, Column("kind", "What", 7))
    if width >= 84:
        columns.append(Column("id", "Id", 12))
    return _share(columns, width, name_max=32)


def trash_row(view: TrashFacts, world: World) -> Row:
    job = world.job_about(view.key)
    note = Cell(view.note, "muted")
    if job is not None:
        note = Cell(job_text(job), "warning")
    elif view.error:
        note = Cell(f"✗ damaged: {view.error}", "error")
    cells = {
        "name": Cell(view.short_name, "error" if view.error else ""),
        "named": _named(view.short_name, "damaged" if view.error else ""),
        "kind": Cell(view.kind, "muted"),
        "frees": Cell(size_text(view.own)),
        "removed": Cell(age_text(world.taken - view.removed), "muted"),
        "left": Cell(left_text(view, world.taken), "muted"),
        "id": Cell(view.id, "muted"),
        "note": note,
    }
    return Row(view.key, greyed(cells) if view.away else cells)


def left_text(view: TrashFacts, now: float) -> str:
    """Returns the time for which it is certain to stay in the trash."""
    if view.until is None:
        return "ever"
    return age_text(view.until - now) if view.until > now else "0"


# Lines of text


def counts_text(saves: SavesView) -> str:
    """Returns counts such as "12 saves, 3.1G · 2 with problems · 3 in the trash, 1.2G"."""
    if not saves.loaded:
        return "reading…"
    parts = ["no saves"]
    if saves.saves:
        parts = [f"{count_text(len(saves.saves), 'save')}, {size_text(saves.size)}"]
    if bad := sum(bool(trouble_of(view)[0]) for view in saves.saves):
        parts.append(f"✗ {bad} with problems")
    if saves.trash:
        parts.append(f"{len(saves.trash)} in the trash, {size_text(saves.trash_frees)}")
    return " · ".join(parts)


def empty_saves_text(saves: SavesView, query: str) -> str:
    if not saves.loaded:
        return "Reading the saves…"
    if saves.error:
        return f"The saves cannot be read.\n{saves.error}"
    if query and saves.saves:
        return nothing_matches(query)
    return (
        "No saves yet.\nS keeps a sandbox's disk as one, among the sandboxes.\n"
        "i takes one from a file."
    )


def empty_trash_text(saves: SavesView, query: str) -> str:
    if not saves.loaded:
        return "Reading the trash…"
    if query and saves.trash:
        return nothing_matches(query)
    return "The trash is empty.\nWhat is removed or replaced stays here for a week."


def names_text(names: Sequence[str], shown: int = NAMES_SHOWN) -> str:
    """Returns the first names, and the number of the others."""
    more = len(names) - shown
    some = ", ".join(clip(name, NAME_CELLS) for name in names[:shown])
    return some + (f" and {more} more" if more > 0 else "")


def came_from_text(views: Sequence[SaveFacts], but: Iterable[SaveFacts] = ()) -> str:
    """Returns the descendants of these saves, except ``but``: "the saves a, b and the sandbox
    c"."""
    left_out = {view.name for view in but}
    # A save that was imported twice has the same descendants twice.
    children = dict.fromkeys(c for view in views for c in view.children if c not in left_out)
    sandboxes = dict.fromkeys(sandbox for view in views for sandbox in view.sandboxes)
    parts = []
    for names, one in (([*children], "save"), ([*sandboxes], "sandbox")):
        if names:
            many = "es" if one.endswith("x") else "s"
            parts.append(f"the {one}{many if len(names) > 1 else ''} {names_text(names)}")
    return " and ".join(parts)


def count_text(number: int, thing: str) -> str:
    return f"{number} {thing}{'s' if number != 1 else ''}"


def describe_save(view: SaveFacts, world: World) -> list[Line]:
    """Returns all facts of a save, those that matter for deleting it first."""
    lines = [*_machine_lines(view, world), *_state_lines(view, world)]
    stays = f" · {size_text(view.shared)} shared with others stays" if view.shared else ""
    lines.append(("Deleting", [(f"frees {size_text(view.own)}", ""), (stays, "muted")]))
    if view.above:
        lines.append(("Needed", [(f"by {names_text(view.above)}; it is their base", "warning")]))
    if view.base:
        digest = f" · {view.base_digest[:DIGEST_SHOWN]}" if view.base_digest else ""
        lines.append(("Base image", [(view.base_text, ""), (digest, "muted")]))
    if view.note:
        lines.append(("Note", [(view.note, "")]))
    if descent := _descent(view):
        lines.append(("Lineage", descent))
    if view.memory is not None:
        lines.append(("Settings", [(" · ".join(_settings(view, view.memory)), "")]))
    if not view.is_own:
        origin = "it was imported" if view.place == "user" else "it came with this directory"
        left_out = f": left out, {left_out_text(view)}" if view.left_out else ""
        lines.append(("Origin", [(f"{origin}{left_out}", "warning")]))
    if view.unsynced:
        what = "what its guest had not yet written to its disk: it was paused, or did not answer"
        lines.append(("Missing", [(what, "warning")]))
    if view.volatile:
        what = f"{names_text(view.volatile)}: only in the guest's memory then"
        lines.append(("Missing", [(what, "muted")]))
    id_ = f" · {view.id}" if view.id else ""
    lines.append(("Path", [(f"{path_text(view)}{id_}", "muted")]))
    return lines


def _settings(view: SaveFacts, memory: int) -> Iterator[str]:
    """Yields words about the machine of a sandbox that starts from a save."""
    yield size_text(memory)
    yield count_text(view.cpus, "CPU")
    yield f"network {view.network.replace('_', ' ')}"
    for host, _, guest in (word.partition(":") for word in view.ports.split(", ") if word):
        yield f"{'any' if host == '0' else host}→{guest}"


def path_text(view: SaveFacts) -> str:
    return sanitise(view.path, limit=PATH_LIMIT)


def left_out_text(view: SaveFacts) -> str:
    return "; ".join(view.left_out)


def _machine_lines(view: SaveFacts | TrashFacts, world: World) -> list[Line]:
    """Returns its machine, if that is not this one."""
    if not view.host:
        return []
    machine = world.machine(view.host)
    since = "" if machine is None else age_text(max(0.0, world.taken - machine.since), wide=True)
    away = f" · away for {since}: shown as it was" if view.away else ""
    return [("Machine", [(view.host, ""), (away, "warning")])]


def _state_lines(view: SaveFacts, world: World) -> list[Line]:
    job = world.job_about(view.key)
    cancel = world.keymap.hint("cancel", "saves")
    trouble, problems = trouble_of(view)
    verdict = view.verdict
    parts: list[Words]
    if trouble:
        parts = [(f"✗ {trouble}", "error")]
    elif verdict is not None and verdict.deep:
        parts = [("✓ whole", "success")]
    else:
        parts = [("● kept", "success")]
    parts.append((_made_text(view, world.taken), "muted"))
    if verdict is not None:
        how = "every byte read" if verdict.deep else "quick check"
        parts.append((f" · {how} {age_text(world.taken - verdict.when)} ago", "muted"))
    if job is not None:
        parts.append((f" · {job_text(job)} · {cancel} cancels", "warning"))
    return [("State", parts), *(("Why", [(problem, "error")]) for problem in problems)]


def _made_text(view: SaveFacts, now: float) -> str:
    parts = [f"{age_text(now - view.created)} old"] if view.created else []
    parts += [view.arch] if view.arch else []
    parts += [count_text(view.layers, "layer")] if view.layers is not None else []
    parts += ["file system at rest"] if view.frozen else []
    return "".join(f" · {part}" for part in parts)


def _descent(view: SaveFacts) -> list[Words]:
    """Returns its origin and its descendants."""
    before = f"from the save {clip(view.parent, NAME_CELLS)}" if view.parent else ""
    heirs = came_from_text([view])
    after = f"children: {heirs}" if heirs else ""
    free = " · works without it" if heirs else ""
    return (
        [(" · ".join(filter(None, (before, after))), ""), (free, "muted")]
        if (before or after)
        else []
    )


def describe_trashed(view: TrashFacts, world: World) -> list[Line]:
    now = world.taken
    lines = _machine_lines(view, world)
    if view.error:
        lines += [("State", [("✗ damaged", "error")]), ("Why", [(view.error, "error")])]
    left = f"{left_text(view, now)} more for sure"
    if view.until is None:
        left = "until you remove it yourself: it is no save, but lay where saves are"
    lines += [
        ("Removed", [(f"{age_text(now - view.removed)} ago", ""), (f" · stays {left}", "muted")]),
        ("Frees", [(f"{size_text(view.own)} when it is deleted for good", "")]),
    ]
    if view.note:
        lines.append(("Note", [(view.note, "")]))
    lines.append(("Id", [(view.id, "muted")]))
    return lines


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
    things = [one for one in marked if not isinstance(one, MachineView)]
    return f"{len(things)} marked: {size_text(freed_together(things))}" if things else ""


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
