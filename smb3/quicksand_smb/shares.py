"""Shares, the files open in them, and the handles on these: what all connections have in common."""

import os

from quicksand_smb import fscc, ledger
from quicksand_smb.kept import Kept
from quicksand_smb.ledger import Ledger
from quicksand_smb.light import TYPE_CHECKING, Callable, Final, Iterator
from quicksand_smb.locks import Locks
from quicksand_smb.messages.session import DISK, PIPE
from quicksand_smb.names import Names
from quicksand_smb.numbering import Numbering
from quicksand_smb.reasons import Reason, StoreError
from quicksand_smb.status import Refusal, Status
from quicksand_smb.store import Node, Store
from quicksand_smb.values import Entry, Kind, Stat
from quicksand_smb.wire import filetime

if TYPE_CHECKING:
    from quicksand_smb.access import Descriptor
    from quicksand_smb.changes import Changes
    from quicksand_smb.hostwrites import Guard
    from quicksand_smb.leases import Grant
    from quicksand_smb.notify import Watch

MOST_LISTINGS: Final = 512
"""Searches under way in a share."""
MOST_SEARCHING: Final = 2
"""Searches of a share that find nothing for so long that others are let in meanwhile."""
MOST_REMEMBERED: Final = 4096
"""Files whose attributes of Windows are remembered, for each share."""

READ_DATA: Final = 0x1
WRITE_DATA: Final = 0x2
APPEND_DATA: Final = 0x4
READ_EA: Final = 0x8
WRITE_EA: Final = 0x10
EXECUTE: Final = 0x20
DELETE_CHILD: Final = 0x40
READ_ATTRIBUTES: Final = 0x80
WRITE_ATTRIBUTES: Final = 0x100
DELETE: Final = 0x10000
READ_CONTROL: Final = 0x20000
WRITE_DAC: Final = 0x40000
WRITE_OWNER: Final = 0x80000
ALL_ACCESS: Final = 0x1F01FF
READ_ACCESS: Final = 0x1200A9

SHARE_READ: Final = 1
SHARE_WRITE: Final = 2
SHARE_DELETE: Final = 4


_COUNTS: Final = READ_DATA | WRITE_DATA | APPEND_DATA | EXECUTE | DELETE
"""Accesses that others may have to share."""


class Remembered:
    """What Windows knows of a file and Unix has no place for."""

    __slots__ = ("as_of_ns", "attributes", "born_ns", "changed_ns", "security")

    def __init__(self) -> None:
        self.attributes = 0
        self.born_ns: int | None = None
        self.changed_ns = 0
        """The time of change a client has set, true until the file's own is not `as_of_ns`."""
        self.as_of_ns = -1
        self.security = b""
        """Who may do what, if that was set: encoded, for it takes ten times as much decoded."""


class File:
    """A file with at least one handle on it."""

    __slots__ = (
        "_uses", "grants", "guard", "handles", "held_up", "is_misjudged", "is_removed", "key",
        "locks", "stream", "to_delete", "unwatch", "waiting",
    )  # fmt: skip

    def __init__(self, stat: Stat, stream: str = "") -> None:
        self.key: tuple[int, int] | tuple[int, int, str] = (stat.device, stat.inode)
        if stream:
            self.key = (stat.device, stat.inode, stream.casefold())
        self.stream = stream
        self.handles: dict[Handle, None] = {}
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
        self.held_up: list[Callable[[], bool]] = []
        """Requests that wait until somebody gives back what was granted; as in `waiting`."""
        self.to_delete = False
        """The name goes with the last handle; until then nobody may open it."""
        self.is_removed = False
        self.is_misjudged = False
        """A client with POSIX extensions was told of it without its mode, and takes another one
        for it until it asks again."""

    def add(self, handle: "Handle") -> None:
        self.handles[handle] = None
        use = (handle.access & _COUNTS, handle.sharing)
        self._uses[use] = self._uses.get(use, 0) + 1

    def remove(self, handle: "Handle") -> None:
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
        if self.held_up:
            waiting, self.held_up = self.held_up, []
            self.held_up = [attempt for attempt in waiting if not attempt()] + self.held_up

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


class Listing:
    """A search of a directory under way."""

    __slots__ = ("cost", "dots", "entries", "has_told", "held", "is_busy", "is_over", "pattern")

    def __init__(self, pattern: str, cost: int) -> None:
        self.pattern = pattern
        self.cost = cost
        """Bytes that were taken of the ledger."""
        self.entries: Iterator[Entry | None] = iter(())
        """None: nothing was found for a while."""
        self.is_busy = False
        """Somebody searches on without the lock."""
        self.is_over = False
        self.dots: Iterator[tuple[str, Stat]] = iter(())
        """The directory itself and its parent, which come first."""
        self.held: tuple[str, fscc.View] | None = None
        """Read, and did not fit the last answer."""
        self.has_told = False

    def end(self) -> None:
        """Close the directory; if it is being searched, whoever does it closes it."""
        self.is_over = True
        close = getattr(self.entries, "close", None)
        if close and not self.is_busy:
            close()


class Handle:
    """What a FileId stands for."""

    __slots__ = (
        "access", "cost", "deletes", "file", "grant", "id", "is_posix", "listing", "mode", "node",
        "position", "process", "share", "sharing", "tree", "watch",
    )  # fmt: skip

    def __init__(self, tree: "Tree", node: Node, file: File, access: int, sharing: int) -> None:
        assert tree.share is not None, "handles are on disks"
        self.id = 0
        self.process = 0
        """The client's process that has opened it, as the client says."""
        self.cost = 0
        """Bytes that were taken of the ledger."""
        self.tree = tree
        self.share = tree.share
        self.node = node
        self.file = file
        self.access = access
        self.sharing = sharing
        self.mode = 0
        """CreateOptions, as far as a client may ask for them again."""
        self.grant: Grant | None = None
        self.deletes = False
        """Closing this handle removes the file."""
        self.is_posix = False
        self.position = 0
        self.listing: Listing | None = None
        self.watch: Watch | None = None

    @property
    def guard(self) -> "Guard | None":
        """Of its file, if it is the guard of who has this handle."""
        guard = self.file.guard
        return guard if guard is not None and self in guard.writers else None

    @property
    def is_directory(self) -> bool:
        return self.node.kind is Kind.DIRECTORY

    def need(self, access: int) -> None:
        """Refuse what the handle was not opened for."""
        if not self.access & access:
            raise Refusal(Status.ACCESS_DENIED)

    def need_writable_share(self) -> None:
        """The gate before everything that changes the host."""
        if self.share.is_read_only:
            raise Refusal(Status.MEDIA_WRITE_PROTECTED)

    def names(self) -> Names:
        """Where the file is now."""
        names = self.share.store.where(self.node)
        if names is None:
            raise Refusal(Status.OBJECT_NAME_NOT_FOUND)
        return names


class Share:
    """A directory of the host under a name."""

    def __init__(
        self,
        name: str,
        path: str,
        store: Store,
        ledger: Ledger,
        *,
        is_read_only: bool,
        is_protected: bool = False,
    ) -> None:
        self.name = name
        self.ledger = ledger
        self.path = path
        self.store = store
        self.is_read_only = is_read_only
        self.is_protected = is_protected
        self.is_gone = False
        self.files: dict[tuple[int, int] | tuple[int, int, str], File] = {}
        """By device and inode; a stream has its name there, too."""
        self.watches: list[Watch] = []
        self.host_changes: Changes | None = None
        """While somebody in the guest wants to know what the host changes."""
        self.kept = Kept()
        self._listings = 0
        self.searching = 0
        self.serial = int.from_bytes(os.urandom(4), "little")
        self._remembered: dict[tuple[int, int], Remembered] = {}
        self.written: dict[tuple[int, int], tuple[int, int]] = {}
        """Sizes and times of files that clients have changed, when they had last closed them."""
        self.has_security = False
        """Whether anybody has ever set who may do what."""
        self.numbering = Numbering(ledger)

    def file_of(self, stat: Stat, stream: str = "") -> File | None:
        if stream:
            return self.files.get((stat.device, stat.inode, stream.casefold()))
        return self.files.get((stat.device, stat.inode))

    def remember(self, stat: Stat) -> Remembered:
        """The place for what Unix does not keep of a file; the oldest is forgotten for it."""
        key = (stat.device, stat.inode)
        found = self._remembered.get(key)
        if found is None:
            if len(self._remembered) >= MOST_REMEMBERED:
                self.forget(next(iter(self._remembered)))
            found = self._remembered[key] = Remembered()
        return found

    def security_of(self, stat: Stat) -> "Descriptor | None":
        """Who may do what, if that was set."""
        known = self._remembered.get((stat.device, stat.inode))
        if known is None or not known.security:
            return None
        from quicksand_smb import access

        return access.read_back(known.security)

    def protect(self, stat: Stat, security: "Descriptor") -> None:
        from quicksand_smb import access

        known = self.remember(stat)
        encoded = access.encode(security, access.OWNER | access.GROUP | access.DACL)
        self.ledger.take(len(encoded))
        self.ledger.give(len(known.security))
        known.security = encoded
        self.has_security = True

    def allowed(self, stat: Stat, names: Names) -> int:
        """What may be done with a file; its directory may allow to look at it and to remove it."""
        if not self.has_security or (security := self.security_of(stat)) is None:
            return ALL_ACCESS
        from quicksand_smb import access

        found = access.allowed(security)
        above = self.allowed_in(names[:-1]) if names else 0
        found |= DELETE if above & DELETE_CHILD else 0
        return found | (READ_ATTRIBUTES if above & READ_DATA else 0)

    def allowed_in(self, names: Names) -> int:
        """What may be done with a directory."""
        from quicksand_smb import access

        security = self.security_of(self.store.look(names))
        return ALL_ACCESS if security is None else access.allowed(security)

    def has_given_change(self, stat: Stat) -> bool:
        """Whether the time of change is one that a client has set."""
        known = self._remembered.get((stat.device, stat.inode))
        return known is not None and known.as_of_ns == stat.changed_ns

    def forget(self, key: tuple[int, int]) -> None:
        known = self._remembered.pop(key, None)
        if known:
            self.ledger.give(len(known.security))

    def _known(self, stat: Stat) -> Remembered | None:
        return self._remembered.get((stat.device, stat.inode)) if self._remembered else None

    def attributes(self, stat: Stat) -> int:
        """Those of Windows."""
        known = self._known(stat)
        return fscc.attributes_of(stat, known.attributes if known else 0)

    def view(self, stat: Stat, names: Names | None = None) -> fscc.View:
        """A file as clients are to see it, those with POSIX extensions at its path."""
        known = self._known(stat)
        attributes = fscc.attributes_of(stat, known.attributes if known else 0)
        times = fscc.times_of(stat)
        if known:
            created, accessed, written, changed = times
            if known.born_ns is not None:
                created = filetime(known.born_ns)
            if known.as_of_ns == stat.changed_ns:
                changed = filetime(known.changed_ns)
            times = created, accessed, written, changed
        allocated = (
            0 if stat.kind is Kind.DIRECTORY else max(stat.allocated, -(-stat.size // 4096) * 4096)
        )
        view = fscc.View(stat, attributes, times, allocated=allocated, serial=self.serial)
        if names is not None and stat.kind is Kind.DIRECTORY:
            view.number = self.numbering.number(stat.inode, "/".join(names))
        return view

    def view_of(self, handle: Handle) -> fscc.View:
        """An open file as its client is to see it now."""
        is_numbered = handle.is_posix and handle.is_directory
        names = self.store.told_name(handle.node) if is_numbered else None
        return self.view(handle.node.stat(), names)

    def changes(self, handle: Handle) -> None:
        """Before bytes of a file change: who has kept some of them is told."""
        if handle.file.grants:
            from quicksand_smb import leases

            leases.tell_change(handle.file, handle.grant)
        self.touched(handle)

    def touched(self, handle: Handle) -> None:
        """Before the size, times or mode of a file change: whoever keeps its directory is told to
        look again. Linux may have an inode for each name of a file, and then knows the change by
        one of them only."""
        if self.kept and (names := self.store.told_name(handle.node)):
            self.kept.changed_in(names[:-1])

    def add(self, handle: Handle, paid: int) -> None:
        """A handle is open. `paid`: bytes that were taken of the ledger for it before it was known
        what comes of the open; the rest is given back."""
        keeps = handle.grant is not None
        handle.cost = ledger.price(handle.node.path or b"", keeps=keeps)
        self.ledger.give(paid - handle.cost)
        self._enter(handle)

    def _enter(self, handle: Handle) -> None:
        handle.file.add(handle)
        self.files[handle.file.key] = handle.file

    def replace(self, handle: Handle, node: Node) -> None:
        """Have a handle stand for another file, which takes the place of its own. `node` is taken
        over. Raises StoreError, and then nothing has changed."""
        file, old = handle.file, handle.node
        try:
            stat = node.stat()
        except BaseException:
            node.close()
            raise
        self.end_guard(handle)
        file.remove(handle)
        if file.locks.remove_all(handle.id):
            file.retry_locks()
        if handle.grant:
            handle.grant.let_go(handle)
            handle.grant = None
        if not file.handles:
            self.files.pop(file.key, None)
            file.end_watch()
        handle.node = node
        handle.file = self.file_of(stat) or File(stat)
        cost = ledger.price(node.path or b"", keeps=False)
        if self.ledger.has(cost - handle.cost):
            handle.cost = cost
        else:
            node.path = None  # it is longer than the old one, and cannot be paid for
        self._enter(handle)
        old.close()

    def end_guard(self, handle: Handle) -> None:
        """The client writes no more by this handle."""
        file = handle.file
        if file.guard and file.guard.remove_writer(handle):
            file.guard = None
            self.ledger.give(ledger.OF_GUARD)

    def admit_listing(self, handle: Handle, pattern: str) -> Listing:
        """A search of a directory, which costs a descriptor and 32 KiB until its handle is closed.
        Raises Refusal."""
        if not handle.listing and self._listings >= MOST_LISTINGS:
            raise Refusal(Status.INSUFFICIENT_RESOURCES)
        cost = ledger.OF_LISTING + len(pattern) * ledger.OF_PATTERN
        self.ledger.take(cost)
        if handle.listing:
            self.ledger.give(handle.listing.cost)
        else:
            self._listings += 1
        handle.listing = Listing(pattern, cost)
        return handle.listing

    def remove(self, handle: Handle, *, deletes_at_once: bool) -> None:
        """A handle is closed: its locks end, and the file, if it was to go."""
        file = handle.file
        file.remove(handle)
        if handle.node.kind is Kind.FILE:
            self._end_writing(handle)
        if file.locks.remove_all(handle.id):
            file.retry_locks()
        if handle.deletes:
            handle.deletes = False
            file.to_delete = True
        if file.to_delete:
            file.end_watches()
        if handle.grant:
            handle.grant.let_go(handle)
        try:
            if file.to_delete and not file.is_removed and (deletes_at_once or not file.handles):
                self._unlink(handle)
        finally:
            if not file.handles:
                self.files.pop(file.key, None)
                file.end_watch()
            if handle.listing:
                self._listings -= 1
                self.ledger.give(handle.listing.cost)
                handle.listing.end()
            handle.node.close()
            self.ledger.give(handle.cost)
            handle.cost = 0
            file.retry_opens()

    def _end_writing(self, handle: Handle) -> None:
        self.end_guard(handle)
        if self.is_read_only or not handle.access & (WRITE_DATA | APPEND_DATA | WRITE_ATTRIBUTES):
            return
        try:
            stat = handle.node.stat()
        except StoreError:
            return
        key = (stat.device, stat.inode)
        if self.written.pop(key, None) is None:
            if len(self.written) >= MOST_REMEMBERED:
                del self.written[next(iter(self.written))]
            elif not self.ledger.has(ledger.OF_WRITTEN):
                return  # then it counts as changed by somebody else
        self.written[key] = stat.size, stat.written_ns

    def _unlink(self, handle: Handle) -> None:
        file = handle.file
        file.to_delete = False
        if file.stream:
            from quicksand_smb.streams import StreamNode

            if isinstance(handle.node, StreamNode) and not self.is_read_only:
                handle.node.remove()
                file.is_removed = True
            return
        names = self.store.where(handle.node)
        if names is None or self.is_read_only:
            return
        stat = handle.node.stat()
        try:
            self.store.remove(names, directory=handle.is_directory, same_as=stat)
        except StoreError as error:
            if error.reason in (Reason.NOT_FOUND, Reason.GONE, Reason.NO_PATH):
                return
            raise
        self.store.left(handle.node)  # of its other names, too
        if stat.nlink <= 1 or handle.is_directory:
            file.is_removed = True
            self.forget((stat.device, stat.inode))
        if handle.is_directory:
            self.numbering.removed(stat.inode, "/".join(names))
        self.changed(names, removed=True, is_directory=handle.is_directory)

    def changed(self, names: Names, *, removed: bool = False, is_directory: bool = False) -> None:
        """Tell those who watch that a name came or went."""
        if self.kept:
            self.kept.changed_in(names[:-1])
            if removed and is_directory:
                self.kept.moved(names)
        if self.watches:
            from quicksand_smb import notify

            action = notify.REMOVED if removed else notify.ADDED
            notify.tell(
                self.watches, names, action, notify.DIR_NAME if is_directory else notify.FILE_NAME
            )

    def tell_written(self, handle: Handle) -> None:
        """Tell those who watch that bytes of a file have changed."""
        names = self.store.where(handle.node)
        if names:
            from quicksand_smb import notify

            notify.tell(self.watches, names, notify.MODIFIED, notify.SIZE | notify.LAST_WRITE)

    def end_changes(self) -> None:
        """Nobody wants to know what the host changes."""
        if self.host_changes is not None:
            self.host_changes.end()
            self.host_changes = None

    def end(self) -> None:
        """The share is taken away: from now on every handle on it is dead."""
        self.is_gone = True
        self.files.clear()
        self.end_changes()
        self.numbering.end()
        for key in list(self._remembered):
            self.forget(key)
        self.ledger.give(len(self.written) * ledger.OF_WRITTEN)
        self.written.clear()
        self.store.close()


class Tree:
    """A share that is connected; without a share it is IPC$."""

    def __init__(self, tree_id: int, share: Share | None) -> None:
        self.id = tree_id
        self.share = share
        self.kind = DISK if share else PIPE
        self.access = READ_ACCESS if share and share.is_read_only else ALL_ACCESS

    def require_share(self) -> Share:
        if self.share is None:
            raise Refusal(Status.OBJECT_NAME_NOT_FOUND)
        return self.share
