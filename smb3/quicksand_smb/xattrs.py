"""The host's names for the guest's extended attributes. Only those of users (xattr(7)) are used, so
no capability, label or ACL."""

from __future__ import annotations

import os

from quicksand_smb import kernel
from quicksand_smb.names import NAME_MAX
from quicksand_smb.store_errors import Reason, StoreError
from quicksand_smb.store_types import FileKind


def path_for(kind: FileKind, descriptor: int) -> bytes:
    """Return a path for the xattr calls, which refuse O_PATH descriptors."""
    if not hasattr(os, "setxattr") or kind not in (FileKind.FILE, FileKind.DIRECTORY):
        raise StoreError(Reason.UNSUPPORTED)
    return kernel.own_path(descriptor)


def listed(path: bytes) -> list[bytes]:
    return [os.fsencode(name) for name in os.listxattr(path)]


def is_name(name: str) -> bool:
    return bool(name) and name.upper() != "DOSATTRIB"


def key_of(name: str) -> bytes:
    """Return the host's name of an attribute. Samba keeps its own data in user.DOSATTRIB, which the
    guest must not forge. Raises StoreError(BAD_NAME)."""
    try:
        key = b"user." + name.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raise StoreError(Reason.BAD_NAME) from None
    if not is_name(name) or b"\0" in key or len(key) > NAME_MAX:
        raise StoreError(Reason.BAD_NAME)
    return key
