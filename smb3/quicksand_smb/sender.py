"""Sends replies on a stream in their order, and ranges of files."""

import _socket
import struct
from _thread import allocate_lock

from quicksand_smb.connection import Connection, Frame
from quicksand_smb.minimal_stdlib import Final
from quicksand_smb.store_errors import StoreError
from quicksand_smb.traffic import RECEIVED
from quicksand_smb.wire import Buffer

PATIENCE_S: Final = 60
"""The seconds that a client may take to read, on a stream that has an end."""
MOST_UNSENT: Final = 24 << 20
"""The most bytes that may wait for a client that does not read. A client has credits for less."""
_ZEROES: Final = bytes(64 << 10)
_DONTWAIT: Final = getattr(_socket, "MSG_DONTWAIT", 0)
_MORE: Final = getattr(_socket, "MSG_MORE", 0)


class Sender:
    """Sends the frames of a connection. One thread sends at a time, and others leave their replies
    to it."""

    def __init__(
        self,
        socket: _socket.socket,
        connection: Connection,
        traffic: memoryview,
        *,
        is_patient: bool,
    ) -> None:
        """`is_patient` means that a client may pause without limit, as a paused machine does. Only
        sending threads wait for it."""
        self._socket = socket
        self._is_patient = is_patient
        self._connection = connection
        self._traffic = traffic
        self._turn = allocate_lock()
        self._sent = 0
        self._unsent: UnsentFrame | None = None
        if not is_patient:
            timeout = struct.pack("@ll", PATIENCE_S, 0)
            socket.setsockopt(_socket.SOL_SOCKET, _socket.SO_SNDTIMEO, timeout)
        if socket.family == _socket.AF_INET:
            socket.setsockopt(_socket.IPPROTO_TCP, _socket.TCP_NODELAY, 1)

    @property
    def unsent(self) -> int:
        """The bytes of memory that wait to be sent."""
        return self._connection.queued_bytes - self._sent

    def drain(self, *, waits: bool) -> bool:
        """Send the waiting frames. Returns False if a thread that may wait has to go on.

        Raises OSError, and BlockingIOError if the client has not read for too long.
        """
        outbox = self._connection.outbox
        while (outbox or self._unsent) and self._turn.acquire(blocking=not self._is_patient):
            try:
                if not self._push(waits=waits):
                    return False
            finally:
                self._turn.release()
        return True

    def _push(self, *, waits: bool) -> bool:
        """Send until nothing is left or the socket is full. The caller holds the turn."""
        outbox = self._connection.outbox
        while True:
            if self._unsent is None:
                try:
                    frame = outbox.popleft()
                except IndexError:  # removed: another conversation has begun
                    return True
                self._unsent = UnsentFrame(frame)
            rest = self._unsent
            if not rest.conversation.is_over and not self._send(rest, waits=waits):
                return False
            self._sent += rest.cost
            self._unsent = None
            if not outbox:
                return True

    def _send(self, rest: "UnsentFrame", *, waits: bool) -> bool:
        flags = (_MORE if rest.file else 0) | (0 if waits else _DONTWAIT)
        while rest.parts:
            try:
                count = self._socket.sendmsg(rest.parts, (), flags)
            except BlockingIOError:
                if waits:
                    raise  # the client has not read in time
                return False
            self._traffic[RECEIVED] += count
            rest.sent(count)
            if rest.conversation.is_over:
                return True
        if not rest.file:
            return True
        if not waits:
            return False
        node, offset, left = rest.file
        while left and not rest.conversation.is_over:
            try:
                count = node.send_to(self._socket.fileno(), offset, left)
            except StoreError:
                count = 0
            if not count:
                # The file was cut or the share removed. Send zeros, since the length is fixed.
                count = self._socket.send(_ZEROES[: min(left, len(_ZEROES))])
            self._traffic[RECEIVED] += count
            offset += count
            left -= count
        return True


class UnsentFrame:
    """The unsent rest of a frame."""

    def __init__(self, frame: Frame) -> None:
        head: Buffer = frame.length.to_bytes(4, "big")
        self.parts = [memoryview(part) for part in (head, *frame.parts) if len(part)]
        self.file = frame.file
        self.cost = frame.cost
        self.conversation = frame.conversation

    def sent(self, count: int) -> None:
        parts = self.parts
        while parts and count >= len(parts[0]):
            count -= len(parts.pop(0))
        if count:
            parts[0] = parts[0][count:]
