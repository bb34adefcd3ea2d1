"""Opens and makes files.

An O_PATH descriptor, which has no effect on a file, shows what is to be opened. Only files and
directories are opened, and through that same descriptor. So no name is looked up twice, and no
device or FIFO is ever opened, even if somebody swaps names meanwhile.
"""

from __future__ import annotations

import errno
import os

from quicksand_smb import kernel
from quicksand_smb.names import Names, host_path
from quicksand_smb.node import Node
from quicksand_smb.open_nodes import OpenNodes
from quicksand_smb.root import Root
from quicksand_smb.store_errors import Reason, StoreError
from quicksand_smb.store_types import Action, Disposition, FileKind, OpenOptions, Stat
from quicksand_smb.write_policy import WritePolicy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from quicksand_smb.node import Share

_TRIES = 16
"""How often an open starts over because somebody made or removed the file meanwhile."""

_CREATES = (Disposition.SUPERSEDE, Disposition.CREATE, Disposition.OPEN_IF,
            Disposition.OVERWRITE_IF)  # fmt: skip
_EMPTIES = (Disposition.SUPERSEDE, Disposition.OVERWRITE, Disposition.OVERWRITE_IF)


class Opener:
    """Opens the files of one share."""

    def __init__(self, share: Share, root: Root, policy: WritePolicy, nodes: OpenNodes) -> None:
        self._share = share
        self._root = root
        self._policy = policy
        self._nodes = nodes

    def open(self, root: int, names: Names, options: OpenOptions) -> tuple[Node, Action]:
        path = host_path(names)
        if self._nodes.is_full:
            raise StoreError(Reason.TOO_MANY)
        directory = bool(options.directory)
        frozen = self._policy.is_frozen(names, directory=directory)
        creating = options.disposition is Disposition.CREATE
        for _ in range(_TRIES):
            # Report a missing or existing file before READ_ONLY, as Linux does.
            if frozen or not creating:
                try:
                    found = self._root.open_path(root, path)
                except StoreError as error:
                    if error.reason is not Reason.NOT_FOUND or options.disposition not in _CREATES:
                        raise
                else:
                    try:
                        return self._open_found(root, names, found, options)
                    except FileNotFoundError:
                        continue
            self._policy.check(names, directory=directory)
            try:
                return self._create(root, path, options), Action.CREATED
            except FileExistsError:
                if creating:
                    raise
        raise StoreError(Reason.BUSY)

    def _open_found(
        self, root: int, names: Names, found: int, options: OpenOptions
    ) -> tuple[Node, Action]:
        """Open the file of the descriptor `found`, which is taken over. Raises FileNotFoundError if
        the name must be looked up again."""
        try:
            if options.disposition is Disposition.CREATE:
                raise StoreError(Reason.EXISTS)
            empties = options.disposition in _EMPTIES
            stat = kernel.stat_of(found)
            frozen = self._policy.is_frozen(names, directory=stat.kind is FileKind.DIRECTORY)
            if frozen and (options.write or options.append or empties):
                raise StoreError(Reason.READ_ONLY)
            self._check_kind(stat, options)
            if stat.kind is FileKind.FILE and (
                options.read or options.write or options.append or empties
            ):
                flags = _flags(options, empties)
                looked, found = found, self._reopen(root, host_path(names), found, stat, flags)
                os.close(looked)
            path = b"/".join(host_path(names))
            node = self._node(found, stat.kind, options, path, frozen=frozen, first=stat)
        except BaseException:
            os.close(found)
            raise
        try:
            if stat.kind is FileKind.FILE and (options.write or options.append or empties):
                if stat.mode & 0o6000:
                    node.first = None
                    node.drop_set_id(stat.mode)
                if empties:
                    node.first = None
                    node.empty()
        except BaseException:
            node.close()
            raise
        if not empties:
            return node, Action.OPENED
        if options.disposition is Disposition.SUPERSEDE:
            return node, Action.SUPERSEDED
        return node, Action.OVERWRITTEN

    @staticmethod
    def _check_kind(stat: Stat, options: OpenOptions) -> None:
        if stat.kind is FileKind.DIRECTORY:
            if options.directory is False or options.disposition in _EMPTIES:
                raise StoreError(Reason.IS_DIRECTORY)
        elif options.directory:
            raise StoreError(Reason.NOT_DIRECTORY)
        elif stat.kind is not FileKind.FILE and options.disposition in _EMPTIES:
            raise StoreError(Reason.DENIED)

    def _reopen(self, root: int, path: list[bytes], found: int, stat: Stat, flags: int) -> int:
        """Open the file of an O_PATH descriptor for data."""
        if kernel.O_PATH:
            try:
                return os.open(kernel.own_path(found), flags & ~kernel.O_NOFOLLOW)
            except FileNotFoundError:
                if os.path.exists("/proc/self/fd"):
                    raise
        # Without /proc, open the name again and check that it is still the same file.
        descriptor = self._root.walk(root, path, flags, 0)
        if not kernel.stat_of(descriptor).same_file(stat):
            os.close(descriptor)
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        return descriptor

    def _create(self, root: int, path: list[bytes], options: OpenOptions) -> Node:
        if not path:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
        self._share.disk_reserve.need_name()
        mode = options.mode & 0o1777
        if options.directory:
            return self._make_directory(root, path, options, mode)
        flags = _flags(options, empties=False) | os.O_CREAT | os.O_EXCL
        try:
            descriptor = self._root.walk(root, path, flags, mode & 0o777)
        except OSError as error:
            raise self._root.better(root, path, error) from error
        try:
            return self._node(descriptor, FileKind.FILE, options, b"/".join(path))
        except BaseException:
            os.close(descriptor)
            raise

    def _make_directory(
        self, root: int, path: list[bytes], options: OpenOptions, mode: int
    ) -> Node:
        parent = self._root.open_parent(root, path)
        try:
            os.mkdir(path[-1], mode, dir_fd=parent)
            descriptor = os.open(path[-1], kernel.O_LOOK | kernel.O_DIRECTORY, dir_fd=parent)
        finally:
            self._root.drop(root, parent)
        try:
            return self._node(descriptor, FileKind.DIRECTORY, options, b"/".join(path))
        except BaseException:
            os.close(descriptor)
            raise

    def _node(
        self,
        descriptor: int,
        kind: FileKind,
        options: OpenOptions,
        path: bytes,
        *,
        frozen: bool = False,
        first: Stat | None = None,
    ) -> Node:
        data = kind is FileKind.FILE
        node = Node(
            self._share,
            descriptor,
            kind,
            read=data and options.read,
            write=data and options.write,
            append=data and options.append,
            frozen=frozen,
            path=path,
            first=first,
        )
        self._nodes.add(node)
        return node


def _flags(options: OpenOptions, empties: bool) -> int:
    """Return the flags of an open for data."""
    flags = kernel.O_ALWAYS
    if options.write or empties:
        flags |= os.O_RDWR if options.read else os.O_WRONLY
    elif options.append:
        flags |= os.O_APPEND | (os.O_RDWR if options.read else os.O_WRONLY)
    else:
        flags |= os.O_RDONLY
    return flags
