"""Printing and exit codes for all commands: data goes to stdout, everything else to stderr."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from enum import IntEnum
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from quicksand_tui.model.text import clean

if TYPE_CHECKING:
    from quicksand.base.errors import DiskSpaceError
    from quicksand.things.fact import Shown

from quicksand_tui.model.amounts import age_text, date_text, fact_text, size_text
from quicksand_tui.model.remedy_words import FAULT, hint_of, text_of
from quicksand_tui.model.text import cells, clean_lines


def say_notices(name: str, notices: Sequence[str], *, but: Sequence[str] = ()) -> None:
    """Tells the notices of a sandbox's start, without those that were told already."""
    for notice in notices:
        if notice not in but:
            say(f"{name}: {clean(notice)}")


BY_SIGNAL = 128


class Exit(IntEnum):
    """The exit codes of all commands. `run`, `exec` and `shell` otherwise exit as the command in
    the guest did."""

    OK = 0
    FAILURE = 1
    USAGE = 2
    TIMEOUT = 124
    SANDBOX_FAILED = 125
    CANNOT_RUN = 126
    NOT_FOUND = 127
    INTERRUPTED = 130
    READER_GONE = 141


MEANINGS = {
    Exit.OK: "it worked",
    Exit.FAILURE: "it failed; stderr says why",
    Exit.USAGE: "the command line is wrong",
    Exit.TIMEOUT: "run, exec: --timeout ran out",
    Exit.SANDBOX_FAILED: "run, exec, shell: the sandbox failed, not the command in it",
    Exit.CANNOT_RUN: "run, exec: the command is there but cannot be run",
    Exit.NOT_FOUND: "run, exec: there is no such command in the sandbox",
    Exit.INTERRUPTED: "interrupted by Ctrl-C (128 + n after any other signal n)",
    Exit.READER_GONE: "whoever read the output has closed it",
}


def hint_with_amounts(error: DiskSpaceError) -> str:
    """Returns the error's hint. If it recommends `clean`, the hint tells what that would free
    now."""
    from quicksand.base.errors import QuicksandError  # noqa: PLC0415
    from quicksand.base.remedies import FREE_SPACE  # noqa: PLC0415

    hint = hint_of(error)
    if error.advice != FREE_SPACE:
        return hint
    from quicksand.base.paths import paths  # noqa: PLC0415
    from quicksand.life.cleaning import Cleaner, Waste  # noqa: PLC0415

    try:
        heaps = Cleaner(paths()).look()
    except (OSError, QuicksandError):
        return hint  # on a full disk, even counting may fail
    trash = sum(heap.frees for heap in heaps if heap.kind is Waste.TRASH)
    total = sum(heap.frees for heap in heaps)
    return f"{hint}: {show_size(total)} now, {show_size(trash)} of it in the trash"


PROGRAM = "quicksand-tui"

COMPLETE_VARIABLE = "_QUICKSAND_TUI_COMPLETE"
"""The environment variable in which a shell asks for completions (click's convention)."""


_coverings: list[Callable[[], None]] = []


@contextmanager
def covering(take_away: Callable[[], None]) -> Iterator[None]:
    """Calls ``take_away``, which removes the progress shown on a terminal, before each line is
    written, and at the end."""
    _coverings.append(take_away)
    try:
        yield
    finally:
        _coverings.remove(take_away)
        take_away()


def _make_room() -> None:
    for take_away in _coverings:
        take_away()


def say(line: str) -> None:
    """Writes a line for people to stderr."""
    _make_room()
    print(line, file=sys.stderr, flush=True)


def tell(line: str) -> None:
    """Writes a line of data to stdout while progress may be shown."""
    _make_room()
    print(line, flush=True)


def complain(error: object, *, hint: str = "", about: str = "") -> None:
    """Writes an error to stderr as ``quicksand-tui: message``, and a line with its hint."""
    from quicksand.base.errors import DiskSpaceError  # noqa: PLC0415
    from quicksand.base.remedies import shorten  # noqa: PLC0415

    subject = f"{clean(shorten(about))}: " if about else ""
    message = text_of(error)
    said = f"{subject}{clean_lines(shorten(message))}"
    hint = hint or hint_of(error)
    # The specification puts the hint of some errors into their message.
    if hint in message:
        hint = ""
    elif isinstance(error, DiskSpaceError):
        hint = hint_with_amounts(error)
    hint = clean_lines(shorten(hint))
    say(f"{PROGRAM}: {said}")
    if hint:
        say(f"hint: {hint}")


def complain_of(name: str, error: object) -> None:
    """Writes an error about ``name``, which begins with the name if the message does not have
    it."""
    complain(error, about="" if name in text_of(error) else name)


def complain_of_fault(error: BaseException) -> None:
    """Writes a fault of the program to its log, and to stderr that there was one, and where."""
    from quicksand.base.faults import note_fault  # noqa: PLC0415

    complain(FAULT, hint=note_fault(error))


def explain_os_error(error: OSError) -> str:
    """Returns the system's message, with the name of the file if there is one."""
    reason = error.strerror or str(error)
    return f"{os.fspath(error.filename)}: {reason}" if error.filename else reason


def print_json(value: Any) -> None:
    """Writes one JSON value to stdout; indented if stdout is a terminal."""
    text = json.dumps(value, indent=2 if sys.stdout.isatty() else None)
    # DEL is the only character that a terminal acts on and JSON does not escape.
    print(text.replace("\x7f", "\\u007f"), flush=True)


GAP = "  "
"""Between two columns of a table."""

WHOLE_MAX = 16
"""The most cells of a column that is never folded: sizes, ages, states, digests."""

BOLD, DIM, RED, GREEN, NORMAL = "\x1b[1m", "\x1b[2m", "\x1b[31m", "\x1b[32m", "\x1b[0m"
COLUMN_STYLES = {"PROBLEM": RED, "REASON": RED, "DIGEST": DIM, "ID": DIM}
WORD_STYLES = {"BAD": RED, "ok": GREEN, "whole": GREEN, "running": GREEN, "ended": DIM}
"""Styles of the words in the column STATE."""


def print_table(heads: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Writes a table to stdout. A terminal gets it in colour and fitted to its width, with long
    texts folded within their columns, unless even short ones would be cut. Cells are cleaned with
    `clean`."""
    if not is_terminal(sys.stdout):
        print_lines(format_table(heads, rows))
        return
    lines = _cleaned(heads, rows)
    widths = _fitted(_widths(lines), columns_of(sys.stdout))
    for line in lines:
        folded = [_fold(cell, width) for cell, width in zip(line, widths, strict=True)]
        styles = [_style(*one, of_sum=line[0] == "total") for one in zip(heads, line, strict=True)]
        if line is lines[0]:
            styles = [BOLD] * len(heads)
        for parts in zip_longest(*folded, fillvalue=""):
            print(_join(parts, widths, styles))
    sys.stdout.flush()


NAMES_SHOWN = 2
"""The most names that a cell shows."""


def print_things(
    things: Sequence[Any], facts: Sequence[Shown], without: Collection[str] = ()
) -> None:
    """Prints the table of things, ``without`` the columns of these facts."""
    columns = [one for one in facts if one.head and one.name not in without]
    columns = [c for c in columns if not c.rare or any(getattr(one, c.name) for one in things)]
    rows = [tuple(_cell(column, one) for column in columns) for one in things]
    print_table(tuple(column.head for column in columns), rows)


def _cell(column: Shown, thing: Any) -> str:
    value = getattr(thing, column.drawn or column.name)
    match column.kind:
        case "bytes":
            return "" if value is None else show_size(value)
        case "names":
            more = len(value) - NAMES_SHOWN
            return ", ".join(value[:NAMES_SHOWN]) + (f" +{more}" if more > 0 else "")
        case "until":
            return "kept" if value is None else date_text(value)
    return fact_text(column.kind, value, time.time(), wide=True) if value else ""


def print_lines(lines: list[str]) -> None:
    """Writes the lines of a table to stdout; on a terminal, the heads are bold."""
    head, *below = lines
    print(f"{BOLD}{head}{NORMAL}" if is_terminal(sys.stdout) else head)
    for line in below:
        print(line)
    sys.stdout.flush()


def format_table(heads: Sequence[str], rows: Sequence[Sequence[object]]) -> list[str]:
    """Returns a table as plain lines. Cells are cleaned with `clean`."""
    lines = _cleaned(heads, rows)
    widths = _widths(lines)
    return [_join(line, widths, [""] * len(heads)) for line in lines]


def _cleaned(heads: Sequence[str], rows: Sequence[Sequence[object]]) -> list[tuple[str, ...]]:
    return [tuple(heads), *(tuple(clean(cell) for cell in row) for row in rows)]


def _widths(lines: list[tuple[str, ...]]) -> list[int]:
    return [max(map(cells, column)) for column in zip(*lines, strict=True)]


def _fitted(widths: list[int], most: int) -> list[int]:
    """Returns the widths with those of long columns lessened, the widest first, so that all fit;
    the same if short ones would have to be."""
    fitted = list(widths)
    excess = sum(widths) + len(GAP) * (len(widths) - 1) - most
    for _ in range(excess):
        widest = fitted.index(max(fitted))
        if fitted[widest] <= WHOLE_MAX:
            return widths
        fitted[widest] -= 1
    return fitted


def _fold(text: str, width: int) -> list[str]:
    """Breaks a text into lines of so many cells: between words, or within one that is longer."""
    lines, gap = [""], ""
    for word in text.split(" "):
        if cells(lines[-1] + gap + word) <= width:
            lines[-1] += gap + word
        else:
            if lines[-1]:
                lines.append("")
            for char in word:
                if cells(lines[-1] + char) > width:
                    lines.append("")
                lines[-1] += char
        gap = " "
    return lines


def _style(head: str, cell: str, *, of_sum: bool) -> str:
    if of_sum:
        return BOLD
    style = WORD_STYLES.get(cell, "") if head == "STATE" else COLUMN_STYLES.get(head, "")
    return style if style == DIM or has_colour(sys.stdout) else ""


def _join(parts: Sequence[str], widths: list[int], styles: list[str]) -> str:
    """Returns a line of a table, with each cell in its style."""
    shown = [
        (f"{style}{part}{NORMAL}" if style and part else part) + " " * (width - cells(part))
        for part, width, style in zip(parts, widths, styles, strict=True)
    ]
    return GAP.join(shown).rstrip()


def show_size(size: float) -> str:
    """Returns a size in bytes as commands print it: ``1.5 GiB``."""
    return size_text(size, wide=True)


def show_age(since: float, now: float | None = None) -> str:
    """Returns the time from ``since`` to ``now`` (Unix seconds; the present) as commands print it:
    ``45s``, ``12m``, ``3h``, ``8d``."""
    return age_text((time.time() if now is None else now) - since, wide=True)


def is_terminal(stream: Any) -> bool:
    """Returns whether a stream leads to a terminal that can do more than show lines."""
    return bool(stream.isatty()) and os.environ.get("TERM", "") not in ("dumb", "unknown")


def columns_of(stream: Any) -> int:
    """Returns the columns of the terminal that a stream leads to, or those that the user says."""
    if (said := os.environ.get("COLUMNS", "")).isdecimal():
        return int(said)
    try:
        return os.get_terminal_size(stream.fileno()).columns or 80
    except OSError:
        return 80


def has_colour(stream: Any) -> bool:
    """Returns whether a stream leads to a terminal where the user wants colours (no-color.org)."""
    return is_terminal(stream) and not os.environ.get("NO_COLOR")


def is_unicode(stream: Any) -> bool:
    """Returns whether a stream's encoding is UTF-8."""
    return (getattr(stream, "encoding", None) or "").lower().replace("-", "") == "utf8"


def abandon_stdout() -> None:
    """Points stdout to /dev/null, so that Python does not complain at exit of a lost reader."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
