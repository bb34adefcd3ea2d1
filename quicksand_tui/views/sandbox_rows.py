"""Turns sandboxes and images into rows of their tables, and says why a sandbox stands still."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from quicksand.things.frozen import frozen
from quicksand.things.status import Status

from quicksand_tui.model.amounts import age_text, percent_text, size_text, sparkline
from quicksand_tui.model.jobs import JOB_STATES, Job, JobVerb
from quicksand_tui.model.shown_sandboxes import SILENT_S, SandboxView, split_host
from quicksand_tui.model.text import drawn_cells
from quicksand_tui.views.tables import Cell, Column, Row, filtered, greyed, in_order

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from quicksand.things.image_info import ImageInfo
    from quicksand.things.sandbox_facts import TrafficRates

    from quicksand_tui.model.world import World


def silence_text(view: SandboxView, now: float) -> str:
    """Returns the time for which a running sandbox has not answered; "" if it answers."""
    if view.state is not Status.RUNNING or view.away or view.silent_since is None:
        return ""
    seconds = now - view.silent_since
    return no_answer_text(seconds) if seconds >= SILENT_S else ""


def no_answer_text(seconds: float) -> str:
    """Returns words about a guest, or a machine, that has not answered for so long."""
    return f"no answer for {age_text(seconds)}"


def pause_text(view: SandboxView, resumes: str) -> str:
    """Returns words about a paused sandbox, with the reason as the engine tells it; if somebody has
    paused it, ``resumes`` says how it is resumed."""
    return f"paused: {view.error or resumes}"


def stall_text(view: SandboxView, now: float, resumes: str) -> str:
    """Returns the reason why a pane of a sandbox shows nothing new; "" if none is known.
    ``resumes`` says how a paused sandbox is resumed."""
    if view.state is Status.PAUSED:
        return pause_text(view, resumes)
    return silence_text(view, now)


# While jobs run


def with_jobs(world: World, jobs: Iterable[Job]) -> World:
    """Returns the world as it is shown to the user while ``jobs`` are running."""
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
                    host=split_host(job.sandbox_id)[1],
                    state=Status.STARTING,
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
        "state": lambda view: (not view.is_live, view.state is Status.STOPPED),
        "name": lambda view: view.name.lower(),
        "age": lambda view: -(view.created or 0.0),
        "cpu": lambda view: -(view.cpu_percent or 0.0),
        "memory": lambda view: -(view.memory_used or 0),
        "disk": lambda view: -(view.disk or 0),
    }
    return sorted(by_age, key=keys[order])


# Tables

MARK_WIDTH, WORD_WIDTH = 1, 11
"""Widths of a state without and with its word."""
SPARK, WIDE_SPARK = 5, 12
"""Widths of the sparkline of the CPU."""
SMALL_SPARK = 8
"""Width of the other sparklines, which only a wide table has."""
NETWORK_COLUMN = "network"
"""The key of the network column; guests are asked for traffic only while it is visible."""
PADDING = 2
"""Blank cells after each column."""
_NAME_USUAL, NAME_MAX, _NAME_FIRST = 14, 44, 24
"""Cells of names: usually, at most, and before other columns get any."""

_COLUMNS = (
    Column("state", "", MARK_WIDTH, gap=1),
    Column("name", "Name", 0),
    Column("image", "Image", 7),
    Column("age", "Age", 4, right=True),
    Column("cpu", "CPU", 4, right=True, gap=1),
    Column("spark", "", SPARK, gap=1),
    Column("memory", "RAM", 5, right=True, gap=1),
    Column("memory-spark", "", SMALL_SPARK, gap=1),
    Column("disk", "Disk", 5, right=True),
    Column(NETWORK_COLUMN, "Network", 11),
    Column("accel", "Runs on", 7),
    Column("ports", "Ports", 9),
    Column("last", "Now", 12),
)
"""The columns in the order in which they are shown."""

_WANTED = ("cpu", "spark", "image", "memory", "disk", "age", "ports", "last")
"""Columns after the state and the name, the most important first."""
_WANTED_LATER = ("memory-spark", NETWORK_COLUMN, "accel")
"""Columns that get the room that the others leave."""


_OF_RUNNING = frozenset({"cpu", "spark", "memory", "memory-spark", NETWORK_COLUMN, "accel"})
"""Columns that are empty for a sandbox that does not run."""


@frozen
class ListNeeds:
    """The room that the columns of the sandboxes need, in cells of their longest contents."""

    name: int = _NAME_USUAL
    image: int = 7
    ports: int = 0
    """0 if no sandbox has ports: then the column is left out."""
    last: int = 0
    runs: bool = True
    """Whether any of them runs."""


def list_needs(world: World) -> ListNeeds:
    views = world.sandboxes
    return ListNeeds(
        name=max((_name_cells(view, world) for view in views), default=_NAME_USUAL),
        image=max((drawn_cells(view.image) for view in views), default=7),
        ports=max((drawn_cells(ports_text(view)) for view in views), default=0),
        last=max((drawn_cells(last_text(view, world)) for view in views), default=0),
        runs=not views or any(view.is_live for view in views),
    )


def _name_cells(view: SandboxView, world: World) -> int:
    """Returns the cells of a name and of the words beside it."""
    note = _name_note(view, world)
    return drawn_cells(view.short_name) + (drawn_cells(note) + 2 if note else 0)


def _name_note(view: SandboxView, world: World) -> str:
    """Returns the progress of a job, or the time for which a sandbox has not answered."""
    job = world.job(view.id)
    return job.progress_at(world.taken) if job else silence_text(view, world.taken)


def plan_sandbox_columns(width: int, needs: ListNeeds | None = None) -> tuple[Column, ...]:
    """Returns the columns that fit into ``width`` cells, the most important first. Names are cut
    last; the rest of the room goes to the name, the image and what is done there."""
    needs = needs or ListNeeds()
    sizes = {column.key: column.width for column in _COLUMNS}
    gaps = {column.key: column.gap for column in _COLUMNS}
    most = {
        "name": max(len("Name"), min(needs.name, NAME_MAX)),
        "image": max(len("Image"), min(needs.image, 18)),
        "ports": min(needs.ports, 24),
        "last": min(needs.last, 60),
    }
    sizes["image"] = min(most["image"], 10)
    sizes["ports"], sizes["last"] = min(most["ports"], 10), min(most["last"], 16)
    room = width - sizes["state"] - gaps["state"] - gaps["name"]
    sizes["name"] = max(1, min(most["name"], _NAME_FIRST, room))
    room -= sizes["name"]
    shown = {"state", "name"}

    def take(key: str) -> None:
        nonlocal room
        if sizes[key] and sizes[key] + gaps[key] <= room:
            shown.add(key)
            room -= sizes[key] + gaps[key]

    def widen(key: str, to: int) -> None:
        nonlocal room
        more = max(0, min(to - sizes[key], room)) if key in shown else 0
        sizes[key] += more
        room -= more

    unused = _OF_RUNNING if not needs.runs else ()
    for key in _WANTED:
        if key not in unused:
            take(key)
    for key in ("name", "image", "ports", "last"):
        widen(key, most[key])
    if room >= WORD_WIDTH - MARK_WIDTH:
        widen("state", WORD_WIDTH)
    for key in _WANTED_LATER:
        if key not in unused:
            take(key)
    widen("spark", WIDE_SPARK)
    *before, last = (
        replace(column, width=sizes[column.key], title=_title(column, sizes[column.key]))
        for column in _COLUMNS
        if column.key in shown
    )
    # One cell is enough after the last column, beside the scroll bar.
    return (*before, replace(last, gap=1))


def _title(column: Column, width: int) -> str:
    return "State" if column.key == "state" and width == WORD_WIDTH else column.title


def ports_text(view: SandboxView) -> str:
    found = [f"{host}→{guest}" for host, guest in view.ports]
    return " ".join([*found, *(f"{host}→{guest}/udp" for host, guest in view.udp_ports)])


def last_text(view: SandboxView, world: World) -> str:
    """Returns the program or command that runs in a sandbox, as far as the app knows."""
    return view.error or world.doing.get(view.id, "")


_FIELDS: dict[str, Callable[[SandboxView], str]] = {
    "state": lambda view: view.state.value,
    "image": lambda view: view.image,
    "name": lambda view: view.name,
    "id": lambda view: view.id,
    "host": lambda view: view.host or "local",
}
SEARCHED = (Column("image", "Image", 10),)
"""Columns that a filter searches besides state and name: they are shown while there is a filter."""


def arrange_sandboxes(
    views: Sequence[SandboxView],
    query: str,
    order: str,
    clock: Callable[[], float] = time.time,
) -> list[SandboxView]:
    """Returns the sandboxes that match ``query``, in an order; ``clock`` tells ages."""
    now = clock() if "age:" in query.lower() else 0.0
    amounts: dict[str, Callable[[SandboxView], float | None]] = {
        "age": lambda view: None if view.created is None else now - view.created,
        "cpu": lambda view: view.cpu_percent,
        "memory": lambda view: view.memory_used,
        "disk": lambda view: view.disk,
    }
    return ordered(filtered(views, query, _text, _FIELDS, amounts=amounts), order)


def _text(view: SandboxView) -> str:
    return "\n".join((view.state.value, view.image, view.name)).lower()


def sandbox_keys(world: World) -> str:
    """Returns the most useful keys for a sandbox, with their effects."""
    keys = (("open", "opens"), ("new", "new"), ("checkpoint", "checkpoint"), ("filter", "filter"))
    return " · ".join(f"{world.keymap.hint(action)} {word}" for action, word in keys)


def sandbox_row(view: SandboxView, world: World) -> Row:
    live = view.is_live
    now = world.taken
    age = None if view.created is None else now - view.created
    silent = silence_text(view, now)
    role = "warning" if silent else view.state.role
    name_role = "" if role == Status.RUNNING.role else role
    used = view.memory_used
    cells = {
        "state": Cell(f" {view.state.value}", role, lead=((view.state.sign, role),)),
        "name": Cell(view.short_name, name_role, _name_note(view, world)),
        "image": Cell(view.image or "–", "muted"),
        "age": Cell(age_text(age), "muted"),
        "cpu": Cell(percent_text(view.cpu_percent) if live else "", "" if live else "muted"),
        "spark": _spark(view.history.cpu if live else (), WIDE_SPARK, 100.0),
        "memory": Cell(size_text(used) if used is not None else ""),
        "disk": Cell(size_text(view.disk), "muted"),
        "network": Cell(rates_text(view.traffic) if live else ""),
        "memory-spark": _spark(
            view.history.memory if live else (), SMALL_SPARK, view.memory_limit or 0
        ),
        "accel": Cell(view.accel, "muted"),
        "ports": Cell(ports_text(view), "muted"),
        "last": Cell(last_text(view, world), "error" if view.error else "muted"),
    }
    return Row(view.id, greyed(cells) if view.away else cells)


def rates_text(rates: TrafficRates | None) -> str:
    """Returns rates such as "↓1.2M ↑30K" in bytes per second; "" if unknown."""
    if rates is None:
        return ""
    return f"↓{size_text(int(rates.received))} ↑{size_text(int(rates.sent))}"


def _spark(values: Sequence[float], width: int, top: float) -> Cell:
    bars = sparkline(values, width, top=top) if values else ""
    return Cell(bars, "accent", keeps_end=True)


# Images

IMAGE_ORDERS = ("name", "age", "size")
NO_IMAGES_TEXT = "No images yet: `quicksand-tui setup` builds debian."


def plan_image_columns(width: int) -> tuple[Column, ...]:
    columns = [Column("name", "Name", 0)]
    if width >= 40:
        columns.append(Column("version", "Version", 10))
    columns.append(Column("size", "Size", 8, right=True))
    if width >= 30:
        columns.append(Column("age", "Age", 4, right=True))
    used = sum(c.width + PADDING for c in columns)
    name = max(8, min(NAME_MAX, width - used))
    return tuple(replace(c, width=name) if c.key == "name" else c for c in columns)


def arrange_images(views: Sequence[ImageInfo], query: str, order: str) -> Sequence[ImageInfo]:
    keys: dict[str, Callable[[ImageInfo], Any]] = {
        "age": lambda view: -(view.built or 0.0),
        "size": lambda view: -(view.size or 0),
    }
    return in_order(filtered(views, query, _image_text), order, keys)


def _image_text(view: ImageInfo) -> str:
    return f"{view.name} {view.version} {view.arch}".lower()


def image_row(image: ImageInfo, world: World) -> Row:
    age = None if image.built is None else world.taken - image.built
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
