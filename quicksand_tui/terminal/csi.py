"""Control sequences: what each of them does. Names and numbers are those of xterm's ctlseqs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from quicksand_tui.terminal import reports
from quicksand_tui.terminal.dcs import SHAPES
from quicksand_tui.terminal.modes import (
    ALTERNATE_SCREEN,
    ANSI_FLAGS,
    ENCODINGS,
    PRIVATE_FLAGS,
    TRACKING,
    MouseEncoding,
    MouseTracking,
    private_state,
)
from quicksand_tui.terminal.state import SAVED_MODES_MAX, TITLES_MAX, State

NUMBER_MAX: Final = 65535
"""Parameters beyond it are taken for it."""

Numbers = list[int]
"""Parameters, one at least; one that was left out is 0."""

Command = Callable[[State, Numbers], object]


def handle_csi(state: State, params: str, final: str) -> None:
    """Do what a control sequence says. One that is unknown does nothing."""
    if params and params[0] in "<=>?":
        final = params[0] + final
        params = params[1:]
    command = COMMANDS.get(final)
    if command is None or ":" in params:
        return
    command(state, [min(int(word), NUMBER_MAX) if word else 0 for word in params.split(";")])


def _second(numbers: Numbers) -> int:
    return numbers[1] if len(numbers) > 1 else 0


# Where the cursor goes


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
    """What else happens when a mode of `PRIVATE_FLAGS` changes."""
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
    """Sizes are told and titles kept. Nothing moves the window, and no title is read back: who can
    set it could have it typed into a shell."""
    if numbers[0] == 22 and len(state.titles) < TITLES_MAX:
        state.titles.append(state.title)
    elif numbers[0] == 23 and state.titles:
        state.set_title(state.titles.pop())
    else:
        reports.window(state, numbers[0])


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
    "c": reports.primary_attributes,
    "d": lambda state, n: state.screen.move_row((n[0] or 1) - 1),
    "e": lambda state, n: state.screen.move_by(n[0] or 1, 0),
    "f": _cup,
    "g": _tbc,
    "h": _sm,
    "l": _rm,
    "n": reports.status,
    "r": _decstbm,
    "s": lambda state, _: state.screen.save_cursor(),
    "t": _xtwinops,
    "u": lambda state, _: state.screen.restore_cursor(),
    "?J": lambda state, n: state.screen.erase_in_display(n[0]),
    "?K": lambda state, n: state.screen.erase_in_line(n[0]),
    "?W": _decst8c,
    "?h": _decset,
    "?l": _decrst,
    "?m": reports.modified_keys,
    "?n": reports.private_status,
    "?r": _xtrestore,
    "?s": _xtsave,
    ">c": reports.secondary_attributes,
    ">f": _xtfmtkeys,
    ">m": _xtmodkeys,
    ">n": _xtmodkeys_off,
    ">q": reports.version,
    "=c": reports.tertiary_attributes,
    "!p": lambda state, _: state.soft_reset(),
    "$p": reports.ansi_mode,
    "?$p": reports.private_mode,
    " q": _decscusr,
}
"""By the private prefix, intermediate characters and the final one. The keyboard protocol of kitty
(``CSI ? u`` and its like) is not in it: who asks for it gets no answer, which means no."""
