"""Measures how fast the terminal emulator parses output and how much memory its scrollback takes.
Prints medians of processor time, which other load affects less.

python bench/vt.py [--json] [RUNS]
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import time
import tracemalloc
from collections.abc import Callable

from quicksand_vt import Terminal

COLUMNS, ROWS = 120, 40
CHUNK = 64 * 1024
STREAM_BYTES = 1024 * 1024


def repeat(make: Callable[[random.Random], str]) -> bytes:
    """Return about `STREAM_BYTES` of the output of ``make``, the same in every run."""
    source = random.Random(7)
    data = bytearray()
    while len(data) < STREAM_BYTES:
        data += make(source).encode()
    return bytes(data)


def listing(source: random.Random) -> str:
    """Lines of `ls -lR --color`."""
    kinds = (("01;34", "drwxr-xr-x"), ("01;32", "-rwxr-xr-x"), ("01;36", "lrwxrwxrwx"))
    lines = [f"./src/directory{source.randrange(999)}:", f"total {source.randrange(9999)}"]
    for _ in range(50):
        name = f"file_{source.randrange(99999)}.py"
        colour, bits = source.choice([*kinds, ("", "-rw-r--r--"), ("", "-rw-r--r--")])
        shown = f"\x1b[0m\x1b[{colour}m{name}\x1b[0m" if colour else name
        size = source.randrange(999999)
        lines.append(
            f"{bits} 1 user user {size:7d} Mar {source.randrange(28) + 1:2d} 12:34 {shown}"
        )
    return "\r\n".join(lines) + "\r\n"


def build_log(source: random.Random) -> str:
    """Lines of a compiler's output, some longer than the screen is wide."""
    lines = []
    for _ in range(50):
        name = f"src/module{source.randrange(999)}/unit{source.randrange(999)}.c"
        flags = " -Iinclude -DNDEBUG" * source.randrange(1, 5)
        lines.append(f"[{source.randrange(999):3d}/999] cc -O2 -g -Wall{flags} -c {name}")
    return "\r\n".join(lines) + "\r\n"


def redraw(source: random.Random) -> str:
    """An editor that redraws its screen, with a position per row and a colour per word."""
    words = ("def", "return", "self.value", "import", "class", "(", "):", "for", "in", "0x1f")
    out = ["\x1b[?25l\x1b[H"]
    for row in range(ROWS - 1):
        out.append(f"\x1b[{row + 1};1H\x1b[38;5;130m{source.randrange(999):4d} \x1b[m")
        room = 100
        while room > 0:
            word = source.choice(words)
            if source.random() < 0.5:
                colour = f"38;5;{source.randrange(256)}"
            else:
                colour = "38;2;" + ";".join(str(source.randrange(0, 256, 32)) for _ in range(3))
            out.append(f"\x1b[{colour}m{word}\x1b[m ")
            room -= len(word) + 1
        out.append("\x1b[K")
    out.append(
        f"\x1b[{ROWS};1H\x1b[1m-- INSERT --\x1b[m\x1b[{source.randrange(39) + 1};9H\x1b[?25h"
    )
    return "".join(out)


def languages(source: random.Random) -> str:
    """Words in Chinese, Japanese and Korean, with accents, and emoji."""
    words = (
        *("漢字かな交じり文", "端末エミュレータ", "你好，世界", "한국어", "테스트"),
        *("café", "naïve", "Größe", "e\u0301te\u0301", "Привет", "мир", "hello", "ok"),
        *("🎉", "👍🏽", "👩\u200d💻", "🇩🇪", "❤\ufe0f", "🚀"),
    )
    lines = [" ".join(source.choice(words) for _ in range(16)) for _ in range(50)]
    return "\r\n".join(lines) + "\r\n"


STREAMS = {"listing": listing, "build_log": build_log, "redraw": redraw, "languages": languages}


def megabytes_per_second(data: bytes) -> float:
    terminal = Terminal(COLUMNS, ROWS)
    started = time.process_time()
    for at in range(0, len(data), CHUNK):
        terminal.feed(data[at : at + CHUNK])
        terminal.take_damage()
    return len(data) / (time.process_time() - started) / 1e6


def scrollback_megabytes(make: Callable[[random.Random], str]) -> float:
    """Return the megabytes of memory that 10,000 full lines take."""
    source = random.Random(7)
    text = "".join(make(source) for _ in range(400)).replace("\r\n", "  ")
    tracemalloc.start()
    terminal = Terminal(COLUMNS, ROWS)
    before = tracemalloc.get_traced_memory()[0]
    data, at = text.encode(), 0
    while terminal.screen_line < 10_000:
        at = at + CHUNK if at + CHUNK < len(data) else 0
        terminal.feed(data[at : at + CHUNK])
    used = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    return used / 1e6


def resize_milliseconds() -> float:
    """Return the milliseconds of a change of width with 10,000 lines of scrollback."""
    terminal = Terminal(COLUMNS, ROWS)
    data = repeat(listing)
    while terminal.screen_line < 10_000:
        terminal.feed(data)
    started = time.process_time()
    terminal.resize(COLUMNS - 40, ROWS)
    return (time.process_time() - started) * 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("runs", nargs="?", type=int, default=5)
    options = parser.parse_args()
    result: dict[str, float] = {}
    for name, make in STREAMS.items():
        data = repeat(make)
        speeds = [megabytes_per_second(data) for _ in range(options.runs)]
        result[f"{name}_mb_per_s"] = round(statistics.median(speeds), 2)
    for name in ("build_log", "listing", "languages"):
        result[f"{name}_scrollback_mb"] = round(scrollback_megabytes(STREAMS[name]), 2)
    times = [resize_milliseconds() for _ in range(options.runs)]
    result["resize_ms"] = round(statistics.median(times), 1)
    if options.json:
        json.dump(result, sys.stdout)
        print()
    else:
        for name, value in result.items():
            print(f"{name:24} {value:8.2f}")


if __name__ == "__main__":
    main()
