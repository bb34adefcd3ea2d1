"""Terminals of guests that draw pictures, and how programs send them."""

from __future__ import annotations

import io
import struct
import zlib
from base64 import standard_b64encode
from typing import Any

from PIL import Image
from quicksand_pixels.decoding.guest_graphics import Elsewhere, GuestGraphics, here
from quicksand_pixels.decoding.places import Budget
from quicksand_vt import Surface, Terminal

CELL = (10, 20)
RED, GREEN, BLUE = (255, 0, 0), (0, 255, 0), (0, 0, 255)


class Drawing:
    """A terminal with pictures."""

    def __init__(
        self,
        columns: int = 20,
        rows: int = 6,
        *,
        budget: Budget | None = None,
        elsewhere: Elsewhere = here,
        **options: Any,
    ) -> None:
        self.budget = budget or Budget()
        self._elsewhere = elsewhere
        self.changes = 0
        self.terminal = Terminal(columns, rows, cell_pixels=CELL, graphics=self._make, **options)

    def _make(self, surface: Surface) -> GuestGraphics:
        def changed() -> None:
            self.changes += 1

        self.graphics = GuestGraphics(
            surface, self.budget, elsewhere=self._elsewhere, changed=changed
        )
        return self.graphics

    def feed(self, data: bytes | str) -> bytes:
        """Returns the answers."""
        self.terminal.feed(data if isinstance(data, bytes) else data.encode())
        return self.terminal.take_replies()

    def kitty(self, control: str, payload: bytes = b"") -> bytes:
        return self.feed(command(control, payload))

    @property
    def place(self) -> tuple[int, int]:
        """The cursor's row on the screen and its column."""
        cursor = self.terminal.cursor
        return cursor.line - self.terminal.screen_line, cursor.x

    def numbers(self, line: int) -> list[int]:
        """What each cell of a line shows."""
        found: list[int] = []
        for run in self.terminal.line(line):
            known = self.graphics.find(run.style.picture) is not None
            found += [run.style.picture if known else 0] * run.columns
        return found + [0] * (self.terminal.columns - len(found))

    @property
    def map(self) -> str:
        """The lines, from the oldest on: ``#`` for cells with pictures, else the text."""
        lines = []
        for line in range(self.terminal.first_line, self.terminal.end_line):
            cells = "".join(run.text for run in self.terminal.line(line)).ljust(
                self.terminal.columns
            )
            numbers = self.numbers(line)
            shown = ["#" if n else c for n, c in zip(numbers, cells, strict=True)]
            lines.append("".join(shown).rstrip())
        return "\n".join(lines).rstrip()

    @property
    def image(self) -> Image.Image:
        """The screen's pictures."""
        terminal = self.terminal
        whole = Image.new("RGBA", (terminal.columns * CELL[0], terminal.rows * CELL[1]))
        for y in range(terminal.rows):
            for x, number in enumerate(self.numbers(terminal.screen_line + y)):
                if (part := self.graphics.find(number)) is not None:
                    cut = part.placed.part(part.column, part.row, 1, 1, CELL)
                    whole.paste(cut, (x * CELL[0], y * CELL[1]))
        return whole

    def colours(self) -> set[tuple[int, ...]]:
        """The colours of the screen's pictures, without what is transparent."""
        found = self.image.getcolors(1 << 20) or []
        return {colour[:3] for _, colour in found if colour[3]}  # type: ignore[index]


def command(control: str, payload: bytes = b"") -> bytes:
    text = standard_b64encode(payload)
    return b"\x1b_G%b%b\x1b\\" % (control.encode(), b";" + text if text else b"")


def chunked(control: str, payload: bytes, size: int = 64) -> bytes:
    text = standard_b64encode(payload)
    pieces = [text[at : at + size] for at in range(0, len(text), size)]
    sent = []
    for at, piece in enumerate(pieces):
        more = f"m={int(at < len(pieces) - 1)}"
        keys = more if at else f"{control},{more}"
        sent.append(b"\x1b_G%b;%b\x1b\\" % (keys.encode(), piece))
    return b"".join(sent)


def png(image: Image.Image, **options: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, "PNG", **options)
    return file.getvalue()


def png_of(*chunks: tuple[bytes, bytes]) -> bytes:
    """A PNG of chunks, each a kind and what it holds."""
    made = [
        struct.pack(">I", len(held)) + kind + held + struct.pack(">I", zlib.crc32(kind + held))
        for kind, held in chunks
    ]
    return b"\x89PNG\r\n\x1a\n" + b"".join(made)


def ihdr(width: int, height: int) -> tuple[bytes, bytes]:
    """The first chunk of a PNG, of red, green, blue and alpha."""
    return b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 6, 0, 0, 0)


def idat(width: int, height: int) -> tuple[bytes, bytes]:
    """The pixels of one that is transparent."""
    return b"IDAT", zlib.compress(bytes((4 * width + 1) * height))


def packed(image: Image.Image) -> bytes:
    return zlib.compress(image.tobytes())


def noise(size: tuple[int, int], mode: str = "RGB", seed: int = 1) -> Image.Image:
    """A picture in which no pixel is like another."""
    count = size[0] * size[1] * len(mode)
    data = bytes((seed * 7919 + n * n * 31 + n * 17) >> 3 & 255 for n in range(count))
    return Image.frombytes(mode, size, data)
