"""Files of which a client may keep what it has written: the host's programs wait for it.

The server takes a write lease of the kernel's (fcntl(2), F_SETLEASE) on the file that the client
has open. A program of the host that opens or truncates the file then waits, while the client is
asked for its bytes, and goes on when they are there. The kernel gives a lease only where nobody
else has the file open, to the file's owner, and on file systems that know leases; where it gives
none, the client keeps nothing.

A program that does not open the file, but looks at its size or hears of changes by inotify, knows
what the client has written no earlier than the client sends it.
"""

import fcntl
from _thread import get_ident, get_native_id

from quicksand_smb.leases import NONE, WRITE, Clock, Grant
from quicksand_smb.light import TYPE_CHECKING, Callable, Final, Protocol, signal, start_thread
from quicksand_smb.reasons import StoreError

if TYPE_CHECKING:
    from quicksand_smb.node import Node

MOST: Final = 64
"""Leases of a server at the same time."""
PATIENCE_S: Final = 5.0
"""Seconds that a program of the host waits for a client at most. The kernel itself would end a
lease after fs.lease-break-time, 45 seconds."""

# asm-generic/fcntl.h
_SET_OWNER, _OWNER_IS_THREAD = 15, 0


class Opened(Protocol):
    """What this module knows of a handle."""

    @property
    def node(self) -> "Node": ...


class Leased(Protocol):
    """What this module knows of a file."""

    grants: list[Grant]
    lease: "HostLease | None"


class House(Protocol):
    """What this module knows of the house, under whose lock all but `_listen` runs."""

    def expect(self, late: Callable[[], None], after_s: float) -> Clock: ...
    def as_event(self, work: Callable[[], None]) -> None:
        """Do something under the lock, and send what it gives rise to."""


class HostLease:
    """One file's."""

    def __init__(self, leases: "HostLeases", file: Leased, handle: Opened) -> None:
        self._leases = leases
        self.file = file
        self.handle = handle
        """Whose descriptor has it; it ends with that."""
        self._clock: Clock | None = None

    def is_asked_for(self) -> bool:
        """Whether a program of the host waits."""
        try:
            descriptor = self.handle.node.held.take()
        except StoreError:
            return False
        try:
            return fcntl.fcntl(descriptor, fcntl.F_GETLEASE) != fcntl.F_WRLCK
        finally:
            self.handle.node.held.give()

    def ask_back(self) -> None:
        """Have the client send what it has; the lease ends when it has answered, or too late."""
        if self._clock:
            return
        self._clock = self._leases.house.expect(self.end, PATIENCE_S)
        for grant in list(self.file.grants):
            grant.ask_back(NONE)
        self.end_if_idle()

    def end_if_idle(self) -> None:
        """End it if no client may keep anything for which it is needed."""
        if not any(grant.state & WRITE for grant in self.file.grants):
            self.end()

    def end(self) -> None:
        """The host's programs wait no longer. Done twice, it does nothing."""
        if self.file.lease is not self:
            return
        self.file.lease = None
        if self._clock:
            self._clock.cancel()
        self._leases.forget(self)
        try:
            descriptor = self.handle.node.held.take()
        except StoreError:
            return  # it went with the descriptor
        try:
            fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_UNLCK)
        except OSError:
            return  # the kernel has ended it
        finally:
            self.handle.node.held.give()


class HostLeases:
    """Those of a server, and the thread that hears when somebody waits for one."""

    def __init__(self, house: House) -> None:
        self.house = house
        self._held: dict[HostLease, None] = {}
        self._is_over = False
        self._thread = 0
        self._owner = b""
        start_thread(self._listen)

    def take(self, file: Leased, handle: Opened) -> bool:
        """Take one for a file that only this handle has open to read or write."""
        if len(self._held) >= MOST or not self._owner:
            return False
        try:
            descriptor = handle.node.held.take()
        except StoreError:
            return False
        try:
            fcntl.fcntl(descriptor, _SET_OWNER, self._owner)
            fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        except OSError:
            return False
        finally:
            handle.node.held.give()
        file.lease = HostLease(self, file, handle)
        self._held[file.lease] = None
        return True

    def forget(self, lease: HostLease) -> None:
        self._held.pop(lease, None)

    def end(self) -> None:
        """The thread ends, too."""
        for lease in list(self._held):
            lease.end()
        self._is_over = True
        if self._thread:
            signal.pthread_kill(self._thread, signal.SIGIO)

    def _listen(self) -> None:
        # The kernel's signals go to this thread alone, so no other has to block them.
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGIO])
        self._thread = get_ident()
        self._owner = _OWNER_IS_THREAD.to_bytes(4, "little") + get_native_id().to_bytes(4, "little")
        while not self._is_over:
            signal.sigwait([signal.SIGIO])
            self.house.as_event(self._look)

    def _look(self) -> None:
        """A signal does not say which: several become one."""
        for lease in list(self._held):
            if lease.is_asked_for():
                lease.ask_back()
