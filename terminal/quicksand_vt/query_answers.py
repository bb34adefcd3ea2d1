"""Answers to queries: attributes, status, modes, settings, sizes. Each goes through `Replies`,
which bounds them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from quicksand_vt.graphics import REGISTERS, USUAL_CELL
from quicksand_vt.modes import CursorShape, ansi_state, private_state
from quicksand_vt.style import Attribute, sgr_text

if TYPE_CHECKING:
    from quicksand_vt.terminal_state import State

VERSION_LIKE: Final = 383
"""The version in the answer to DA2. Programs read it as xterm's patch level: vim needs 277 for SGR
mouse reports, Emacs 242 for modifyOtherKeys; they read 2000 and above as VTE's version. From 383
on, mode 45 goes back along wrapped lines only, as here."""

CAPABILITIES: Final = {
    **{"Co": "256", "colors": "256", "TN": "xterm-256color", "name": "xterm-256color"},
    "RGB": "8",
}
"""The answers to XTGETTCAP; names as in terminfo and xterm's ctlseqs."""
CAPABILITIES_MAX: Final = 16
"""Names in one question."""

SHAPES: Final = (CursorShape.BLOCK, CursorShape.UNDERLINE, CursorShape.BAR)
"""In the order of DECSCUSR, which has two numbers for each, blinking and steady, from 1 on."""

MODES_FROM_LEVEL: Final = 3
"""Below this level of DECSCL, DECRQM gets no answer."""


def primary_attributes(state: State, numbers: list[int]) -> None:
    """DA1: a VT420 (64) with sixels (4) if they are drawn, selective erasing (6), left and right
    margins (21), colours (22), rectangles (28), and a clipboard that can be written (52)."""
    if numbers[0] == 0:
        sixels = "" if state.graphics is None else "4;"
        state.replies.csi(f"?64;{sixels}6;21;22;28;52c")


def secondary_attributes(state: State, numbers: list[int]) -> None:
    """DA2: a VT420, the version, no cartridge."""
    if numbers[0] == 0:
        state.replies.csi(f">41;{VERSION_LIKE};0c")


def tertiary_attributes(state: State, numbers: list[int]) -> None:
    """DA3: a unit id of zeros."""
    if numbers[0] == 0:
        state.replies.dcs("!|00000000")


def version(state: State, numbers: list[int]) -> None:
    """XTVERSION: the name."""
    if numbers[0] == 0:
        state.replies.dcs(f">|{state.name}")


def status(state: State, numbers: list[int]) -> None:
    """DSR: 5 asks for the status, 6 for the cursor's position."""
    if numbers[0] == 5:
        state.replies.csi("0n")
    elif numbers[0] == 6:
        state.replies.csi(f"{_place(state)}R")


_PRIVATE_STATUS: Final = {
    15: "?13n",  # no printer
    25: "?20n",  # keys that programs define are not locked
    26: "?27;1;0;0n",  # the keyboard: North American, ready
    53: "?50n",  # no locator
    55: "?50n",
    56: "?57;0n",  # of an unknown kind
    62: "0*{",  # no room for macros
    75: "?70n",  # no errors on the line
    85: "?83n",  # no several sessions
}
"""Answers to DSR with ``?`` that are always the same."""


def private_status(state: State, numbers: list[int]) -> None:
    """DSR with ``?``: 6 is the cursor and the page (DECXCPR), 63 the checksum of the macros."""
    number = numbers[0]
    if number == 6:
        state.replies.csi(f"?{_place(state)};1R")
    elif number == 63:
        state.replies.dcs(f"{numbers[1] if len(numbers) > 1 else 0}!~0000")
    elif number in _PRIVATE_STATUS:
        state.replies.csi(_PRIVATE_STATUS[number])


def _place(state: State) -> str:
    """Returns row and column from 1; in origin mode, they count from the margins."""
    screen = state.screen
    top, left = (screen.top, screen.left) if state.modes.origin else (0, 0)
    return f"{screen.cursor.y - top + 1};{screen.cursor.x - left + 1}"


def ansi_mode(state: State, numbers: list[int]) -> None:
    """DECRQM for a mode of SM."""
    if state.level >= MODES_FROM_LEVEL:
        state.replies.csi(f"{numbers[0]};{ansi_state(state.modes, numbers[0])}$y")


def private_mode(state: State, numbers: list[int]) -> None:
    """DECRQM for a mode of DECSET."""
    if state.level >= MODES_FROM_LEVEL:
        found = private_state(state.modes, numbers[0], alternate=state.screen.is_alternate)
        state.replies.csi(f"?{numbers[0]};{found}$y")


def modified_keys(state: State, numbers: list[int]) -> None:
    """XTQMODKEYS: the level of modifyOtherKeys."""
    if numbers[0] == 4:
        state.replies.csi(f">4;{state.modes.modify_other_keys}m")


def window(state: State, number: int) -> None:
    """XTWINOPS, heights first: 11 not minimised, 13 the window's position, 14 the text area and 15
    the whole screen in pixels, 16 a cell in pixels, 18 and 19 both in cells. The pane counts as the
    whole screen."""
    columns, height = state.screen.columns, state.screen.height
    if number == 11:
        state.replies.csi("1t")
    elif number == 13:
        state.replies.csi("3;0;0t")
    elif number in (18, 19):
        state.replies.csi(f"{number - 10};{height};{columns}t")
    elif state.cell_pixels is not None:
        across, down = state.cell_pixels
        if number in (14, 15):
            state.replies.csi(f"{number - 10};{height * down};{columns * across}t")
        elif number == 16:
            state.replies.csi(f"6;{down};{across}t")


def graphics(state: State, numbers: list[int]) -> None:
    """XTSMGRAPHICS: how many colours sixel pictures can have (1), and how large they can be (2).
    Both are fixed: setting one (3) fails, resetting (2) changes nothing."""
    if state.graphics is None:
        return
    item, action = [*numbers, 0][:2]
    columns, height = state.screen.columns, state.screen.height
    across, down = state.cell_pixels or USUAL_CELL
    values = {1: f"{REGISTERS}", 2: f"{columns * across};{height * down}"}
    if item not in values:
        state.replies.csi(f"?{item};1;0S")  # there is no such thing
    elif action not in (1, 2, 3, 4):
        state.replies.csi(f"?{item};2;0S")
    elif action == 3:
        state.replies.csi(f"?{item};3;0S")
    else:
        state.replies.csi(f"?{item};0;{values[item]}S")


def handle_dcs(state: State, data: str) -> None:
    """Carries out a complete DCS; ignores unknown ones."""
    if data.startswith("$q"):
        report = _SETTINGS.get(data[2:])
        # xterm's ctlseqs: 1 means that the request is valid (DEC's manuals have it reversed).
        state.replies.dcs("0$r" if report is None else f"1$r{report(state)}{data[2:]}")
    elif data.startswith("+q"):
        _capabilities(state, data[2:])


def _capabilities(state: State, names: str) -> None:
    """XTGETTCAP: names in hexadecimal digits; the answer ends at the first unknown one. No keys
    are told: programs know the terminal by TERM."""
    told = []
    for coded in names.split(";")[:CAPABILITIES_MAX]:
        try:
            value = CAPABILITIES.get(bytes.fromhex(coded).decode("ascii"))
        except ValueError:
            value = None
        if value is None:
            break
        told.append(f"{coded}={value.encode().hex()}")
    state.replies.dcs(f"1+r{';'.join(told)}" if told else "0+r")


def _style(state: State) -> str:
    return sgr_text(state.screen.cursor.style)


def _rows(state: State) -> str:
    return f"{state.screen.top + 1};{state.screen.end}"


def _sides(state: State) -> str:
    return f"{state.screen.left + 1};{state.screen.right}"


def _height(state: State) -> str:
    return str(state.screen.height)


def _columns(state: State) -> str:
    return str(state.screen.columns)


def _extent(state: State) -> str:
    return str(state.extent)


def _no_status_line(state: State) -> str:
    return "0"


def _cursor_shape(state: State) -> str:
    modes = state.modes
    return str(2 * SHAPES.index(modes.cursor_shape) + (1 if modes.cursor_blinks else 2))


def _level(state: State) -> str:
    return f"6{state.level};1"  # with 7-bit controls


def _protection(state: State) -> str:
    return "1" if state.screen.cursor.style.attributes & Attribute.PROTECTED else "0"


_SETTINGS: Final[Mapping[str, Callable[[State], str]]] = {
    "m": _style,
    "r": _rows,
    "s": _sides,
    "t": _height,
    "$|": _columns,
    "*|": _height,
    "*x": _extent,
    "$}": _no_status_line,
    "$~": _no_status_line,
    " q": _cursor_shape,
    '"p': _level,
    '"q': _protection,
}
"""The settings that DECRQSS can ask for."""
