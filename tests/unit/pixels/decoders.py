"""What a terminal would show of encoded pictures: small decoders, written from the protocols."""

from __future__ import annotations

import re
import zlib
from base64 import b64decode
from dataclasses import dataclass, field

from PIL import Image
from quicksand_vt import DEFAULT_COLOUR, RGB, Terminal
from quicksand_vt.style import XTERM_COLOURS

_MOVE = re.compile(rb"\x1b\[(\d+);(\d+)H")
_ERASE = re.compile(rb"\x1b\[(\d+)X|\x1b\[m")
_GRAPHICS = re.compile(rb"\x1b_G([^;\x1b]*)(?:;([^\x1b]*))?\x1b\\")
_SIXELS = re.compile(rb"\x1bP([\d;]*)q([^\x1b]*)\x1b\\")


@dataclass
class KittyTerminal:
    """Images by id with their places, as kitty's protocol describes."""

    columns: int
    rows: int
    cell: tuple[int, int]
    images: dict[int, Image.Image] = field(default_factory=dict)
    places: dict[int, tuple[int, int]] = field(default_factory=dict)
    cursor: tuple[int, int] = (0, 0)
    _keys: dict[str, str] = field(default_factory=dict)
    _data: bytes = b""

    def feed(self, data: bytes) -> None:
        at = 0
        while at < len(data):
            if match := _MOVE.match(data, at):
                self.cursor = (int(match[2]) - 1, int(match[1]) - 1)
            elif match := _GRAPHICS.match(data, at):
                self._graphics(match[1].decode(), match[2] or b"")
            else:
                raise AssertionError(f"not understood: {data[at : at + 40]!r}")
            at = match.end()

    def _graphics(self, control: str, payload: bytes) -> None:
        assert len(payload) <= 4096
        keys = dict(pair.split("=") for pair in control.split(","))
        assert keys.get("q") == "2", "its answers would be keys"
        if keys.get("a") == "d":
            assert keys["d"] == "I"
            number = int(keys["i"])
            del self.images[number], self.places[number]
            return
        if not self._keys:
            self._keys = keys
        self._data += payload
        if keys.get("m") == "1":
            assert len(payload) % 4 == 0
            return
        keys, self._keys = self._keys, {}
        data, self._data = b64decode(self._data), b""
        assert (keys["a"], keys["f"], keys["o"], keys["C"]) == ("T", "24", "z", "1")
        size = (int(keys["s"]), int(keys["v"]))
        number = int(keys["i"])
        assert number not in self.images, "an image that is shown was replaced in place"
        assert size == (int(keys["c"]) * self.cell[0], int(keys["r"]) * self.cell[1])
        self.images[number] = Image.frombytes("RGB", size, zlib.decompress(data))
        self.places[number] = self.cursor

    def screen(self) -> Image.Image:
        wide, high = self.cell
        shown = Image.new("RGB", (self.columns * wide, self.rows * high))
        for number, image in self.images.items():
            column, row = self.places[number]
            shown.paste(image, (column * wide, row * high))
        return shown


@dataclass
class KittyImages:
    """Images by id that placeholders in text show."""

    cell: tuple[int, int]
    images: dict[int, Image.Image] = field(default_factory=dict)
    _keys: dict[str, str] = field(default_factory=dict)
    _data: bytes = b""

    def feed(self, data: bytes) -> None:
        """Takes sequences; one that is cut off at the end is for the next time."""
        for match in _GRAPHICS.finditer(data):
            keys = dict(pair.split("=") for pair in match[1].decode().split(","))
            assert keys.get("q") == "2", "its answers would be keys"
            if keys.get("a") == "d":
                assert keys["d"] == "I"
                self.images.pop(int(keys["i"]), None)
                continue
            assert len(match[2]) <= 4096
            self._keys = self._keys or keys
            self._data += match[2]
            if keys.get("m") != "1":
                self._take()

    def _take(self) -> None:
        keys, self._keys = self._keys, {}
        data, self._data = b64decode(self._data), b""
        assert (keys["a"], keys["f"], keys["o"], keys["U"]) == ("T", "24", "z", "1")
        size = (int(keys["s"]), int(keys["v"]))
        assert size == (int(keys["c"]) * self.cell[0], int(keys["r"]) * self.cell[1])
        assert 0 < int(keys["i"]) < 1 << 24, "a colour has no place for it"
        self.images[int(keys["i"])] = Image.frombytes("RGB", size, zlib.decompress(data))


@dataclass
class SixelTerminal:
    """A picture that sixels are drawn into."""

    columns: int
    rows: int
    cell: tuple[int, int]
    cursor: tuple[int, int] = (0, 0)

    def __post_init__(self) -> None:
        self.screen = Image.new("RGB", (self.columns * self.cell[0], self.rows * self.cell[1]))

    def feed(self, data: bytes) -> None:
        at = 0
        while at < len(data):
            if match := _MOVE.match(data, at):
                self.cursor = (int(match[2]) - 1, int(match[1]) - 1)
            elif match := _SIXELS.match(data, at):
                assert match[1] == b"0;1;0"
                self._draw(match[2].decode())
            elif match := _ERASE.match(data, at):
                left, top = self.cursor[0] * self.cell[0], self.cursor[1] * self.cell[1]
                size = (int(match[1] or 0) * self.cell[0], self.cell[1])
                self.screen.paste("black", (left, top, left + size[0], top + size[1]))
            else:
                raise AssertionError(f"not understood: {data[at : at + 40]!r}")
            at = match.end()

    def _draw(self, text: str) -> None:
        left, top = self.cursor[0] * self.cell[0], self.cursor[1] * self.cell[1]
        colours: dict[int, tuple[int, int, int]] = {}
        colour, x, y, count = 0, 0, 0, 1
        raster = (0, 0)
        for token in re.finditer(r'"([\d;]*)|#([\d;]*)|!(\d+)|([$\-])|([?-~])', text):
            size, selected, repeat, move, sixel = token.groups()
            if size is not None:
                raster = tuple(map(int, size.split(";")[2:]))  # type: ignore[assignment]
            elif selected is not None:
                colour, *rgb = map(int, selected.split(";"))
                if rgb:
                    assert rgb.pop(0) == 2
                    colours[colour] = tuple(round(part * 2.55) for part in rgb)  # type: ignore[assignment]
            elif repeat is not None:
                count = int(repeat)
            elif move is not None:
                x, y = 0, y + 6 * (move == "-")
            else:
                bits = ord(sixel) - 63
                for row in range(6):
                    if bits >> row & 1:
                        assert x + count <= raster[0] and y + row < raster[1]
                        for column in range(x, x + count):
                            self.screen.putpixel((left + column, top + y + row), colours[colour])
                x, count = x + count, 1


def half_cells(terminal: Terminal, columns: int, rows: int) -> Image.Image:
    """What half cells on a terminal show, two pixels a cell."""
    pixels = bytearray()
    for row in range(rows):
        upper, lower = bytearray(), bytearray()
        for run in terminal.line(terminal.screen_line + row):
            front, back = bytes(_rgb(run.style.fg)), bytes(_rgb(run.style.bg))
            for glyph in run.text:
                halves = {" ": (back, back), "▀": (front, back), "▄": (back, front)}[glyph]
                upper += halves[0]
                lower += halves[1]
        pixels += upper.ljust(3 * columns, b"\0") + lower.ljust(3 * columns, b"\0")
    return Image.frombytes("RGB", (columns, 2 * rows), bytes(pixels))


def _rgb(colour: int) -> tuple[int, int, int]:
    if colour == DEFAULT_COLOUR:
        return 0, 0, 0
    value = colour if colour & RGB else XTERM_COLOURS[colour]
    return value >> 16 & 255, value >> 8 & 255, value & 255
