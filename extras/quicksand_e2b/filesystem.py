"""The procedures of a guest's file system, and the facts that they tell of a file."""

from __future__ import annotations

import errno
import stat
from datetime import UTC, datetime
from typing import Any

from quicksand import (
    AgentRefusedError,
    GuestFile,
    GuestFileExistsError,
    GuestFileNotFoundError,
    GuestNotADirectoryError,
    Login,
    Sandbox,
)

from quicksand_e2b.errors import RpcError
from quicksand_e2b.guest_paths import absolute, join, led_to, name_of, parent_of
from quicksand_e2b.users import Users

ENTRIES_MAX = 20_000
"""The most entries of one list."""

DEPTH_MAX = 1000

_TYPES = {"file": "FILE_TYPE_FILE", "dir": "FILE_TYPE_DIRECTORY", "symlink": "FILE_TYPE_SYMLINK"}
_BITS = {
    "file": stat.S_IFREG, "dir": stat.S_IFDIR, "symlink": stat.S_IFLNK, "fifo": stat.S_IFIFO,
    "socket": stat.S_IFSOCK, "block": stat.S_IFBLK, "char": stat.S_IFCHR,
}  # fmt: skip


class Filesystem:
    """The files of one guest. Methods raise RpcError and QuicksandError."""

    def __init__(self, guest: Sandbox, users: Users) -> None:
        self._guest = guest
        self._users = users

    async def stat(self, path: str, login: Login) -> dict[str, Any]:
        return await self.entry_at(absolute(path, login))

    async def make_directory(self, path: str, login: Login) -> dict[str, Any]:
        place = absolute(path, login)
        try:
            found = await self._guest.files.stat(place)
        except GuestFileNotFoundError:
            await self.make_directories(place, login)
        except GuestNotADirectoryError as error:
            raise RpcError("invalid_argument", str(error)) from error
        else:
            if found.is_dir:
                raise RpcError("already_exists", f"directory already exists: {place}")
            raise RpcError("invalid_argument", f"path already exists, and is no directory: {place}")
        return await self.entry_at(place)

    async def make_directories(self, path: str, login: Login) -> None:
        """Makes a directory and the missing ones above it; they are the user's."""
        missing: list[str] = []
        place = path
        while place != "/":
            try:
                found = await self._guest.files.stat(place)
            except GuestFileNotFoundError:
                missing.append(place)
                place = parent_of(place)
                continue
            except GuestNotADirectoryError as error:
                raise RpcError("invalid_argument", str(error)) from error
            if not found.is_dir:
                raise RpcError("invalid_argument", f"{place} is no directory")
            break
        for place in reversed(missing):
            try:
                await self._guest.files.mkdir(place)
            except GuestFileExistsError:
                continue
            await self._guest.files.chown(place, login.name)

    async def move(self, source: str, destination: str, login: Login) -> dict[str, Any]:
        old, new = absolute(source, login), absolute(destination, login)
        await self._guest.files.stat(old, follow=False)
        await self.make_directories(parent_of(new), login)
        try:
            await self._guest.files.rename(old, new)
        except AgentRefusedError as error:
            if error.errno != errno.EXDEV:
                raise
            done = await self._guest.execute(["mv", "-fT", "--", old, new], timeout=None)
            if not done.ok:
                raise RpcError("internal", f"mv failed: {done.stderr[:500]}") from error
        return await self.entry_at(new)

    async def list_directory(self, path: str, depth: int, login: Login) -> list[dict[str, Any]]:
        """Returns the entries down to ``depth``, each before its own entries. Links are not
        followed, except ``path`` itself."""
        place = absolute(path, login)
        found = await self._guest.files.stat(place)
        if not found.is_dir:
            raise RpcError("invalid_argument", f"path is not a directory: {place}")
        entries: list[dict[str, Any]] = []
        await self._list(place, depth, entries)
        return entries

    async def _list(self, place: str, depth: int, entries: list[dict[str, Any]]) -> None:
        for file in await self._guest.files.list(place, metadata=True):
            if len(entries) >= ENTRIES_MAX:
                raise RpcError(
                    "resource_exhausted", f"{place} has more than {ENTRIES_MAX} entries below it"
                )
            below = join(place, file.name)
            entries.append(await self._entry(below, file))
            if file.is_dir and depth > 1:
                await self._list(below, depth - 1, entries)

    async def remove(self, path: str, login: Login) -> None:
        await self._guest.files.remove(absolute(path, login), recursive=True, missing_ok=True)

    async def entry_at(self, path: str) -> dict[str, Any]:
        """Returns the facts of a file at an absolute path. Raises QuicksandError."""
        return await self._entry(
            path, await self._guest.files.stat(path, follow=False, metadata=True)
        )

    async def _entry(self, path: str, file: GuestFile) -> dict[str, Any]:
        type_, target = file.type, None
        if file.type == "symlink" and file.target is not None:
            target = led_to(path, file.target)
            try:
                type_ = (await self._guest.files.stat(path)).type
            except AgentRefusedError:
                type_ = "symlink"  # the link leads to nothing
        owner, group = await self._users.names(file.uid, file.gid)
        entry: dict[str, Any] = {
            "name": shown(name_of(path)),
            "type": _TYPES.get(type_, "FILE_TYPE_UNSPECIFIED"),
            "path": shown(path),
            "size": str(file.size),
            "mode": file.mode,
            "permissions": stat.filemode(_BITS.get(file.type, 0) | file.mode),
            "owner": owner,
            "group": group,
            "modifiedTime": moment(file.mtime_ns),
            "isSymlink": file.type == "symlink",
            "metadata": dict(file.metadata),
        }
        if target is not None:
            entry["symlinkTarget"] = shown(target)
        return entry


def moment(unix_ns: int) -> str:
    """Returns a time in RFC 3339, with nanoseconds."""
    seconds, rest = divmod(unix_ns, 1_000_000_000)
    try:
        whole = datetime.fromtimestamp(seconds, UTC)
    except (OverflowError, ValueError, OSError):
        whole, rest = datetime.fromtimestamp(0, UTC), 0  # a guest may say anything
    return f"{whole.replace(tzinfo=None).isoformat()}.{rest:09d}Z"


def shown(path: str) -> str:
    """Returns a name as JSON can carry it: bytes that are no UTF-8 become U+FFFD."""
    return path.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
