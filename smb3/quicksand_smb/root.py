"""The root of a share. Every path is walked from its descriptor and never from its name."""

from __future__ import annotations

import errno
import os

from quicksand_smb import kernel
from quicksand_smb.names import Names, host_path
from quicksand_smb.store_errors import Reason, StoreError, store_error
from quicksand_smb.store_types import FileKind, stat_from_os
from quicksand_smb.walk import SharedDescriptor, best_walk, link_depth

TYPE_CHECKING = False
if TYPE_CHECKING:
    from quicksand_smb.walk import Walk


class Root:
    """The open directory of a share.

    Callers hold `held` and pass the number of its descriptor as `root`.
    """

    __slots__ = ("held", "walk")

    def __init__(self, root: str | int, walk: Walk | None = None) -> None:
        """Open the root. Symlinks are followed only here, since the host's user named the path. A
        given descriptor is taken over. Raises StoreError. `walk` is for tests."""
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
        self.held = SharedDescriptor(descriptor)
        self.walk = walk or best_walk(descriptor)

    def open_path(self, root: int, path: list[bytes]) -> int:
        """Return a descriptor that only names the file."""
        try:
            if not kernel.O_PATH:
                self._refuse_others(root, path)
            return self.walk(root, path, kernel.O_LOOK, 0)
        except OSError as error:
            raise self.better(root, path, error) from error

    def _refuse_others(self, root: int, path: list[bytes]) -> None:
        """Refuse special files on systems without O_PATH, where opening them has effects."""
        if path:
            parent = self.walk(root, path[:-1], kernel.O_LOOK | kernel.O_DIRECTORY, 0)
            try:
                found = os.stat(path[-1], dir_fd=parent, follow_symlinks=False)
            finally:
                os.close(parent)
            if stat_from_os(found).kind not in (FileKind.FILE, FileKind.DIRECTORY):
                raise StoreError(Reason.UNSUPPORTED)

    def parent(self, root: int, names: Names, *, change: bool = False) -> tuple[int, bytes]:
        """Return the directory of the last name, and that name. Give the directory to `drop`. With
        `change` the root itself is refused."""
        path = host_path(names)
        if not path:
            raise StoreError(Reason.DENIED if change else Reason.INVALID)
        return self.open_parent(root, path), path[-1]

    def open_parent(self, root: int, path: list[bytes]) -> int:
        if len(path) == 1:
            return root
        try:
            return self.walk(root, path[:-1], kernel.O_LOOK | kernel.O_DIRECTORY, 0)
        except OSError as error:
            found = self.better(root, path[:-1], error)
            if found.reason in (Reason.NOT_FOUND, Reason.NOT_DIRECTORY):
                found = StoreError(Reason.NO_PATH)
            raise found from error

    @staticmethod
    def drop(root: int, parent: int) -> None:
        if parent != root:
            os.close(parent)

    def better(self, root: int, path: list[bytes], error: OSError) -> StoreError:
        """Explain a failed walk: which name is missing, or where a symlink stands. FileExistsError
        is raised again, since creation needs it."""
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
                os.close(self.walk(root, path[:-1], kernel.O_LOOK | kernel.O_DIRECTORY, 0))
            except OSError:
                return StoreError(Reason.NO_PATH)
        return store_error(error)


def _own(directory: int) -> int:
    """Return a private copy of an inherited descriptor. Raises OSError."""
    descriptor = os.dup(directory)
    os.close(directory)
    if kernel.stat_of(descriptor).kind is not FileKind.DIRECTORY:
        os.close(descriptor)
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
    return descriptor
