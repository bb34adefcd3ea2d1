"""Carries out control sequences (CSI) and escape sequences."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from quicksand_vt import query_answers, rectangles
from quicksand_vt.modes import (
    ANSI_FLAGS,
    ENCODINGS,
    PRIVATE_FLAGS,
    TRACKING,
    MouseEncoding,
    MouseTracking,
    private_state,
)
from quicksand_vt.osc import handle_osc
from quicksand_vt.outbox import Bell
from quicksand_vt.query_answers import SHAPES, handle_dcs
from quicksand_vt.setting_resets import ALTERNATE_SCREEN
from quicksand_vt.terminal_state import LEVEL, SAVED_MODES_MAX, TITLES_MAX, State

NUMBER_MAX: Final = 65535
"""Larger parameters count as this."""

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


def _decslrm(state: State, numbers: Numbers) -> None:
    """DECSLRM while it is allowed (DECLRMM); otherwise the cursor is saved (SCOSC)."""
    screen = state.screen
    if state.modes.sides:
        screen.set_sides((numbers[0] or 1) - 1, _second(numbers) or screen.columns)
    else:
        screen.save_cursor()


def _decscl(state: State, numbers: Numbers) -> None:
    """DECSCL: resets the terminal and sets the level, VT100 (61) to VT420 (64, and those above).
    Below it, only the features for which programs probe are missing."""
    if 61 <= numbers[0] <= 65:
        state.reset()
        state.level = min(numbers[0] - 60, LEVEL)


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
        if number in _ALLOWED and not _ALLOWED[number](state):
            return
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


_ALLOWED: Final[Mapping[int, Callable[[State], bool]]] = {
    3: lambda state: state.modes.allows_columns,
    69: lambda state: state.level >= LEVEL,
}
"""The modes that only change under a condition."""


def _follow_flag(state: State, number: int, value: bool) -> None:
    """Carries out the side effects of changing a mode of `PRIVATE_FLAGS`."""
    screen = state.screen
    if number == 3:
        state.change_columns(wide=value)
    elif number == 5:
        screen.grid.all_dirty = True
    elif number == 6:
        screen.move_to(0, 0)
    elif number == 69 and not value:
        screen.reset_sides()
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


def _decsnls(state: State, numbers: Numbers) -> None:
    """DECSNLS: the number of rows, if the program may change it."""
    if state.resizable and numbers[0]:
        state.resize(state.screen.columns, numbers[0])


def _xtwinops(state: State, numbers: Numbers) -> None:
    """Reports sizes, and pushes and pops titles. Never moves the window, and never reports the
    title: output that sets it could otherwise have it typed into a shell."""
    number = numbers[0]
    if number == 22 and len(state.titles) < TITLES_MAX:
        state.titles.append(state.title)
    elif number == 23 and state.titles:
        state.set_title(state.titles.pop())
    elif state.resizable and (number == 8 or number >= 24):
        columns, height = state.screen.columns, state.screen.height
        rows = _second(numbers) if number == 8 else number
        state.resize(numbers[2] if len(numbers) > 2 and numbers[2] else columns, rows or height)
    else:
        query_answers.window(state, number)


COMMANDS: Final[Mapping[str, Command]] = {
    "@": lambda state, n: state.screen.insert_characters(n[0] or 1),
    "A": lambda state, n: state.screen.move_by(-(n[0] or 1), 0),
    "B": lambda state, n: state.screen.move_by(n[0] or 1, 0),
    "C": lambda state, n: state.screen.move_by(0, n[0] or 1),
    "D": lambda state, n: state.screen.back(n[0] or 1),
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
    "a": lambda state, n: state.screen.move_beyond(0, n[0] or 1),
    "b": lambda state, n: state.writer.repeat(n[0] or 1),
    "c": query_answers.primary_attributes,
    "d": lambda state, n: state.screen.move_row((n[0] or 1) - 1),
    "e": lambda state, n: state.screen.move_beyond(n[0] or 1, 0),
    "f": _cup,
    "g": _tbc,
    "h": _sm,
    "l": _rm,
    "n": query_answers.status,
    "r": _decstbm,
    "s": _decslrm,
    "t": _xtwinops,
    "u": lambda state, _: state.screen.restore_cursor(),
    ">u": lambda state, n: state.keyboard.push(n[0]),
    "<u": lambda state, n: state.keyboard.pop(n[0] or 1),
    "=u": lambda state, n: state.keyboard.change(n[0], _second(n) or 1),
    "?u": lambda state, _: state.replies.csi(f"?{state.keyboard.flags}u"),
    "?S": query_answers.graphics,
    "?J": lambda state, n: state.screen.erase_in_display(n[0], selective=True),
    "?K": lambda state, n: state.screen.erase_in_line(n[0], selective=True),
    "?W": _decst8c,
    "?h": _decset,
    "?l": _decrst,
    "?m": query_answers.modified_keys,
    "?n": query_answers.private_status,
    "?r": _xtrestore,
    "?s": _xtsave,
    ">c": query_answers.secondary_attributes,
    ">f": _xtfmtkeys,
    ">m": _xtmodkeys,
    ">n": _xtmodkeys_off,
    ">q": query_answers.version,
    "=c": query_answers.tertiary_attributes,
    "!p": lambda state, _: state.soft_reset(),
    "$p": query_answers.ansi_mode,
    "?$p": query_answers.private_mode,
    " q": _decscusr,
    '"p': _decscl,
    '"q': rectangles.protect,
    "'}": lambda state, n: state.screen.insert_columns(n[0] or 1),
    "'~": lambda state, n: state.screen.delete_columns(n[0] or 1),
    "$r": rectangles.change_attributes,
    "$t": rectangles.reverse_attributes,
    "$v": rectangles.copy,
    "$x": rectangles.fill,
    "$z": rectangles.erase,
    "${": rectangles.erase_selectively,
    "*x": rectangles.set_extent,
    "*y": rectangles.checksum,
    "*|": _decsnls,
}
"""Keys are private prefix, intermediate characters and final character."""


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
            "\b": screen.back,
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
            "6": screen.index_back,
            "7": screen.save_cursor,
            "8": screen.restore_cursor,
            "9": screen.index_forward,
            "D": screen.index,
            "E": screen.next_line,
            "H": lambda: screen.tabs.set(screen.cursor.x),
            "M": screen.reverse_index,
            "N": lambda: screen.charsets.use_once(2),
            "O": lambda: screen.charsets.use_once(3),
            "V": lambda: rectangles.start_protected(state),
            "W": lambda: rectangles.end_protected(state),
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
        elif kind == "P" and complete:
            handle_dcs(self._state, data)
        elif complete and data.startswith("G") and self._state.graphics is not None:
            self._state.graphics.command(data[1:])
