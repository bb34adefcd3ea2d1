"""Measures how checkpoints grow with the guest and with what it has written: the pause, the whole
call, and a plain write of the same bytes for comparison.

python bench/checkpoints.py [-n RUNS] [--memory 512M,2G] [--written 1,8,64,256] [--before MIB]
                            [--levels write-protect,anonymous] [--out FILE]

BEFORE MiB are written once before the first checkpoint, which is measured too. Then WRITTEN MiB are
written before each checkpoint; all sizes and levels take turns, so that a busy host treats them
alike. A row has the level that was really used: where the host's kernel cannot do what was asked
for, that is a lower one. At the end the guest reverts after each amount was
written. It prints tables, and writes JSON with all values to FILE. The guests are idle.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import re
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from quicksand import Checkpoint, QuicksandError, Sandbox
from quicksand.records.machine_options import parse_memory
from quicksand.snapshots.tracking import ANONYMOUS, LEVELS, VARIABLE, find_level
from quicksand_benchmark.command import revert_times, write_plainly
from quicksand_benchmark.measured import MIB, warm_sandbox, write_memory

from quicksand_tui.cli.output import complain, print_table

HEADS = ("GUEST", "LEVEL", "WRITTEN", "PAUSE ms", "CALL s", "PLAIN s", "STORED MiB")
REVERT_HEADS = ("GUEST", "LEVEL", "WRITTEN", "REVERT s", "PAUSE ms", "FORM")


@dataclass
class Row:
    """The measurements with one guest, at one level, for one amount of written memory."""

    memory: str
    asked: str
    """The requested level."""
    written_mib: int
    used: list[str] = field(default_factory=list)
    """The level of each checkpoint."""
    pause_ms: list[float] = field(default_factory=list)
    call_s: list[float] = field(default_factory=list)
    plain_s: list[float] = field(default_factory=list)
    """Writing as many bytes to a new file past the page cache, with fsync."""
    stored_mib: list[float] = field(default_factory=list)
    tier_note: str = ""

    @property
    def level(self) -> str:
        """The measured level; more than one, joined by +, if it differed between the runs."""
        return "+".join(dict.fromkeys(self.used))

    def to_json(self) -> dict[str, Any]:
        return {"level": self.level, **vars(self)}

    def cells(self) -> tuple[str, ...]:
        pause, call, plain, stored = (
            statistics.median(values)
            for values in (self.pause_ms, self.call_s, self.plain_s, self.stored_mib)
        )
        return (
            self.memory,
            self.level,
            f"{self.written_mib} MiB",
            f"{pause:.1f}",
            f"{call:.3f}",
            f"{plain:.3f}",
            f"{stored:.1f}",
        )


def median_of(values: list[float], digits: int) -> str:
    return f"{statistics.median(values):.{digits}f}" if values else "-"


def level_used(made: Checkpoint) -> str:
    """The level at which a checkpoint was taken that is not a machine's first; its tier if that one
    has no levels."""
    if made.tier != "pages":
        return made.tier
    named = re.search(r"\(([a-z-]+)\)$", made.tier_note)
    return named[1] if named is not None and named[1] in LEVELS else ANONYMOUS


async def take(sandbox: Sandbox, row: Row, *, is_first: bool = False) -> None:
    """Write memory, take a checkpoint, and add what it cost to ``row``."""
    await write_memory(sandbox, row.written_mib, f"{row.written_mib}")
    os.environ[VARIABLE] = row.asked
    started = time.perf_counter()
    made = await sandbox.checkpoint()
    row.call_s.append(time.perf_counter() - started)
    # The first checkpoint copies everything written, at any level; from it on writes are tracked.
    row.used.append(find_level().name if is_first else level_used(made))
    row.pause_ms.append(made.pause_s * 1000)
    row.stored_mib.append(made.bytes_written / MIB)
    row.plain_s.append(await asyncio.to_thread(write_plainly, made.bytes_written))
    row.tier_note = made.tier_note
    # Each fills its own file; the guest must not run out of memory.
    await sandbox.execute(f"rm -f /dev/shm/{row.written_mib}")


def fitting(arguments: argparse.Namespace, memory: str) -> tuple[int, list[int]]:
    """Returns the parts of BEFORE and of WRITTEN that fit into a guest; prints what is left out."""
    room = 2 * parse_memory(memory) // 3 // MIB
    before = arguments.before if arguments.before <= room else 0
    sizes = [size for size in arguments.written if before + size <= room]
    left_out = {arguments.before, *arguments.written} - {before, *sizes}
    for size in sorted(left_out):
        print(f"left out: {size} MiB do not fit into a guest of {memory}", file=sys.stderr)
    return before, sizes


async def measure(arguments: argparse.Namespace, memory: str) -> tuple[list[Row], list[Any]]:
    """Measure guests of one size, one for each level."""
    levels: list[str] = arguments.levels
    before, sizes = fitting(arguments, memory)
    rows = {(level, size): Row(memory, level, size) for level in levels for size in sizes}
    first = [Row(memory, level, before) for level in levels if before]
    if not rows:
        return [], []
    reverts = []
    async with AsyncExitStack() as stack:
        guests = {
            level: await stack.enter_async_context(warm_sandbox(arguments.image, memory))
            for level in levels
        }
        for row in first:
            await take(guests[row.asked], row, is_first=True)
            await write_memory(guests[row.asked], row.written_mib, "before")
        for level, guest in guests.items():
            os.environ[VARIABLE] = level
            await guest.checkpoint("base")
        for _ in range(arguments.runs):
            for row in rows.values():
                await take(guests[row.asked], row)
        for level, guest in guests.items():
            os.environ[VARIABLE] = level
            found = await revert_times(guest, arguments.runs, memory, sizes)
            used = rows[level, sizes[-1]].level
            for size, made in zip(sizes, found, strict=True):
                form = made.answer.facts["form"]
                times = made.answer.values, made.pause.values
                reverts.append((memory, used, size, *times, form))
    return [*first, *rows.values()], reverts


async def measure_all(arguments: argparse.Namespace) -> tuple[list[Row], list[Any], bool]:
    """Measure guests of all sizes; returns whether that was possible with each, too."""
    rows, reverts, is_whole = [], [], True
    for memory in arguments.memory:
        print(f"guests of {memory}", file=sys.stderr, flush=True)
        try:
            found = await measure(arguments, memory)
        except QuicksandError as error:  # results of other sizes are worth keeping
            is_whole = False
            complain(error, about=f"guests of {memory} are left out")
            continue
        rows += found[0]
        reverts += found[1]
    return rows, reverts, is_whole


def listed(parse: Callable[[str], Any]) -> Callable[[str], list[Any]]:
    """Reads words between commas, each once."""

    def read(text: str) -> list[Any]:
        return list(dict.fromkeys(parse(word) for word in text.split(",")))

    return read


def count_from(least: int) -> Callable[[str], int]:
    """Reads a whole number."""

    def read(text: str) -> int:
        if not text.isdecimal() or int(text) < least:
            raise argparse.ArgumentTypeError(f"{text!r} is no whole number from {least} on")
        return int(text)

    return read


def memory_size(text: str) -> str:
    """Reads the size of a guest's memory, which stays as it was written."""
    try:
        parse_memory(text)
    except QuicksandError as error:
        raise argparse.ArgumentTypeError(f"{error}: {error.hint}") from error
    return text


def level_name(text: str) -> str:
    if text not in LEVELS:
        raise argparse.ArgumentTypeError(f"there is no level {text!r}; one of {', '.join(LEVELS)}")
    return text


def writable(text: str) -> Path:
    """Reads the path of a file that must be writable, though it is needed an hour later."""
    path = Path(text)
    try:
        try:
            path.open("x").close()
        except FileExistsError:
            path.open("a").close()
        else:
            path.unlink()  # only this made it
    except OSError as error:
        raise argparse.ArgumentTypeError(f"{text}: {error.strerror}") from error
    return path


def parse(words: Sequence[str] | None = None) -> argparse.Namespace:
    """Reads the command line. Ends the program if something is wrong with it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("-n", "--runs", type=count_from(1), default=3)
    parser.add_argument("--image", default="debian")
    parser.add_argument("--memory", type=listed(memory_size), default="512M,1G,2G,4G")
    parser.add_argument("--written", type=listed(count_from(1)), default="1,8,64")
    parser.add_argument("--before", type=count_from(0), default=0)
    parser.add_argument("--levels", type=listed(level_name), default=LEVELS[0])
    parser.add_argument("--out", type=writable, help="write JSON here")
    return parser.parse_args(words)


def main() -> int:
    """Returns the exit code: 1 if guests of some size could not be measured."""
    arguments = parse()
    load = os.getloadavg()[0]
    rows, reverts, is_whole = asyncio.run(measure_all(arguments))
    print_table(HEADS, [row.cells() for row in rows])
    print_table(
        REVERT_HEADS,
        [
            (memory, level, f"{size} MiB", median_of(answer, 2), median_of(pause, 1), form)
            for memory, level, size, answer, pause, form in reverts
        ],
    )
    if arguments.out is not None:
        facts = {"host": platform.platform(), "load_before": load, "reverts": reverts}
        rows_json = [row.to_json() for row in rows]
        arguments.out.write_text(json.dumps({**facts, "rows": rows_json}, indent=1) + "\n")
    return 0 if is_whole else 1


if __name__ == "__main__":
    sys.exit(main())
