"""A share: one directory of the host and everything below it, for a guest that may be hostile.

* Every path is walked from a descriptor of the root (`walk`), and symlinks are data. An operation
  on a name opens its parent directory, and then makes one system call relative to it.
* Only files and directories are ever opened (`opener`).
* The write policy (write_policy.py) is asked before every change.
"""

from __future__ import annotations

import os

from quicksand_smb import kernel, renames
from quicksand_smb.disk_reserve import DiskReserve
from quicksand_smb.names import Names, from_host, host_path, names_of
from quicksand_smb.node import Node
from quicksand_smb.open_nodes import OpenNodes
from quicksand_smb.opener import Opener
from quicksand_smb.root import Root
from quicksand_smb.store_errors import Reason, StoreError, store_error
from quicksand_smb.store_types import (
    Action,
    Disposition,
    Entry,
    FileKind,
    Limits,
    OpenOptions,
    Space,
    Stat,
)
from quicksand_smb.triggers import KNOWN
from quicksand_smb.write_policy import WritePolicy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Concatenate, ParamSpec, TypeVar

    from quicksand_smb.own_changes import OwnChanges
    from quicksand_smb.walk import Walk

    P = ParamSpec("P")
    R = TypeVar("R")

__all__ = [
    "Action",
    "Disposition",
    "Entry",
    "FileKind",
    "Limits",
    "Names",
    "Node",
    "OpenOptions",
    "Reason",
    "Space",
    "Stat",
    "Store",
    "StoreError",
]

_MOST_UNKNOWN = 256
"""The open files without a known path that are searched one by one."""


def _mapped(
    method: Callable[Concatenate[Store, int, P], R],
) -> Callable[Concatenate[Store, P], R]:
    """Make a method that gets the root's descriptor as its first argument and may raise OSError."""

    def run(self: Store, /, *args: P.args, **kwargs: P.kwargs) -> R:
        root = self._root.held.take()
        try:
            return method(self, root, *args, **kwargs)
        except (OSError, OverflowError, ValueError) as error:
            raise store_error(error) from error
        finally:
            self._root.held.give()

    run.__name__ = method.__name__
    run.__doc__ = method.__doc__
    return run


class Store:
    """One share. All methods raise StoreError, and GONE after `close`. Several threads may call
    them.

    `protected` lists patterns of names (triggers.py), such as ".git/hooks" or ".envrc". The guest
    changes nothing at or below a match, anywhere in the share. `tell` is called with the names of
    written files that programs of the host run or obey. `within` is the path of the root.
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
        known: tuple[str, ...] = KNOWN,
        walk: Walk | None = None,
    ) -> None:
        """Open the root. Symlinks are followed only here, since the host's user named the path. A
        given descriptor is taken over. Raises StoreError. `walk` is for tests."""
        self.read_only = read_only
        self.limits = limits or Limits()
        self._policy = WritePolicy(
            read_only=read_only, protected=protected, tell=tell, within=within, known=known
        )
        self._root = Root(root, walk)
        self.disk_reserve = DiskReserve(self._root.held, self.limits)
        self.own_changes: OwnChanges | None = None
        self._nodes = OpenNodes(self._root.held, self.limits.nodes)
        self._opener = Opener(self, self._root, self._policy, self._nodes)

    def close(self) -> None:
        """Take the share away. Open files become unusable at once. A second call does nothing."""
        self._root.held.close()
        self._nodes.close()

    def own_path(self) -> str | None:
        """Return a path to the open root for this process, whatever happens to its name, or None
        without /proc."""
        root = self._root.held.take()
        try:
            path = os.fsdecode(kernel.own_path(root))
            return path if os.path.exists(path) else None
        finally:
            self._root.held.give()

    def root_again(self) -> int:
        """Return another descriptor of the root, for another store. Raises StoreError."""
        root = self._root.held.take()
        try:
            return os.dup(root)
        except OSError as error:
            raise store_error(error) from error
        finally:
            self._root.held.give()

    # Looking.

    @_mapped
    def look(self, root: int, names: Names) -> Stat:
        """Return the state of a name. A symlink is not followed. Raises NOT_FOUND, NO_PATH,
        LOOP."""
        if not names:
            return kernel.stat_of(root)
        parent, name = self._root.parent(root, names)
        try:
            return kernel.stat_at(parent, name)
        finally:
            self._root.drop(root, parent)

    @_mapped
    def read_link(self, root: int, names: Names) -> str:
        """Return a symlink's target, which is data. Raises INVALID for anything else."""
        parent, name = self._root.parent(root, names)
        try:
            return from_host(os.readlink(name, dir_fd=parent))
        finally:
            self._root.drop(root, parent)

    @_mapped
    def with_directory(self, root: int, names: Names, work: Callable[[int], R]) -> R:
        """Call `work` with a descriptor that names a directory. Raises as `look` does, and what
        `work` raises."""
        descriptor = self._root.walk(root, host_path(names), kernel.O_LOOK | kernel.O_DIRECTORY, 0)
        try:
            return work(descriptor)
        finally:
            os.close(descriptor)

    def space(self) -> Space:
        """Return the space on the file system of the root."""
        found = self.disk_reserve.look()
        return Space(
            total=found.f_blocks * found.f_frsize,
            free=found.f_bfree * found.f_frsize,
            available=max(0, self.disk_reserve.spare(found)),
            block_size=found.f_frsize,
            names=found.f_files,
            free_names=found.f_ffree,
        )

    @_mapped
    def where(self, root: int, node: Node) -> Names | None:
        """Return the present path of an open file, after renames of it and of directories above it.
        Returns None if it was removed, left the share, or the system does not tell. The path is
        only a hint, so its users pass `same_as`."""
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

    def known_name(self, node: Node) -> Names | None:
        """Return the path by which an open file was opened, updated by the guest's own renames.
        Renames by the host are not looked for, unless a rename by the guest has made the path
        longer: then `where` finds it."""
        return self.where(node) if node.path is None else names_of(node.path)

    def record_change(self, node: Node) -> None:
        """Record a change to an open file that its own methods have not made."""
        if self.own_changes is not None:
            descriptor = node.held.take()
            try:
                self.own_changes.record(descriptor)
            finally:
                node.held.give()

    def is_open_below(self, names: Names) -> bool:
        """Tell whether a file is open below a directory, as `where` finds it. If very many paths
        are unknown, the answer is True."""
        unknown = self._nodes.without_name()
        if len(unknown) > _MOST_UNKNOWN:
            return True
        nodes = self._nodes.below(b"/".join(host_path(names)))
        depth = len(names)
        found = (self.where(node) or () for node in unknown + nodes)
        # A directory that has been renamed may itself be one whose path is unknown.
        return any(len(path) > depth and path[:depth] == names for path in found)

    # Opening.

    @_mapped
    def open(self, root: int, names: Names, options: OpenOptions) -> tuple[Node, Action]:
        """Open or make a file. Symlinks, FIFOs, sockets and devices are only looked at; the node's
        `kind` names them.

        Raises NOT_FOUND, NO_PATH, EXISTS, IS_DIRECTORY, NOT_DIRECTORY, READ_ONLY, DENIED, NO_SPACE,
        TOO_MANY, BAD_NAME, LOOP; BUSY if somebody makes and removes the name all the time.
        """
        node, action = self._opener.open(root, names, options)
        if self.own_changes is not None and (node.first is None or action is not Action.OPENED):
            self.record_change(node)
            self.own_changes.record_made(names)
        if node.kind is not FileKind.DIRECTORY and (
            options.write or options.append or action is not Action.OPENED
        ):
            self._policy.report(names, node.kind)
        return node, action

    def forget(self, node: Node) -> None:
        """Remove a node that was closed."""
        self._nodes.forget(node)

    # Changing names.

    def _changed_parent(self, root: int, names: Names) -> tuple[int, bytes]:
        """As `Root.parent`, for a change. Raises READ_ONLY."""
        self._policy.check(names, directory=True)
        return self._root.parent(root, names, change=True)

    @_mapped
    def remove(
        self, root: int, names: Names, *, directory: bool, same_as: Stat | None = None
    ) -> None:
        """Remove a name. An open file stays usable. With `same_as` the name must be this file.

        Raises NOT_FOUND, NOT_EMPTY, IS_DIRECTORY, NOT_DIRECTORY, READ_ONLY, DENIED, BUSY.
        """
        self._policy.check(names, directory=directory)
        parent, name = self._changed_parent(root, names)
        try:
            if same_as is not None:
                renames.expect(parent, name, same_as)
            try:
                (os.rmdir if directory else os.unlink)(name, dir_fd=parent)
            except OSError as error:
                raise renames.clearer(parent, name, error, directory) from error
            if self.own_changes is not None:
                self.own_changes.record_removed(names)
        finally:
            self._root.drop(root, parent)

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
        """Rename a file in one step. An open file stays usable. With `replace` a file with the new
        name is lost, as with rename(2).

        Raises NOT_FOUND, NO_PATH, EXISTS, IS_DIRECTORY, NOT_DIRECTORY, NOT_EMPTY, INVALID (into
        itself), CROSS_DEVICE, READ_ONLY, DENIED.
        """
        old_parent, old_name = self._changed_parent(root, old)
        try:
            new_parent, new_name = self._changed_parent(root, new)
            try:
                if same_as is not None:
                    renames.expect(old_parent, old_name, same_as)
                kind = self._check_move(old_parent, old_name, old, new)
                if replace:
                    os.rename(old_name, new_name, src_dir_fd=old_parent, dst_dir_fd=new_parent)
                else:
                    renames.rename_new(old_parent, old_name, new_parent, new_name)
                if self._is_another(kind, new_parent, new_name):
                    renames.rename_new(new_parent, new_name, old_parent, old_name)
                    raise StoreError(Reason.BUSY)
                if self.own_changes is not None:
                    self.own_changes.record_removed(old)
                    self.own_changes.record_name(new_parent, new_name, new)
                self._nodes.renamed(b"/".join(host_path(old)), b"/".join(host_path(new)))
                self._policy.report(new, kind)
            finally:
                self._root.drop(root, new_parent)
        finally:
            self._root.drop(root, old_parent)

    def _check_move(self, parent: int, name: bytes, old: Names, new: Names) -> FileKind:
        """Return the kind of the file that is about to get a name. Raises READ_ONLY."""
        if not self._policy.is_selective:
            return FileKind.FILE
        kind = kernel.stat_at(parent, name).kind
        self._policy.check_name(old, kind)
        self._policy.check_name(new, kind)
        return kind

    def _is_another(self, kind: FileKind, parent: int, name: bytes) -> bool:
        """Tell whether the renamed file is of another kind than the checked one, because somebody
        has exchanged it meanwhile."""
        return self._policy.is_selective and kernel.stat_at(parent, name).kind is not kind

    @_mapped
    def may_remove(self, root: int, names: Names) -> bool:
        """Tell whether a name exists in a directory in which this user may change names. Raises as
        `look` does."""
        parent, name = self._root.parent(root, names)
        try:
            kernel.stat_at(parent, name)
            as_effective = os.access in os.supports_effective_ids
            changes = os.W_OK | os.X_OK
            return os.access(kernel.own_path(parent), changes, effective_ids=as_effective)
        except FileNotFoundError:
            return False
        finally:
            self._root.drop(root, parent)

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
        """Give a file a second name. A symlink is not followed. Raises as `rename` does."""
        old_parent, old_name = self._changed_parent(root, old)
        try:
            new_parent, new_name = self._changed_parent(root, new)
            try:
                if same_as is not None:
                    renames.expect(old_parent, old_name, same_as)
                kind = self._check_move(old_parent, old_name, old, new)
                self.disk_reserve.need_name()
                renames.link(old_parent, old_name, new_parent, new_name, replace)
                if self._is_another(kind, new_parent, new_name):
                    made = kernel.stat_at(new_parent, new_name)
                    if kernel.stat_at(old_parent, old_name).same_file(made):
                        os.unlink(new_name, dir_fd=new_parent)  # remove the new link
                    raise StoreError(Reason.BUSY)
                if self.own_changes is not None:
                    self.own_changes.record_name(new_parent, new_name, new)
                self._policy.report(new, kind)
            finally:
                self._root.drop(root, new_parent)
        finally:
            self._root.drop(root, old_parent)

    @_mapped
    def symlink(self, root: int, target: str, names: Names) -> None:
        """Make a symlink. This server never follows it; programs of the host may. `target` comes
        from `names.target_from_wire`. Raises EXISTS, and as `open` does."""
        data = target.encode("utf-8", "surrogateescape")
        if not data or len(data) > 4095 or b"\0" in data:
            raise StoreError(Reason.BAD_NAME)
        self._make(
            root,
            names,
            FileKind.SYMLINK,
            lambda parent, name: os.symlink(data, name, dir_fd=parent),
        )

    @_mapped
    def make_node(self, root: int, names: Names, kind: FileKind, mode: int) -> None:
        """Make a FIFO or a socket, which has no effect on the host. Raises DENIED for devices,
        EXISTS, and as `open` does."""
        if kind not in (FileKind.FIFO, FileKind.SOCKET):
            raise StoreError(Reason.DENIED)
        type_ = 0o010000 if kind is FileKind.FIFO else 0o140000
        bits = type_ | mode & 0o777
        self._make(root, names, kind, lambda parent, name: os.mknod(name, bits, dir_fd=parent))

    def _make(
        self, root: int, names: Names, kind: FileKind, make: Callable[[int, bytes], None]
    ) -> None:
        self._policy.check_name(names, kind)
        parent, name = self._changed_parent(root, names)
        try:
            self.disk_reserve.need_name()
            make(parent, name)
            if self.own_changes is not None:
                self.own_changes.record_name(parent, name, names)
            self._policy.report(names, kind)
        finally:
            self._root.drop(root, parent)
