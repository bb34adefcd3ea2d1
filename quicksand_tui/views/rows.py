"""Turns sandboxes, images and checkpoints into rows of tables, and counts into text."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from quicksand_tui.model.amounts import age_text, percent_text, size_text, sparkline
from quicksand_tui.model.jobs import JOB_STATES, Job, JobVerb
from quicksand_tui.model.sandboxes import SandboxView, State
from quicksand_tui.views.filters import filtered, in_order, nothing_matches

if TYPE_CHECKING:
    from quicksand_tui.model.sandboxes import ImageView, TrafficRates
    from quicksand_tui.model.world import World


GLYPHS = {
    State.STARTING: "◐",
    State.UNREACHABLE: "◌",
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
    State.UNREACHABLE: "error",
    State.RUNNING: "success",
    State.PAUSED: "warning",
    State.STOPPED: "muted",
    State.CRASHED: "error",
    State.BROKEN: "error",
    State.STOPPING: "warning",
    State.DELETING: "warning",
}
"""The theme's colour for each state; glyph and word tell the state without colours."""


MUTED = "$foreground-muted"
"""The style of secondary text. ($text-muted works in style sheets only; in content it is white.)"""


def muted_style(variables: Mapping[str, str]) -> str:
    """Returns the muted style for Rich, which knows no transparent colours."""
    colour = variables.get("foreground-muted", "")
    return colour if len(colour) == len("#rrggbb") and colour.startswith("#") else "dim"


Words = tuple[str, str]
"""A text and its role."""

Line = tuple[str, list[Words]]
"""A label and its value."""


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell of a table. ``role`` is a colour of the theme, "muted" or ""."""

    text: str
    role: str = ""
    note: str = ""
    """Muted text after the text."""
    gives_way: bool = False
    """The text is cut in its middle so that the whole note fits."""


@dataclass(frozen=True, slots=True)
class Row:
    """A row of a table: its key, and its cells by column."""

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


# Running jobs


def with_jobs(world: World, jobs: Iterable[Job]) -> World:
    """Returns the world as the user should see it while ``jobs`` are running."""
    running = {job.sandbox_id: job for job in jobs}
    if not running:
        return world
    views = []
    for view in world.sandboxes:
        job = running.get(view.id)
        views.append(view if job is None else _under_way(view, job))
    known = {view.id for view in views} | {view.name for view in views}
    for job in running.values():
        # Until its record is on disk, only the job knows of a new sandbox.
        if job.verb is JobVerb.START and job.sandbox_id not in known and job.name not in known:
            views.append(
                SandboxView(
                    id=job.sandbox_id,
                    name=job.name,
                    state=State.STARTING,
                    image=job.image,
                    created=job.started,
                )
            )
    return replace(world, sandboxes=tuple(views), jobs=tuple(running.values()))


def _under_way(view: SandboxView, job: Job) -> SandboxView:
    return replace(view, state=JOB_STATES.get(job.verb, view.state), error="")


# Filter and order

ORDERS = ("state", "name", "age", "cpu", "memory", "disk")
"""The columns to order sandboxes by; the first is the default."""


def ordered(views: Iterable[SandboxView], order: str) -> list[SandboxView]:
    """Orders sandboxes. By state: live ones first, then failed ones, then stopped ones, the oldest
    first in each; otherwise by name, or the youngest, busiest or largest first."""
    by_age = sorted(views, key=lambda view: (view.created or 0.0, view.id))
    keys: dict[str, Callable[[SandboxView], Any]] = {
        "state": lambda view: (not view.is_live, view.state is State.STOPPED),
        "name": lambda view: view.name.lower(),
        "age": lambda view: -(view.created or 0.0),
        "cpu": lambda view: -(view.cpu_percent or 0.0),
        "memory": lambda view: -(view.memory_used or 0),
        "disk": lambda view: -(view.disk or 0),
    }
    return sorted(by_age, key=keys[order])


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
"""Columns, and the width of the table in cells below which they are dropped."""
SPARK = 12
"""Width of the sparkline of the CPU."""
SMALL_SPARK = 8
"""Width of the other sparklines, which only a wide table has."""
NETWORK = 11
"""Width of the two network rates."""
NETWORK_COLUMN = "network"
"""The key of the network column; guests are asked for traffic only while it is visible."""
_NAME_MIN, _NAME_MAX = 14, 44
PADDING = 2
"""Blank cells after each column."""


def plan_sandbox_columns(width: int) -> tuple[Column, ...]:
    """Returns the columns that fit into ``width`` cells; the name takes the rest, up to a limit."""
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
    """Returns the column with the history of column ``key``."""
    if key in ("memory", "disk", NETWORK_COLUMN):
        return (Column(f"{key}-spark", "", SMALL_SPARK),)
    return ()


_FIELDS: dict[str, Callable[[SandboxView], str]] = {
    "state": lambda view: view.state.value,
    "image": lambda view: view.image,
    "name": lambda view: view.name,
    "id": lambda view: view.id,
}
SEARCHED = (Column("image", "Image", 10),)
"""Columns that a filter looks at besides state and name: they are shown while there is one."""


def arrange_sandboxes(views: Sequence[SandboxView], query: str, order: str) -> list[SandboxView]:
    return ordered(filtered(views, query, _text, _FIELDS), order)


def _text(view: SandboxView) -> str:
    return "\n".join((view.state.value, view.image, view.name)).lower()


def sandbox_row(view: SandboxView, world: World) -> Row:
    job = world.job(view.id)
    live = view.is_live
    limit = size_text(view.memory_limit) if view.memory_limit is not None else "–"
    memory = f"{size_text(view.memory_used)}/{limit}" if view.memory_used is not None else limit
    age = None if view.created is None else world.taken - view.created
    cells = {
        "state": Cell(state_text(view.state), ROLES[view.state]),
        "name": Cell(view.name, "" if live else "muted", job.progress if job else ""),
        "image": Cell(view.image or "–", "muted"),
        "age": Cell(age_text(age), "muted"),
        "cpu": Cell(percent_text(view.cpu_percent) if live else "", "" if live else "muted"),
        "spark": Cell(sparkline(view.history.cpu, SPARK, top=100.0) if live else "", "accent"),
        "memory": Cell(memory, "" if view.memory_used is not None else "muted"),
        "disk": Cell(size_text(view.disk), "muted"),
        "network": Cell(rates_text(view.traffic) if live else ""),
        "memory-spark": _small_spark(view.history.memory if live else (), view.memory_limit or 0),
        "disk-spark": _small_spark(view.history.disk if live else ()),
        "network-spark": _small_spark(view.traffic.history if live and view.traffic else ()),
        "accel": Cell(view.accel, "warning" if view.accel == "tcg" else "muted"),
        "ports": Cell(" ".join(f"{host}→{guest}" for host, guest in view.ports), "muted"),
    }
    return Row(view.id, cells)


def rates_text(rates: TrafficRates | None) -> str:
    """Returns rates such as "↓1.2M ↑30K" in bytes per second; "" if unknown."""
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


def arrange_images(views: Sequence[ImageView], query: str, order: str) -> Sequence[ImageView]:
    keys: dict[str, Callable[[ImageView], Any]] = {
        "age": lambda view: -(view.created or 0.0),
        "size": lambda view: -(view.size or 0),
    }
    return in_order(filtered(views, query, _image_text), order, keys)


def _image_text(view: ImageView) -> str:
    return f"{view.name} {view.version} {view.arch}".lower()


def image_row(image: ImageView, world: World) -> Row:
    age = None if image.created is None else world.taken - image.created
    if image.error:
        size = Cell("✗ broken", "error")
    else:
        size = Cell(size_text(image.size) if image.is_built else "to build", "muted")
    cells = {
        "name": Cell(image.name, "muted" if image.error or not image.is_built else ""),
        "version": Cell(image.version, "muted"),
        "size": size,
        "age": Cell(age_text(age), "muted"),
    }
    return Row(image.name, cells)


_TAG_MIN, _TAG_MAX = 16, 64


def plan_tree_columns(width: int) -> tuple[Column, ...]:
    """Returns the columns that fit into ``width`` cells; tag and note share the rest."""
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


def counts_text(world: World, room: int = 1000) -> str:
    """Returns counts such as "2 running · 1 stopped"; with little room "2 ● · 1 ○"."""
    if not world.loaded:
        return "reading…"
    counts: dict[State, int] = {}
    for view in world.sandboxes:
        counts[view.state] = counts.get(view.state, 0) + 1
    words = [f"{counts[state]} {state.value}" for state in State if counts.get(state)]
    text = " · ".join(words) or "nothing runs"
    if len(text) <= room:
        return text
    by_glyph: dict[str, int] = {}
    for state in State:
        by_glyph[GLYPHS[state]] = by_glyph.get(GLYPHS[state], 0) + counts.get(state, 0)
    return " · ".join(f"{count} {glyph}" for glyph, count in by_glyph.items() if count)


def host_text(world: World) -> str:
    host = world.host
    if host.memory_free is None:
        return ""
    free = f"{size_text(host.memory_free)} RAM · {size_text(host.disk_free)} disk free"
    if not host.spares:
        return free
    spares = "spare" if host.spares == 1 else "spares"
    return f"{host.spares} {spares} {size_text(host.spares_memory)} · {free}"


def empty_text(world: World, query: str) -> str:
    """Returns what the panel of sandboxes shows instead of rows."""
    if not world.loaded:
        return "Reading the store…"
    if query and world.sandboxes:
        return nothing_matches(query)
    if world.error:
        return f"The store cannot be read.\n{world.error}"
    return _no_sandboxes_text(world)


def _no_sandboxes_text(world: World) -> str:
    usable = world.usable_images
    if not usable:
        if world.images_error:
            return f"No sandboxes yet, and the images cannot be read.\n{world.images_error}"
        if world.images:
            return "No sandboxes yet, and no image can be used.\ntab goes to them and shows why."
        return "No sandboxes yet, and no image to start one from.\nSee below how to get one."
    # Prefers debian, and images that need not be built, which takes minutes.
    best = min(usable, key=lambda image: (not image.is_built, image.name != "debian"))
    text = f"No sandboxes yet.\nPress {world.keymap.hint('new')} to start one from {best.name}."
    return text if best.is_built else f"{text}\nThe first one builds the image, in some minutes."


NO_IMAGES_TEXT = "No images yet.\nquicksand-tui setup gets debian"
