"""The line that the frames of two boxes share, one above the other."""

from __future__ import annotations

from typing import NamedTuple

from quicksand.things.frozen import frozen


class Line(NamedTuple):
    """The characters that draw the first line of a box."""

    left: str
    dash: str
    right: str


@frozen
class Edge:
    """The first line of a box."""

    framed: bool = True
    """The box has a frame; a box without one has this line only if another box ends there."""
    joined: bool = False
    """The line is also the last line of the box above."""
    lit: bool = False
    """The box has the focus, and a heavy frame."""
    above_lit: bool = False
    """The box above has the focus."""

    @property
    def heavy(self) -> bool:
        return (self.lit and self.framed) or (self.joined and self.above_lit)

    def line(self, *, ascii_only: bool = False) -> Line:
        if not (self.framed or self.joined):
            return Line(" ", " ", " ")
        if ascii_only:
            return Line("+", "-", "+")
        if not self.joined:
            return Line("┏", "━", "┓") if self.lit else Line("╭", "─", "╮")
        if not self.framed:
            return Line("┗", "━", "┛") if self.above_lit else Line("╰", "─", "╯")
        if self.lit:
            return Line("┢", "━", "┪")
        return Line("┡", "━", "┩") if self.above_lit else Line("├", "─", "┤")


NO_EDGE = Edge(framed=False)
