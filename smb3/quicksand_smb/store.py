"""A share: one directory of the host and what lies below it, for a guest that is taken to be
hostile.

* Every path is walked from a descriptor of the root (`walk`); symlinks are data. An operation on a
  name takes its parent directory so, and then one system call relative to it.
* What is to be opened is first looked at by an O_PATH descriptor, which has no effect on it, and
  only files and directories are opened, by way of that same descriptor: no name is looked up twice,
  and neither a device nor a FIFO is ever opened, whoever swaps names meanwhile.
* The gate (gate.py) stands before everything that changes something.
"""

from __future__ import annotations

import errno
import os
from _thread import allocate_lock

from quicksand_smb import kernel
from quicksand_smb.gate import Gate
from quicksand_smb.names import Names, from_host, host_path, names_of
from quicksand_smb.node import Node
from quicksand_smb.reasons import Reason, StoreError, store_error
from quicksand_smb.room import Room
from quicksand_smb.values import (
    Action,
    Disposition,
    Entry,
    Kind,
    Limits,
    Space,
    Stat,
    Wish,
    stat_from_os,
)
from quicksand_smb.walk import Held, best_walk, link_depth

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Concatenate, ParamSpec, TypeVar

    from quicksand_smb.own import Own
    from quicksand_smb.walk import Walk

    P = ParamSpec("P")
    R = TypeVar("R")

__all__ = [
    "Action",
    "Disposition",
    "Entry",
    "Kind",
    "Limits",
    "Names",
    "Node",
    "Reason",
    "Space",
    "Stat",
    "Store",
    "StoreError",
    "Wish",
]

_TRIES = 16
"""How often an open begins anew because somebody made or removed the file in between."""

_MOST_UNKNOWN = 256
"""Open files without a name that are looked for one by one."""

_CREATES = (Disposition.SUPERSEDE, Disposition.CREATE, Disposition.OPEN_IF,
            Disposition.OVERWRITE_IF)  # fmt: skip
_EMPTIES = (Disposition.SUPERSEDE, Disposition.OVERWRITE, Disposition.OVERWRITE_IF)


def _mapped(
    method: Callable[Concatenate[Store, int, P], R],
) -> Callable[Concatenate[Store, P], R]:
    """A method that gets the root's descriptor as its first argument and may raise OSError."""

    def run(self: Store, /, *args: P.args, **kwargs: P.kwargs) -> R:
        root = self._root.take()
        try:
            return method(self, root, *args, **kwargs)
        except (OSError, OverflowError, ValueError) as error:
            raise store_error(error) from error
        finally:
            self._root.give()

    run.__name__ = method.__name__
    run.__doc__ = method.__doc__
    return run


class Store:
    """One share. All methods raise StoreError, may be called from several threads, and raise GONE
    after `close`.

    `protected`: patterns of names (triggers.py), such as ".git/hooks" or ".envrc", at and below
    which the guest changes nothing, wherever in the share. `tell` is called with the names of files
    that the guest writes and that programs of the host run or obey; `within` leads to the root.
    """

    def __init__(
        self,
        root: str | int,
        *,
        read_only: bool,
        limits: Limits | None = None,
        protected: tuple[str, ...] = (),
        tell: Callable[[Names], None] | None = None,
        within: Names = (),
        walk: Walk | None = None,
    ) -> None:
        """Open the root; here, and only here, symlinks are followed, since the host's user named
        it. A descriptor of the root is taken over. Raises StoreError. `walk` is for tests."""
        self.read_only = read_only
        self.limits = limits or Limits()
        self._gate = Gate(read_only=read_only, protected=protected, tell=tell, within=within)
        if os.open not in os.supports_dir_fd:
            raise StoreError(Reason.UNSUPPORTED, "this system has no descriptors of directories")
        flags = (kernel.O_LOOK & ~kernel.O_NOFOLLOW) | kernel.O_DIRECTORY
        try:
            if isinstance(root, int):
                descriptor = _own(root)
            else:
                descriptor = os.open(os.fsencode(root), flags)
        except (OSError, ValueError) as error:
            raise store_error(error) from error
        self._root = Held(descriptor)
        self._walk = walk or best_walk(descriptor)
        self._nodes: set[Node] = set()
        self._lock = allocate_lock()
        self.room = Room(self._root, self.limits)
        self.own: Own | None = None

    def close(self) -> None:
        """Take the share away: what is open becomes unusable at once. Idempotent."""
        self._root.close()
        with self._lock:
            nodes = list(self._nodes)
        for node in nodes:
            node.close()

    def own_path(self) -> str | None:
        """A path for this process to the directory that was opened, whatever has become of its
        name; None where there is no /proc."""
        root = self._root.take()
        try:
            path = os.fsdecode(kernel.own_path(root))
            return path if os.path.exists(path) else None
        finally:
            self._root.give()

    def root_again(self) -> int:
        """Another descriptor of the directory, for another store of it. Raises StoreError."""
        root = self._root.take()
        try:
            return os.dup(root)
        except OSError as error:
            raise store_error(error) from error
        finally:
            self._root.give()

    # Looking.

    @_mapped
    def look(self, root: int, names: Names) -> Stat:
        """What a name is; of a symlink, the link itself. Raises NOT_FOUND, NO_PATH, LOOP."""
        if not names:
            return kernel.stat_of(root)
        parent, name = self._parent(root, names)
        try:
            return kernel.stat_at(parent, name)
        finally:
            self._drop(root, parent)

    @_mapped
    def read_link(self, root: int, names: Names) -> str:
        """A symlink's target, which is data. Raises INVALID for anything else."""
        parent, name = self._parent(root, names)
        try:
            return from_host(os.readlink(name, dir_fd=parent))
        finally:
            self._drop(root, parent)

    @_mapped
    def with_directory(self, root: int, names: Names, work: Callable[[int], R]) -> R:
        """Do something with a descriptor that names a directory. Raises as `look`, and what `work`
        raises."""
        descriptor = self._walk(root, host_path(names), kernel.O_LOOK | kernel.O_DIRECTORY, 0)
        try:
            return work(descriptor)
        finally:
            os.close(descriptor)

    def space(self) -> Space:
        """Of the file system of the root."""
        found = self.room.look()
        return Space(
            total=found.f_blocks * found.f_frsize,
            free=found.f_bfree * found.f_frsize,
            available=max(0, self.room.spare(found)),
            block_size=found.f_frsize,
            names=found.f_files,
            free_names=found.f_ffree,
        )

    @_mapped
    def where(self, root: int, node: Node) -> Names | None:
        """The name of an open file now, after renames of it and of directories above it; None if it
        was removed, left the share, or the system does not tell. It is only a hint: who uses it
        passes `same_as`."""
        descriptor = node.held.take()
        try:
            base = os.readlink(kernel.own_path(root)).rstrip(b"/") + b"/"
            path = os.readlink(kernel.own_path(descriptor)) + b"/"
            mine = kernel.stat_of(descriptor)
        except OSError:
            return None
        finally:
            node.held.give()
        if not path.startswith(base):
            return None
        names = tuple(from_host(part) for part in path[len(base) :].split(b"/") if part)
        try:
            return names if self.look(names).same_file(mine) else None
        except StoreError:
            return None

    def told_name(self, node: Node) -> Names | None:
        """What to call an open file: the name it was opened by, as the guest has renamed it and the
        directories above it since. A rename by the host is not looked for, unless one by the guest
        has given it a longer name: then it is as `where` has it."""
        return self.where(node) if node.path is None else names_of(node.path)

    def left(self, node: Node) -> None:
        """Something has been done to an open file by another way than its own methods."""
        if self.own is not None:
            descriptor = node.held.take()
            try:
                self.own.left(descriptor)
            finally:
                node.held.give()

    def is_open_below(self, names: Names) -> bool:
        """Whether something is open below a directory, as `where` has it. Where very many have lost
        their names, it may be one of them."""
        start = b"/".join(host_path(names)) + b"/"
        with self._lock:
            unknown = [node for node in self._nodes if node.path is None]
            if len(unknown) > _MOST_UNKNOWN:
                return True
            nodes = [node for node in self._nodes if node.path and node.path.startswith(start)]
        depth = len(names)
        return any((self.where(node) or ())[:depth] == names for node in unknown + nodes)

    def _renamed(self, old: bytes, new: bytes) -> None:
        """What is open at or below `old` is known by another name now, or by none if that is longer
        than the one it was opened by."""
        below = old + b"/"
        more = len(new) - len(old)
        with self._lock:
            for node in self._nodes:
                path = node.path
                if path is not None and (path == old or path.startswith(below)):
                    fits = len(path) + more <= node.opened_by
                    node.path = new + path[len(old) :] if fits else None

    # Opening.

    @_mapped
    def open(self, root: int, names: Names, wish: Wish) -> tuple[Node, Action]:
        """Open or make what `wish` says. Symlinks, FIFOs, sockets and devices are only looked at:
        see the node's `kind`.

        Raises NOT_FOUND, NO_PATH, EXISTS, IS_DIRECTORY, NOT_DIRECTORY, READ_ONLY, DENIED, NO_SPACE,
        TOO_MANY, BAD_NAME, LOOP; BUSY if somebody makes and removes the name all the time.
        """
        node, action = self._open(root, names, wish)
        if self.own is not None and (node.first is None or action is not Action.OPENED):
            self.left(node)
            self.own.made(names)
        if node.kind is not Kind.DIRECTORY and (
            wish.write or wish.append or action is not Action.OPENED
        ):
            self._gate.told(names, node.kind)
        return node, action

    def _open(self, root: int, names: Names, wish: Wish) -> tuple[Node, Action]:
        path = host_path(names)
        if len(self._nodes) >= self.limits.nodes:
            raise StoreError(Reason.TOO_MANY)
        directory = bool(wish.directory)
        frozen = self._gate.is_frozen(names, directory=directory)
        creating = wish.disposition is Disposition.CREATE
        for _ in range(_TRIES):
            # Where nothing may be changed, what is missing or there is told first, as Linux does.
            if frozen or not creating:
                try:
                    found = self._open_path(root, path)
                except StoreError as error:
                    if error.reason is not Reason.NOT_FOUND or wish.disposition not in _CREATES:
                        raise
                else:
                    try:
                        return self._open_found(root, names, found, wish)
                    except FileNotFoundError:
                        continue
            self._gate.check(names, directory=directory)
            try:
                return self._create(root, path, wish), Action.CREATED
            except FileExistsError:
                if creating:
                    raise
        raise StoreError(Reason.BUSY)

    def _open_found(self, root: int, names: Names, found: int, wish: Wish) -> tuple[Node, Action]:
        """Open what `found` names, which is taken over. Raises FileNotFoundError if it must be
        looked up again."""
        try:
            if wish.disposition is Disposition.CREATE:
                raise StoreError(Reason.EXISTS)
            empties = wish.disposition in _EMPTIES
            stat = kernel.stat_of(found)
            frozen = self._gate.is_frozen(names, directory=stat.kind is Kind.DIRECTORY)
            if frozen and (wish.write or wish.append or empties):
                raise StoreError(Reason.READ_ONLY)
            self._check_kind(stat, wish)
            if stat.kind is Kind.FILE and (wish.read or wish.write or wish.append or empties):
                flags = _flags(wish, empties)
                looked, found = found, self._reopen(root, host_path(names), found, stat, flags)
                os.close(looked)
            path = b"/".join(host_path(names))
            node = self._node(found, stat.kind, wish, path, frozen=frozen, first=stat)
        except BaseException:
            os.close(found)
            raise
        try:
            if stat.kind is Kind.FILE and (wish.write or wish.append or empties):
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
        if wish.disposition is Disposition.SUPERSEDE:
            return node, Action.SUPERSEDED
        return node, Action.OVERWRITTEN

    @staticmethod
    def _check_kind(stat: Stat, wish: Wish) -> None:
        if stat.kind is Kind.DIRECTORY:
            if wish.directory is False or wish.disposition in _EMPTIES:
                raise StoreError(Reason.IS_DIRECTORY)
        elif wish.directory:
            raise StoreError(Reason.NOT_DIRECTORY)
        elif stat.kind is not Kind.FILE and wish.disposition in _EMPTIES:
            raise StoreError(Reason.DENIED)

    def _reopen(self, root: int, path: list[bytes], found: int, stat: Stat, flags: int) -> int:
        """Open for data what an O_PATH descriptor names."""
        if kernel.O_PATH:
            try:
                return os.open(kernel.own_path(found), flags & ~kernel.O_NOFOLLOW)
            except FileNotFoundError:
                if os.path.exists("/proc/self/fd"):
                    raise
        # Without /proc: by its name again, and only if that is the same file still.
        descriptor = self._walk(root, path, flags, 0)
        if not kernel.stat_of(descriptor).same_file(stat):
            os.close(descriptor)
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        return descriptor

    def _create(self, root: int, path: list[bytes], wish: Wish) -> Node:
        if not path:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
        self.room.need_name()
        mode = wish.mode & 0o1777
        if wish.directory:
            return self._make_directory(root, path, wish, mode)
        flags = _flags(wish, empties=False) | os.O_CREAT | os.O_EXCL
        try:
            descriptor = self._walk(root, path, flags, mode & 0o777)
        except OSError as error:
            raise self._better(root, path, error) from error
        try:
            return self._node(descriptor, Kind.FILE, wish, b"/".join(path))
        except BaseException:
            os.close(descriptor)
            raise

    def _make_directory(self, root: int, path: list[bytes], wish: Wish, mode: int) -> Node:
        parent = self._open_parent(root, path)
        try:
            os.mkdir(path[-1], mode, dir_fd=parent)
            descriptor = os.open(path[-1], kernel.O_LOOK | kernel.O_DIRECTORY, dir_fd=parent)
        finally:
            self._drop(root, parent)
        try:
            return self._node(descriptor, Kind.DIRECTORY, wish, b"/".join(path))
        except BaseException:
            os.close(descriptor)
            raise

    def _node(
        self,
        descriptor: int,
        kind: Kind,
        wish: Wish,
        path: bytes,
        *,
        frozen: bool = False,
        first: Stat | None = None,
    ) -> Node:
        data = kind is Kind.FILE
        node = Node(
            self,
            descriptor,
            kind,
            read=data and wish.read,
            write=data and wish.write,
            append=data and wish.append,
            frozen=frozen,
            path=path,
            first=first,
        )
        with self._lock:
            # `close` closes the root first and then what is in the set.
            if self._root.closed:
                raise StoreError(Reason.GONE)
            if len(self._nodes) >= self.limits.nodes:
                raise StoreError(Reason.TOO_MANY)
            self._nodes.add(node)
        return node

    def forget(self, node: Node) -> None:
        with self._lock:
            self._nodes.discard(node)

    # Changing names.

    @_mapped
    def remove(
        self, root: int, names: Names, *, directory: bool, same_as: Stat | None = None
    ) -> None:
        """Remove a name; a file that is open stays usable. `same_as`: only if it is this file.

        Raises NOT_FOUND, NOT_EMPTY, IS_DIRECTORY, NOT_DIRECTORY, READ_ONLY, DENIED, BUSY.
        """
        self._gate.check(names, directory=directory)
        parent, name = self._parent(root, names, change=True)
        try:
            if same_as is not None:
                _expect(parent, name, same_as)
            try:
                (os.rmdir if directory else os.unlink)(name, dir_fd=parent)
            except OSError as error:
                raise _clearer(parent, name, error, directory) from error
            if self.own is not None:
                self.own.removed(names)
        finally:
            self._drop(root, parent)

    @_mapped
    def rename(
        self,
        root: int,
        old: Names,
        new: Names,
        *,
        replace: bool,
        same_as: Stat | None = None,
    ) -> None:
        """Give a file another name, in one step; what is open stays usable. With `replace` what has
        the new name is lost, as rename(2) has it.

        Raises NOT_FOUND, NO_PATH, EXISTS, IS_DIRECTORY, NOT_DIRECTORY, NOT_EMPTY, INVALID (into
        itself), CROSS_DEVICE, READ_ONLY, DENIED.
        """
        old_parent, old_name = self._parent(root, old, change=True)
        try:
            new_parent, new_name = self._parent(root, new, change=True)
            try:
                if same_as is not None:
                    _expect(old_parent, old_name, same_as)
                kind = self._check_move(old_parent, old_name, old, new)
                if replace:
                    os.rename(old_name, new_name, src_dir_fd=old_parent, dst_dir_fd=new_parent)
                else:
                    _rename_new(old_parent, old_name, new_parent, new_name)
                if self._is_another(kind, new_parent, new_name):
                    _rename_new(new_parent, new_name, old_parent, old_name)
                    raise StoreError(Reason.BUSY)
                if self.own is not None:
                    self.own.removed(old)
                    self.own.left_at(new_parent, new_name, new)
                self._renamed(b"/".join(host_path(old)), b"/".join(host_path(new)))
                self._gate.told(new, kind)
            finally:
                self._drop(root, new_parent)
        finally:
            self._drop(root, old_parent)

    def _check_move(self, parent: int, name: bytes, old: Names, new: Names) -> Kind:
        """What kind of file is about to get a name. Raises READ_ONLY."""
        if not self._gate.is_selective:
            return Kind.FILE
        kind = kernel.stat_at(parent, name).kind
        self._gate.check_name(old, kind)
        self._gate.check_name(new, kind)
        return kind

    def _is_another(self, kind: Kind, parent: int, name: bytes) -> bool:
        """Whether what got a name is of another kind than the gate was asked about: somebody has
        exchanged it meanwhile."""
        return self._gate.is_selective and kernel.stat_at(parent, name).kind is not kind

    @_mapped
    def may_remove(self, root: int, names: Names) -> bool:
        """Whether a name is there, in a directory in which this user may change names. Raises as
        `look`."""
        parent, name = self._parent(root, names)
        try:
            kernel.stat_at(parent, name)
            as_effective = os.access in os.supports_effective_ids
            changes = os.W_OK | os.X_OK
            return os.access(kernel.own_path(parent), changes, effective_ids=as_effective)
        except FileNotFoundError:
            return False
        finally:
            self._drop(root, parent)

    @_mapped
    def link(
        self,
        root: int,
        old: Names,
        new: Names,
        *,
        replace: bool,
        same_as: Stat | None = None,
    ) -> None:
        """Give a file a second name; of a symlink, to the link itself. Raises as `rename`."""
        old_parent, old_name = self._parent(root, old, change=True)
        try:
            new_parent, new_name = self._parent(root, new, change=True)
            try:
                if same_as is not None:
                    _expect(old_parent, old_name, same_as)
                kind = self._check_move(old_parent, old_name, old, new)
                self.room.need_name()
                _link(old_parent, old_name, new_parent, new_name, replace)
                if self._is_another(kind, new_parent, new_name):
                    made = kernel.stat_at(new_parent, new_name)
                    if kernel.stat_at(old_parent, old_name).same_file(made):
                        os.unlink(new_name, dir_fd=new_parent)  # it is what was just linked
                    raise StoreError(Reason.BUSY)
                if self.own is not None:
                    self.own.left_at(new_parent, new_name, new)
                self._gate.told(new, kind)
            finally:
                self._drop(root, new_parent)
        finally:
            self._drop(root, old_parent)

    @_mapped
    def symlink(self, root: int, target: str, names: Names) -> None:
        """Make a symlink, which this server never follows; what the host's programs make of it is
        theirs. `target` as `names.target_from_wire` gives it. Raises EXISTS and as `open`."""
        data = target.encode("utf-8", "surrogateescape")
        if not data or len(data) > 4095 or b"\0" in data:
            raise StoreError(Reason.BAD_NAME)
        self._make(
            root, names, Kind.SYMLINK, lambda parent, name: os.symlink(data, name, dir_fd=parent)
        )

    @_mapped
    def make_node(self, root: int, names: Names, kind: Kind, mode: int) -> None:
        """Make a FIFO or a socket, which means nothing to the host. Raises DENIED for devices,
        EXISTS, and as `open`."""
        if kind not in (Kind.FIFO, Kind.SOCKET):
            raise StoreError(Reason.DENIED)
        type_ = 0o010000 if kind is Kind.FIFO else 0o140000
        bits = type_ | mode & 0o777
        self._make(root, names, kind, lambda parent, name: os.mknod(name, bits, dir_fd=parent))

    def _make(
        self, root: int, names: Names, kind: Kind, make: Callable[[int, bytes], None]
    ) -> None:
        self._gate.check_name(names, kind)
        parent, name = self._parent(root, names, change=True)
        try:
            self.room.need_name()
            make(parent, name)
            if self.own is not None:
                self.own.left_at(parent, name, names)
            self._gate.told(names, kind)
        finally:
            self._drop(root, parent)

    # Walking.

    def _open_path(self, root: int, path: list[bytes]) -> int:
        """A descriptor that only names what is there."""
        try:
            if not kernel.O_PATH:
                self._refuse_others(root, path)
            return self._walk(root, path, kernel.O_LOOK, 0)
        except OSError as error:
            raise self._better(root, path, error) from error

    def _refuse_others(self, root: int, path: list[bytes]) -> None:
        """Where O_PATH is missing, an open has effects: only files and directories are opened."""
        if path:
            parent = self._walk(root, path[:-1], kernel.O_LOOK | kernel.O_DIRECTORY, 0)
            try:
                found = os.stat(path[-1], dir_fd=parent, follow_symlinks=False)
            finally:
                os.close(parent)
            if stat_from_os(found).kind not in (Kind.FILE, Kind.DIRECTORY):
                raise StoreError(Reason.UNSUPPORTED)

    def _parent(self, root: int, names: Names, *, change: bool = False) -> tuple[int, bytes]:
        """The directory in which the last name is, and that name; give it to `_drop`. `change`:
        something will be changed there."""
        if change:
            self._gate.check(names, directory=True)
        path = host_path(names)
        if not path:
            raise StoreError(Reason.DENIED if change else Reason.INVALID)
        return self._open_parent(root, path), path[-1]

    def _open_parent(self, root: int, path: list[bytes]) -> int:
        if len(path) == 1:
            return root
        try:
            return self._walk(root, path[:-1], kernel.O_LOOK | kernel.O_DIRECTORY, 0)
        except OSError as error:
            found = self._better(root, path[:-1], error)
            if found.reason in (Reason.NOT_FOUND, Reason.NOT_DIRECTORY):
                found = StoreError(Reason.NO_PATH)
            raise found from error

    @staticmethod
    def _drop(root: int, parent: int) -> None:
        if parent != root:
            os.close(parent)

    def _better(self, root: int, path: list[bytes], error: OSError) -> StoreError:
        """What a failed walk means: whether the last name is missing or one before it, and where a
        symlink stands. FileExistsError passes, since who creates needs it."""
        if error.errno == errno.EEXIST:
            raise error
        if error.errno in (errno.ENOTDIR, errno.ELOOP):
            depth = link_depth(root, path)
            if depth:
                return StoreError(Reason.LOOP, depth=depth)
        if error.errno == errno.ENOTDIR:
            return StoreError(Reason.NO_PATH)
        if error.errno == errno.ENOENT and len(path) > 1:
            try:
                os.close(self._walk(root, path[:-1], kernel.O_LOOK | kernel.O_DIRECTORY, 0))
            except OSError:
                return StoreError(Reason.NO_PATH)
        return store_error(error)


def _own(directory: int) -> int:
    """A descriptor that was inherited, for this process alone. Raises OSError."""
    descriptor = os.dup(directory)
    os.close(directory)
    if kernel.stat_of(descriptor).kind is not Kind.DIRECTORY:
        os.close(descriptor)
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
    return descriptor


def _flags(wish: Wish, empties: bool) -> int:
    """Of an open for data."""
    flags = kernel.O_ALWAYS
    if wish.write or empties:
        flags |= os.O_RDWR if wish.read else os.O_WRONLY
    elif wish.append:
        flags |= os.O_APPEND | (os.O_RDWR if wish.read else os.O_WRONLY)
    else:
        flags |= os.O_RDONLY
    return flags


def _expect(parent: int, name: bytes, wanted: Stat) -> None:
    if not kernel.stat_at(parent, name).same_file(wanted):
        raise StoreError(Reason.NOT_FOUND)


def _clearer(parent: int, name: bytes, error: OSError, directory: bool) -> OSError:
    """POSIX lets unlink of a directory fail with EPERM, and rmdir of a full one with EEXIST."""
    if error.errno == errno.EEXIST:
        return OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY))
    if error.errno == errno.EPERM and not directory:
        is_directory = kernel.stat_at(parent, name).kind is Kind.DIRECTORY
        return OSError(errno.EISDIR if is_directory else errno.EPERM, "")
    return error


def _rename_new(old_parent: int, old: bytes, new_parent: int, new: bytes) -> None:
    """Rename to a name that does not exist."""
    try:
        kernel.rename_no_replace(old_parent, old, new_parent, new)
        return
    except OSError as error:
        if error.errno not in (errno.ENOSYS, errno.EINVAL):
            raise
    # Not this kernel or file system, or a directory into itself: look first.
    try:
        kernel.stat_at(new_parent, new)
    except FileNotFoundError:
        os.rename(old, new, src_dir_fd=old_parent, dst_dir_fd=new_parent)
        return
    raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))


def _link(old_parent: int, old: bytes, new_parent: int, new: bytes, replace: bool) -> None:
    def make(name: bytes) -> None:
        os.link(old, name, src_dir_fd=old_parent, dst_dir_fd=new_parent, follow_symlinks=False)

    try:
        make(new)
        return
    except FileExistsError:
        if not replace:
            raise
    # link(2) replaces nothing: make it beside, then rename.
    temporary = b".quicksand-link-%s" % os.urandom(8).hex().encode()
    make(temporary)
    try:
        os.rename(temporary, new, src_dir_fd=new_parent, dst_dir_fd=new_parent)
    finally:
        # Still there if both are names of one file (rename(2)), or if it failed.
        _remove_if_there(new_parent, temporary)


def _remove_if_there(parent: int, name: bytes) -> None:
    try:
        os.unlink(name, dir_fd=parent)
    except FileNotFoundError:
        return
