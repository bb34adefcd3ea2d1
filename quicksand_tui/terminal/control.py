"""Carries out control sequences (CSI) and escape sequences."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from quicksand_tui.terminal.dcs import SHAPES, handle_dcs
from quicksand_tui.terminal.events import Bell
from quicksand_tui.terminal.modes import (
    ANSI_FLAGS,
    ENCODINGS,
    PRIVATE_FLAGS,
    TRACKING,
    MouseEncoding,
    MouseTracking,
    ansi_state,
    private_state,
)
from quicksand_tui.terminal.osc import handle_osc
from quicksand_tui.terminal.settings import ALTERNATE_SCREEN
from quicksand_tui.terminal.state import SAVED_MODES_MAX, TITLES_MAX, State

NUMBER_MAX: Final = 65535
"""Larger parameters count as this."""

VERSION_LIKE: Final = 380
"""The version in the answer to DA2. Programs read it as xterm's patch level: vim needs 277 for SGR
mouse reports, Emacs 242 for modifyOtherKeys; they read 2000 and above as VTE's version."""

NAME: Final = "quicksand-tui"

Numbers = list[int]
"""The parameters, at least one; an omitted one is 0."""

Command = Callable[[State, Numbers], object]


def handle_csi(state: State, params: str, final: str) -> None:
    """Carries out a control sequence; ignores unknown ones."""
    if params and params[0] in "<=>?":
        final = params[0] + final
        params = params[1:]
    command = COMMANDS.get(final)
    if command is None or ":" in params:
        return
    command(state, [min(int(word), NUMBER_MAX) if word else 0 for word in params.split(";")])


def _second(numbers: Numbers) -> int:
    return numbers[1] if len(numbers) > 1 else 0


# Cursor and margins


def _cup(state: State, numbers: Numbers) -> None:
    state.screen.move_to((numbers[0] or 1) - 1, (_second(numbers) or 1) - 1)


def _cnl(state: State, numbers: Numbers) -> None:
    state.screen.move_by(numbers[0] or 1, 0)
    state.screen.carriage_return()


def _cpl(state: State, numbers: Numbers) -> None:
    state.screen.move_by(-(numbers[0] or 1), 0)
    state.screen.carriage_return()


def _tbc(state: State, numbers: Numbers) -> None:
    if numbers[0] == 0:
        state.screen.tabs.clear(state.screen.cursor.x)
    elif numbers[0] == 3:
        state.screen.tabs.clear_all()


def _decst8c(state: State, numbers: Numbers) -> None:
    if numbers[0] == 5:
        state.screen.tabs.reset()


def _decstbm(state: State, numbers: Numbers) -> None:
    state.screen.set_region((numbers[0] or 1) - 1, _second(numbers) or state.screen.height)


# Modes


def _sm(state: State, numbers: Numbers) -> None:
    _set_ansi(state, numbers, True)


def _rm(state: State, numbers: Numbers) -> None:
    _set_ansi(state, numbers, False)


def _set_ansi(state: State, numbers: Numbers, value: bool) -> None:
    for number in numbers:
        if number in ANSI_FLAGS:
            setattr(state.modes, ANSI_FLAGS[number], value)


def _decset(state: State, numbers: Numbers) -> None:
    for number in numbers:
        _set_private(state, number, True)


def _decrst(state: State, numbers: Numbers) -> None:
    for number in numbers:
        _set_private(state, number, False)


def _set_private(state: State, number: int, value: bool) -> None:
    modes, screen = state.modes, state.screen
    if number in PRIVATE_FLAGS:
        setattr(modes, PRIVATE_FLAGS[number], value)
        _follow_flag(state, number, value)
    elif number in TRACKING:
        modes.mouse_tracking = TRACKING[number] if value else MouseTracking.OFF
    elif number in ENCODINGS:
        if value:
            modes.mouse_encoding = ENCODINGS[number]
        elif modes.mouse_encoding is ENCODINGS[number]:
            modes.mouse_encoding = MouseEncoding.X10
    elif number in ALTERNATE_SCREEN:
        _set_alternate(state, number, value)
    elif number == 1048:
        (screen.save_cursor if value else screen.restore_cursor)()


def _follow_flag(state: State, number: int, value: bool) -> None:
    """Carries out the side effects of changing a mode of `PRIVATE_FLAGS`."""
    if number == 5:
        state.screen.grid.all_dirty = True
    elif number == 6:
        state.screen.move_to(0, 0)
    elif number == 2026 and value and state.held_since is None:
        state.held_since = state.clock()


def _set_alternate(state: State, number: int, value: bool) -> None:
    screen = state.screen
    if value:
        if number == 1049:
            screen.save_cursor()
        screen.show_alternate(clear=number == 1049)
    else:
        screen.show_main(clear=number == 1047)
        if number == 1049:
            screen.restore_cursor()


def _xtsave(state: State, numbers: Numbers) -> None:
    saved = state.saved_modes
    for number in numbers:
        known = private_state(state.modes, number, alternate=state.screen.is_alternate)
        if known in (1, 2) and (number in saved or len(saved) < SAVED_MODES_MAX):
            saved[number] = known == 1


def _xtrestore(state: State, numbers: Numbers) -> None:
    for number in numbers:
        if number in state.saved_modes:
            _set_private(state, number, state.saved_modes[number])


def _decscusr(state: State, numbers: Numbers) -> None:
    number = numbers[0] or 1
    if number <= 2 * len(SHAPES):
        state.modes.cursor_shape = SHAPES[(number - 1) // 2]
        state.modes.cursor_blinks = number % 2 == 1


def _xtmodkeys(state: State, numbers: Numbers) -> None:
    if numbers[0] == 4:
        state.modes.modify_other_keys = min(_second(numbers), 2)


def _xtmodkeys_off(state: State, numbers: Numbers) -> None:
    if numbers[0] == 4:
        state.modes.modify_other_keys = 0


def _xtfmtkeys(state: State, numbers: Numbers) -> None:
    if numbers[0] in (0, 4):
        state.modes.format_other_keys = min(_second(numbers), 1) if numbers[0] else 0


# The window


def _xtwinops(state: State, numbers: Numbers) -> None:
    """Reports sizes, and pushes and pops titles. Never moves the window, and never reports the
    title: output that sets it could otherwise have it typed into a shell."""
    if numbers[0] == 22 and len(state.titles) < TITLES_MAX:
        state.titles.append(state.title)
    elif numbers[0] == 23 and state.titles:
        state.set_title(state.titles.pop())
    else:
        _window(state, numbers[0])


# Answers


def _primary_attributes(state: State, numbers: Numbers) -> None:
    """DA1: a VT220 with colours (22) and a clipboard that can be written (52)."""
    if numbers[0] == 0:
        state.replies.csi("?62;22;52c")


def _secondary_attributes(state: State, numbers: Numbers) -> None:
    """DA2: a VT220, the version, no cartridge."""
    if numbers[0] == 0:
        state.replies.csi(f">1;{VERSION_LIKE};0c")


def _tertiary_attributes(state: State, numbers: Numbers) -> None:
    """DA3: a unit id of zeros."""
    if numbers[0] == 0:
        state.replies.dcs("!|00000000")


def _version(state: State, numbers: Numbers) -> None:
    """XTVERSION: the name."""
    if numbers[0] == 0:
        state.replies.dcs(f">|{NAME}")


def _status(state: State, numbers: Numbers) -> None:
    """DSR: 5 asks for the status, 6 for the cursor's position."""
    if numbers[0] == 5:
        state.replies.csi("0n")
    elif numbers[0] == 6:
        state.replies.csi(f"{_place(state)}R")


def _private_status(state: State, numbers: Numbers) -> None:
    """DSR with ``?``: 6 cursor and page (DECXCPR), 15 no printer, 25 user keys locked, 26
    keyboard."""
    answers = {6: f"?{_place(state)};1R", 15: "?13n", 25: "?20n", 26: "?27;1;0;0n"}
    if numbers[0] in answers:
        state.replies.csi(answers[numbers[0]])


def _place(state: State) -> str:
    """Returns row and column from 1; in origin mode, rows count from the scroll region."""
    screen = state.screen
    top = screen.top if state.modes.origin else 0
    return f"{screen.cursor.y - top + 1};{screen.cursor.x + 1}"


def _ansi_mode(state: State, numbers: Numbers) -> None:
    """DECRQM for a mode of SM."""
    state.replies.csi(f"{numbers[0]};{ansi_state(state.modes, numbers[0])}$y")


def _private_mode(state: State, numbers: Numbers) -> None:
    """DECRQM for a mode of DECSET."""
    found = private_state(state.modes, numbers[0], alternate=state.screen.is_alternate)
    state.replies.csi(f"?{numbers[0]};{found}$y")


def _modified_keys(state: State, numbers: Numbers) -> None:
    """XTQMODKEYS: the level of modifyOtherKeys."""
    if numbers[0] == 4:
        state.replies.csi(f">4;{state.modes.modify_other_keys}m")


def _window(state: State, number: int) -> None:
    """XTWINOPS, heights first: 11 not minimised, 14 the text area in pixels, 16 a cell in pixels,
    18 and 19 the text area in cells."""
    columns, height = state.screen.columns, state.screen.height
    if number == 11:
        state.replies.csi("1t")
    elif number in (18, 19):
        state.replies.csi(f"{number - 10};{height};{columns}t")
    elif state.cell_pixels is not None:
        across, down = state.cell_pixels
        if number == 14:
            state.replies.csi(f"4;{height * down};{columns * across}t")
        elif number == 16:
            state.replies.csi(f"6;{down};{across}t")


COMMANDS: Final[Mapping[str, Command]] = {
    "@": lambda state, n: state.screen.insert_characters(n[0] or 1),
    "A": lambda state, n: state.screen.move_by(-(n[0] or 1), 0),
    "B": lambda state, n: state.screen.move_by(n[0] or 1, 0),
    "C": lambda state, n: state.screen.move_by(0, n[0] or 1),
    "D": lambda state, n: state.screen.move_by(0, -(n[0] or 1)),
    "E": _cnl,
    "F": _cpl,
    "G": lambda state, n: state.screen.move_column((n[0] or 1) - 1),
    "H": _cup,
    "I": lambda state, n: state.screen.tab(n[0] or 1),
    "J": lambda state, n: state.screen.erase_in_display(n[0]),
    "K": lambda state, n: state.screen.erase_in_line(n[0]),
    "L": lambda state, n: state.screen.insert_lines(n[0] or 1),
    "M": lambda state, n: state.screen.delete_lines(n[0] or 1),
    "P": lambda state, n: state.screen.delete_characters(n[0] or 1),
    "S": lambda state, n: state.screen.scroll(n[0] or 1),
    "T": lambda state, n: state.screen.scroll(-(n[0] or 1)) if len(n) == 1 else None,
    "X": lambda state, n: state.screen.erase_characters(n[0] or 1),
    "Z": lambda state, n: state.screen.back_tab(n[0] or 1),
    "^": lambda state, n: state.screen.scroll(-(n[0] or 1)),
    "`": lambda state, n: state.screen.move_column((n[0] or 1) - 1),
    "a": lambda state, n: state.screen.move_by(0, n[0] or 1),
    "b": lambda state, n: state.writer.repeat(n[0] or 1),
    "c": _primary_attributes,
    "d": lambda state, n: state.screen.move_row((n[0] or 1) - 1),
    "e": lambda state, n: state.screen.move_by(n[0] or 1, 0),
    "f": _cup,
    "g": _tbc,
    "h": _sm,
    "l": _rm,
    "n": _status,
    "r": _decstbm,
    "s": lambda state, _: state.screen.save_cursor(),
    "t": _xtwinops,
    "u": lambda state, _: state.screen.restore_cursor(),
    "?J": lambda state, n: state.screen.erase_in_display(n[0]),
    "?K": lambda state, n: state.screen.erase_in_line(n[0]),
    "?W": _decst8c,
    "?h": _decset,
    "?l": _decrst,
    "?m": _modified_keys,
    "?n": _private_status,
    "?r": _xtrestore,
    "?s": _xtsave,
    ">c": _secondary_attributes,
    ">f": _xtfmtkeys,
    ">m": _xtmodkeys,
    ">n": _xtmodkeys_off,
    ">q": _version,
    "=c": _tertiary_attributes,
    "!p": lambda state, _: state.soft_reset(),
    "$p": _ansi_mode,
    "?$p": _private_mode,
    " q": _decscusr,
}
"""Keys are private prefix, intermediate characters and final character. Kitty's keyboard protocol
(``CSI ? u``) is not supported; programs take the missing answer as a no."""


_DESIGNATIONS: Final = "()*+"
"""The characters after ESC that designate G0 to G3."""


class Interpreter:
    """The parser's sink: carries out everything that is not text."""

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
