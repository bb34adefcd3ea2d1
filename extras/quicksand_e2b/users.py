"""Users of a guest: the user that a request names, and the owner of a file."""

from __future__ import annotations

import base64
import binascii
import contextlib
import time

from quicksand import AgentRefusedError, Login, QuicksandError, Sandbox

from quicksand_e2b.errors import RpcError, is_too_old

USERS_MAX = 200
"""The most users of one guest that are remembered."""

ACCOUNTS_MAX = 256 * 1024
"""The most bytes of /etc/passwd and /etc/group that are read."""

FRESH_S = 2.0
"""Seconds for which these files are not read again."""

NAME_MAX = 256


class Users:
    """The users of one guest, whose default is ``usual``."""

    def __init__(self, guest: Sandbox, usual: str) -> None:
        self._guest = guest
        self._usual = usual
        self._logins: dict[str, Login] = {}
        self._users: dict[int, str] = {}
        self._groups: dict[int, str] = {}
        self._read_at = float("-inf")

    async def require(self, name: str | None) -> Login:
        """Returns the user of that name, or the usual one. Raises RpcError ("unauthenticated")."""
        name = name or self._usual
        known = self._logins.get(name)
        if known is not None:
            return known
        if len(name) > NAME_MAX:
            raise RpcError("unauthenticated", f"invalid username: {name:.80}")
        try:
            login = await self._guest.find_user(name)
        except AgentRefusedError as error:
            if is_too_old(error):
                raise
            raise RpcError("unauthenticated", f"invalid username: {error}") from error
        if len(self._logins) < USERS_MAX:
            self._logins[name] = login
        return login

    async def names(self, uid: int, gid: int) -> tuple[str, str]:
        """Returns the names of a user and a group; their numbers as text if they have none."""
        if uid not in self._users or gid not in self._groups:
            await self._read()
        return self._users.get(uid, str(uid)), self._groups.get(gid, str(gid))

    async def _read(self) -> None:
        if time.monotonic() - self._read_at < FRESH_S:
            return
        self._read_at = time.monotonic()
        self._users = await self._numbers("/etc/passwd")
        self._groups = await self._numbers("/etc/group")

    async def _numbers(self, path: str) -> dict[int, str]:
        """Returns the names by number of a file of passwd(5) or group(5): NAME:X:NUMBER:…"""
        found: dict[int, str] = {}
        text = b""
        with contextlib.suppress(QuicksandError):
            text = await self._guest.files.read(path, length=ACCOUNTS_MAX)
        for line in text.decode("utf-8", "replace").splitlines():
            words = line.split(":")
            if len(words) > 2 and words[2].isdecimal() and len(words[2]) < 12:
                found.setdefault(int(words[2]), words[0][:NAME_MAX])
        return found


def user_of(authorization: str | None) -> str | None:
    """Returns the user name in an ``Authorization: Basic`` header. It names the user for a request,
    and proves nothing. Raises RpcError ("unauthenticated") for a header that is none."""
    if not authorization:
        return None
    kind, _, coded = authorization.partition(" ")
    if kind.lower() != "basic":
        raise RpcError("unauthenticated", "Authorization must be Basic, with a user name")
    try:
        text = base64.b64decode(coded, validate=True).decode()
    except (binascii.Error, ValueError):
        raise RpcError("unauthenticated", "Authorization is no base64") from None
    return text.partition(":")[0] or None
