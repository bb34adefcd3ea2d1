"""A file with at least one open handle."""

from quicksand_smb.access_rights import (
    APPEND_DATA,
    DELETE,
    EXECUTE,
    READ_DATA,
    SHARE_DELETE,
    SHARE_READ,
    SHARE_WRITE,
    WRITE_DATA,
)
from quicksand_smb.locks import Locks
from quicksand_smb.minimal_stdlib import TYPE_CHECKING, Callable, Final, Protocol
from quicksand_smb.status import Refusal, Status
from quicksand_smb.store_types import Stat

if TYPE_CHECKING:
    from quicksand_smb.host_writes import Guard
    from quicksand_smb.leases import Grant
    from quicksand_smb.notify import Watch

_COUNTS: Final = READ_DATA | WRITE_DATA | APPEND_DATA | EXECUTE | DELETE
"""Accesses that the sharing of other handles must allow."""


class FileHandle(Protocol):
    """The part of a handle that its file uses."""

    id: int
    access: int
    sharing: int
    grant: "Grant | None"
    watch: "Watch | None"


class File:
    """A file with at least one open handle."""

    __slots__ = (
        "_uses",
        "grants",
        "guard",
        "handles",
        "has_assumed_mode",
        "is_removed",
        "key",
        "locks",
        "stream",
        "to_delete",
        "unwatch",
        "waiting",
        "waiting_opens",
    )  # fmt: skip

    def __init__(self, stat: Stat, stream: str = "") -> None:
        self.key: tuple[int, int] | tuple[int, int, str] = (stat.device, stat.inode)
        if stream:
            self.key = (stat.device, stat.inode, stream.casefold())
        self.stream = stream
        self.handles: dict[FileHandle, None] = {}
        """The handles in the order in which they were opened."""
        self._uses: dict[tuple[int, int], int] = {}
        """How many handles have each combination of access and sharing."""
        self.locks = Locks()
        self.waiting: list[Callable[[], bool]] = []
        """Lock requests that wait. Each function tries again and returns whether its request is
        answered."""
        self.unwatch: Callable[[], None] | None = None
        """Ends the watch for changes by the host."""
        self.grants: list[Grant] = []
        """Oplocks and leases."""
        self.guard: Guard | None = None
        """The guard, while a client that may cache pages has the file open for writing."""
        self.waiting_opens: list[Callable[[], bool]] = []
        """Opens that wait for a broken lease or oplock. Each function works as in `waiting`."""
        self.to_delete = False
        """The name is removed with the last handle. Until then nobody may open the file."""
        self.is_removed = False
        self.has_assumed_mode = False
        """A client with POSIX extensions was told of the file without its mode. It assumes another
        mode until it asks again."""

    def add(self, handle: FileHandle) -> None:
        self.handles[handle] = None
        use = (handle.access & _COUNTS, handle.sharing)
        self._uses[use] = self._uses.get(use, 0) + 1

    def remove(self, handle: FileHandle) -> None:
        """Remove a handle. A second call does nothing."""
        if handle not in self.handles:
            return
        del self.handles[handle]
        use = (handle.access & _COUNTS, handle.sharing)
        self._uses[use] -= 1
        if not self._uses[use]:
            del self._uses[use]

    def end_watch(self) -> None:
        """Stop watching the host's changes."""
        if self.unwatch:
            self.unwatch()
            self.unwatch = None

    def end_watches(self) -> None:
        """End the watches on a directory that is being deleted ([MS-FSA] 2.1.5.15.3)."""
        for one in self.handles:
            if one.watch:
                one.watch.end(Status.DELETE_PENDING)

    def rename_stream(self, name: str) -> None:
        self.key = (self.key[0], self.key[1], name.casefold())
        self.stream = name

    def retry_locks(self) -> None:
        if self.waiting:
            self.waiting = [attempt for attempt in self.waiting if not attempt()]

    def retry_opens(self) -> None:
        """Try the waiting opens again, after a grant was given back or a handle was closed."""
        if self.waiting_opens:
            waiting, self.waiting_opens = self.waiting_opens, []
            self.waiting_opens = [
                attempt for attempt in waiting if not attempt()
            ] + self.waiting_opens

    def check_sharing(self, access: int, sharing: int) -> None:
        """Check whether another handle is compatible with the open ones ([MS-FSA] 2.1.5.1.2.2)."""
        if not access & _COUNTS:
            return
        for other, shared in self._uses:
            if other and (_hinders(access, shared) or _hinders(other, sharing)):
                raise Refusal(Status.SHARING_VIOLATION)


def _hinders(access: int, sharing: int) -> bool:
    return bool(
        (access & (READ_DATA | EXECUTE) and not sharing & SHARE_READ)
        or (access & (WRITE_DATA | APPEND_DATA) and not sharing & SHARE_WRITE)
        or (access & DELETE and not sharing & SHARE_DELETE)
    )
