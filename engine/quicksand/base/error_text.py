"""Texts for errors and notes of the engine: sizes, and foreign text of guests and files."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable

from quicksand.base.errors import QuicksandError

GIB = 1024 * 1024 * 1024


def size_text(size: int) -> str:
    """Returns a size in bytes as text: 512 MiB, and from one GiB on 1.5 GiB."""
    return f"{size / GIB:.1f} GiB" if size >= GIB else mib_text(size)


def mib_text(size: int) -> str:
    """Returns a size in bytes as MiB, rounded down, for sizes that are compared: 2048 MiB."""
    return f"{size >> 20} MiB"


def gib_text(size: int) -> str:
    """Returns a size in bytes as GiB with three digits, as disk sizes are given: 0.977 GiB."""
    return f"{size / GIB:.3g} GiB"


def choose(choices: Iterable[str]) -> str:
    """Returns the end of a message about a value that is not one of ``choices``. The message itself
    lists them, since a traceback shows no hint."""
    *others, last = choices
    return f"choose {', '.join(others)} or {last}" if others else f"choose {last}"


def host_takes(text: str) -> bool:
    """Whether a text can be a path or an argument of this host: it has no NUL, and no half of a
    character but one that stands for a byte (PEP 383)."""
    try:
        return b"\0" not in os.fsencode(text)
    except UnicodeEncodeError:
        return False


def printable(text: str) -> str:
    """Returns foreign text with a question mark for each character that a terminal could act on."""
    return "".join(char if char.isprintable() else "?" for char in text)


def reason_of(error: BaseException) -> str:
    """Returns the fault of input or of a request in words. An exception of our own and a ValueError
    that we raise have these; all others are described by their kind."""
    match error:
        case QuicksandError() if error.args:
            said = str(error.args[0])  # without the log that it may carry
        case TimeoutError():
            said = "no answer came in time"
        case OSError():
            said = error.strerror or "the host refused it"
        case KeyError() if error.args and isinstance(error.args[0], str):
            said = f"{error.args[0]} is missing"
        case json.JSONDecodeError():
            said = f"it is no JSON (line {error.lineno})"
        case UnicodeError():
            said = "it has text that is not valid"
        case ValueError() if error.args:
            said = str(error)
        case RecursionError():
            said = "it is nested too deeply"
        case EOFError():
            said = "it is cut off"
        case _:
            said = "it does not have the form that it must have"
    return said
