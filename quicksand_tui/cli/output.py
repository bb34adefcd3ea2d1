"""Printing and exit codes for all commands: data goes to stdout, everything else to stderr."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from enum import IntEnum
from typing import TYPE_CHECKING, Any

from quicksand_tui.model.text import clean

if TYPE_CHECKING:
    from pathlib import Path

    from quicksand.base.errors import DiskSpaceError

from quicksand_tui.model.amounts import age_text, size_text
from quicksand_tui.model.remedy_words import hint_of, text_of
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
BOLD, NORMAL = "\x1b[1m", "\x1b[0m"

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


def told(path: str | Path) -> str:
    """Returns the path of a file that was given to this command, as it is known where the command
    was typed. For another machine, a command runs in a directory of this one that only this one
    knows, with the files that it reads or writes."""
    from quicksand.remote.passed_on import ClientFiles  # noqa: PLC0415

    files = ClientFiles.read(os.environ)
    return os.fspath(path) if files is None else files.told(path)


def told_text(text: str) -> str:
    """Returns a message with such paths in it."""
    from quicksand.remote.passed_on import ClientFiles  # noqa: PLC0415

    files = ClientFiles.read(os.environ)
    return text if files is None else files.told_text(text)


def complain(error: object, *, hint: str = "", about: str = "") -> None:
    """Writes an error to stderr as ``quicksand-tui: message``, and a line with its hint."""
    from quicksand.base.errors import DiskSpaceError  # noqa: PLC0415
    from quicksand.base.remedies import shorten  # noqa: PLC0415

    subject = f"{clean(shorten(about))}: " if about else ""
    message = text_of(error)
    said = f"{subject}{clean_lines(shorten(told_text(message)))}"
    hint = hint or hint_of(error)
    # The specification puts the hint of some errors into their message.
    if hint in message:
        hint = ""
    elif isinstance(error, DiskSpaceError):
        hint = hint_with_amounts(error)
    hint = clean_lines(shorten(told_text(hint)))
    say(f"{PROGRAM}: {said}")
    if hint:
        say(f"hint: {hint}")


def complain_of(name: str, error: object) -> None:
    """Writes an error about ``name``, which begins with the name if the message does not have
    it."""
    complain(error, about="" if name in text_of(error) else name)


def explain_os_error(error: OSError) -> str:
    """Returns the system's message, with the name of the file if there is one."""
    reason = error.strerror or str(error)
    return f"{os.fspath(error.filename)}: {reason}" if error.filename else reason


def print_json(value: Any) -> None:
    """Writes one JSON value to stdout; indented if stdout is a terminal."""
    text = json.dumps(value, indent=2 if sys.stdout.isatty() else None)
    # DEL is the only character that a terminal acts on and JSON does not escape.
    print(text.replace("\x7f", "\\u007f"), flush=True)


def print_table(heads: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Writes a table to stdout: fitted to the width of a terminal, or else as wide as it needs to
    be. Cells are cleaned with `clean`."""
    if is_terminal(sys.stdout):
        from quicksand_tui.cli.rich_tables import draw_table  # noqa: PLC0415

        if draw_table(heads, rows):
            return
    print_lines(format_table(heads, rows))


def print_lines(lines: list[str]) -> None:
    """Writes the lines of a table to stdout; on a terminal, the heads are bold."""
    head, *below = lines
    print(f"{BOLD}{head}{NORMAL}" if is_terminal(sys.stdout) else head)
    for line in below:
        print(line)
    sys.stdout.flush()


def format_table(heads: Sequence[str], rows: Sequence[Sequence[object]]) -> list[str]:
    """Returns a table as plain lines. Cells are cleaned with `clean`."""
    lines = [tuple(heads), *(tuple(clean(cell) for cell in row) for row in rows)]
    widths = [max(cells(line[n]) for line in lines) for n in range(len(heads))]
    return [
        "  ".join(
            cell + " " * (width - cells(cell)) for cell, width in zip(line, widths, strict=True)
        ).rstrip()
        for line in lines
    ]


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


def has_colour(stream: Any) -> bool:
    """Returns whether a stream leads to a terminal where the user wants colours (no-color.org)."""
    return is_terminal(stream) and not os.environ.get("NO_COLOR")


def is_unicode(stream: Any) -> bool:
    """Returns whether a stream's encoding is UTF-8."""
    return (getattr(stream, "encoding", None) or "").lower().replace("-", "") == "utf8"


def abandon_stdout() -> None:
    """Points stdout to /dev/null, so that Python does not complain at exit of a lost reader."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
