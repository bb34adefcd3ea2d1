"""Files of a guest: streamed, so of any size. Names and numbers that come back are the guest's
word, bounded and checked for form only."""

from __future__ import annotations

import base64
import binascii
import builtins
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from quicksand.agent.session import Channel, Session
from quicksand.errors import AgentProtocolError, AgentRefusedError, ConfigError
from quicksand.execution import StdinSource, iterate_chunks

LIST_PAGE = 1000
LIST_MAX = 1_000_000
READ_MAX = 256 * 1024 * 1024
"""Bytes that `read` returns at the most; `stream` has no limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GuestFile:
    """What `stat` and `list` tell of a file."""

    name: str
    """Last part of the path; bytes that are not UTF-8 are surrogates (as in `os.fsdecode`)."""
    type: str
    """"file", "dir", "symlink", "fifo", "socket", "block" or "char"."""
    size: int
    mode: int
    """Permission bits."""
    uid: int
    gid: int
    mtime: float
    """Unix time."""
    target: str | None = None
    """Where a symlink points."""

    @property
    def is_dir(self) -> bool:
        return self.type == "dir"

    @classmethod
    def parse(cls, value: object, name: str | None = None) -> GuestFile:
        """Raises AgentProtocolError."""
        try:
            assert isinstance(value, dict)
            target = _decode(value, "target") if value.get("type") == "symlink" else None
            return cls(
                name=name if name is not None else _decode(value, "name"),
                type=str(value["type"])[:16],
                size=int(value["size"]),
                mode=int(value["mode"]) & 0o7777,
                uid=int(value["uid"]),
                gid=int(value["gid"]),
                mtime=int(value["mtime_ns"]) / 1e9,
                target=target,
            )
        except (AssertionError, KeyError, TypeError, ValueError, OverflowError) as error:
            raise AgentProtocolError(
                "the agent describes a file in a way that makes no sense"
            ) from (error)


class GuestFiles:
    """The files of one sandbox (`Sandbox.files`). Paths are absolute.

    Every method raises AgentRefusedError with code "not_found", "exists", "forbidden" or
    "no_space" where that fits; the message names the path.
    """

    def __init__(self, session: Callable[[], Awaitable[Session]]) -> None:
        self._session = session

    async def read(self, path: str, *, offset: int = 0, length: int | None = None) -> bytes:
        """A file's bytes, 256 MiB at the most (ConfigError beyond: use `stream`)."""
        content = bytearray()
        async for chunk in self.stream(path, offset=offset, length=length):
            content += chunk
            if len(content) > READ_MAX:
                raise ConfigError(
                    f"{path} is larger than {READ_MAX} bytes", hint="read it with stream()"
                )
        return bytes(content)

    async def read_text(self, path: str) -> str:
        """A file's text. Raises UnicodeDecodeError if it is not UTF-8."""
        return (await self.read(path)).decode()

    async def stream(
        self, path: str, *, offset: int = 0, length: int | None = None
    ) -> AsyncIterator[bytes]:
        """A file's bytes in pieces, at the pace of the reader."""
        params = {**_path("path", path), "offset": offset, "length": length}
        channel = (await self._session()).open("file_read", params)
        try:
            await channel.opened()
            while True:
                item = await channel.read()
                if isinstance(item, tuple):
                    yield item[1]
                elif item.get("event") == "end":
                    _raise_for(item.get("error"), path)
                    return
        finally:
            channel.close()

    async def write(
        self,
        path: str,
        content: StdinSource,
        *,
        mode: int | None = None,
        user: str | None = None,
        parents: bool = False,
        append: bool = False,
        exclusive: bool = False,
    ) -> int:
        """Write a file; returns the bytes written. The old one stays until all has arrived.

        ``content`` may be bytes, text, a file or an (async) iterable of bytes.
        """
        params: dict[str, Any] = {
            **_path("path", path),
            "mode": mode,
            "user": user,
            "parents": parents,
            "append": append,
            "exclusive": exclusive,
        }
        channel = (await self._session()).open("file_write", params)
        try:
            await self._send(channel, content)
            reply = await channel.reply
        finally:
            channel.close()
        written = reply.get("bytes")
        return written if isinstance(written, int) else 0

    @staticmethod
    async def _send(channel: Channel, content: StdinSource) -> None:
        async for chunk in iterate_chunks(content):
            if channel.reply.done():
                return  # refused already: the reply says why
            await channel.write(chunk)
        channel.write_eof()

    async def stat(self, path: str, *, follow: bool = True) -> GuestFile:
        """What is at ``path``."""
        reply = await self._request("file_stat", {**_path("path", path), "follow": follow})
        return GuestFile.parse(reply, name=path.rstrip("/").rpartition("/")[2] or "/")

    async def exists(self, path: str) -> bool:
        """Whether anything is at ``path`` (a dangling link is something)."""
        try:
            await self.stat(path, follow=False)
        except AgentRefusedError as error:
            if error.code != "not_found":
                raise
            return False
        return True

    async def list(self, path: str) -> builtins.list[GuestFile]:
        """What is in a directory, sorted by name."""
        found: list[GuestFile] = []
        after: dict[str, Any] = {}
        while True:
            params = {**_path("path", path), "limit": LIST_PAGE, **after}
            reply = await self._request("file_list", params)
            entries = reply.get("entries")
            if not isinstance(entries, list) or len(entries) > LIST_PAGE:
                raise AgentProtocolError("the agent's list of files is no list")
            found += [GuestFile.parse(entry) for entry in entries]
            if not entries or (reply.get("next") is None and reply.get("next_b64") is None):
                return found
            if len(found) > LIST_MAX:
                raise AgentProtocolError(f"{path} has more than {LIST_MAX} entries")
            after = _path("after", found[-1].name)

    async def rename(self, source: str, target: str, *, overwrite: bool = True) -> None:
        """Rename within one file system."""
        params = {**_path("from", source), **_path("to", target), "overwrite": overwrite}
        await self._request("file_rename", params)

    async def remove(self, path: str, *, recursive: bool = False, missing_ok: bool = False) -> None:
        """Remove a file or directory; links are removed, never followed."""
        params = {**_path("path", path), "recursive": recursive, "missing_ok": missing_ok}
        await self._request("file_remove", params)

    async def mkdir(
        self, path: str, *, mode: int = 0o755, parents: bool = False, exist_ok: bool = False
    ) -> None:
        """Make a directory."""
        flags = {"mode": mode, "parents": parents, "exist_ok": exist_ok}
        await self._request("file_mkdir", {**_path("path", path), **flags})

    async def symlink(self, path: str, target: str) -> None:
        """Make ``path`` a symlink to ``target``."""
        await self._request("file_symlink", {**_path("path", path), **_path("target", target)})

    async def chmod(self, path: str, mode: int) -> None:
        """Set permission bits."""
        await self._request("file_chmod", {**_path("path", path), "mode": mode})

    async def chown(self, path: str, user: str) -> None:
        """Give a file to ``user`` and that user's group."""
        await self._request("file_chown", {**_path("path", path), "user": user})

    async def _request(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        return await (await self._session()).request(method, params)


def _path(key: str, path: str) -> dict[str, str]:
    """A path as a parameter: as text, or in base64 if it is not UTF-8."""
    if not isinstance(path, str) or "\0" in path:
        raise ConfigError(f"{path!r} is no path")
    try:
        path.encode("utf-8")
    except UnicodeEncodeError:
        raw = path.encode("utf-8", "surrogateescape")
        return {f"{key}_b64": base64.b64encode(raw).decode("ascii")}
    return {key: path}


def _decode(value: dict[str, Any], key: str) -> str:
    encoded = value.get(f"{key}_b64")
    if isinstance(encoded, str):
        try:
            return base64.b64decode(encoded, validate=True).decode("utf-8", "surrogateescape")
        except binascii.Error as error:
            raise ValueError(str(error)) from error
    return str(value[key])


def _raise_for(error: object, path: str) -> None:
    if error is None:
        return
    if not isinstance(error, dict):
        raise AgentProtocolError("the agent ended a file with an error that makes no sense")
    raise AgentRefusedError(
        str(error.get("message") or f"reading {path} failed"), code=str(error.get("code"))
    )
