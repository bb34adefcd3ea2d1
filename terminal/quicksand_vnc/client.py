"""A client of VNC servers (RFB 3.8, RFC 6143), for viewers and for programs that use a screen::

    async with VncClient.open(("127.0.0.1", 5900)) as client:    # or the path of a Unix socket
        while True:
            for rect in await client.next_update():  # waits until something has changed
                ...                                  # client.frame: a Framebuffer

`next_update` returns the rectangles that changed since it returned last, the first time the whole
picture; an empty list if only the pointer's shape changed (``client.cursor``). Nothing is
transferred while nobody waits in `next_update`. So a slow viewer gets fewer updates, not old ones,
and ``client.frame`` does not change meanwhile, even for a thread that reads it. When the screen
gets another size, ``client.frame`` is another object, and all of it has changed. A cancelled
`next_update` loses nothing.

All keys that this client holds are released when it disconnects. Once the server has ended, every
method raises. Any number of clients can be connected.

What is said here of QEMU is about its server, which other servers do not mind. Pixels may come
compressed: one zlib stream, of which each rectangle brings a part (encoding 6, which RFC 6143
reserves; QEMU, ui/vnc-enc-zlib.c).
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from enum import IntEnum, IntFlag
from pathlib import Path
from typing import ClassVar, Self

from quicksand_vnc.errors import VncError
from quicksand_vnc.keys import STROKES, keysym_of, keysym_of_key, parse_keys
from quicksand_vnc.picture import BYTES_PER_PIXEL, Cursor, Framebuffer, Rect, check_size

PACKED_BYTES = 64 * 1024
"""Bytes that are read at once, and by which pixels that cannot be compressed may grow."""


class Unpacking:
    """The stream of one connection. Call `begin`, `read`, `end` for each rectangle; each raises
    VncError for nonsense, EOFError and OSError."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader = reader
        self._stream = zlib.decompressobj()
        self._left = 0
        """Bytes of the rectangle that were not read yet."""
        self._packed = b""
        """Bytes that were read, and not unpacked yet."""

    def begin(self, length: int, size: int) -> None:
        """Begin a rectangle of ``size`` bytes, compressed to ``length``."""
        if length > size + size // 64 + PACKED_BYTES:
            raise VncError(f"the display sent {length} bytes of compressed pixels for {size}")
        self._left = length

    async def read(self, count: int) -> bytes:
        """The next ``count`` bytes of pixels."""
        found = bytearray()
        while len(found) < count:
            # Even without input: unpacked bytes may wait for room.
            if piece := self._unpack(count - len(found)):
                found += piece
            elif not self._left:
                raise VncError("the display sent too few compressed pixels")
            else:
                self._packed = await self._take(PACKED_BYTES)
        await asyncio.sleep(0)  # bytes that have arrived are read without waiting
        return bytes(found)

    async def end(self) -> None:
        """End the rectangle: the remaining bytes end its part of the stream."""
        self._packed += await self._take(PACKED_BYTES)
        if self._unpack(1) or self._packed or self._left:
            raise VncError("the display sent too many compressed pixels")

    async def _take(self, most: int) -> bytes:
        found = await self._reader.readexactly(min(self._left, most))
        self._left -= len(found)
        return found

    def _unpack(self, most: int) -> bytes:
        try:
            found = self._stream.decompress(self._packed, most)
        except zlib.error as error:
            raise VncError("the display sent pixels that cannot be unpacked") from error
        self._packed = self._stream.unconsumed_tail
        return found


CONNECT_TIMEOUT_S = 20.0

CLOSE_S = 1.0
"""Seconds for a server to take the last bytes sent."""

BRISK_S = 0.25
"""Seconds after which a waiting client reminds QEMU. Without that, QEMU looks for changes less and
less often while there are none, down to every 3 s (QEMU, GUI_REFRESH_INTERVAL_IDLE)."""

TYPING_S = 0.01
"""Seconds between two characters, so that programs there can follow."""

VERSION = b"RFB 003.008\n"
NO_SECURITY = 1
REASON_MAX = 4096
"""Bytes of the server's words when it refuses."""

CUT_TEXT_MAX = 1024 * 1024
"""Bytes of a text that the server offers; it is skipped."""

BAND_BYTES = 1024 * 1024
"""Bytes of a rectangle that are read at once, so that the event loop is never held long."""

BUFFER_BYTES = 2 * BAND_BYTES
RECTS_MAX = 1024
"""The most rectangles kept for a viewer; beyond that, the whole picture counts as changed."""

CURSOR_MAX = 512
"""Pixels of a side of a pointer's shape; virtio-gpu has 64 (Linux, drivers/gpu/drm/virtio)."""

SCREENS_MAX = 16

BY_US = 1
"""The reason of an ExtendedDesktopSize that answers this client's own request."""
ACCEPTED = (0, 4)
"""The status of the answer to our request: done, or passed on to the guest (QEMU, ui/vnc.c)."""

UPDATE, COLOURS, BELL, CUT_TEXT = range(4)
"""Messages of the server."""


class Encoding(IntEnum):
    """The encodings that this client understands. Through a local socket pixels come raw:
    compressing them takes longer than copying them."""

    RAW = 0
    ZLIB = 6
    """See `Unpacking`."""
    FAST = -255
    """The compression level 1, the fastest; QEMU's own is 9 (ui/vnc.c, set_encodings)."""
    ALPHA_CURSOR = -314
    EXTENDED_DESKTOP_SIZE = -308
    DESKTOP_SIZE = -223


ALWAYS = (
    *(Encoding.RAW, Encoding.ALPHA_CURSOR),
    *(Encoding.EXTENDED_DESKTOP_SIZE, Encoding.DESKTOP_SIZE),
)
"""The encodings that this client offers to every VNC server, the preferred ones first."""

COMPRESSED = (Encoding.ZLIB, Encoding.FAST)
"""The encodings that the client prefers to the others if pixels may come compressed."""


class Buttons(IntFlag):
    """The pointer's buttons. The wheel turns by a press and a release of one of four."""

    LEFT = 1
    MIDDLE = 2
    RIGHT = 4
    WHEEL_UP = 8
    WHEEL_DOWN = 16
    WHEEL_LEFT = 32
    WHEEL_RIGHT = 64


class VncClient:
    """A connection to a VNC server, made by `open`."""

    error: ClassVar[type[Exception]] = VncError
    """The class of the errors that its methods raise. A subclass may name another, of its own
    program; AskedError stays as it is."""

    width_step: ClassVar[int] = 1
    """The step to which the server rounds up the screen's width where the pointer is concerned."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        *,
        compressed: bool = False,
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._encodings = (*COMPRESSED, *ALWAYS) if compressed else ALWAYS
        self._unpacking = Unpacking(reader) if compressed else None
        self.frame = Framebuffer.blank(0, 0)
        """The screen; the module says when it changes."""
        self.cursor: Cursor | None = None
        """The pointer's shape, if the server leaves it to the viewer to draw it."""
        self._changed: list[Rect] = []
        self._has_news = False
        """Whether there is something that `next_update` has not returned yet."""
        self._incoming: list[Rect] = []
        self._incoming_news = False
        """The same for the message that is being read."""
        self._needs_all = True
        """Whether the next request asks for the whole picture."""
        self._requested = False
        """Whether the server owes an update."""
        self._arrived = asyncio.Event()
        self._resized: asyncio.Future[int] | None = None
        self._failure: Exception | None = None

    @classmethod
    @contextlib.asynccontextmanager
    async def open(
        cls,
        address: Path | tuple[str, int],
        *,
        timeout: float = CONNECT_TIMEOUT_S,
        first: bytes = b"",
        compressed: bool = False,
    ) -> AsyncIterator[Self]:
        """Connect to the server at a Unix socket, or at a host and a port. ``first`` is written
        before everything else, and with ``compressed`` pixels may come compressed. Raises VncError
        if nobody serves there, if it refuses, or if it does not answer within ``timeout``
        seconds."""
        try:
            async with asyncio.timeout(timeout):
                streams = await _connect(address)
        except (OSError, TimeoutError) as error:
            shown = ":".join(map(str, address)) if isinstance(address, tuple) else address
            raise cls.error(f"the display cannot be reached at {shown}: {error}") from error
        client = cls(*streams, compressed=compressed)
        try:
            streams[1].write(first)
            await client._greet(timeout)
            reading = asyncio.ensure_future(client._read_all())
            try:
                yield client
            finally:
                reading.cancel()
                await asyncio.wait((reading,))
        finally:
            streams[1].close()
            try:
                with contextlib.suppress(OSError):
                    async with asyncio.timeout(CLOSE_S):
                        await streams[1].wait_closed()
            finally:
                streams[1].transport.abort()  # the server does not take the rest

    # A viewer

    async def next_update(self, *, brisk_s: float | None = BRISK_S) -> list[Rect]:
        """Wait until the screen has changed and return the changed rectangles (see the module).

        ``brisk_s``: the most seconds between QEMU's looks for changes; with None it takes up to 3 s
        to notice the first one after a long rest, and costs nothing meanwhile. Raises VncError
        once the connection has ended.
        """
        while not self._has_news:
            if self._failure is not None:
                raise self._failure
            if not self._requested:
                await self._request()
            self._arrived.clear()
            try:
                async with asyncio.timeout(brisk_s):
                    await self._arrived.wait()
            except TimeoutError:
                await self._remind()
        found, self._changed, self._has_news = self._changed, [], False
        return found

    async def pointer(self, x: int, y: int, buttons: int = 0, *, width: int | None = None) -> None:
        """Move the pointer to the pixel (x, y) of the frame with these `Buttons` held. Positions
        outside of the screen are moved to its edge. ``width``: the number of the frame's columns
        that are the screen's, if not all. Raises VncError."""
        width = max(1, self.frame.width if width is None else width)
        x = min(max(x, 0), width - 1)
        y = min(max(y, 0), max(self.frame.height - 1, 0))
        # The middle of the pixel, as a part of the width that the server has in mind.
        x = (2 * x + 1) * -(-width // self.width_step) * self.width_step // (2 * width)
        await self._send(struct.pack(">BBHH", 5, buttons & 0xFF, x, y))

    async def key(self, keysym: int, down: bool) -> None:
        """Press or release the key that has the X11 keysym, as a US keyboard has it. Raises
        VncError."""
        await self._send(struct.pack(">BBxxI", 4, down, keysym & 0xFFFFFFFF))

    async def press_key(self, *keys: str) -> None:
        """Press keys together, the first one first, and release them: ``press_key("ctrl", "c")``.
        Raises AskedError for what is no key (`Key`), VncError."""
        await self._stroke([keysym_of_key(key) for key in parse_keys(keys)])

    async def type_text(self, text: str, *, pause_s: float = TYPING_S) -> None:
        """Type characters, one each ``pause_s``, with Shift where a US keyboard needs it. What it
        lacks is sent by its keysym, which not every server can type. Raises VncError."""
        for character in text:
            needs_shift = character in STROKES and STROKES[character].shift
            shift = [keysym_of_key("shift")] if needs_shift else []
            await self._stroke([*shift, keysym_of(character)])
            await asyncio.sleep(pause_s)

    async def _stroke(self, keysyms: Sequence[int]) -> None:
        for keysym in keysyms:
            await self.key(keysym, True)
        for keysym in reversed(keysyms):
            await self.key(keysym, False)

    async def resize(self, width: int, height: int) -> None:
        """Ask for another size of the screen. Returns when the server has taken the request;
        whether it follows is up to what runs there. Raises AskedError for a size that
        there cannot be, VncError if it refuses."""
        check_size(width, height)
        self._resized = asyncio.get_running_loop().create_future()
        screen = struct.pack(">IHHHHI", 0, 0, 0, width, height, 0)
        await self._send(struct.pack(">BxHHBx", 251, width, height, 1) + screen)
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                status = await self._resized
        except TimeoutError:
            raise self.error("the display did not answer to a change of its size") from None
        finally:
            self._resized = None
        if status not in ACCEPTED:
            raise self.error("this machine's display cannot be given another size")

    # Sending

    async def _send(self, message: bytes) -> None:
        if self._failure is not None:
            raise self._failure
        try:
            self._writer.write(message)
            await self._writer.drain()
        except OSError as error:
            raise self._ended() from error

    def _ended(self) -> Exception:
        return self.error("the connection to the display has ended")

    async def _request(self) -> None:
        incremental = not self._needs_all
        self._requested, self._needs_all = True, False
        width, height = self.frame.width, self.frame.height
        await self._send(struct.pack(">BBHHHH", 3, incremental, 0, 0, width, height))

    async def _remind(self) -> None:
        """Make QEMU look for changes at once, as after any message from a viewer's user. This one
        is a text of no characters for the guest's clipboard, which QEMU drops."""
        await self._send(struct.pack(">BxxxI", 6, 0))

    # Receiving

    async def _greet(self, timeout: float) -> None:
        try:
            async with asyncio.timeout(timeout):
                await self._handshake()
        except TimeoutError:
            raise self.error(f"the display did not answer within {timeout:g} s") from None
        except (EOFError, OSError) as error:
            raise self._ended() from error
        except VncError as error:
            raise self.error(str(error)) from error

    async def _handshake(self) -> None:
        version = await self._reader.readexactly(len(VERSION))
        if not version.startswith(b"RFB 003."):
            raise VncError("what answers at the display's socket is no VNC server")
        self._writer.write(VERSION)
        kinds = await self._reader.readexactly((await self._numbers(">B"))[0])
        if NO_SECURITY not in kinds:
            why = "it asks for a password" if kinds else await self._reason()
            raise VncError(f"the display refused the connection: {why}")
        self._writer.write(bytes([NO_SECURITY]))
        if (await self._numbers(">I"))[0] != 0:
            raise VncError(f"the display refused the connection: {await self._reason()}")
        self._writer.write(b"\x01")  # others may stay connected
        width, height, *_ = await self._numbers(">HH16x")
        (length,) = await self._numbers(">I")
        await self._skip(length, CUT_TEXT_MAX)
        self._set_size(width, height)
        pixel_format = struct.pack(">BBBBHHHBBB3x", 32, 24, 0, 1, 255, 255, 255, 0, 8, 16)
        self._writer.write(struct.pack(">B3x", 0) + pixel_format)
        encodings = struct.pack(f">{len(self._encodings)}i", *self._encodings)
        self._writer.write(struct.pack(">BxH", 2, len(self._encodings)) + encodings)
        await self._writer.drain()

    async def _reason(self) -> str:
        (length,) = await self._numbers(">I")
        words = await self._reader.readexactly(min(length, REASON_MAX))
        return words.decode("utf-8", "replace")

    async def _numbers(self, form: str) -> tuple[int, ...]:
        return struct.unpack(form, await self._reader.readexactly(struct.calcsize(form)))

    async def _skip(self, length: int, limit: int) -> None:
        if length > limit:
            raise VncError(f"the display sent a text of {length} bytes; {limit} is the most")
        await self._reader.readexactly(length)

    async def _read_all(self) -> None:
        """Handle the server's messages until the connection ends."""
        try:
            while True:
                await self._read_message()
        except VncError as error:
            self._failure = self.error(str(error))
        except (EOFError, OSError) as error:
            self._failure = self._ended()
            self._failure.__cause__ = error
        finally:
            self._failure = self._failure or self._ended()
            self._arrived.set()
            if self._resized is not None and not self._resized.done():
                self._resized.set_exception(self._failure)

    async def _read_message(self) -> None:
        (kind,) = await self._numbers(">B")
        if kind == UPDATE:
            (count,) = await self._numbers(">xH")
            is_answer = count == 0
            for _ in range(count):
                is_answer |= await self._read_rect()
            if is_answer:
                self._requested = False
            self._publish()
        elif kind == CUT_TEXT:
            (length,) = await self._numbers(">xxxi")
            await self._skip(abs(length), CUT_TEXT_MAX)
        elif kind != BELL:
            raise VncError(f"the display sent a message of the unknown kind {kind}")

    async def _read_rect(self) -> bool:
        """Read one rectangle; returns whether it has pixels of the screen."""
        x, y, width, height, encoding = await self._numbers(">HHHHi")
        match encoding:
            case Encoding.RAW:
                await self._read_pixels(Rect(x, y, width, height), self._reader.readexactly)
                return True
            case Encoding.ZLIB if self._unpacking is not None:
                await self._read_packed(Rect(x, y, width, height), self._unpacking)
                return True
            case Encoding.DESKTOP_SIZE:
                self._set_size(width, height)
            case Encoding.EXTENDED_DESKTOP_SIZE:
                await self._read_size(x, y, width, height)
            case Encoding.ALPHA_CURSOR:
                await self._read_cursor(x, y, width, height)
            case _:
                raise VncError(f"the display sent pixels in the unknown encoding {encoding}")
        return False

    async def _read_packed(self, rect: Rect, unpacking: Unpacking) -> None:
        (length,) = await self._numbers(">I")
        unpacking.begin(length, rect.width * rect.height * BYTES_PER_PIXEL)
        await self._read_pixels(rect, unpacking.read)
        await unpacking.end()

    async def _read_pixels(self, rect: Rect, read: Callable[[int], Awaitable[bytes]]) -> None:
        frame = self.frame
        if not frame.contains(rect):
            raise VncError("the display sent pixels beyond its edge")
        if not rect.width or not rect.height:
            return
        row = rect.width * BYTES_PER_PIXEL
        rows = max(1, BAND_BYTES // row)
        for top in range(0, rect.height, rows):
            height = min(rows, rect.height - top)
            data = await read(height * row)
            frame.put(Rect(rect.x, rect.y + top, rect.width, height), data)
        self._note(rect)

    async def _read_size(self, reason: int, status: int, width: int, height: int) -> None:
        (screens,) = await self._numbers(">B3x")
        if screens > SCREENS_MAX:
            raise VncError(f"the display says that it has {screens} screens")
        await self._reader.readexactly(screens * 16)
        if reason == BY_US and self._resized is not None and not self._resized.done():
            self._resized.set_result(status)
        if status == 0 or reason != BY_US:
            self._set_size(width, height)

    async def _read_cursor(self, hot_x: int, hot_y: int, width: int, height: int) -> None:
        (encoding,) = await self._numbers(">i")
        if encoding != Encoding.RAW or max(width, height) > CURSOR_MAX:
            raise VncError(f"the display sent a pointer of {width}x{height} pixels")
        data = await self._reader.readexactly(width * height * BYTES_PER_PIXEL)
        # QEMU sends its own byte order, blue first (ui/vnc.c, vnc_cursor_define).
        pixels = bytearray(data)
        pixels[0::4], pixels[2::4] = data[2::4], data[0::4]
        shape = Cursor(width=width, height=height, hot_x=hot_x, hot_y=hot_y, pixels=bytes(pixels))
        self.cursor = shape if any(data) else None
        self._incoming_news = True

    def _note(self, rect: Rect) -> None:
        if len(self._incoming) >= RECTS_MAX:
            self._incoming = [self.frame.whole]
        self._incoming.append(rect)
        self._incoming_news = True

    def _publish(self) -> None:
        """Let `next_update` return what the last message has changed."""
        if len(self._changed) + len(self._incoming) > RECTS_MAX:
            self._changed = [self.frame.whole]
        else:
            self._changed += self._incoming
        self._has_news |= self._incoming_news
        self._incoming, self._incoming_news = [], False
        self._arrived.set()

    def _set_size(self, width: int, height: int) -> None:
        if (width, height) == (self.frame.width, self.frame.height):
            return
        try:
            self.frame = Framebuffer.blank(width, height)
        except ValueError as error:
            raise VncError(f"the display has {width}x{height} pixels, too many") from error
        self._changed, self._has_news = [], False
        self._incoming, self._incoming_news = [], False
        # An update that is on its way may be of the old size's picture: ask for everything again.
        self._needs_all, self._requested = True, False


async def _connect(
    address: Path | tuple[str, int],
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    if isinstance(address, tuple):
        return await asyncio.open_connection(*address, limit=BUFFER_BYTES)
    return await asyncio.open_unix_connection(address, limit=BUFFER_BYTES)
