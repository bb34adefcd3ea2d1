"""Reads sixel pictures (DEC's VT330/VT340 text programming, chapter 14) as they come in.

A colour is taken as it is at the time of drawing, not at the end: so pictures may have more colours
than there are registers.
"""

from __future__ import annotations

import colorsys
import re
from collections.abc import Callable
from typing import Final, NamedTuple

from PIL import Image
from quicksand_vt import REGISTERS, XTERM_COLOURS

SIDE_MAX: Final = 4096
"""The greatest width and height in pixels; pixels beyond are not drawn."""
PIXELS_MAX: Final = 4 << 20
"""The most pixels of a picture, 16 MiB; further ones are not drawn."""

BAND: Final = 6
"""The height in pixels of a row of sixels."""

HELD_MAX: Final = 64
"""Characters of a command that is cut off; a longer one is dropped."""

_TOKEN: Final = re.compile(
    r"([?-~]+)"
    r"|!([0-9]*)([?-~])"
    r"|#([0-9;]*)"
    r"|([$-])"
    r'|"([0-9;]*)'
    r"|[^?-~!#$\"-]+|[!]"
)
_SIXELS, _REPEATED, _COLOUR, _MOVE, _RASTER = 1, 3, 4, 5, 6
"""The last group of each alternative."""

_CUT_OFF: Final = re.compile(r'[!#"][0-9;]*\Z')

_PERCENTS: Final = (
    *((0, 0, 0), (20, 20, 80), (80, 13, 13), (20, 80, 20), (80, 20, 80), (20, 80, 80)),
    *((80, 80, 20), (53, 53, 53), (26, 26, 26), (33, 33, 60), (60, 26, 26), (33, 60, 33)),
    *((60, 33, 60), (33, 60, 60), (60, 60, 33), (80, 80, 80)),
)
"""The colours of a VT340 in per cent (its manual, chapter 2)."""

_ASPECTS: Final = {2: 5, 3: 3, 4: 3, 7: 1, 8: 1, 9: 1}
"""The height of a pixel as a multiple of its width, by the first parameter; 2 by any other."""

_TRANSPARENT: Final = 1
"""The second parameter of a picture whose pixels that are not drawn leave the picture below."""

Colour = tuple[int, int, int, int]

_ROWS: Final = tuple(
    bytes(255 if char >= 63 and char - 63 >> row & 1 else 0 for char in range(128)).ljust(
        256, b"\x00"
    )
    for row in range(BAND)
)
"""Tables that turn sixels into the mask of one of their six rows."""


class SixelPicture(NamedTuple):
    """A picture that was read."""

    image: Image.Image
    """The picture, in the mode RGBA; pixels that were not drawn are transparent."""
    height_before_last: int
    """The height of the rows of sixels before the last, in pixels."""
    overlays: bool
    """The contents below it show through its transparent pixels."""


class SixelReader:
    """Reads one picture, whose text comes piece by piece. Never raises."""

    def __init__(
        self,
        parameters: str,
        done: Callable[[SixelPicture], object],
        *,
        foreground: int = 0xE5E5E5,
        allows: Callable[[int], bool] = lambda _: True,
        draws: Callable[[int], bool] = lambda _: True,
    ) -> None:
        """``foreground``, as ``0xRRGGBB``, is the colour until one is chosen. ``allows`` says
        whether memory for so many pixels may be filled now; where it does not, there is no picture.
        ``draws`` says whether so many may be drawn over; where it does not, these are left out."""
        numbers = [*_numbers(parameters), 0, 0]
        self._aspect = _ASPECTS.get(numbers[0], 2)
        self._overlays = numbers[1] == _TRANSPARENT
        self._done = done
        self._allows = allows
        self._draws = draws
        self._held = ""
        self._registers: dict[int, Colour] = {}
        self._colour: Colour = _from_rgb(foreground)
        self._pass: list[str] = []
        """The sixels of the current colour since the last move."""
        self._begin = self._x = 0
        """The columns where these sixels begin and end."""
        self._band = self._bands = 0
        self._size = (0, 0)
        """The size that the picture claims."""
        self._drawn = (0, 0)
        """The width and height of the drawn part."""
        self._image = Image.new("RGBA", (0, 0))
        self._failed = False

    def feed(self, text: str) -> None:
        text = self._held + text
        self._held = ""
        cut_off = _CUT_OFF.search(text)
        if cut_off is not None:
            text = text[: cut_off.start()]
            self._held = cut_off[0] if len(cut_off[0]) <= HELD_MAX else ""
        self._read(text)

    def end(self) -> None:
        self._read(self._held)
        self._flush()
        if self._failed:
            return
        wide, high = max(self._drawn[0], self._size[0]), self._height()
        if wide * high > PIXELS_MAX:
            wide, high = self._drawn
        # Sixels without a pixel take no memory until here, so the size may be too large, too.
        if not wide or not high or wide * high > PIXELS_MAX or not self._allows(wide * high):
            return
        image = self._image.crop((0, 0, wide, high))  # transparent beyond the drawing
        if self._aspect > 1:
            high = min(high * self._aspect, SIDE_MAX, max(high, PIXELS_MAX // wide))
            if not self._allows(wide * high):
                return
            image = image.resize((wide, high), Image.Resampling.NEAREST)
        before_last = max(0, self._bands - 1) * BAND * self._aspect
        self._done(SixelPicture(image, before_last, self._overlays))

    def _height(self) -> int:
        """Returns the height that the picture claims, or that of its rows of sixels if larger."""
        said, drawn = self._size[1], self._drawn[1]
        return said if said > drawn - BAND else drawn

    def _read(self, text: str) -> None:
        for match in _TOKEN.finditer(text):
            kind = match.lastindex
            if kind == _SIXELS:
                self._put(match[_SIXELS])
            elif kind == _REPEATED:
                self._put(match[_REPEATED] * min(_number(match[2]) or 1, SIDE_MAX))
            elif kind == _COLOUR:
                self._flush()
                self._choose(_numbers(match[_COLOUR]))
            elif kind == _MOVE:
                self._flush()
                self._begin = self._x = 0
                if match[_MOVE] == "-":
                    self._band = min(self._band + 1, SIDE_MAX // BAND)
            elif kind == _RASTER:
                self._take_raster([*_numbers(match[_RASTER]), 0, 0, 0, 0])

    def _put(self, sixels: str) -> None:
        if self._x < SIDE_MAX:
            self._pass.append(sixels)
            self._x += len(sixels)

    def _take_raster(self, numbers: list[int]) -> None:
        """Takes DECGRA, which comes before all drawing."""
        if self._bands:
            return
        ratio = round(numbers[0] / numbers[1]) if numbers[0] and numbers[1] else 1
        self._aspect = max(1, min(ratio, 255))
        self._size = (min(numbers[2], SIDE_MAX), min(numbers[3], SIDE_MAX))

    def _choose(self, numbers: list[int]) -> None:
        """Takes DECGCI: selects a colour, or sets and selects it."""
        register = numbers[0] % REGISTERS
        if len(numbers) >= 5:
            first, second, third = numbers[2:5]
            if numbers[1] == 1:
                self._registers[register] = _from_hls(first, second, third)
            elif numbers[1] == 2:
                self._registers[register] = _from_percents(first, second, third)
        self._colour = self._registers.get(register) or _register(register)

    def _flush(self) -> None:
        """Draws the sixels of the current colour."""
        if not self._pass:
            return
        sixels = "".join(self._pass).encode("ascii")[: SIDE_MAX - self._begin]
        self._pass.clear()
        begin, self._begin = self._begin, self._x
        self._bands = max(self._bands, self._band + 1)
        top = self._band * BAND
        self._drawn = (
            max(self._drawn[0], begin + len(sixels)),
            max(self._drawn[1], min(top + BAND, SIDE_MAX)),
        )
        seen = sixels.lstrip(b"?")
        begin += len(sixels) - len(seen)
        seen = seen.rstrip(b"?")
        if not seen or not self._make_room(begin + len(seen), top + BAND):
            return
        if not self._draws(BAND * len(seen)):
            return
        box = (begin, top, begin + len(seen), top + BAND)
        if seen.count(b"~") == len(seen):
            self._image.paste(self._colour, box)
            return
        rows = b"".join([seen.translate(table) for table in _ROWS])
        self._image.paste(self._colour, box, Image.frombytes("L", (len(seen), BAND), rows))

    def _make_room(self, wide: int, high: int) -> bool:
        """Makes the image large enough; returns False if the size is too large."""
        now = self._image.size
        if wide <= now[0] and high <= now[1]:
            return not self._failed
        wide, high = max(wide, now[0]), max(high, now[1])
        if wide * high > PIXELS_MAX or high > SIDE_MAX:
            self._drawn = (min(self._drawn[0], now[0]), min(self._drawn[1], now[1]))
            return False
        # Twice as large each time; the picture's own size is only a claim.
        more = (max(wide, min(2 * now[0], SIDE_MAX)), max(high, min(2 * now[1], SIDE_MAX)))
        size = more if more[0] * more[1] <= PIXELS_MAX else (wide, high)
        if self._failed or not self._allows(size[0] * size[1]):
            self._failed = True
            return False
        larger = Image.new("RGBA", size)
        larger.paste(self._image, (0, 0))
        self._image = larger
        return True


def _number(word: str) -> int:
    return int(word) if 0 < len(word) <= 9 else 0


def _numbers(words: str) -> list[int]:
    return [_number(word) for word in words.split(";")]


def _register(number: int) -> Colour:
    """Returns the first colour of a register: a VT340's, then xterm's."""
    if number < len(_PERCENTS):
        return _from_percents(*_PERCENTS[number])
    return _from_rgb(XTERM_COLOURS[number % len(XTERM_COLOURS)])


def _from_rgb(colour: int) -> Colour:
    return colour >> 16, colour >> 8 & 255, colour & 255, 255


def _from_percents(red: int, green: int, blue: int) -> Colour:
    return _whole(red / 100), _whole(green / 100), _whole(blue / 100), 255


def _from_hls(hue: int, light: int, saturation: int) -> Colour:
    """Returns a colour by two percentages and its hue in degrees: 0 is blue, 120 is red."""
    turned = (hue + 240) % 360 / 360
    parts = colorsys.hls_to_rgb(turned, min(light, 100) / 100, min(saturation, 100) / 100)
    return _whole(parts[0]), _whole(parts[1]), _whole(parts[2]), 255


def _whole(part: float) -> int:
    return min(max(round(part * 255), 0), 255)
