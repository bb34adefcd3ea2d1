"""Paths as clients give them."""

from __future__ import annotations

import posixpath

from quicksand import Login

from quicksand_e2b.errors import RpcError

PATH_MAX = 4096
"""The most bytes of a path; Linux's own limit."""


def absolute(path: str, login: Login) -> str:
    """Returns an absolute path: ``~`` and relative paths begin at the user's home. Raises RpcError
    ("invalid_argument")."""
    if path == "~" or path.startswith("~/"):
        path = login.home + path[1:]
    elif path.startswith("~"):
        raise RpcError("invalid_argument", f"homes of other users cannot be named: {path:.80}")
    elif not path.startswith("/"):
        path = f"{login.home}/{path}"
    if "\0" in path:
        raise RpcError("invalid_argument", "a path contains a NUL character")
    if len(path.encode("utf-8", "surrogateescape")) > PATH_MAX:
        raise RpcError("invalid_argument", f"a path is longer than {PATH_MAX} bytes")
    found = posixpath.normpath(path)
    # POSIX leaves two slashes in front alone.
    return "/" + found.lstrip("/")


def parent_of(path: str) -> str:
    return posixpath.dirname(path) or "/"


def name_of(path: str) -> str:
    return posixpath.basename(path) or "/"


def join(directory: str, name: str) -> str:
    return posixpath.join(directory, name)


def led_to(path: str, target: str) -> str:
    """Returns the path to which a symlink at ``path`` with that target leads."""
    return posixpath.normpath(posixpath.join(parent_of(path), target))
