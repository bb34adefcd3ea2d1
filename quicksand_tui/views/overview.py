"""A sandbox in lines: its overview, in blocks, each shown when it has something to say, and the
readings of the stats tab."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from quicksand.things.frozen import frozen
from quicksand.things.sandbox_facts import SHOWN
from quicksand.things.status import CAN_START, Status

from quicksand_tui.model.amounts import (
    age_text,
    clock_text,
    disk_scale,
    fact_text,
    percent_text,
    size_text,
    sparkline,
)
from quicksand_tui.model.shown_sandboxes import Known, split_host
from quicksand_tui.model.text import clip, drawn_cells
from quicksand_tui.views.mount_rows import mount_words, told_words
from quicksand_tui.views.sandbox_rows import rates_text, silence_text
from quicksand_tui.views.tables import Words

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from quicksand.things.mount_facts import MountFacts
    from quicksand.things.sandbox_facts import GuestTraffic, TrafficRates

    from quicksand_tui.model.shown_sandboxes import EventView, GuestView, SandboxView
    from quicksand_tui.model.world import World


TITLE_CELLS = 40
EVENTS_MAX = 12
BARS_MAX = 60
GAP = 3
"""Cells between two things on one line."""
PLACES_MAX = 12
WEB, WEB_SAFE = (80, 3000, 5000, 8000, 8080, 8888), (443, 8443)
"""Ports of guests that are usually web servers: an address to open is shown for them."""

Shown = tuple[list[Words], list[Words]]
"""The words at the left and at the right end of a line."""


@frozen(kw_only=False)
class Block:
    """Some lines below a title; the first block has no title."""

    title: str
    lines: tuple[Shown, ...]
    beside: str = ""
    """Text at the right end of the title's line."""
    items: tuple[list[Words], ...] = ()
    """Words before the lines, side by side as far as there is room."""
    bars: SandboxView | None = None
    """The sandbox whose use of the host is drawn below the lines."""


NOTHING_KNOWN = Known()


def _line(*left: Words, right: Sequence[Words] = ()) -> Shown:
    return list(left), list(right)


def overview(view: SandboxView, world: World, known: Known = NOTHING_KNOWN) -> list[Block]:
    """Returns all blocks of a sandbox, for one column."""
    return [
        *stage(view, world, known),
        *since(view, world, known),
        *uses(view),
        *_events(known.events, world.taken),
        *facts(view, world),
    ]


def stage(view: SandboxView, world: World, known: Known) -> list[Block]:
    """Returns the blocks about now."""
    return [*_head(view, world), *_shells(view, world, known)]


def wide_stage(view: SandboxView, world: World, known: Known) -> list[Block]:
    """Returns the blocks about now for a place where other blocks are beside them."""
    return [*stage(view, world, known), *uses(view)]


def beside(view: SandboxView, world: World, known: Known) -> list[Block]:
    """Returns the blocks that a column beside the stage has."""
    return [
        *since(view, world, known),
        *_events(known.events, world.taken),
        *facts(view, world),
    ]


def uses(view: SandboxView) -> Iterator[Block]:
    if view.is_live or view.history.disk:
        yield Block("Uses", (), network_text(view), bars=view)


def facts(view: SandboxView, world: World) -> Iterator[Block]:
    """Returns the blocks of facts that stay the same."""
    if lines := tuple(_facts(view, world)):
        yield Block("Machine", lines)


# Now


def _head(view: SandboxView, world: World) -> Iterator[Block]:
    items = [_state_words(view, world)]
    machine = world.machine(view.host)
    away = f" of {machine.name}" if machine is not None and machine.has_own_loopback else ""
    items += [_port_words(host, guest, away) for host, guest in view.ports]
    items += [_udp_port_words(host, guest, away) for host, guest in view.udp_ports]
    items += [_mount_words(mount) for mount in view.mounts]
    lines = [_line((view.error, "error"))] if view.error else []
    lines += [_line(*told) for mount in view.mounts if (told := told_words(mount))]
    yield Block("", tuple(lines), items=tuple(items))


def _use(view: SandboxView, width: int) -> Iterator[list[Words]]:
    """Yields its use of the host, with its history."""
    history = view.history
    live = view.is_live
    room = max(0, min(BARS_MAX, width - 12))
    rows: list[tuple[str, str, Sequence[float], float, float]] = []
    if live and view.cpu_percent is not None:
        cpu = percent_text(view.cpu_percent)
        rows.append(("CPU", cpu, history.cpu, 100.0 * (view.cpus or 1), 0.0))
    if view.memory_used is not None:
        memory = size_text(view.memory_used)
        rows.append(("RAM", memory, history.memory, float(view.memory_limit or 0), 0.0))
    if view.disk is not None:
        # The bars show how much a disk has grown, not that it is there.
        rows.append(("Disk", size_text(view.disk), *disk_scale(history.disk, room)))
    for label, value, values, top, bottom in rows:
        bars = sparkline([each - bottom for each in values], room, top=top - bottom)
        yield [(f"{label:<5}", "muted"), (f"{value:>6} ", ""), (bars if values else "", "accent")]
    if view.disk is not None and view.disk_shared:
        yield [("", ""), (f"{size_text(view.disk_shared):>11} more is shared with others", "muted")]


def _state_words(view: SandboxView, world: World) -> list[Words]:
    words: list[Words] = [(view.state.text, view.state.role)]
    job = world.job(view.id)
    if silent := silence_text(view, world.taken):
        words.append((f" · {silent}", "warning"))
    if job is not None:
        doing = "cancelling" if job.cancelling else job.progress_at(world.taken)
        words.append((f" · {doing}" if doing else "", ""))
        words.append((f" · {age_text(world.taken - job.started)}", "muted"))
        if view.state is Status.STARTING and not job.cancelling:
            words.append((f" · {world.keymap.hint('cancel')} cancels", "muted"))
    elif view.state is Status.PAUSED:
        words.append((f" · {world.keymap.hint('pause')} resumes it", "muted"))
    elif view.state in CAN_START:
        words.append((" · enter starts it", "muted"))
    elif view.started is not None:
        words.append((f" for {age_text(world.taken - view.started)}", ""))
    if view.discard:
        words.append((" · removed when it stops", "muted"))
    return words


def _port_words(host: int, guest: int, away: str) -> list[Words]:
    kind = "" if away else "https://" if guest in WEB_SAFE else "http://" if guest in WEB else ""
    return [(f"{kind}127.0.0.1:{host}", "accent"), (f"{away} → {guest}", "muted")]


def _udp_port_words(host: int, guest: int, away: str) -> list[Words]:
    return [(f"127.0.0.1:{host}", "accent"), (f"{away} → {guest}/udp", "muted")]


def _mount_words(mount: MountFacts) -> list[Words]:
    return [(f"{mount.state.sign} ", mount.state.role), *mount_words(mount)]


def _shells(view: SandboxView, world: World, known: Known) -> Iterator[Block]:
    if known.glance is None and view.state is Status.RUNNING:
        words = ("none attached: one's last lines appear here", "muted")
        yield Block("Shell", (_line(words),), f"{world.keymap.hint('shell')} attaches one")
    if len(known.shells) > 1:
        yield Block("Shells", tuple(_line((title, "")) for title in known.shells))
    if known.glance is not None:
        lines = tuple(_line((line, ""), ("", "")) for line in known.glance.lines)
        yield Block(known.glance.title, lines, f"{world.keymap.hint('shell')} opens it")


# Since


def since(view: SandboxView, world: World, known: Known) -> Iterator[Block]:
    tree = view.tree
    if tree.error:
        yield Block("Checkpoints", (_line((f"its position is unknown: {tree.error}", "error")),))
        return
    head = tree.find(tree.head)
    if head is None:
        return
    age = "" if not head.created else f", {age_text(world.taken - head.created)} ago"
    written = ""
    if tree.changed is not None:
        written = f"+{size_text(tree.changed)} on disk" if tree.changed else "disk unchanged"
    lines = tuple(place_lines(known))
    yield Block(f"Since {clip(head.tag, TITLE_CELLS)}{age}", lines, written)


def place_lines(known: Known) -> Iterator[Shown]:
    """Yields a line for each file or directory that differs."""
    changes = known.changes
    if changes is None:
        return
    if changes.asked or changes.why:
        yield _line((changes.why or "looking at the disk…", "muted"))
        return
    if not changes.places:
        yield _line(("no file differs", "muted"))
    for place in changes.places[:PLACES_MAX]:
        role = {"A": "success", "D": "error"}.get(place.letter, "warning")
        count = f"{place.files} files" if place.files > 1 else ""
        size = size_text(place.size) if place.size is not None else ""
        yield _line(
            (f"{place.letter} ", role),
            (place.path, ""),
            right=[(f"{count}  {size:>5}", "muted")],
        )
    if (more := len(changes.places) - PLACES_MAX) > 0:
        yield _line((f"and {more} more places", "muted"))


def _events(events: Sequence[EventView], now: float) -> Iterator[Block]:
    if events:
        yield Block(
            "Events",
            tuple(
                _line(
                    (f"{clock_text(event.when, now)}  ", "muted"),
                    (event.text, event.role),
                    right=[(event.took, event.role or "muted")],
                )
                for event in events[:EVENTS_MAX]
            ),
        )


# Facts that stay the same


def _facts(view: SandboxView, world: World) -> Iterator[Shown]:
    if view.image:
        machine = f"{view.image} · {size_text(view.memory_limit)} memory"
        if view.cpus is not None:
            machine += f" · {view.cpus} CPU{'s' if view.cpus != 1 else ''}"
        yield _line((machine, "muted"))
    for fact in SHOWN:
        if fact.line and (value := getattr(view, fact.name)):
            text = fact_text(fact.kind, value, world.taken)
            yield _line((fact.line.format(text), "muted"))
    if used := memory_text(view):
        yield _line((used, "muted"))
    if view.accel:
        slow = " · no security boundary" if view.accel == "tcg" else ""
        yield _line((f"runs on {view.accel.upper()}{slow}", "muted"))
    if view.accel_reason:
        yield _line((view.accel_reason, "muted"))
    if view.epoch:
        yield _line((_epoch_text(view), "muted"))
    if not view.id.startswith("new:"):
        age = "" if view.created is None else f" · {age_text(world.taken - view.created)} old"
        own = split_host(view.id)[0]
        there = f" on {view.host}" if view.host else ""
        yield _line((f"id {own if own.isalnum() else '?'}{there}{age}", "muted"))


def _epoch_text(view: SandboxView) -> str:
    if view.superseded_by:
        return f"epoch {view.epoch}, superseded by the one on {view.superseded_by}"
    restarts = view.epoch - 1
    times = "once" if restarts == 1 else f"{restarts} times"
    how = f", restarted {times}" if restarts else ""
    return f"epoch {view.epoch}{how} · restarted elsewhere if its machine is lost"


def network_text(view: SandboxView) -> str:
    """Returns the present traffic of the network; "" if it is not known."""
    return rates_text(view.traffic) if view.is_live else ""


def memory_text(view: SandboxView) -> str:
    """Returns why QEMU takes more memory than its guest has; "" if it does not."""
    used, limit = view.memory_used, view.memory_limit
    if used is None or limit is None or used <= limit:
        return ""
    return f"{size_text(used)} RAM: up to {size_text(limit)} of the guest, the rest is QEMU's own"


# Lines in a width


def laid_out(blocks: Sequence[Block], width: int) -> list[list[Words]]:
    """Returns the blocks as lines of ``width`` cells."""
    lines: list[list[Words]] = []
    for block in blocks:
        if block.title:
            if lines:
                lines.append([])
            lines.append(_heading(block, width))
        lines += _flowing(block.items, width)
        for left, right in block.lines:
            lines += _wrapped(left, width) if not right else [fitted(left, right, width)]
        if block.bars is not None:
            lines += _use(block.bars, width)
    return lines


def _wrapped(left: Sequence[Words], width: int) -> Iterator[list[Words]]:
    """Yields a line; a single sentence that does not fit takes several, other lines are cut."""
    if len(left) == 1 and drawn_cells(left[0][0]) > width:
        text, role = left[0]
        for piece in textwrap.wrap(text, width):
            yield fitted([(piece, role)], (), width)
    else:
        yield fitted(left, (), width)


def _heading(block: Block, width: int) -> list[Words]:
    beside = f" {block.beside}" if block.beside else ""
    title = clip(block.title, max(4, width - drawn_cells(beside) - 2))
    rule = max(0, width - drawn_cells(title) - drawn_cells(beside) - 1)
    return [(title, "heading"), (f" {'─' * rule}", "rule"), (beside, "muted")]


def fitted(left: Sequence[Words], right: Sequence[Words], width: int) -> list[Words]:
    """Returns a line whose left side is cut so that the right side fits, unless that leaves the
    left side too little: then the right side is left out."""
    beside = sum(drawn_cells(text) for text, _ in right)
    length = sum(drawn_cells(text) for text, _ in left)
    if beside and width - beside - 2 < min(length, max(16, width // 2)):
        right, beside = (), 0
    room = width - beside - (2 if beside else 0)
    shown: list[Words] = []
    for text, role in left:
        cut = clip(text, room) if room > 0 else ""
        shown.append((cut, role))
        room -= drawn_cells(cut)
    if beside:
        shown += [(" " * (room + 2), ""), *right]
    return shown


def _flowing(items: Sequence[list[Words]], width: int) -> Iterator[list[Words]]:
    """Yields lines with as many items beside each other as fit."""
    line: list[Words] = []
    used = 0
    for item in items:
        length = sum(drawn_cells(text) for text, _ in item)
        if line and used + GAP + length > width:
            yield line
            line, used = [], 0
        if line:
            line.append((" " * GAP, ""))
            used += GAP
        line += fitted(item, (), width) if length > width else item
        used += length
    if line:
        yield line


# The stats tab

LABEL_WIDTH = 9
VALUE_WIDTH = 14
NETWORK_WIDTH = 20
SPARK_MIN = 8

Part = tuple[str, str]
"""A text and its role."""


def stats_lines(
    view: SandboxView,
    guest: GuestView | None,
    why: str,
    width: int,
    rates: TrafficRates | None = None,
) -> list[list[Part]]:
    """Returns a sandbox's use of the host, with its history, and of its guest. ``why`` says why the
    guest reports nothing."""
    lines = [[("Host", "heading")], *_host_lines(view, width), [("", "")]]
    lines.append([("Guest", "heading")])
    if guest is None:
        lines.append([(why or "asking…", "muted")])
        return lines
    lines += _guest_lines(guest, width, rates)
    return lines


def _host_lines(view: SandboxView, width: int) -> list[list[Part]]:
    history = view.history
    spark = max(SPARK_MIN, width - LABEL_WIDTH - VALUE_WIDTH - 1)
    cpus = 100.0 * (view.cpus or 1)
    limit = f"/{size_text(view.memory_limit)}" if view.memory_limit is not None else ""
    live = view.is_live
    disk, most, least = disk_scale(history.disk, spark)
    rows = (
        ("CPU", percent_text(view.cpu_percent) if live else "–", history.cpu, cpus),
        (
            "Memory",
            f"{size_text(view.memory_used)}{limit}" if live else "–",
            history.memory,
            float(view.memory_limit or 0),
        ),
        ("Disk", size_text(view.disk), [each - least for each in disk], most - least),
    )
    return [
        [
            (f"{label:<{LABEL_WIDTH}}", "muted"),
            (f"{value:<{VALUE_WIDTH}}", ""),
            (sparkline(values, spark, top=top), "accent"),
        ]
        for label, value, values, top in rows
    ]


def _network_line(traffic: GuestTraffic, rates: TrafficRates | None, width: int) -> list[Part]:
    if rates is None:
        value = f"↓ {size_text(traffic.received)} ↑ {size_text(traffic.sent)} in all"
    else:
        value = f"↓ {size_text(int(rates.received))}/s ↑ {size_text(int(rates.sent))}/s"
    value = f"{value:<{NETWORK_WIDTH}}"
    spark = max(SPARK_MIN, width - LABEL_WIDTH - len(value) - 1)
    bars = sparkline(rates.history if rates is not None else (), spark)
    return [(f"{'Network':<{LABEL_WIDTH}}", "muted"), (value, ""), (bars, "accent")]


def _guest_lines(guest: GuestView, width: int, rates: TrafficRates | None) -> list[list[Part]]:
    memory = f"{size_text(guest.memory_used)} of {size_text(guest.memory_total)}"
    disk = f"{size_text(guest.disk_used)} of {size_text(guest.disk_total)}"
    lines: list[list[Part]] = [
        [(f"{'Memory':<{LABEL_WIDTH}}", "muted"), (memory, "")],
        [(f"{'Disk':<{LABEL_WIDTH}}", "muted"), (disk, "")],
        [
            (f"{'Load':<{LABEL_WIDTH}}", "muted"),
            (f"{guest.load:.2f} · {guest.processes} processes · up {age_text(guest.uptime_s)}", ""),
        ],
    ]
    if guest.traffic is not None:
        lines.append(_network_line(guest.traffic, rates, width))
    lines += [
        [("", "")],
        [(f"{'PID':>7}  {'USER':<8} {'RSS':>6} {'CPU':>8}  COMMAND", "muted")],
    ]
    for process in guest.busiest:
        head = (
            f"{process.pid:>7}  {clip(process.user, 8):<8} {size_text(process.rss):>6}"
            f" {process.cpu_s:>7.1f}s  "
        )
        lines.append([(head, "muted"), (clip(process.command, max(8, width - len(head))), "")])
    return lines
