"""Connections and their streams: reading, answering and waiting.

One thread reads, and answers at once if nothing has to be waited for. A few workers answer requests
that may wait for a disk or for a client that does not read.

On a socket of QEMU's (`resynchronise`) reading must never pause, since QEMU writes to it while the
whole machine waits. So there

* a second thread takes over the reading if one request keeps the first too long;
* the bytes that wait for workers and for the client are limited. A client within its credits never
  reaches the limit; beyond it the socket is closed.
"""

import _socket
import os
from _queue import SimpleQueue
from _thread import allocate_lock

from quicksand_smb.connection import COST, Connection
from quicksand_smb.conversation import Conversation
from quicksand_smb.dispatch import Dispatcher
from quicksand_smb.frames import IN_PLACE, LARGEST_FRAME, Frames
from quicksand_smb.header import Command
from quicksand_smb.minimal_stdlib import Callable, Final, NamedTuple, start_thread
from quicksand_smb.sender import MOST_UNSENT, Sender
from quicksand_smb.server_state import OutputQueue, ServerState
from quicksand_smb.wire import ProtocolError

MOST_WORKERS: Final = 4
MOST_WAITING: Final = (16 << 20) + LARGEST_FRAME
"""The most bytes of requests that wait for workers, where reading never pauses."""
LONG_FROM: Final = IN_PLACE
"""The size in bytes of a frame, or of a read, from which on a worker answers it."""
TICK_S: Final = 0.05
"""The seconds after which the second thread checks whether the reader is busy."""
SHUTDOWN_S: Final = 5.0
"""The seconds that workers have to finish at the end of a stream."""
_LONG: Final = (Command.FLUSH, Command.IOCTL)
WRITE_THROUGH: Final = 1
"""A flag of a write request ([MS-SMB2] 2.2.21)."""


class Stream:
    """A connection and its socket."""

    def __init__(self, socket: _socket.socket, server: ServerState) -> None:
        self._socket = socket
        self._server = server
        self._keeps_reading = server.config.resynchronise
        self._is_over = False
        can_send_files = hasattr(_socket, "AF_UNIX") and _can_send_files()
        self.connection = Connection(server, can_send_files=can_send_files)
        self.connection.on_output = self._drain_for_other
        self._dispatcher = Dispatcher(self.connection)
        socket.setblocking(True)
        self._frames = Frames(socket, server.traffic, resynchronises=self._keeps_reading)
        self._sender = Sender(
            socket, self.connection, server.traffic, is_patient=self._keeps_reading
        )
        # Under `_state`:
        self._state = allocate_lock()
        self._threads = 0
        self._workers = 0
        self._idle = 0
        """Idle workers. A negative number counts jobs that wait for a worker."""
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._waiting = 0
        """The bytes of requests that workers have or wait for."""
        self._delayed = 0
        """The number of short waiting requests, which wait only because the reader was busy."""
        self._is_sending = False
        # For the reader and the stand-by thread. Only the reader and the waking thread write
        # `_is_reader_busy`, `_frames_read` and `_is_standby_asleep`.
        self._turn = allocate_lock()
        self._reader = 0
        self._frames_read = 0
        self._is_reader_busy = False
        self._is_standby_asleep = False
        self._wakeup: SimpleQueue[None] = SimpleQueue()
        self._ended = allocate_lock()
        self._ended.acquire()
        self._all_left = allocate_lock()
        self._all_left.acquire()

    def serve(self) -> None:
        """Answer until the client is gone."""
        with self._state:
            self._threads += 1
        if self._keeps_reading:
            self._start(lambda: self._read_or_stand_by(1))
        self._run(lambda: self._read_or_stand_by(0))
        self._all_left.acquire(timeout=SHUTDOWN_S)

    def _start(self, work: Callable[[], None]) -> None:
        with self._state:
            self._threads += 1
        start_thread(lambda: self._run(work))

    def _run(self, work: Callable[[], None]) -> None:
        """Run a thread. The first thread that ends closes the stream, and the last one ends the
        connection."""
        try:
            work()
        except (OSError, EOFError, ProtocolError):
            self._stop()  # the client is gone, or broke the protocol
        finally:
            self._leave()

    def _stop(self) -> None:
        self._is_over = True
        try:
            self._socket.shutdown(_socket.SHUT_RDWR)
        except OSError:
            return  # the client has closed it already

    def _leave(self) -> None:
        self._stop()
        self._wakeup.put(None)
        self._jobs.put(None)
        with self._state:
            if self._ended.locked():
                self._ended.release()
            self._threads -= 1
            is_last = not self._threads
        if is_last:
            with self._server.lock:
                self.connection.end()
                with_output = self._take_others()
            self._drain_others(with_output)
            self._socket.close()
            self._all_left.release()

    # Reading

    def _read_or_stand_by(self, me: int) -> None:
        while not self._is_over:
            if self._reader == me:
                self._read_on(me)
            else:
                self._stand_by(me)

    def _read_on(self, me: int) -> None:
        """Read and answer for as long as this thread is the reader."""
        while True:
            frame = self._frames.next()
            if not self._keeps_reading:
                self._handle(frame)
                continue
            self._frames_read += 1
            self._is_reader_busy = True
            if self._is_standby_asleep:
                self._is_standby_asleep = False
                self._wakeup.put(None)
            self._handle(frame)
            with self._turn:
                if self._reader != me:
                    return
                self._is_reader_busy = False

    def _stand_by(self, me: int) -> None:
        """Become the reader if one request keeps the other thread too long."""
        count = self._frames_read
        if self._ended.acquire(timeout=TICK_S):
            self._ended.release()
            return
        if count != self._frames_read:
            return
        with self._turn:
            if self._is_reader_busy and count == self._frames_read:
                self._is_reader_busy = False
                self._frames.change_buffer()
                self._reader = me
                return
        self._is_standby_asleep = True
        if not self._is_reader_busy and not self._is_over:
            self._wakeup.get()
        self._is_standby_asleep = False

    def _handle(self, frame: memoryview) -> None:
        """Answer a frame, or give it to a worker."""
        lock = self._server.lock
        if _is_long(frame) or self._delayed:
            self._give_to_worker(frame, is_delayed=not _is_long(frame))
        elif lock.acquire(timeout=TICK_S if self._keeps_reading else -1):
            self._answer(frame, waits=not self._keeps_reading)
        else:
            self._give_to_worker(frame, is_delayed=True)

    def _give_to_worker(self, frame: memoryview, *, is_delayed: bool) -> None:
        is_own = len(frame) > IN_PLACE
        cost = len(frame) + COST
        if self._waiting + cost > MOST_WAITING:
            if self._keeps_reading:
                raise ProtocolError("more requests than were granted")
            self._server.lock.acquire()
            self._answer(frame, waits=True)
            return
        kept = frame if is_own else memoryview(bytearray(frame))
        self._add(Job(kept, cost, is_delayed, self.connection.conversation))

    # Working

    def _add(self, job: "Job") -> None:
        with self._state:
            self._waiting += job.cost
            self._delayed += job.is_delayed
            needs_another = self._idle <= 0 and self._workers < MOST_WORKERS
            if needs_another:
                self._workers += 1
            else:
                self._idle -= 1
        self._jobs.put(job)
        if needs_another:
            self._start(self._work)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None and not self._is_over:
            if job.frame is None:
                self._is_sending = False
                self._sender.drain(waits=True)
            else:
                self._server.lock.acquire()
                if job.conversation is self.connection.conversation:
                    self._answer(job.frame, waits=True)
                else:
                    self._server.lock.release()
                self._frames.give_back(job.frame)
            with self._state:
                self._idle += 1
                self._waiting -= job.cost
                self._delayed -= job.is_delayed
        # One None ends all workers: each puts another one as it leaves.

    def _answer(self, frame: memoryview, *, waits: bool) -> None:
        """Answer a frame. The caller holds the server's lock, which is released."""
        try:
            self._dispatcher.receive(frame)
        except ProtocolError:
            if not self._keeps_reading:
                raise
            self.connection.end()  # the stream goes on with another one
        finally:
            with_output = self._take_others()
            self._server.lock.release()
        self._drain_others(with_output)
        self._drain(waits=waits)
        if self._keeps_reading and self._sender.unsent > MOST_UNSENT:
            raise ProtocolError("a client that does not read")

    # Sending

    def _take_others(self) -> list[OutputQueue]:
        with_output = [one for one in self._server.with_output if one is not self.connection]
        self._server.with_output.clear()
        return with_output

    @staticmethod
    def _drain_others(with_output: list[OutputQueue]) -> None:
        for connection in with_output:
            connection.drain()

    def _drain(self, *, waits: bool) -> None:
        if not self._sender.drain(waits=waits) and not self._is_sending:
            self._is_sending = True
            self._add(Job(None, 0, False, self.connection.conversation))

    def _drain_for_other(self) -> None:
        """Send output that a request of another connection has caused."""
        try:
            self._drain(waits=not self._keeps_reading)
        except OSError:
            self._stop()


class Job(NamedTuple):
    """A job for a worker."""

    frame: memoryview | None
    """The frame to answer. None means to go on sending."""
    cost: int
    is_delayed: bool
    conversation: Conversation
    """The conversation of the request. Its answer is not sent in another one."""


def _can_send_files() -> bool:
    return hasattr(os, "sendfile")


def _is_long(frame: memoryview) -> bool:
    """Tell whether the answer to a frame is known to wait for a disk."""
    if len(frame) > LONG_FROM:
        return True
    if len(frame) < 112:
        return frame[12] in _LONG
    command = frame[12]
    if command == Command.READ:
        return int.from_bytes(frame[68:72], "little") >= LONG_FROM
    if command == Command.WRITE:
        return bool(frame[108] & WRITE_THROUGH)
    return command in _LONG


def serve_socket(socket: _socket.socket, server: ServerState) -> None:
    """Serve one connected stream until it ends."""
    Stream(socket, server).serve()


def serve_listener(listener: _socket.socket, server: ServerState, *, most: int = 64) -> None:
    """Serve every connection of a listening socket with a thread. More than `most` at once are
    closed."""
    places = [0] * most
    while True:
        descriptor, _ = listener._accept()  # type: ignore[attr-defined]
        peer = _socket.socket(fileno=descriptor)
        if not places:
            peer.close()
            continue

        def serve(peer: _socket.socket = peer, place: int = places.pop()) -> None:
            try:
                serve_socket(peer, server)
            finally:
                places.append(place)

        start_thread(serve)
