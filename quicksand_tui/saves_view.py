"""From saves to what is on the screen: pure functions, no widgets."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from quicksand_tui.snapshot import Job, Snapshot, Verb
from quicksand_tui.text import age_text, clip, size_text
from quicksand_tui.view import PADDING, Cell, Column, Row

if TYPE_CHECKING:
    from quicksand_tui.all_saves import SavesView
    from quicksand_tui.saved import SaveView, TrashedView

    Test = Callable[[SaveView], bool]

DOING = {
    Verb.EXPORT: "exporting",
    Verb.IMPORT: "importing",
    Verb.VERIFY: "verifying",
    Verb.DISCARD: "removing",
    Verb.RESTORE: "bringing back",
}
NAMES_SHOWN = 3
NAME_CELLS = 40
"""Of a name within a sentence."""


def trouble_of(view: SaveView) -> tuple[str, tuple[str, ...]]:
    """What is wrong in a word, and in sentences; ("", ()) if nothing is known to be."""
    if view.trouble:
        return view.trouble, view.problems
    if view.verdict is not None and view.verdict.problems:
        return "damaged", view.verdict.problems
    return "", ()


def job_text(job: Job) -> str:
    doing = "cancelling" if job.cancelling else DOING.get(job.verb, job.verb.value)
    return f"◐ {doing}" if job.cancelling or not job.progress else f"◐ {doing}: {job.progress}"


# Filter and order

ORDERS = ("name", "age", "size", "frees")
"""Columns by which saves can be ordered; the first is how it begins."""
TRASH_ORDERS = ("removed", "name", "frees")
PROBLEM = "problem"
"""The word that finds what has one."""

_FIELDS: dict[str, Callable[[SaveView], str]] = {
    "name": lambda view: view.name,
    "base": lambda view: view.base,
    "from": lambda view: view.parent,
    "note": lambda view: view.note,
    "place": lambda view: view.place,
}


def arrange(views: Sequence[SaveView], query: str, order: str) -> Sequence[SaveView]:
    """The saves that match, in order: by name (those of the workspace first, as they are found),
    or the youngest, largest, or what frees most first."""
    tests = [_test(word) for word in query.lower().split() if word.strip("!")]
    found = [view for view in views if all(test(view) for test in tests)] if tests else views
    keys: dict[str, Callable[[SaveView], Any]] = {
        "age": lambda view: -(view.created or 0.0),
        "size": lambda view: -view.size,
        "frees": lambda view: -view.own,
    }
    return sorted(found, key=keys[order]) if order in keys else found


def _test(word: str) -> Test:
    """``word`` must be found, ``!word`` must not; ``base:debian`` looks there only; ``problem``
    finds what has one."""
    needle = word.lstrip("!")
    found = _finder(needle)
    return found if needle == word else lambda view: not found(view)


def _finder(needle: str) -> Test:
    if needle == PROBLEM:
        return lambda view: bool(trouble_of(view)[0])
    field, colon, value = needle.partition(":")
    if colon and field in _FIELDS:
        look = _FIELDS[field]
        return lambda view: value in look(view).lower()
    return lambda view: needle in view.words


def arrange_trash(views: Sequence[TrashedView], query: str, order: str) -> Sequence[TrashedView]:
    words = query.lower().split()
    found = [view for view in views if all(_in_trash(word, view) for word in words)]
    keys: dict[str, Callable[[TrashedView], Any]] = {
        "name": lambda view: view.name.lower(),
        "frees": lambda view: -view.own,
    }
    return sorted(found, key=keys[order]) if order in keys else found


def _in_trash(word: str, view: TrashedView) -> bool:
    needle = word.lstrip("!")
    text = f"{view.name}\n{view.note}\n{view.id}".lower()
    return (needle in text) == (needle == word) or not needle


# Tables


def _share(columns: list[Column], width: int, *, name_max: int) -> tuple[Column, ...]:
    """Name and note share what the other columns leave; the name comes first, the note last."""
    left = width - sum(column.width + PADDING for column in columns)
    with_note = width >= 36
    name = left - PADDING if not with_note else min(name_max, (left - 2 * PADDING) * 9 // 20)
    name = max(8, name)
    if not with_note:
        return (Column("named", "Name", name), *columns)
    note = Column("note", "Note", max(6, left - name - 2 * PADDING))
    return (Column("name", "Name", name), *columns, note)


def plan_saves_columns(width: int) -> tuple[Column, ...]:
    """The columns that fit into ``width`` cells."""
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


def save_row(view: SaveView, snapshot: Snapshot) -> Row:
    age = None if view.created is None else snapshot.taken - view.created
    trouble, _ = trouble_of(view)
    cells = {
        "name": Cell(view.name, "error" if trouble else ""),
        "named": _named(view.name, trouble),
        "size": Cell(size_text(view.size), "muted"),
        "shared": Cell(size_text(view.shared) if view.shared else "", "muted"),
        "frees": Cell(size_text(view.own)),
        "base": Cell(view.base, "muted"),
        "age": Cell(age_text(age), "muted"),
        "from": Cell(view.parent, "muted"),
        "children": Cell(str(len(view.children) or ""), "muted"),
        "note": _note(view, snapshot.job_about(view.key)),
    }
    return Row(view.key, cells)


def _named(name: str, trouble: str) -> Cell:
    """Where no note has room."""
    return Cell(f"✗ {trouble}: {name}", "error") if trouble else Cell(name)


def _note(view: SaveView, job: Job | None) -> Cell:
    """What is under way, else what is wrong, else the note."""
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
    if width >= 84:
        columns.append(Column("id", "Id", 12))
    return _share(columns, width, name_max=32)


def trash_row(view: TrashedView, snapshot: Snapshot) -> Row:
    job = snapshot.job_about(view.key)
    note = Cell(view.note, "muted")
    if job is not None:
        note = Cell(job_text(job), "warning")
    elif view.error:
        note = Cell(f"✗ damaged: {view.error}", "error")
    cells = {
        "name": Cell(view.name, "error" if view.error else ""),
        "named": _named(view.name, "damaged" if view.error else ""),
        "frees": Cell(size_text(view.own)),
        "removed": Cell(age_text(snapshot.taken - view.removed), "muted"),
        "left": Cell(left_text(view, snapshot.taken), "muted"),
        "id": Cell(view.id, "muted"),
        "note": note,
    }
    return Row(view.key, cells)


def left_text(view: TrashedView, now: float) -> str:
    """How long it can still be brought back for sure."""
    return age_text(view.until - now) if view.until > now else "0"


# Lines of text


def counts_text(saves: SavesView) -> str:
    """For example "12 saves, 3.1G · 2 with problems · 3 in the trash, 1.2G"."""
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


def jobs_text(snapshot: Snapshot) -> str:
    """What is under way: what it is, if that is all and no sandbox's row tells of it."""
    jobs, own = snapshot.jobs, snapshot.save_jobs
    if len(jobs) == 1 and own:
        return f"{job_text(own[0])} ({clip(own[0].name, 24)})"
    return f"◐ {len(jobs)} under way (J)" if jobs else ""


def marked_text(marked: Sequence[SaveView | TrashedView]) -> str:
    if not marked:
        return ""
    from quicksand_tui.saved import freed_together

    return f"{len(marked)} marked: {size_text(freed_together(marked))}"


def empty_saves_text(saves: SavesView, query: str) -> str:
    if not saves.loaded:
        return "Reading the saves…"
    if saves.error:
        return f"The saves cannot be read.\n{saves.error}"
    if query and saves.saves:
        return f"Nothing matches “{query}”.\nesc clears the filter."
    return (
        "No saves yet.\nV keeps a sandbox's disk as one, among the sandboxes.\n"
        "i takes one from a file."
    )


def empty_trash_text(saves: SavesView, query: str) -> str:
    if not saves.loaded:
        return "Reading the trash…"
    if query and saves.trash:
        return f"Nothing matches “{query}”.\nesc clears the filter."
    return "The trash is empty.\nWhat is removed or replaced stays here for a week."


def names_text(names: Sequence[str], shown: int = NAMES_SHOWN) -> str:
    """Some of many names, and how many more there are."""
    more = len(names) - shown
    some = ", ".join(clip(name, NAME_CELLS) for name in names[:shown])
    return some + (f" and {more} more" if more > 0 else "")


def came_from_text(views: Sequence[SaveView], but: Iterable[SaveView] = ()) -> str:
    """What began with these, ``but`` for some, as in "the saves a, b and the sandbox c"."""
    left_out = {view.name for view in but}
    # Of saves that are one save, imported again, the same came.
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
