"""Between parser and state: control characters, escape sequences, and who handles the rest."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from quicksand_tui.terminal.csi import handle_csi
from quicksand_tui.terminal.dcs import handle_dcs
from quicksand_tui.terminal.events import Bell
from quicksand_tui.terminal.osc import handle_osc

if TYPE_CHECKING:
    from quicksand_tui.terminal.state import State

_DESIGNATIONS: Final = "()*+"
"""Of G0 to G3."""


class Interpreter:
    """The parser's sink."""

    def __init__(self, state: State) -> None:
        self._state = state
        screen = state.screen
        self.write = state.writer.write
        self.sgr = screen.change_style
        self.controls: Mapping[str, Callable[[], object]] = {
            "\a": lambda: state.events.put(Bell()),
            "\b": screen.backspace,
            "\t": screen.tab,
            "\n": screen.line_feed,
            "\v": screen.line_feed,
            "\f": screen.line_feed,
            "\r": screen.carriage_return,
            "\r\n": screen.return_line_feed,
            "\x0e": lambda: screen.charsets.use(1),
            "\x0f": lambda: screen.charsets.use(0),
        }
        self._escapes: Mapping[str, Callable[[], object]] = {
            "7": screen.save_cursor,
            "8": screen.restore_cursor,
            "D": screen.index,
            "E": screen.next_line,
            "H": lambda: screen.tabs.set(screen.cursor.x),
            "M": screen.reverse_index,
            "N": lambda: screen.charsets.use_once(2),
            "O": lambda: screen.charsets.use_once(3),
            "Z": lambda: self.csi("", "c"),
            "c": state.reset,
            "n": lambda: screen.charsets.use(2),
            "o": lambda: screen.charsets.use(3),
            "=": lambda: self._set_keypad(True),
            ">": lambda: self._set_keypad(False),
            "#8": screen.align,
        }

    def _set_keypad(self, value: bool) -> None:
        self._state.modes.application_keypad = value

    def csi(self, params: str, final: str) -> None:
        handle_csi(self._state, params, final)

    def escape(self, final: str) -> None:
        command = self._escapes.get(final)
        if command is not None:
            command()
        elif len(final) == 2 and final[0] in _DESIGNATIONS:
            number = _DESIGNATIONS.index(final[0])
            self._state.screen.charsets.designate(number, final[1])

    def string(self, kind: str, data: str, end: str, *, complete: bool) -> None:
        if kind == "]":
            handle_osc(self._state, data, end, complete=complete)
        elif complete:
            handle_dcs(self._state, data)
