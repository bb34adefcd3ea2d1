"""Ports of this host that lead to a sandbox from its start (`run --publish`), by way of its guest's
agent. One process carries them and those added later (life/forwarder.py)."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, Self

from quicksand.base.background import StandBy
from quicksand.base.errors import HostError
from quicksand.base.files import is_locked, lock_within, try_named_lock
from quicksand.base.listening import bind, listen
from quicksand.base.threads import in_thread_to_the_end
from quicksand.records.dialled import ForwarderFiles
from quicksand.records.layout import RuntimeDir
from quicksand.records.port_forwards import PortForward, Protocol

FORWARDER: Final = "quicksand.life.forwarder"
"""The module of that process."""

LOCK_WAIT_S = 1.0
"""Seconds to wait for the lock of a new sandbox, which others hold only for a look."""

PATIENCE_S = 30.0
"""Seconds between two attempts to replace a killed process."""


class Published:
    """The ports of one start. They listen from its beginning, so nobody else can take them, and the
    process that will carry them begins during the boot. It has them when `hand_over` returns;
    earlier connections wait in the kernel.

    Until then they end with this process, or by `close`, which leaving ``with`` does, too. Without
    ports nothing is started."""

    def __init__(self, forwards: tuple[PortForward, ...], sockets: list[socket.socket]) -> None:
        self.forwards = forwards
        """The forwards, with the chosen host ports."""
        self._sockets = sockets
        self._process: StandBy | None = None
        self._lock: int | None = None

    @classmethod
    def listen(cls, wanted: Sequence[PortForward]) -> Self:
        """Listen. Raises PortInUseError, naming the port; HostError."""
        chosen, sockets = [], []
        try:
            for forward in wanted:
                take = listen if forward.protocol is Protocol.TCP else bind
                sockets += (found := take(forward.host))
                port = found[0].getsockname()[1]
                chosen.append(PortForward(port, forward.guest, forward.protocol))
        except BaseException:
            for one in sockets:
                one.close()
            raise
        return cls(tuple(chosen), sockets)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def pairs(self, protocol: Protocol) -> tuple[tuple[int, int], ...]:
        """Return the (host port, guest port) pairs of a protocol."""
        return tuple((one.host, one.guest) for one in self.forwards if one.protocol is protocol)

    async def begin(self) -> None:
        """Start the process. Raises HostError."""
        if self.forwards:
            with _mapped():
                self._process = await StandBy.start(FORWARDER)

    def claim(self, runtime_root: Path) -> None:
        """Take the lock that the process will hold (`ForwarderFiles`), so that nobody starts
        another one. This comes before others can find the sandbox. Blocks. Raises HostError."""
        if not self.forwards:
            return
        with _mapped():
            lock = ForwarderFiles(runtime_root).lock
            self._lock = lock_within(lock, LOCK_WAIT_S, take=try_named_lock)
        if self._lock is None:
            raise HostError("another process carries the ports of this sandbox")

    def hand_over(self, id_: str) -> None:
        """Give the ports to the process, now that others can find the sandbox. Raises HostError."""
        if self._process is None or self._lock is None:
            return
        with _mapped():
            give(self._process, id_, self._lock, self.forwards, self._sockets)
        self.close()

    def close(self) -> None:
        """Close this process's copies, and let a process end that was given nothing. Idempotent."""
        for one in self._sockets:
            one.close()
        if self._process is not None:
            self._process.close()
        if self._lock is not None:
            os.close(self._lock)
        self._sockets, self._process, self._lock = [], None, None


def give(
    process: StandBy,
    id_: str,
    lock: int,
    forwards: Sequence[PortForward] = (),
    sockets: Sequence[socket.socket] = (),
) -> None:
    """Give the process its sandbox, the lock that it will hold, and its ports. Raises OSError."""
    told = [[forward.host, forward.guest, forward.protocol.value] for forward in forwards]
    value = {"id": id_, "forwards": told}
    process.give(value, [lock, *(one.fileno() for one in sockets)])


async def start_forwarder(files: ForwarderFiles, id_: str) -> None:
    """Start the process without ports, unless there is one. Raises OSError."""
    if is_locked(files.lock) or not files.root.exists():
        return
    lock = await in_thread_to_the_end(lambda: try_named_lock(files.lock))
    if lock is None:
        return  # somebody else starts it
    try:
        with contextlib.closing(await StandBy.start(FORWARDER)) as process:
            give(process, id_, lock)
    finally:
        os.close(lock)


class ForwarderCheck:
    """Replaces the process of a sandbox's ports if it was killed, for a client that makes many
    requests: looking for it costs next to nothing."""

    def __init__(self) -> None:
        self._not_before = 0.0

    async def ensure(self, runtime: RuntimeDir, id_: str, wanted: Sequence[PortForward]) -> None:
        """``wanted``: the forwards with which the sandbox was started. Failed attempts are repeated
        later: another process may have a port meanwhile."""
        if not wanted or time.monotonic() < self._not_before:
            return
        if is_locked(ForwarderFiles(runtime.root).lock) or not runtime.root.exists():
            return
        try:
            with Published.listen(wanted) as published:
                await published.begin()
                await in_thread_to_the_end(lambda: published.claim(runtime.root))
                published.hand_over(id_)
        except HostError:
            self._not_before = time.monotonic() + PATIENCE_S


@contextlib.contextmanager
def _mapped() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise HostError(f"ports cannot be forwarded: {error.strerror or error}") from error
