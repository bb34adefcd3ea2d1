"""Control sequences for rectangles and columns, and the protection of cells (VT420 and VT510
manuals)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from quicksand_vt import boxes
from quicksand_vt.boxes import Box
from quicksand_vt.style import PLAIN, Attribute, Style, Underline, apply_sgr

if TYPE_CHECKING:
    from quicksand_vt.terminal_state import State

STREAM, RECTANGLE = 1, 2
"""The extents of DECCARA and DECRARA (DECSACE): all cells from the first corner to the last, row by
row, or those of the rectangle only."""

_CHANGEABLE: Final = frozenset({0, 1, 4, 5, 7, 8, 22, 24, 25, 27, 28})
"""The attributes of SGR that DECCARA takes."""
_REVERSIBLE: Final = {
    1: Attribute.BOLD,
    5: Attribute.BLINK,
    7: Attribute.REVERSE,
    8: Attribute.HIDDEN,
}
"""The attributes that DECRARA takes besides underline (4); 0 is all of them but hidden."""


def read_box(state: State, numbers: list[int]) -> Box | None:
    """Returns the box given by the first four parameters, cut to the screen: top, left, bottom and
    right from 1, relative to the margins in origin mode. None if it is empty."""
    screen = state.screen
    top, left, bottom, right = [*numbers, 0, 0, 0, 0][:4]
    limits = Box(0, 0, screen.height, screen.columns)
    if state.modes.origin:
        limits = screen.box
    y, x = limits.top + (top or 1) - 1, limits.left + (left or 1) - 1
    end = min(limits.top + bottom, limits.end) if bottom else limits.end
    edge = min(limits.left + right, limits.right) if right else limits.right
    return Box(y, x, end, edge) if y < end and x < edge else None


def fill(state: State, numbers: list[int]) -> None:
    """DECFRA: fills a box with a character of Latin 1."""
    char, *rest = numbers
    box = read_box(state, rest)
    if box is not None and (32 <= char <= 126 or 160 <= char <= 255):
        boxes.fill(state.screen.grid, box, chr(char), state.screen.cursor.style)


def erase(state: State, numbers: list[int]) -> None:
    """DECERA."""
    _erase(state, numbers, selective=False)


def erase_selectively(state: State, numbers: list[int]) -> None:
    """DECSERA, which DECSCA's protection withstands, but not SPA's, as in xterm."""
    _erase(state, numbers, selective=not state.screen.protects)


def _erase(state: State, numbers: list[int], *, selective: bool) -> None:
    box = read_box(state, numbers)
    screen = state.screen
    if box is not None and (not selective or screen.work.take(box.cells)):
        boxes.erase(screen.grid, box, screen.cursor.blank, selective=selective)


def copy(state: State, numbers: list[int]) -> None:
    """DECCRA: copies a box; there is only one page. A box that begins outside of the screen, or
    would, is not copied."""
    top, left = ([*numbers, 0, 0, 0][5:7]) if len(numbers) > 5 else (0, 0)
    box, screen = read_box(state, numbers), state.screen
    y, x = (top or 1) - 1, (left or 1) - 1
    if state.modes.origin:
        y, x = screen.top + y, screen.left + x
    if box is not None and y < screen.height and x < screen.columns:
        boxes.copy(screen.grid, box, y, x)


def set_extent(state: State, numbers: list[int]) -> None:
    """DECSACE."""
    if numbers[0] <= RECTANGLE:
        state.extent = numbers[0]


def change_attributes(state: State, numbers: list[int]) -> None:
    """DECCARA: sets attributes in a box."""
    words = ";".join(str(n) for n in numbers[4:] or [0] if n in _CHANGEABLE)

    def change(style: Style) -> Style:
        return state.screen.styles.intern(apply_sgr(style, words))

    if words:
        _restyle(state, numbers, change)


def reverse_attributes(state: State, numbers: list[int]) -> None:
    """DECRARA: reverses attributes in a box."""
    wanted = set(numbers[4:] or [0])
    wanted |= {1, 4, 5, 7} if 0 in wanted else set()
    bits = 0
    for number in wanted & set(_REVERSIBLE):
        bits |= _REVERSIBLE[number]

    def change(style: Style) -> Style:
        underline = style.underline
        if 4 in wanted:
            underline = Underline.NONE if underline else Underline.SINGLE
        changed = style._replace(attributes=style.attributes ^ bits, underline=underline)
        return state.screen.styles.intern(changed)

    _restyle(state, numbers, change)


def _restyle(state: State, numbers: list[int], change: boxes.Change) -> None:
    screen, box = state.screen, read_box(state, numbers)
    if box is not None:
        for part in [box] if state.extent == RECTANGLE else _stream(box, screen.columns):
            if screen.work.take(part.cells):
                boxes.restyle(screen.grid, part, change)


def _stream(box: Box, columns: int) -> Iterable[Box]:
    """Yields the boxes from the first corner to the last, row by row."""
    if box.end - box.top == 1:
        yield box
        return
    yield Box(box.top, box.left, box.top + 1, columns)
    yield Box(box.top + 1, 0, box.end - 1, columns)
    yield Box(box.end - 1, 0, box.end, box.right)


def checksum(state: State, numbers: list[int]) -> None:
    """DECRQCRA: the checksum of a box. It is only answered by terminals made for tests, since it
    costs far more than its length."""
    box, screen = read_box(state, numbers[2:]), state.screen
    if state.checksums and (box is None or screen.work.take(box.cells)):
        found = 0 if box is None else boxes.checksum(screen.grid, box)
        state.replies.dcs(f"{numbers[0]}!~{found:04X}")


# Protection


def protect(state: State, numbers: list[int]) -> None:
    """DECSCA: 1 protects later text from selective erasing, 0 and 2 do not."""
    if numbers[0] <= 2:
        state.screen.protects = False
        set_protection(state, numbers[0] == 1)


def start_protected(state: State) -> None:
    """SPA: protects later text from all erasing."""
    state.screen.protects = True
    set_protection(state, True)


def end_protected(state: State) -> None:
    """EPA."""
    set_protection(state, False)


def set_protection(state: State, on: bool) -> None:
    screen = state.screen
    style = screen.cursor.style
    attributes = style.attributes & ~Attribute.PROTECTED | (Attribute.PROTECTED if on else 0)
    changed = style._replace(attributes=int(attributes))
    screen.set_style(PLAIN if changed == PLAIN else screen.styles.intern(changed))
