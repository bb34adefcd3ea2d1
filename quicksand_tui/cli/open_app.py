"""Opens the app from a command line."""

from __future__ import annotations

import sys

from quicksand_tui.cli.output import Exit, complain


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
