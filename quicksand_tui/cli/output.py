"""Printing: stdout is data, stderr is the rest."""

from __future__ import annotations

import json
import os
import sys
import time
import unicodedata
from collections.abc import Sequence
from typing import Any

from quicksand_tui.cli.text import clean, clean_lines

PROGRAM = "quicksand-tui"
UNSYNCED = (
    "not in it: what the guest had not yet written to its disk, since it was paused or did not "
    "answer; `quicksand-tui resume` lets it, then save again"
)
"""Of a save or a snapshot."""

COMPLETE_VARIABLE = "_QUICKSAND_TUI_COMPLETE"
"""Environment: what a shell asks that completes a command line (click)."""


def say(line: str) -> None:
    """A line for a person, on stderr."""
    print(line, file=sys.stderr, flush=True)


def complain(error: object, *, hint: str = "", about: str = "") -> None:
    """An error on stderr: ``quicksand-tui: message`` and its hint."""
    subject = f"{clean(about)}: " if about else ""
    say(f"{PROGRAM}: {subject}{clean_lines(error)}")
    hint = hint or getattr(error, "hint", "")
    # Some errors already carry their hint in the message, as the specification wants it.
    if hint and hint not in str(error):
        say(f"hint: {clean_lines(hint)}")


def explain_os_error(error: OSError) -> str:
    """What the system says, and of which file."""
    reason = error.strerror or str(error)
    return f"{os.fspath(error.filename)}: {reason}" if error.filename else reason


def print_json(value: Any) -> None:
    """One JSON value on stdout, indented for people only."""
    text = json.dumps(value, indent=2 if sys.stdout.isatty() else None)
    # JSON escapes everything else that a terminal could act on.
    print(text.replace("\x7f", "\\u007f"), flush=True)


def print_table(heads: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Columns on stdout, as wide as they need. Cells are cleaned."""
    for line in format_table(heads, rows):
        print(line)
    sys.stdout.flush()


def format_table(heads: Sequence[str], rows: Sequence[Sequence[object]]) -> list[str]:
    """The lines of a table."""
    lines = [tuple(heads), *(tuple(clean(cell) for cell in row) for row in rows)]
    widths = [max(cells(line[n]) for line in lines) for n in range(len(heads))]
    return [
        "  ".join(
            cell + " " * (width - cells(cell)) for cell, width in zip(line, widths, strict=True)
        ).rstrip()
        for line in lines
    ]


def cells(text: str) -> int:
    """How many columns of a terminal ``text`` takes."""
    if text.isascii():
        return len(text)
    wide = sum(unicodedata.east_asian_width(c) in "WF" for c in text)
    return len(text) + wide - sum(unicodedata.category(c) in ("Mn", "Me") for c in text)


def show_size(size: float) -> str:
    """Bytes for people, three digits: ``1.5 GiB``."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" or size >= 100 else f"{size:.3g} {unit}"
        size /= 1024
    return f"{size:.3g} TiB"


def show_age(since: float, now: float | None = None) -> str:
    """Time since ``since`` (Unix) in its largest unit: ``45s``, ``12m``, ``3h``, ``8d``."""
    seconds = max(0.0, (time.time() if now is None else now) - since)
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f}{unit}"
    return f"{seconds:.0f}s"


def show_date(when: float) -> str:
    """A day, as people of all countries write it: ``2026-07-14``."""
    try:
        return time.strftime("%Y-%m-%d", time.localtime(when))
    except (OverflowError, ValueError, OSError):
        return "never"


def is_unicode(stream: Any) -> bool:
    """Whether a stream can show characters beyond ASCII."""
    return (getattr(stream, "encoding", None) or "").lower().replace("-", "") == "utf8"


def abandon_stdout() -> None:
    """Point stdout nowhere, so that nothing complains at exit that its reader is gone."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
