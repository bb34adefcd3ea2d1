"""Reads frames from a stream of bytes ([MS-SMB2] 2.1: a zero byte, and the length in three bytes).

A stream that ends in a Unix socket of QEMU's guestfwd carries one connection of the guest after the
other, and never marks where one ends. A dead connection may leave half a frame behind, and a
hostile guest may throw bytes in between. `Frames` resynchronises at a NEGOTIATE, with which each
connection begins:

* if no frame begins where one should, it skips bytes up to the next NEGOTIATE;
* if the rest of a frame does not come, it looks for a whole NEGOTIATE at the end of the bytes.

A client waits for the answer to its NEGOTIATE. If another NEGOTIATE follows one, its client is
gone, and its answer would be taken for that of the next connection. So it is dropped.
"""

import _socket
import select

from quicksand_smb.header import MAGIC, SIZE, Command
from quicksand_smb.minimal_stdlib import Final
from quicksand_smb.traffic import SENT
from quicksand_smb.wire import ProtocolError

LARGEST_FRAME: Final = (8 << 20) + (64 << 10)
"""The largest frame in bytes: the largest write and its headers."""
IN_PLACE: Final = 256 << 10
"""The largest frame in bytes that is read into the shared buffer. Larger ones get their own."""
GAP_S: Final = 1.0
"""The seconds without a byte inside a frame after which the client may be gone."""
PATIENCE_S: Final = 60.0
"""The seconds that the rest of a frame may take on a stream that has an end."""
MOST_SKIPPED: Final = LARGEST_FRAME
"""The most bytes to skip in search of a NEGOTIATE: one frame may have left that many behind."""
LARGEST_NEGOTIATE: Final = 4096
_NEGOTIATE: Final = Command.NEGOTIATE.to_bytes(2, "little")
_SPARE: Final = 2
_QUICKACK: Final = getattr(_socket, "TCP_QUICKACK", None)
_DONTWAIT: Final = getattr(_socket, "MSG_DONTWAIT", 0)


class Frames:
    def __init__(
        self, socket: _socket.socket, traffic: memoryview, *, resynchronises: bool
    ) -> None:
        self._socket = socket
        self._traffic = traffic
        self._resynchronises = resynchronises
        self._acknowledges = _QUICKACK if socket.family == _socket.AF_INET else None
        self._view = memoryview(bytearray(IN_PLACE + 4))
        self._start = self._end = 0
        """The part of the buffer that is received and not yet returned."""
        self._skipped = 0
        self._spare: list[bytearray] = []

    def next(self) -> memoryview:
        """Return the next frame. It is valid until the next call; a frame larger than `IN_PLACE` is
        valid until `give_back`.

        Raises EOFError at the end, OSError, and ProtocolError for bytes that are not SMB2.
        """
        while True:
            # The first bytes show whether a frame begins here.
            if not self._need(8):
                continue
            at = self._start
            length = int.from_bytes(self._view[at : at + 4], "big")
            magic = bytes(self._view[at + 4 : at + 8])
            if length > LARGEST_FRAME or length < SIZE or magic != MAGIC:
                self._search()
            elif length > IN_PLACE:
                frame = self._take_large(length)
                if frame is not None:
                    return frame
            elif self._need(4 + length):
                self._skipped = 0
                at = self._start + 4  # the buffer may have been moved
                self._start = at + length
                if not self._is_gone(at, length):
                    return self._view[at : at + length]

    def give_back(self, frame: memoryview) -> None:
        """Take back the buffer of a large frame, to use it again."""
        buffer = frame.obj
        if isinstance(buffer, bytearray) and len(self._spare) < _SPARE and len(frame) > IN_PLACE:
            self._spare.append(buffer)

    def change_buffer(self) -> None:
        """Use a new buffer, because another thread still works with the last frame."""
        rest = self._view[self._start : self._end]
        self._view = memoryview(bytearray(IN_PLACE + 4))
        self._view[: len(rest)] = rest
        self._start, self._end = 0, len(rest)

    def _is_gone(self, at: int, length: int) -> bool:
        """Tell whether a frame is a NEGOTIATE whose client has reconnected since."""
        if not self._resynchronises or self._view[at + 12 : at + 14] != _NEGOTIATE:
            return False
        if not _may_negotiate(bytes(self._view[at - 4 : at + min(length, 20)])):
            return False
        if self._end < len(self._view):
            try:
                count = self._socket.recv_into(self._view[self._end :], 0, _DONTWAIT)
            except BlockingIOError:
                count = 0
            self._traffic[SENT] += count
            self._end += count
        behind = bytes(self._view[self._start : self._end])
        at = behind.find(MAGIC)
        while at >= 0 and not (at >= 4 and _may_negotiate(behind[at - 4 :][:24])):
            at = behind.find(MAGIC, at + 1)
        return at >= 0

    def _need(self, count: int) -> bool:
        """Receive until `count` bytes are buffered. Returns False if a new connection begins
        instead."""
        while self._end - self._start < count:
            if self._start == self._end:
                self._start = self._end = 0
            elif self._start + count > len(self._view):
                rest = bytes(self._view[self._start : self._end])
                self._view[: len(rest)] = rest
                self._start, self._end = 0, len(rest)
            got = self._receive(self._view[self._end :], self._end > self._start)
            if not got:
                again = find_negotiate(self._view[self._start : self._end])
                if again is not None:
                    self._start += again
                    return False
                self._await(None)
            self._end += got
        return True

    def _take_large(self, length: int) -> memoryview | None:
        """Receive a frame into a buffer of its own. Returns None if a new connection begins
        instead."""
        frame = memoryview(self._memory(length))[:length]
        have = min(self._end - self._start - 4, length)
        frame[:have] = self._view[self._start + 4 : self._start + 4 + have]
        self._start += 4 + have
        while have < length:
            got = self._receive(frame[have:], True)
            if not got:
                tail = frame[max(have - LARGEST_NEGOTIATE, 0) : have]
                again = find_negotiate(tail)
                if again is not None:
                    self._start, self._end = 0, len(tail) - again
                    self._view[: self._end] = tail[again:]
                    return None
                self._await(None)
            have += got
        self._skipped = 0
        return frame

    def _memory(self, length: int) -> bytearray:
        for index, buffer in enumerate(self._spare):
            if length <= len(buffer) <= 2 * length:
                return self._spare.pop(index)
        return bytearray(length)

    def _search(self) -> None:
        """Skip bytes up to the next place where a NEGOTIATE begins, or may begin."""
        if not self._resynchronises:
            raise ProtocolError("a frame of another protocol, or too long")
        data = bytes(self._view[self._start : self._end])
        at = _next_negotiate(data)
        self._skipped += at
        self._start += at
        if self._skipped > MOST_SKIPPED:
            raise ProtocolError("nothing that could be SMB2")

    def _receive(self, into: memoryview, is_amid: bool) -> int:
        """Receive bytes and return how many. Returns 0 if none came for a while inside a frame."""
        if not is_amid:
            count = self._socket.recv_into(into)
        else:
            try:
                count = self._socket.recv_into(into, 0, _DONTWAIT)
            except BlockingIOError:
                if not self._await(GAP_S if self._resynchronises else PATIENCE_S):
                    if not self._resynchronises:
                        raise EOFError from None
                    return 0
                count = self._socket.recv_into(into)
        if not count:
            raise EOFError
        self._traffic[SENT] += count
        if self._acknowledges is not None:
            # The option holds for one acknowledgement. Without it small writes wait 40 ms each.
            self._socket.setsockopt(_socket.IPPROTO_TCP, self._acknowledges, 1)
        return count

    def _await(self, seconds: float | None) -> bool:
        """Wait for bytes. Returns False after a timeout."""
        if not hasattr(select, "poll"):
            return bool(select.select([self._socket], [], [], seconds)[0])
        waiting = select.poll()
        waiting.register(self._socket, select.POLLIN)
        return bool(waiting.poll(None if seconds is None else seconds * 1000))


def find_negotiate(received: memoryview) -> int | None:
    """Return the offset of a NEGOTIATE that ends where the received bytes end, or None."""
    tail = bytes(received[-LARGEST_NEGOTIATE:])
    before = len(received) - len(tail)
    at = tail.rfind(MAGIC)
    while at >= 4:
        whole = int.from_bytes(tail[at - 4 : at], "big") == len(tail) - at
        # Skip the first one, which belongs to the incomplete frame.
        if whole and before + at > 4 and _may_negotiate(tail[at - 4 :][:24]):
            return before + at - 4
        at = tail.rfind(MAGIC, 0, at)
    return None


def _next_negotiate(data: bytes) -> int:
    """Return the offset behind the first byte at which a NEGOTIATE begins, or may begin."""
    at = data.find(MAGIC, 5) - 4
    while at > 0 and not _may_negotiate(data[at : at + 24]):
        at = data.find(MAGIC, at + 5) - 4
    last = max(len(data) - 7, 1)  # from here on the magic itself is incomplete
    if at > 0:
        return at
    while last < len(data) and not _may_negotiate(data[last:]):
        last += 1
    return last


def _may_negotiate(start: bytes) -> bool:
    """Tell whether a NEGOTIATE may begin with these bytes. Fewer than 24 mean that more may
    follow."""
    length = int.from_bytes(start[:4], "big")
    if len(start) >= 4 and not SIZE <= length <= LARGEST_NEGOTIATE:
        return False
    known = MAGIC + SIZE.to_bytes(2, "little")
    return (
        start[:1] in (b"", b"\0")
        and start[4:10] == known[: max(len(start) - 4, 0)]
        and start[16:18] == Command.NEGOTIATE.to_bytes(2, "little")[: max(len(start) - 16, 0)]
    )
