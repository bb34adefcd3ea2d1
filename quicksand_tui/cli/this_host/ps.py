"""`quicksand-tui ps, logs`: lists sandboxes from their records on disk, and shows their consoles.
Imports as little as possible."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

import click
from quicksand.base.paths import paths
from quicksand.base.regular import open_file
from quicksand.records.registry import Registry
from quicksand.records.sandboxes import Entry
from quicksand.things.fact import Shown
from quicksand.things.sandbox_facts import SHOWN
from quicksand.things.status import Status

from quicksand_tui.cli.click_commands import command_of
from quicksand_tui.cli.output import (
    Exit,
    format_table,
    has_colour,
    is_terminal,
    is_unicode,
    print_json,
    print_lines,
    say,
    show_size,
)
from quicksand_tui.model.amounts import fact_text
from quicksand_tui.model.text import Plain

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
