"""The interface between the terminal and a decoder of pictures.

A picture is shown by the cells that it covers: each has, in its style, the number of the part that
it shows. So overwriting, erasing, scrolling and switching screens need no code of their own. Only
the decoder of pictures knows the meanings of the numbers; a forgotten number shows nothing.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, Protocol

USUAL_CELL: Final = (10, 20)
"""Width and height in pixels of a cell where nobody has told them."""

REGISTERS: Final = 1024
"""The colours that a sixel picture can have at once."""


class Reader(Protocol):
    """Takes the inside of a control string, piece by piece. Never raises."""

    def feed(self, text: str) -> None: ...

    def end(self) -> None:
        """The string is complete. Without this call, it was broken off."""


class Graphics(Protocol):
    """Decodes pictures, and has them shown on a `surface.Surface`. Never raises."""

    def sixels(self, parameters: str) -> Reader:
        """Begins a sixel picture: DCS ``parameters`` q."""

    def command(self, text: str) -> None:
        """Carries out a command of kitty's graphics protocol: APC G ``text``."""

    def forget(self) -> None:
        """Forgets everything (RIS)."""


class After(Enum):
    """The place of the cursor after a picture was shown."""

    SAME = "same"
    """The cursor stays; the screen does not scroll."""
    LAST_ROW = "last row"
    """In the picture's last row, in its first column."""
    BEHIND = "behind"
    """In the picture's last row, behind it."""
    TOP = "top"
    """The cursor stays; the picture is in the top left corner of the screen (DECSDM)."""
