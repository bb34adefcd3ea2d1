"""Removes, renames and links names in open directories, where POSIX needs special care."""

from __future__ import annotations

import errno
import os

from quicksand_smb import kernel
from quicksand_smb.store_errors import Reason, StoreError
from quicksand_smb.store_types import FileKind, Stat


def expect(parent: int, name: bytes, wanted: Stat) -> None:
    if not kernel.stat_at(parent, name).same_file(wanted):
        raise StoreError(Reason.NOT_FOUND)


def clearer(parent: int, name: bytes, error: OSError, directory: bool) -> OSError:
    """Return the clearer error: POSIX lets unlink of a directory fail with EPERM, and rmdir of a
    full one with EEXIST."""
    if error.errno == errno.EEXIST:
        return OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY))
    if error.errno == errno.EPERM and not directory:
        is_directory = kernel.stat_at(parent, name).kind is FileKind.DIRECTORY
        return OSError(errno.EISDIR if is_directory else errno.EPERM, "")
    return error


def rename_new(old_parent: int, old: bytes, new_parent: int, new: bytes) -> None:
    """Rename to a name that does not exist."""
    try:
        kernel.rename_no_replace(old_parent, old, new_parent, new)
        return
    except OSError as error:
        if error.errno not in (errno.ENOSYS, errno.EINVAL):
            raise
    # The kernel or file system cannot, or a directory would move into itself: look first.
    try:
        kernel.stat_at(new_parent, new)
    except FileNotFoundError:
        os.rename(old, new, src_dir_fd=old_parent, dst_dir_fd=new_parent)
        return
    raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))


def link(old_parent: int, old: bytes, new_parent: int, new: bytes, replace: bool) -> None:
    def make(name: bytes) -> None:
        os.link(old, name, src_dir_fd=old_parent, dst_dir_fd=new_parent, follow_symlinks=False)

    try:
        make(new)
        return
    except FileExistsError:
        if not replace:
            raise
    # link(2) replaces nothing, so make the link under another name and rename it.
    temporary = b".quicksand-link-%s" % os.urandom(8).hex().encode()
    make(temporary)
    try:
        os.rename(temporary, new, src_dir_fd=new_parent, dst_dir_fd=new_parent)
    finally:
        # It still exists if both names belong to one file (rename(2)), or if the rename failed.
        _remove_if_there(new_parent, temporary)


def _remove_if_there(parent: int, name: bytes) -> None:
    try:
        os.unlink(name, dir_fd=parent)
    except FileNotFoundError:
        return
