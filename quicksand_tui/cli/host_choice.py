"""The choices that are made before a command line is read: the machine that it is for, and whether
it opens the app. Every command loads this."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from quicksand_tui.cli.output import Exit, complain

OPTION = "--host"
VARIABLE = "QUICKSAND_HOST"
LOCAL = "local"
"""The name of this machine."""

HERE = frozenset({"completions", "fleet", "hosts", "serve", "ssh-config"})
"""Commands that are about this machine, whatever QUICKSAND_HOST says."""


class Chosen(NamedTuple):
    """A command line for another machine."""

    host: str
    """The machine, as the user wrote it."""
    argv: tuple[str, ...]
    """The rest of the line."""
    by_option: bool
    """Whether it was chosen in the line itself, and not by QUICKSAND_HOST."""


def find_host(argv: Sequence[str], environ: Mapping[str, str]) -> Chosen | None:
    """Returns the command line for another machine; None if it is for this machine, or if it is
    wrong, which click explains."""
    rest = list(argv)
    host, by_option = environ.get(VARIABLE, ""), False
    while rest and (rest[0] == OPTION or rest[0].startswith(f"{OPTION}=")):
        word = rest.pop(0)
        if word == OPTION:
            if not rest:
                return None
            host = rest.pop(0)
        else:
            host = word.partition("=")[2]
        by_option = True
    if not by_option and (not rest or rest[0] in HERE or rest[0].startswith("-")):
        return None
    if host in ("", LOCAL) and not by_option:
        return None
    return Chosen(host, tuple(rest), by_option)


def open_app(*, theme: str = "", ascii_glyphs: bool = False, read_only: bool = False) -> int:
    """Opens the app in this terminal; returns the exit code when the user leaves it."""
    from quicksand_tui.opening.opening import UnknownThemeError, run_app  # noqa: PLC0415

    try:
        return run_app(theme=theme, ascii_glyphs=ascii_glyphs, read_only=read_only)
    except UnknownThemeError as error:
        complain(error, hint=f"there are auto, {', '.join(error.known)}")
        return Exit.USAGE


def has_terminal() -> bool:
    """Returns whether stdin and stdout are both terminals."""
    return sys.stdin.isatty() and sys.stdout.isatty()
