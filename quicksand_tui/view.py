"""From a snapshot to what is on the screen: pure functions, no widgets."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from quicksand_tui.snapshot import JOB_STATES, Job, Snapshot, State, Verb
from quicksand_tui.spark import sparkline
from quicksand_tui.text import age_text, percent_text, size_text

if TYPE_CHECKING:
    from quicksand_tui.guest_network import TrafficRates
    from quicksand_tui.listed import ImageView, SandboxView

GLYPHS = {
    State.STARTING: "◐",
    State.RUNNING: "●",
    State.PAUSED: "‖",
    State.STOPPED: "○",
    State.CRASHED: "✗",
    State.BROKEN: "✗",
    State.STOPPING: "◐",
    State.DELETING: "◐",
}
ROLES = {
    State.STARTING: "warning",
    State.RUNNING: "success",
    State.PAUSED: "warning",
    State.STOPPED: "muted",
    State.CRASHED: "error",
    State.BROKEN: "error",
    State.STOPPING: "warning",
    State.DELETING: "warning",
}
"""A colour of the theme for each state; glyph and word tell it too."""


MUTED = "$foreground-muted"
"""A style for what is secondary. ($text-muted is for style sheets: in content it is white.)"""


def muted_style(variables: Mapping[str, str]) -> str:
    """The same for Rich, from a theme's variables: it knows no transparent colours."""
    colour = variables.get("foreground-muted", "")
    return colour if len(colour) == len("#rrggbb") and colour.startswith("#") else "dim"


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell of a table. ``role`` names a colour of the theme, "muted" or ""."""

    text: str
    role: str = ""
    note: str = ""
    """Follows the text, muted."""
    gives_way: bool = False
    """The text makes room for all of the note, and is cut in its middle."""


@dataclass(frozen=True, slots=True)
class Row:
    """A line of a table: its key, and cells by column."""

    key: str
    cells: dict[str, Cell]


@dataclass(frozen=True, slots=True)
class Column:
    key: str
    title: str
    width: int
    right: bool = False


def state_text(state: State) -> str:
    return f"{GLYPHS[state]} {state.value}"


# The world with what this app is doing to it


def with_jobs(snapshot: Snapshot, jobs: Iterable[Job]) -> Snapshot:
    """The snapshot as the user should see it while ``jobs`` are under way."""
    running = {job.sandbox_id: job for job in jobs}
    if not running:
        return snapshot
    from quicksand_tui.listed import SandboxView

    views = []
    for view in snapshot.sandboxes:
        job = running.get(view.id)
        views.append(view if job is None else _under_way(view, job))
    known = {view.id for view in views} | {view.name for view in views}
    for job in running.values():
        # Until its record is on disk, a new sandbox is known from its job only.
        if job.verb is Verb.START and job.sandbox_id not in known and job.name not in known:
            views.append(
                SandboxView(
                    id=job.sandbox_id,
                    name=job.name,
                    state=State.STARTING,
                    image=job.image,
                    created=job.started,
                )
            )
    return replace(snapshot, sandboxes=tuple(views), jobs=tuple(running.values()))


def _under_way(view: SandboxView, job: Job) -> SandboxView:
    return replace(view, state=JOB_STATES.get(job.verb, view.state), error="")


# Filter


def matches(view: SandboxView, query: str) -> bool:
    """Whether a sandbox is shown: every word must match; ``!word`` must not; ``state:``,
    ``image:`` and ``name:`` look there only."""
    fields = {
        "state": view.state.value,
        "image": view.image.lower(),
        "name": view.name.lower(),
    }
    for word in query.lower().split():
        wanted = not word.startswith("!")
        needle = word.lstrip("!")
        if not needle:
            continue
        field, colon, value = needle.partition(":")
        if colon and field in fields:
            found = value in fields[field]
        else:
            found = any(needle in text for text in (*fields.values(), view.id))
        if found != wanted:
            return False
    return True


# Order

ORDERS = ("state", "name", "age", "cpu", "memory", "disk")
"""Columns by which sandboxes can be ordered; the first is how it begins."""


def ordered(views: Iterable[SandboxView], order: str) -> list[SandboxView]:
    """Those with a machine first, then what went wrong, then the others, each in the order in which
    they were made; or by name, or the youngest, busiest or largest first."""
    made = sorted(views, key=lambda view: (view.created or 0.0, view.id))
    keys: dict[str, Callable[[SandboxView], Any]] = {
        "state": lambda view: (not view.is_live, view.state is State.STOPPED),
        "name": lambda view: view.name.lower(),
        "age": lambda view: -(view.created or 0.0),
        "cpu": lambda view: -(view.cpu_percent or 0.0),
        "memory": lambda view: -(view.memory_used or 0),
        "disk": lambda view: -(view.disk or 0),
    }
    return sorted(made, key=keys[order])


# Tables

SANDBOX_COLUMNS = (
    Column("state", "State", 10),
    Column("name", "Name", 0),
    Column("image", "Image", 10),
    Column("age", "Age", 4, right=True),
    Column("cpu", "CPU", 4, right=True),
    Column("memory", "Memory", 10, right=True),
    Column("disk", "Disk", 5, right=True),
)
_DROPPED_AT = (("disk", 74), ("image", 66), ("age", 56), ("memory", 50), ("cpu", 34))
"""The table's width in cells below which a column goes."""
SPARK = 12
"""Cells of a sandbox's CPU in the minutes before."""
SMALL_SPARK = 8
"""Cells of what else it took of the host, where there is much room."""
NETWORK = 11
"""Cells of the two rates of a network."""
NETWORK_COLUMN = "network"
"""The key of what shows the network: guests are asked only where it is."""
_NAME_MIN, _NAME_MAX = 14, 44
PADDING = 2
"""Cells that a table puts around each cell."""


def plan_sandbox_columns(width: int) -> tuple[Column, ...]:
    """The columns that fit into ``width`` cells; the name takes what is left, up to a limit."""
    gone = {key for key, limit in _DROPPED_AT if width < limit}
    kept = [column for column in SANDBOX_COLUMNS if column.key not in gone]
    if width >= 90:
        at = next((n for n, column in enumerate(kept) if column.key == "cpu"), 0)
        kept.insert(at + 1, Column("spark", "", SPARK))
    if width >= 104:
        kept.append(Column(NETWORK_COLUMN, "Network", NETWORK))
    if width >= 118:
        kept = [replace(c, width=18) if c.key == "image" else c for c in kept]
        kept.append(Column("accel", "Runs on", 7))
    if width >= 132:
        kept.append(Column("ports", "Ports", 12))
    if width >= 160:
        kept = [part for column in kept for part in (column, *_small_sparks(column.key))]
    used = sum(c.width + PADDING for c in kept)
    name = max(_NAME_MIN, min(_NAME_MAX, width - used))
    return tuple(replace(c, width=name) if c.key == "name" else c for c in kept)


def _small_sparks(key: str) -> tuple[Column, ...]:
    """The column behind that of this key that shows how it was before."""
    if key in ("memory", "disk", NETWORK_COLUMN):
        return (Column(f"{key}-spark", "", SMALL_SPARK),)
    return ()


def arrange_sandboxes(views: Sequence[SandboxView], query: str, order: str) -> list[SandboxView]:
    """Those that match, in that order."""
    return ordered((view for view in views if matches(view, query)), order)


def sandbox_row(view: SandboxView, snapshot: Snapshot) -> Row:
    job = snapshot.job(view.id)
    live = view.is_live
    limit = size_text(view.memory_limit) if view.memory_limit is not None else "–"
    memory = f"{size_text(view.memory_used)}/{limit}" if view.memory_used is not None else limit
    age = None if view.created is None else snapshot.taken - view.created
    cells = {
        "state": Cell(state_text(view.state), ROLES[view.state]),
        "name": Cell(view.name, "" if live else "muted", job.progress if job else ""),
        "image": Cell(view.image or "–", "muted"),
        "age": Cell(age_text(age), "muted"),
        "cpu": Cell(percent_text(view.cpu_percent) if live else "", "" if live else "muted"),
        "spark": Cell(sparkline(view.history.cpu, SPARK, top=100.0) if live else "", "accent"),
        "memory": Cell(memory, "" if view.memory_used is not None else "muted"),
        "disk": Cell(size_text(view.disk), "muted"),
        "network": Cell(_rates_text(view.traffic) if live else ""),
        "memory-spark": _small_spark(view.history.memory if live else (), view.memory_limit or 0),
        "disk-spark": _small_spark(view.history.disk if live else ()),
        "network-spark": _small_spark(view.traffic.history if live and view.traffic else ()),
        "accel": Cell(view.accel, "warning" if view.accel == "tcg" else "muted"),
        "ports": Cell(" ".join(f"{host}→{guest}" for host, guest in view.ports), "muted"),
    }
    return Row(view.id, cells)


def _rates_text(rates: TrafficRates | None) -> str:
    """For example "↓1.2M ↑30K", bytes a second; "" if nobody knows."""
    if rates is None:
        return ""
    return f"↓{size_text(int(rates.received))} ↑{size_text(int(rates.sent))}"


def _small_spark(values: Sequence[float], top: float = 0.0) -> Cell:
    return Cell(sparkline(values, SMALL_SPARK, top=top) if values else "", "accent")


def plan_image_columns(width: int) -> tuple[Column, ...]:
    columns = [Column("name", "Name", 0)]
    if width >= 40:
        columns.append(Column("version", "Version", 10))
    columns.append(Column("size", "Size", 8, right=True))
    if width >= 30:
        columns.append(Column("age", "Age", 4, right=True))
    used = sum(c.width + PADDING for c in columns)
    name = max(8, min(_NAME_MAX, width - used))
    return tuple(replace(c, width=name) if c.key == "name" else c for c in columns)


IMAGE_ORDERS = ("name", "age", "size")


def arrange_images(views: Sequence[ImageView], query: str, order: str) -> list[ImageView]:
    """Those that match every word, in that order."""
    words = [word for word in query.lower().split() if word.strip("!")]
    found = [view for view in views if all(_image_matches(view, word) for word in words)]
    keys: dict[str, Callable[[ImageView], Any]] = {
        "age": lambda view: -(view.created or 0.0),
        "size": lambda view: -(view.size or 0),
    }
    return sorted(found, key=keys[order]) if order in keys else found


def _image_matches(view: ImageView, word: str) -> bool:
    needle = word.lstrip("!")
    return (needle in f"{view.name} {view.version} {view.arch}".lower()) == (needle == word)


def image_row(image: ImageView, snapshot: Snapshot) -> Row:
    age = None if image.created is None else snapshot.taken - image.created
    size = Cell("✗ broken", "error") if image.error else Cell(size_text(image.size), "muted")
    cells = {
        "name": Cell(image.name, "muted" if image.error else ""),
        "version": Cell(image.version, "muted"),
        "size": size,
        "age": Cell(age_text(age), "muted"),
    }
    return Row(image.name, cells)


_TAG_MIN, _TAG_MAX = 16, 64


def plan_tree_columns(width: int) -> tuple[Column, ...]:
    """The columns that fit into ``width`` cells; tag and note share what the others leave."""
    columns = [Column("age", "Age", 4, right=True)]
    if width >= 56:
        columns.append(Column("pause", "Pause", 7, right=True))
    if width >= 44:
        columns.append(Column("own", "Own", 5, right=True))
    if width >= 76:
        columns.append(Column("size", "Written", 7, right=True))
    left = width - sum(column.width + 2 for column in columns)
    with_note = width >= 52
    tag = max(_TAG_MIN, min(_TAG_MAX, (left - 4) * 3 // 5 if with_note else left - 2))
    note = [Column("note", "Note", max(8, left - tag - 4))] if with_note else []
    return (Column("tag", "Checkpoint", tag), *columns, *note)


# Lines of text


def counts_text(snapshot: Snapshot, room: int = 1000) -> str:
    """For example "2 running · 1 stopped"; with little room "2 ● · 1 ○"."""
    if not snapshot.loaded:
        return "reading…"
    counts: dict[State, int] = {}
    for view in snapshot.sandboxes:
        counts[view.state] = counts.get(view.state, 0) + 1
    words = [f"{counts[state]} {state.value}" for state in State if counts.get(state)]
    text = " · ".join(words) or "nothing runs"
    if len(text) <= room:
        return text
    by_glyph: dict[str, int] = {}
    for state in State:
        by_glyph[GLYPHS[state]] = by_glyph.get(GLYPHS[state], 0) + counts.get(state, 0)
    return " · ".join(f"{count} {glyph}" for glyph, count in by_glyph.items() if count)


def host_text(snapshot: Snapshot) -> str:
    host = snapshot.host
    if host.memory_free is None:
        return ""
    return f"{size_text(host.memory_free)} RAM · {size_text(host.disk_free)} disk free"


def empty_text(snapshot: Snapshot, query: str) -> str:
    """What the sandboxes' panel says when it has no row."""
    if not snapshot.loaded:
        return "Reading the store…"
    if snapshot.error:
        return f"The store cannot be read.\n{snapshot.error}"
    if query and snapshot.sandboxes:
        return f"Nothing matches “{query}”.\nesc clears the filter."
    usable = snapshot.usable_images
    if not usable:
        if snapshot.images:
            return "No sandboxes yet, and no image can be used.\ntab goes to them and shows why."
        return "No sandboxes yet, and no image to start one from.\nSee below how to get one."
    names = [image.name for image in usable]
    image = "debian" if "debian" in names else names[0]
    return f"No sandboxes yet.\nPress {snapshot.keymap.hint('new')} to start one from {image}."


NO_IMAGES_TEXT = "No images yet. Get one:\nquicksand-tui setup"
