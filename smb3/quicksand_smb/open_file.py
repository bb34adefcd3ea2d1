"""A file with at least one handle on it, whichever clients and shares these belong to."""

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
"""Accesses that others may have to share."""


class FileHandle(Protocol):
    """A handle, as far as its file knows it."""

    id: int
    access: int
    sharing: int
    grant: "Grant | None"
    watch: "Watch | None"


class File:
    """A file with at least one handle on it."""

    __slots__ = (
        "_uses",
        "grants",
        "guard",
        "handles",
        "is_misjudged",
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
        """In the order in which they were opened."""
        self._uses: dict[tuple[int, int], int] = {}
        """What they were opened for and share, and how many of them."""
        self.locks = Locks()
        self.waiting: list[Callable[[], bool]] = []
        """Requests for locks; each tries again when called, and tells whether it is done."""
        self.unwatch: Callable[[], None] | None = None
        """Ends the watch for changes that the host makes."""
        self.grants: list[Grant] = []
        """Oplocks and leases."""
        self.guard: Guard | None = None
        """As long as a client has it open for writing that may keep what the host changes."""
        self.waiting_opens: list[Callable[[], bool]] = []
        """Requests that wait until somebody gives back what was granted; as in `waiting`."""
        self.to_delete = False
        """The name goes with the last handle; until then nobody may open it."""
        self.is_removed = False
        self.is_misjudged = False
        """A client with POSIX extensions was told of it without its mode, and takes another one
        for it until it asks again."""

    def add(self, handle: FileHandle) -> None:
        self.handles[handle] = None
        use = (handle.access & _COUNTS, handle.sharing)
        self._uses[use] = self._uses.get(use, 0) + 1

    def remove(self, handle: FileHandle) -> None:
        """Idempotent."""
        if handle not in self.handles:
            return
        del self.handles[handle]
        use = (handle.access & _COUNTS, handle.sharing)
        self._uses[use] -= 1
        if not self._uses[use]:
            del self._uses[use]

    def end_watch(self) -> None:
        """Changes of the host are told no more."""
        if self.unwatch:
            self.unwatch()
            self.unwatch = None

    def end_watches(self) -> None:
        """[MS-FSA] 2.1.5.15.3: of a directory that is going nothing more is told."""
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
        """Somebody has given something back, or is gone."""
        if self.waiting_opens:
            waiting, self.waiting_opens = self.waiting_opens, []
            self.waiting_opens = [
                attempt for attempt in waiting if not attempt()
            ] + self.waiting_opens

    def check_sharing(self, access: int, sharing: int) -> None:
        """[MS-FSA] 2.1.5.1.2.2: whether a further handle goes with those that are open."""
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
