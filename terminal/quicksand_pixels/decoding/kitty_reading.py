"""Reads commands of kitty's graphics protocol (sw.kovidgoyal.net/kitty/graphics-protocol), and the
pictures that they bring.

Only pictures within the commands themselves are taken: files and shared memory would not be on the
machine of the guest's program.
"""

from __future__ import annotations

import binascii
import re
import zlib
from dataclasses import dataclass
from typing import Final

from PIL import Image

from quicksand_pixels.decoding.png_reading import HEAD, DamagedError, png_size, read_png

SIDE_MAX: Final = 8192
"""The greatest width and height in pixels."""
PIXELS_MAX: Final = 4 << 20
"""The most pixels of a picture, 16 MiB."""
PACKED_MAX: Final = 8 << 20
"""The most bytes of a compressed picture."""

NUMBER_MAX: Final = 0xFFFFFFFF

_KEYS: Final = re.compile(r"([a-zA-Z])=([!-+\--:<-~]{1,11})")
_NUMBER: Final = re.compile(r"-?[0-9]{1,10}")
_LETTERS: Final = frozenset("adot")
"""The keys whose value is a letter; all others are numbers."""

RGB, RGBA, PNG = 24, 32, 100
_BYTES: Final = {RGB: 3, RGBA: 4}

INFLATED_SOON: Final = 64 * 1024
"""The bytes before and after unpacking up to which a packed PNG is unpacked when it comes."""
HEAD_PACKED: Final = 4096
"""Packed bytes in which the head of a PNG must be: packers do not write empty blocks."""
BYTE_COST: Final = 16
"""The pixels that are copied in the longest time of reading a byte of a PNG or of packed data: of a
chunk of 12 bytes, or of an empty block of zlib's of 10 bits."""


class RefusedError(Exception):
    """A command cannot be carried out. The text is the answer: a code of errno.h, a colon and the
    reason, in printable ASCII."""


@dataclass(frozen=True, slots=True)
class Command:
    """A command's keys, and its data in base64."""

    letters: dict[str, str]
    numbers: dict[str, int]
    payload: str

    @property
    def action(self) -> str:
        return self.letters.get("a", "t")

    def number(self, key: str) -> int:
        """Returns the value of a key; 0 if it is not there."""
        return self.numbers.get(key, 0)

    def positive(self, key: str) -> int:
        """Returns the value of a key that cannot be negative."""
        return max(0, self.number(key))


def parse(text: str) -> Command | None:
    """Returns a command; None if the text is none."""
    control, _, payload = text.partition(";")
    letters: dict[str, str] = {}
    numbers: dict[str, int] = {}
    for word in control.split(",") if control else ():
        match = _KEYS.fullmatch(word)
        if match is None:
            return None
        key, value = match.groups()
        if key in _LETTERS:
            letters[key] = value
        elif _NUMBER.fullmatch(value) and abs(int(value)) <= NUMBER_MAX:
            numbers[key] = int(value)
        else:
            return None
    return Command(letters, numbers, payload)


class Transmission:
    """A picture that comes in one or several commands."""

    def __init__(self, command: Command) -> None:
        """Begins a picture. Raises `RefusedError` if it cannot be taken."""
        self.command = command
        self.quiet = command.number("q")
        self._format = command.numbers.get("f", RGBA)
        self._size = (command.positive("s"), command.positive("v"))
        self._data = bytearray()
        self._rest = ""
        """Characters at the end of a command that make no whole byte."""
        if command.letters.get("t", "d") != "d":
            raise RefusedError("EINVAL:pictures are only taken from within commands (t=d)")
        if self._format not in (RGB, RGBA, PNG):
            raise RefusedError("EINVAL:the format is unknown")
        if command.letters.get("o", "z") != "z":
            raise RefusedError("EINVAL:the compression is unknown")
        self._is_packed = "o" in command.letters
        if self._format != PNG:
            check_size(*self._size)
        self._most = PACKED_MAX
        if self._format != PNG and not self._is_packed:
            self._most = self._raw_bytes

    @property
    def _raw_bytes(self) -> int:
        return self._size[0] * self._size[1] * _BYTES.get(self._format, 0)

    def add(self, payload: str) -> None:
        """Takes a part of the picture. Raises `RefusedError`."""
        payload = self._rest + payload
        whole = len(payload) - len(payload) % 4
        self._rest = payload[whole:]
        self._decode(payload[:whole])

    def _decode(self, payload: str) -> None:
        try:
            self._data += binascii.a2b_base64(payload.encode("ascii"))
        except (ValueError, UnicodeEncodeError):  # binascii.Error is a ValueError
            raise RefusedError("EINVAL:the data is not base64") from None
        if len(self._data) > self._most:
            raise RefusedError("EFBIG:there is too much data")

    def finish(self) -> None:
        """Makes the quick checks, when all parts are there. Raises `RefusedError`."""
        if self._rest:
            self._decode(self._rest + "=" * (-len(self._rest) % 4))
            self._rest = ""
        if self._format == PNG:
            self._unpack_small()
            self._size = _png_size(self._head())
            check_size(*self._size)
        elif not self._is_packed and len(self._data) < self._raw_bytes:
            raise RefusedError("ENODATA:there is too little data")

    def _unpack_small(self) -> None:
        """Unpacks small data; raises `RefusedError` if it is not packed."""
        if self._is_packed and len(self._data) <= INFLATED_SOON:
            data = _unpack(self._data, INFLATED_SOON)
            if len(data) <= INFLATED_SOON:
                self._data, self._is_packed = bytearray(data), False

    def _head(self) -> bytes:
        """Returns the beginning of a PNG. Raises `RefusedError`."""
        if self._is_packed:
            return _unpack(self._data[:HEAD_PACKED], HEAD)[:HEAD]
        return bytes(self._data[:HEAD])

    @property
    def held(self) -> int:
        """The bytes that have come."""
        return len(self._data)

    @property
    def size(self) -> tuple[int, int]:
        """The width and height, once it is finished."""
        return self._size

    @property
    def pixels(self) -> int:
        return self._size[0] * self._size[1]

    @property
    def cost(self) -> int:
        """The most time that decoding takes, in pixels that are only copied."""
        if self._format == PNG:
            read = PACKED_MAX if self._is_packed else len(self._data)
            return 8 * self.pixels + BYTE_COST * read
        return 4 * self.pixels + BYTE_COST * len(self._data) if self._is_packed else self.pixels

    def decode(self) -> Image.Image:
        """Returns the picture in the mode RGBA. May take long, on any thread; raises
        `RefusedError`."""
        try:
            return self._image()
        except (RefusedError, DamagedError) as error:
            raise _refused(error) from None
        # Nobody knows all errors of Pillow for damaged files: no list of them was ever complete,
        # and there may be too little memory. A guest's picture must not end the app.
        except Exception:  # noqa: BLE001
            kind = "PNG" if self._format == PNG else "picture"
            raise RefusedError(f"EINVAL:the {kind} is damaged") from None

    def _image(self) -> Image.Image:
        data = bytes(self._data)
        if self._format == PNG:
            data = _unpack(data, PACKED_MAX) if self._is_packed else data
            if len(data) > PACKED_MAX:
                raise RefusedError("EFBIG:there is too much data")
            if _png_size(data) != self._size:
                raise RefusedError("EINVAL:the PNG is damaged")
            return read_png(data)
        if self._is_packed:
            data = _unpack(data, self._raw_bytes)
        if len(data) < self._raw_bytes:
            raise RefusedError("ENODATA:there is too little data")
        mode = "RGB" if self._format == RGB else "RGBA"
        return Image.frombytes(mode, self._size, data[: self._raw_bytes]).convert("RGBA")


def check_size(width: int, height: int) -> None:
    """Checks a picture's size. Raises `RefusedError` if no picture may have it."""
    if not width or not height:
        raise RefusedError("EINVAL:a picture has a width and a height")
    if max(width, height) > SIDE_MAX or width * height > PIXELS_MAX:
        raise RefusedError(f"EFBIG:a picture has at most {PIXELS_MAX} pixels")


def _unpack(data: bytes | bytearray, most: int) -> bytes:
    """Returns at most so many unpacked bytes and one. Raises `RefusedError`."""
    try:
        return zlib.decompressobj().decompress(data, most + 1)
    except zlib.error:
        raise RefusedError("EINVAL:the data is not packed by zlib") from None


def _refused(error: RefusedError | DamagedError) -> RefusedError:
    return error if isinstance(error, RefusedError) else RefusedError(f"EINVAL:{error}")


def _png_size(data: bytes) -> tuple[int, int]:
    """Returns the width and height that a PNG claims. Raises `RefusedError`."""
    try:
        return png_size(data)
    except DamagedError as error:
        raise _refused(error) from None
