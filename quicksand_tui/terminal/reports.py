"""What a program is told that asks: who this is, where the cursor is, what is set, how large."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from quicksand_tui.terminal.modes import ansi_state, private_state

if TYPE_CHECKING:
    from quicksand_tui.terminal.state import State

VERSION_LIKE: Final = 380
"""Told as the version in DA2. Programs take it for xterm's patch level: vim wants 277 for SGR
mouse reports, Emacs 242 for modifyOtherKeys; from 2000 on it is taken for VTE's."""

NAME: Final = "quicksand-tui"


def primary_attributes(state: State, numbers: list[int]) -> None:
    """DA1: a VT220 with colours (22) and a clipboard that can be written (52)."""
    if numbers[0] == 0:
        state.replies.csi("?62;22;52c")


def secondary_attributes(state: State, numbers: list[int]) -> None:
    """DA2: a VT220, the version, no cartridge."""
    if numbers[0] == 0:
        state.replies.csi(f">1;{VERSION_LIKE};0c")


def tertiary_attributes(state: State, numbers: list[int]) -> None:
    """DA3: a unit without a number."""
    if numbers[0] == 0:
        state.replies.dcs("!|00000000")


def version(state: State, numbers: list[int]) -> None:
    """XTVERSION."""
    if numbers[0] == 0:
        state.replies.dcs(f">|{NAME}")


def status(state: State, numbers: list[int]) -> None:
    """DSR: 5 whether all is well, 6 where the cursor is."""
    if numbers[0] == 5:
        state.replies.csi("0n")
    elif numbers[0] == 6:
        state.replies.csi(f"{_place(state)}R")


def private_status(state: State, numbers: list[int]) -> None:
    """DSR with ``?``: DECXCPR on page 1, no printer, no keys of the user's, a keyboard."""
    answers = {6: f"?{_place(state)};1R", 15: "?13n", 25: "?20n", 26: "?27;1;0;0n"}
    if numbers[0] in answers:
        state.replies.csi(answers[numbers[0]])


def _place(state: State) -> str:
    """Row and column from 1; in origin mode, rows of the scroll region."""
    screen = state.screen
    top = screen.top if state.modes.origin else 0
    return f"{screen.cursor.y - top + 1};{screen.cursor.x + 1}"


def ansi_mode(state: State, numbers: list[int]) -> None:
    """DECRQM."""
    state.replies.csi(f"{numbers[0]};{ansi_state(state.modes, numbers[0])}$y")


def private_mode(state: State, numbers: list[int]) -> None:
    """DECRQM for a mode of DECSET."""
    found = private_state(state.modes, numbers[0], alternate=state.screen.is_alternate)
    state.replies.csi(f"?{numbers[0]};{found}$y")


def modified_keys(state: State, numbers: list[int]) -> None:
    """XTQMODKEYS."""
    if numbers[0] == 4:
        state.replies.csi(f">4;{state.modes.modify_other_keys}m")


def window(state: State, number: int) -> None:
    """XTWINOPS: 11 not minimised, 14 pixels of the text, 16 of a cell, 18 and 19 its cells. Heights
    come first."""
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
