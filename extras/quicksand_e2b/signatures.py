"""Signed addresses of files: who has one may read or write that file without a token."""

from __future__ import annotations

import base64
import hashlib
import hmac
import time

from quicksand_e2b.errors import ApiError

READ = "read"
WRITE = "write"
EXPIRED = "signature is already expired"
"""A text of the protocol."""


def sign(path: str, operation: str, username: str, token: str, expiration: int | None) -> str:
    """Returns the signature of a request for ``path`` as it stands in the address. ``expiration``
    is in seconds since 1970; None is never."""
    parts = [path, operation, username, token]
    if expiration is not None:
        parts.append(str(expiration))
    digest = hashlib.sha256(":".join(parts).encode("utf-8", "surrogateescape")).digest()
    return "v1_" + base64.b64encode(digest).decode().rstrip("=")


def is_signed(
    signature: str, path: str, operation: str, username: str, token: str, expiration: int | None
) -> bool:
    """Whether the signature is the one that ``token`` makes. Takes the same time for each wrong
    one."""
    wanted = sign(path, operation, username, token, expiration)
    return hmac.compare_digest(
        wanted.encode(), signature.rstrip("=").encode("utf-8", "surrogateescape")
    )


def check_expiration(expiration: int | None) -> None:
    """Checks that the time has not passed. Raises ApiError (401)."""
    if expiration is not None and expiration < time.time():
        raise ApiError(401, EXPIRED)
