"""Pictures that programs draw in their terminal, with sixels or kitty's protocol.

`GuestGraphics` receives them for a `quicksand_vt.Terminal`, within a `Budget`. A cell's number then
leads to its `Part` of a picture.
"""

from quicksand_pixels.decoding.guest_graphics import Decode, Decoded, GuestGraphics, here, outcome
from quicksand_pixels.decoding.kitty_reading import RefusedError
from quicksand_pixels.decoding.places import Budget, Part, Placed, Stored

__all__ = [
    "Budget",
    "Decode",
    "Decoded",
    "GuestGraphics",
    "Part",
    "Placed",
    "RefusedError",
    "Stored",
    "here",
    "outcome",
]
