"""`quicksand-tui ps, logs, events, stats`: lists sandboxes from their records on disk, shows their
consoles, and tells of what happens in them and of what they use. Imports as little as possible."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NoReturn

import click
from quicksand.base.errors import QuicksandError
from quicksand.base.paths import paths
from quicksand.base.regular import open_file
from quicksand.records.registry import Registry
from quicksand.records.sandboxes import Entry
from quicksand.things.fact import Shown
from quicksand.things.frozen import frozen
from quicksand.things.sandbox_facts import SHOWN
from quicksand.things.status import Status

from quicksand_tui.cli import lazy_commands as lazy
from quicksand_tui.cli.click_commands import command_of
from quicksand_tui.cli.output import (
    Exit,
    complain,
    format_table,
    has_colour,
    is_terminal,
    is_unicode,
    print_json,
    print_lines,
    print_table,
    say,
    show_size,
)
from quicksand_tui.model.amounts import clock_text, fact_text, percent_text
from quicksand_tui.model.happened import Happened, HappenedKind, words_of
from quicksand_tui.model.remedy_words import text_of
from quicksand_tui.model.text import Plain, clean

if TYPE_CHECKING:
    from quicksand.sandbox import Sandbox
    from quicksand.things.sandbox_facts import SandboxStats

    from quicksand_tui.cli.runner import Signals
    from quicksand_tui.door.event_watch import EventWatch


LOOK_EVERY_S = 0.5
"""Seconds between two looks of --watch at the disk."""
HOME = "\x1b[H\x1b[J"
"""Clears a terminal."""
TEXT_MAX = 200
"""The most characters of a cell."""
COLUMNS = sorted((one for one in SHOWN if one.head), key=lambda one: one.rare)


@command_of("ps")
def ps_command(everything: bool, quiet: bool, processes: bool, watch: bool, as_json: bool) -> None:
    """List sandboxes.

    Only running ones are listed; -a adds stopped, crashed (with the reason) and broken ones.

    With --watch the list is shown again whenever it changes; with --json as well, each time on a
    line of its own.

    EPOCH is shown for sandboxes that a fleet restarts elsewhere: 1 at first, and one more with each
    restart.

    With --all-processes this lists processes instead: those of sandboxes, and those that wait for a
    start (spare), which no other list shows.
    """
    if processes:
        if everything or quiet or watch:
            raise click.UsageError("--all-processes goes with none of -a, -q and --watch")
        _list_processes(as_json)
        return
    if watch:
        _watch(everything=everything, quiet=quiet, as_json=as_json)
    found = Registry(paths()).list()
    entries = [entry for entry in found if everything or entry.is_live]
    if as_json:
        print_json([_facts(entry) for entry in entries])
    elif quiet:
        for entry in entries:
            print(entry.name)
    else:
        print_lines(_table(entries))
        if not entries and found:
            counts = Counter(entry.status for entry in found)
            told = ", ".join(f"{number} {status}" for status, number in counts.items())
            say(f"none runs; {told}: `quicksand-tui ps -a` lists them")


def _watch(*, everything: bool, quiet: bool, as_json: bool) -> NoReturn:
    """Shows the list whenever it changes, until it is interrupted."""
    on_terminal = is_terminal(sys.stdout) and not as_json
    shown: list[str] | None = None
    registry = Registry(paths())
    while True:
        entries = [entry for entry in registry.list() if everything or entry.is_live]
        if as_json:
            lines = [json.dumps([_facts(entry) for entry in entries]).replace("\x7f", "\\u007f")]
        else:
            lines = [entry.name for entry in entries] if quiet else _table(entries)
        if lines != shown:
            if on_terminal:
                sys.stdout.write(HOME)
            elif shown is not None and not as_json:
                print()
            print("\n".join(lines), flush=True)
            shown = lines
        time.sleep(LOOK_EVERY_S)


def _list_processes(as_json: bool) -> None:
    from quicksand.life.all_processes import list_all  # noqa: PLC0415

    found = list_all(Registry(paths()))
    if as_json:
        print_json([{**asdict(one), "role": one.role.value} for one in found])
        return
    rows: list[tuple[object, ...]] = [
        (
            one.pid,
            one.kind,
            one.role.value,
            f"{one.name} ({one.machine})" if one.machine else one.name,
            show_size(one.memory),
            f"{one.cpu_s:.1f} s",
        )
        for one in found
    ]
    total = show_size(sum(one.memory for one in found))
    rows.append(("total", "", "", "", total, ""))
    print_lines(format_table(("PID", "WHAT", "FOR", "OF", "MEMORY", "CPU"), rows))


def _table(entries: list[Entry]) -> list[str]:
    fancy = is_unicode(sys.stdout)
    told = [entry.told() for entry in entries]
    columns = [one for one in COLUMNS if not one.rare or any(facts.get(one.name) for facts in told)]
    rows = [tuple(_cell(one, facts, fancy) for one in columns) for facts in told]
    lines = format_table([one.head for one in columns], rows)
    return _coloured(lines, entries, fancy) if has_colour(sys.stdout) else lines


COLOURS = {"success": "green", "warning": "yellow", "error": "red"}
"""Colours of a terminal by the roles of states."""


def _coloured(lines: list[str], entries: list[Entry], fancy: bool) -> list[str]:
    """Returns the table's lines with each glyph in colour."""
    head, *below = lines
    for number, entry in enumerate(entries):
        if (colour := COLOURS.get(entry.status.role)) is not None:
            status = _status(entry.status, fancy)
            styled = click.style(status[0], fg=colour) + status[1:]
            below[number] = below[number].replace(status, styled, 1)
    return [head, *below]


def _status(status: Status, fancy: bool) -> str:
    return status.text if fancy else f"{status.plain_sign} {status.value}"


def _cell(shown: Shown, told: Mapping[str, Any], fancy: bool) -> str:
    match value := told.get(shown.name):
        case Status():
            return _status(value, fancy)
        case tuple():
            found = [f"{host}→{guest}" for host, guest in value]
            found += [f"{host}→{guest}/udp" for host, guest in told["udp_ports"]]
            return ", ".join(found) if fancy else ", ".join(found).replace("→", "->")
    text = fact_text(shown.kind, value, time.time(), wide=True) if value else ""
    return text[:TEXT_MAX]


def _facts(entry: Entry) -> dict[str, Any]:
    told = entry.told()
    return {one.json: _plain(told[one.name]) for one in SHOWN if one.json and one.name in told}


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [{"host": host, "guest": guest} for host, guest in value]
    return value if value or value is False else None


POLL_S = 0.2
CHUNK = 64 * 1024


@command_of("logs")
def logs_command(name: str, follow: bool, qemu: bool, lines: int | None, plain: bool) -> int:
    """Show a sandbox's console.

    The last megabyte is kept, even after the sandbox has ended. A terminal gets only text, line
    breaks and tabs. Pipes and files get the bytes as the guest wrote them, with escape sequences
    that a terminal would obey later; --plain leaves those out there as well.
    """
    registry = Registry(paths())
    sandbox = registry.find(name).id
    place = registry.place(sandbox)
    path = place.qemu_log if qemu else place.console_log
    write = _plain_writer() if plain or sys.stdout.isatty() else _raw_writer()

    with contextlib.closing(Log(path)) as log:
        for data in last_lines(log.read_all(), lines):
            write(data)
        while follow:
            # Asking before reading makes sure that the last output before the end is read.
            ended = not registry.is_live(sandbox)
            for data in log.read_new():
                write(data)
            if ended:
                break
            time.sleep(POLL_S)
    return Exit.OK


class Log:
    """A log in two files, the older with ``.1`` behind its name (see the engine's keeper.py)."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: BinaryIO | None = None

    def read_all(self) -> Iterator[bytes]:
        """Yields the bytes of both files, the older file first."""
        older = self._path.with_name(self._path.name + ".1")
        with contextlib.suppress(FileNotFoundError), open_file(older) as file:
            while data := file.read(CHUNK):
                yield data
        yield from self.read_new()

    def read_new(self) -> Iterator[bytes]:
        """Yields the bytes that were written since the last call."""
        if self._file is None:
            try:
                self._file = open_file(self._path)
            except FileNotFoundError:
                return
        while data := self._file.read(CHUNK):
            yield data
        if self._is_replaced(self._file):
            # The log was rotated: read the rest of the old file, then the new one.
            while data := self._file.read(CHUNK):
                yield data
            self.close()
            yield from self.read_new()

    def close(self) -> None:
        """Closes the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _is_replaced(self, file: BinaryIO) -> bool:
        try:
            return not os.path.samestat(os.fstat(file.fileno()), self._path.stat())
        except FileNotFoundError:
            return False  # the log is being rotated, or was removed


def last_lines(pieces: Iterator[bytes], count: int | None) -> Iterator[bytes]:
    """Yields the bytes of the last ``count`` lines; all for None."""
    if count is None:
        yield from pieces
    elif text := b"".join(pieces):
        yield b"".join(text.splitlines(keepends=True)[-count:] if count else [])


def _raw_writer() -> Callable[[bytes], None]:
    def write(data: bytes) -> None:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()

    return write


def _plain_writer() -> Callable[[bytes], None]:
    plain = Plain()

    def write(data: bytes) -> None:
        sys.stdout.write(plain.feed(data))
        sys.stdout.flush()

    return write


"""Seconds between two looks at the disk."""


@command_of("events")
def events_command(
    names: tuple[str, ...], follow: bool, lines: int | None, since: Path | None, as_json: bool
) -> int:
    """Show what happened to sandboxes, or with -f what happens.

    Sandboxes that are created, change their state, are renamed or deleted; checkpoints; reverts;
    mounts; and commands that end (of `exec`, of the app and of Python). It does not matter which
    process does it. Without -f it shows what is known of the past: when sandboxes were created and
    started, checkpoints, and the last commands of those that run.

    With --json each event is an object on a line of its own, with "time" (Unix), "event", "id",
    "name", and what belongs to the event. With -f the first one is {"event": "watching"}: what
    happens after it is told. The disk is looked at twice a second; of states that follow each other
    faster, only the last one is told.

    With --since, what happened while no reader ran is told first: FILE keeps how far the reader
    before has come. It is written after each event, so one that is killed in between is told again.
    The first time, when there is no FILE, it begins as without it.
    """
    cursor = None if since is None else lazy.read_cursor(since)
    watch = lazy.EventWatch(cursor)
    past = watch.look()
    wanted = (0 if follow and cursor is None else len(past)) if lines is None else lines
    chosen = _of(past, names)
    _show_events(chosen[max(0, len(chosen) - wanted) :], as_json=as_json)
    _note(watch, since)
    if follow:
        if as_json:
            _show_events([Happened(kind=HappenedKind.WATCHING, time=time.time())], as_json=True)
        _follow(watch, names, since, as_json=as_json)
    return Exit.OK


def _note(watch: EventWatch, since: Path | None) -> None:
    """Notes the position of the watch. Raises HostError."""
    if since is not None and watch.cursor is not None:
        lazy.write_cursor(since, watch.cursor)


def _follow(
    watch: EventWatch, names: tuple[str, ...], since: Path | None, *, as_json: bool
) -> None:
    """Shows the events, until it is interrupted."""
    is_told = False
    while True:
        time.sleep(LOOK_EVERY_S)
        try:
            happened = watch.look()
        except (OSError, QuicksandError) as error:
            # It is tried again; the trouble is told once.
            if not is_told:
                complain(error, about="the sandboxes cannot be read now")
            is_told = True
            continue
        is_told = False
        _show_events(_of(happened, names), as_json=as_json)
        if happened:
            _note(watch, since)


def _of(events: Iterable[Happened], names: tuple[str, ...]) -> list[Happened]:
    """Returns the events of the sandboxes with these names or ids; all without names."""
    return [event for event in events if not names or event.name in names or event.id in names]


def _show_events(events: list[Happened], *, as_json: bool) -> None:
    if as_json:
        lines = [json.dumps(event.to_json()) for event in events]
    else:
        now = time.time()
        lines = [
            f"{clock_text(event.time, now)}  {event.name}  {clean(words_of(event))}"
            for event in events
        ]
    for line in lines:
        # DEL is the only character that a terminal acts on and JSON does not escape.
        print(line.replace("\x7f", "\\u007f"))
    sys.stdout.flush()


SAMPLE_S = 0.5
"""Seconds between the two readings from which a CPU rate is calculated."""

GUEST_S = 5.0
"""Seconds to wait for a guest to answer."""

HEADS = ("NAME", "CPU", "RSS", "DISK", "GUEST MEMORY", "GUEST DISK", "LOAD", "PROCESSES", "NET I/O")


@frozen
class Reading:
    """The figures of one sandbox at one moment."""

    name: str
    cpu_percent: float
    """CPU time in percent of one core."""
    rss: int
    memory: int
    """Bytes of the machine's own memory, without pages of files."""
    memory_bound: int | None
    """Bytes of memory beyond which the sandbox is paused; None if unknown."""
    oversized: str
    """The reason why it is beyond its size, or ""."""
    disk: int
    guest: SandboxStats | None
    error: str
    """The reason why ``guest`` is None."""

    def to_json(self) -> dict[str, Any]:
        """Returns the fields of `--json`: sizes in bytes, traffic in bytes since the boot."""
        facts: dict[str, Any] = {
            "name": self.name,
            "cpu_percent": round(self.cpu_percent, 1),
            "rss": self.rss,
            "memory": self.memory,
            "memory_bound": self.memory_bound,
            "oversized": self.oversized or None,
            "disk": self.disk,
            "error": self.error or None,
            "guest": None,
        }
        if (guest := self.guest) is not None:
            traffic = guest.guest_traffic
            told = (one.name for one in fields(guest) if one.name not in ("host", "guest_traffic"))
            facts["guest"] = {
                **{name.removeprefix("guest_"): getattr(guest, name) for name in told},
                "received": None if traffic is None else traffic.received,
                "sent": None if traffic is None else traffic.sent,
            }
        return facts

    def to_row(self) -> tuple[object, ...]:
        """Returns the cells of a row of the table."""
        cpu = percent_text(self.cpu_percent, wide=True)
        rss = f"{show_size(self.rss)}, too much" if self.oversized else show_size(self.rss)
        host = (self.name, cpu, rss, show_size(self.disk))
        if (guest := self.guest) is None:
            return (*host, self.error or "-", "", "", "", "")
        traffic = guest.guest_traffic
        moved = traffic and f"{show_size(traffic.received)} / {show_size(traffic.sent)}"
        return (
            *host,
            f"{show_size(guest.guest_memory_used)} of {show_size(guest.guest_memory_total)}",
            f"{show_size(guest.guest_disk_used)} of {show_size(guest.guest_disk_total)}",
            f"{guest.guest_load:.2f}",
            guest.guest_processes,
            moved or "-",
        )


@command_of("stats")
def stats_command(names: tuple[str, ...], watch: float | None, as_json: bool) -> int:
    """Show how much sandboxes use, on the host and inside.

    CPU is in percent of one core. The host measures CPU, RSS and DISK; the guest reports the rest.
    Without names, all running sandboxes are shown.
    """

    async def main(signals: Signals) -> int:
        reader = Reader()
        try:
            await reader.read(names)
            await lazy.sleep(SAMPLE_S)
            while True:
                _show_readings(await reader.read(names), as_json=as_json, again=watch is not None)
                if watch is None:
                    return 0
                await lazy.sleep(watch)
        finally:
            reader.close()

    return lazy.run_async(main)


def _show_readings(readings: list[Reading], *, as_json: bool, again: bool) -> None:
    if as_json:
        print_json([reading.to_json() for reading in readings])
        return
    if again and sys.stdout.isatty():
        sys.stdout.write(HOME)
    print_table(HEADS, [reading.to_row() for reading in readings])


class Reader:
    """Takes readings. Keeps connections and the last CPU times between readings."""

    def __init__(self) -> None:
        self._sandboxes: dict[str, Sandbox] = {}
        self._cpu: dict[str, tuple[float, float]] = {}
        """The time and the CPU seconds of the last reading, by the sandbox's id."""

    async def read(self, names: tuple[str, ...]) -> list[Reading]:
        """Reads each of the sandboxes. Raises SandboxNotFoundError for an unknown name."""
        registry = lazy.Registry(paths())
        if names:
            entries = [registry.find(name) for name in names]
        else:
            entries = [entry for entry in registry.list() if entry.is_live]
        return list(await lazy.gather(*(self._read(entry) for entry in entries)))

    async def _read(self, entry: Entry) -> Reading:
        host = await lazy.to_thread(lazy.host_usage, entry)
        now = time.monotonic()
        before, cpu = self._cpu.get(entry.id, (now, host.cpu_seconds))
        self._cpu[entry.id] = now, host.cpu_seconds
        percent = 100 * (host.cpu_seconds - cpu) / (now - before) if now > before else 0.0
        guest, error = await self._ask(entry)
        return Reading(
            name=entry.name,
            cpu_percent=max(0.0, percent),
            rss=host.rss,
            memory=host.memory,
            memory_bound=host.memory_bound,
            oversized=host.oversized,
            disk=host.disk,
            guest=guest,
            error=error,
        )

    async def _ask(self, entry: Entry) -> tuple[SandboxStats | None, str]:
        """Returns the guest's own figures, or None and the reason why there are none."""
        if entry.status is not lazy.Status.RUNNING:
            return None, entry.status.value
        try:
            if entry.id not in self._sandboxes:
                self._sandboxes[entry.id] = lazy.Sandbox.attach(entry.id)
            async with lazy.timeout(GUEST_S):
                return await self._sandboxes[entry.id].stats(), ""
        except TimeoutError:
            return None, "the guest does not answer"
        except QuicksandError as error:
            if (gone := self._sandboxes.pop(entry.id, None)) is not None:
                gone.close()
            return None, text_of(error)

    def close(self) -> None:
        """Closes the connections to all sandboxes."""
        for sandbox in self._sandboxes.values():
            sandbox.close()
