"""Carries out device control strings (DCS): answers questions for settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from quicksand_tui.terminal.modes import CursorShape
from quicksand_tui.terminal.style import sgr_text

if TYPE_CHECKING:
    from quicksand_tui.terminal.state import State

SHAPES: Final = (CursorShape.BLOCK, CursorShape.UNDERLINE, CursorShape.BAR)
"""In the order of DECSCUSR, which has two numbers for each, blinking and steady, from 1 on."""


def handle_dcs(state: State, data: str) -> None:
    """Carries out a complete DCS; ignores unknown ones."""
    if data.startswith("$q"):
        report = _REPORTS.get(data[2:])
        # xterm's ctlseqs: 1 means that the request is valid (DEC's manuals have it reversed).
        state.replies.dcs("0$r" if report is None else f"1$r{report(state)}{data[2:]}")
    elif data.startswith("+q"):
        state.replies.dcs("0+r")  # XTGETTCAP is refused: programs know the terminal by TERM


def _style(state: State) -> str:
    return sgr_text(state.screen.cursor.style)


def _region(state: State) -> str:
    return f"{state.screen.top + 1};{state.screen.end}"


def _cursor_shape(state: State) -> str:
    modes = state.modes
    return str(2 * SHAPES.index(modes.cursor_shape) + (1 if modes.cursor_blinks else 2))


def _level(state: State) -> str:
    return "62;1"  # VT200 series, 7-bit controls


def _protection(state: State) -> str:
    return "0"  # DECSCA is not supported


_REPORTS: Final[Mapping[str, Callable[[State], str]]] = {
    "m": _style,
    "r": _region,
    " q": _cursor_shape,
    '"p': _level,
    '"q': _protection,
}
"""The settings that DECRQSS can ask for."""
