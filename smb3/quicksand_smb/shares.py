"""Shares, trees and handles."""

from quicksand_smb import access, fscc, leases, ledger, notify, own_changes
from quicksand_smb.access_rights import (
    ALL_ACCESS,
    APPEND_DATA,
    DELETE,
    DELETE_CHILD,
    READ_ACCESS,
    READ_ATTRIBUTES,
    READ_DATA,
    WRITE_ATTRIBUTES,
    WRITE_DATA,
)
from quicksand_smb.directory_leases import DirectoryLeases
from quicksand_smb.directory_numbers import DirectoryNumbers
from quicksand_smb.ledger import Ledger
from quicksand_smb.listing import Listing
from quicksand_smb.messages.session import DISK, PIPE
from quicksand_smb.minimal_stdlib import TYPE_CHECKING, Final, Iterator
from quicksand_smb.names import Names
from quicksand_smb.open_file import File
from quicksand_smb.status import Refusal, Status
from quicksand_smb.store import Node, Store
from quicksand_smb.store_errors import Reason, StoreError
from quicksand_smb.store_types import FileKind, Stat
from quicksand_smb.streams import StreamNode
from quicksand_smb.windows_metadata import WindowsMetadata

if TYPE_CHECKING:
    from quicksand_smb.host_changes import HostChanges
    from quicksand_smb.host_writes import Guard
    from quicksand_smb.leases import Grant
    from quicksand_smb.notify import Watch

MOST_LISTINGS: Final = 512
"""The most searches under way in a share."""
MOST_SEARCHING: Final = 2
"""The most searches of a share that may go on without the lock."""
MOST_WRITTEN: Final = 4096
"""The files of each share whose last state after a client's write is remembered."""


class Handle:
    """An open handle. The client knows it by its FileId."""

    __slots__ = (
        "access", "cost", "deletes", "file", "grant", "id", "is_posix", "listing", "mode", "node",
        "position", "process", "share", "sharing", "tree", "watch",
    )  # fmt: skip

    def __init__(
        self,
        handle_id: int,
        process: int,
        tree: "Tree",
        node: Node,
        file: File,
        *,
        access: int,
        sharing: int,
        mode: int = 0,
        is_posix: bool = False,
        deletes: bool = False,
    ) -> None:
        assert tree.share is not None, "handles are on disks"
        self.id = handle_id
        self.process = process
        """The client's process that opened the handle, as the client reports it."""
        self.cost = 0
        """The bytes that the handle has taken from the ledger. `Share.add` takes them."""
        self.tree = tree
        self.share = tree.share
        self.node = node
        self.file = file
        self.access = access
        self.sharing = sharing
        self.mode = mode
        """The CreateOptions that a client may query."""
        self.grant: Grant | None = None
        self.deletes = deletes
        """Closing this handle removes the file."""
        self.is_posix = is_posix
        self.position = 0
        self.listing: Listing | None = None
        self.watch: Watch | None = None

    @property
    def guard(self) -> "Guard | None":
        """The file's guard, if this handle is one of its writers."""
        guard = self.file.guard
        return guard if guard is not None and self in guard.writers else None

    @property
    def is_directory(self) -> bool:
        return self.node.kind is FileKind.DIRECTORY

    def need(self, access: int) -> None:
        """Refuse an access for which the handle was not opened."""
        if not self.access & access:
            raise Refusal(Status.ACCESS_DENIED)

    def need_writable_share(self) -> None:
        """Refuse changes on a read-only share."""
        if self.share.is_read_only:
            raise Refusal(Status.MEDIA_WRITE_PROTECTED)

    def names(self) -> Names:
        """Return the present path of the file."""
        names = self.share.store.where(self.node)
        if names is None:
            raise Refusal(Status.OBJECT_NAME_NOT_FOUND)
        return names


class Share:
    """A directory of the host, served under a name."""

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
        """Open files by device and inode, and the name for a stream."""
        self.watches: list[Watch] = []
        self.host_changes: HostChanges | None = None
        """The host's changes, while somebody in the guest asks for them."""
        self.directory_leases = DirectoryLeases()
        self._listings = 0
        self.searching = 0
        self.metadata = WindowsMetadata(ledger)
        self.directory_numbers = DirectoryNumbers(ledger)
        self.written: dict[tuple[int, int], tuple[int, int]] = {}
        """The size and time of files at the moment when a client last closed them after writing."""

    def file_of(self, stat: Stat, stream: str = "") -> File | None:
        if stream:
            return self.files.get((stat.device, stat.inode, stream.casefold()))
        return self.files.get((stat.device, stat.inode))

    def allowed(self, stat: Stat, names: Names) -> int:
        """Return the access that the user has to a file. Its directory may allow to look at it and
        to remove it."""
        if not self.metadata.has_security or (security := self.metadata.security_of(stat)) is None:
            return ALL_ACCESS
        found = access.allowed(security)
        above = self.allowed_in(names[:-1]) if names else 0
        found |= DELETE if above & DELETE_CHILD else 0
        return found | (READ_ATTRIBUTES if above & READ_DATA else 0)

    def allowed_in(self, names: Names) -> int:
        """Return the access that the user has to a directory."""
        security = self.metadata.security_of(self.store.look(names))
        return ALL_ACCESS if security is None else access.allowed(security)

    def view(self, stat: Stat, names: Names | None = None) -> fscc.View:
        """Return a file as clients see it. Clients with POSIX extensions see a directory at the
        path `names`, which may determine its number."""
        view = self.metadata.view(stat)
        if names is not None and stat.kind is FileKind.DIRECTORY:
            view.number = self.directory_numbers.number(stat.inode, "/".join(names))
        return view

    def view_of(self, handle: Handle) -> fscc.View:
        """Return an open file as its client sees it now."""
        is_numbered = handle.is_posix and handle.is_directory
        names = self.store.known_name(handle.node) if is_numbered else None
        return self.view(handle.node.stat(), names)

    def changes(self, handle: Handle) -> None:
        """Break the leases of others before the bytes of a file change."""
        if handle.file.grants:
            leases.break_read_caching(handle.file, handle.grant)
        self.touched(handle)

    def touched(self, handle: Handle) -> None:
        """Break the lease on a file's directory before its size, times or mode change. Linux may
        have one inode for each name of a file, and then learns of the change by one name only."""
        if self.directory_leases and (names := self.store.known_name(handle.node)):
            self.directory_leases.changed_in(names[:-1])

    def add(self, handle: Handle, paid: int) -> None:
        """Add an open handle. `paid` is the number of bytes that the open has taken from the ledger
        in advance; the rest is given back."""
        keeps = handle.grant is not None
        handle.cost = ledger.price(handle.node.path or b"", keeps=keeps)
        self.ledger.give_back(paid - handle.cost)
        self._enter(handle)

    def _enter(self, handle: Handle) -> None:
        handle.file.add(handle)
        self.files[handle.file.key] = handle.file

    def replace(self, handle: Handle, node: Node) -> None:
        """Point a handle to another file, which replaces its own. `node` is taken over. Raises
        StoreError, and then nothing has changed."""
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
            handle.grant.release(handle)
            handle.grant = None
        if not file.handles:
            self.files.pop(file.key, None)
            file.end_watch()
        handle.node = node
        handle.file = self.file_of(stat) or File(stat)
        cost = ledger.price(node.path or b"", keeps=False)
        if self.ledger.try_take(cost - handle.cost):
            handle.cost = cost
        else:
            node.path = None  # the ledger cannot pay for the longer path
        self._enter(handle)
        old.close()

    def end_guard(self, handle: Handle) -> None:
        """Remove a handle from the writers of its file."""
        file = handle.file
        if file.guard and file.guard.remove_writer(handle):
            file.guard = None
            self.ledger.give_back(ledger.GUARD_COST)

    def admit_listing(
        self, handle: Handle, pattern: str, dots: Iterator[tuple[str, Stat]]
    ) -> Listing:
        """Begin a search, which takes a descriptor and 32 KiB until its handle closes. Raises
        Refusal."""
        if not handle.listing and self._listings >= MOST_LISTINGS:
            raise Refusal(Status.INSUFFICIENT_RESOURCES)
        cost = ledger.LISTING_COST + len(pattern) * ledger.PATTERN_COST
        self.ledger.take(cost)
        if handle.listing:
            self.ledger.give_back(handle.listing.cost)
        else:
            self._listings += 1
        entries = handle.node.search(pattern, posix=handle.is_posix)
        handle.listing = Listing(pattern, cost, entries, dots)
        return handle.listing

    def remove(self, handle: Handle, *, deletes_at_once: bool) -> None:
        """Close a handle: release its locks, and remove the file if it is to be deleted."""
        file = handle.file
        file.remove(handle)
        if handle.node.kind is FileKind.FILE:
            self._end_writing(handle)
        if file.locks.remove_all(handle.id):
            file.retry_locks()
        if handle.deletes:
            handle.deletes = False
            file.to_delete = True
        if file.to_delete:
            file.end_watches()
        if handle.grant:
            handle.grant.release(handle)
        try:
            if file.to_delete and not file.is_removed and (deletes_at_once or not file.handles):
                self._unlink(handle)
        finally:
            if not file.handles:
                self.files.pop(file.key, None)
                file.end_watch()
            if handle.listing:
                self._listings -= 1
                self.ledger.give_back(handle.listing.cost)
                handle.listing.end()
            handle.node.close()
            self.ledger.give_back(handle.cost)
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
            if len(self.written) >= MOST_WRITTEN:
                del self.written[next(iter(self.written))]
            elif not self.ledger.try_take(ledger.WRITTEN_COST):
                return  # then the change counts as the host's
        self.written[key] = stat.size, stat.written_ns

    def _unlink(self, handle: Handle) -> None:
        file = handle.file
        file.to_delete = False
        if file.stream:
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
        self.store.record_change(handle.node)  # its other names changed, too
        if stat.nlink <= 1 or handle.is_directory:
            file.is_removed = True
            self.metadata.forget((stat.device, stat.inode))
        if handle.is_directory:
            self.directory_numbers.removed(stat.inode, "/".join(names))
        self.changed(names, removed=True, is_directory=handle.is_directory)

    def changed(self, names: Names, *, removed: bool = False, is_directory: bool = False) -> None:
        """Report to watches and leases that a name came or went."""
        if self.directory_leases:
            self.directory_leases.changed_in(names[:-1])
            if removed and is_directory:
                self.directory_leases.moved(names)
        if self.watches:
            action = notify.REMOVED if removed else notify.ADDED
            notify.tell(
                self.watches, names, action, notify.DIR_NAME if is_directory else notify.FILE_NAME
            )

    def tell_written(self, handle: Handle) -> None:
        """Report to watches that the bytes of a file have changed."""
        names = self.store.where(handle.node)
        if names:
            notify.tell(self.watches, names, notify.MODIFIED, notify.SIZE | notify.LAST_WRITE)

    def end_changes(self) -> None:
        """Stop watching the host's changes."""
        if self.host_changes is not None:
            self.host_changes.end()
            self.host_changes = None

    def end(self) -> None:
        """Take the share away. Every handle on it becomes invalid."""
        self.is_gone = True
        self.files.clear()
        self.end_changes()
        self.metadata.clear()
        self.directory_numbers.end()
        self.ledger.give_back(len(self.written) * ledger.WRITTEN_COST)
        self.written.clear()
        if self.store.own_changes is not None:
            self.store.own_changes = None
            self.ledger.give_back(own_changes.COST)
        self.store.close()


class Tree:
    """A connected share. Without a share it is IPC$."""

    def __init__(self, tree_id: int, share: Share | None) -> None:
        self.id = tree_id
        self.share = share
        self.kind = DISK if share else PIPE
        self.access = READ_ACCESS if share and share.is_read_only else ALL_ACCESS

    def require_share(self) -> Share:
        if self.share is None:
            raise Refusal(Status.OBJECT_NAME_NOT_FOUND)
        return self.share
