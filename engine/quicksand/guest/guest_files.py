"""Reading and writing files of a guest. Contents are streamed, so files may have any size. Names
and numbers come from the guest; only their form and size are checked, not their truth."""

from __future__ import annotations

import base64
import binascii
import builtins
import contextlib
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from quicksand.base.arguments import checked_methods
from quicksand.base.errors import (
    AgentProtocolError,
    AgentRefusedError,
    ConfigError,
    GuestFileExistsError,
    GuestFileNotFoundError,
    GuestIsADirectoryError,
    GuestNotADirectoryError,
    GuestPermissionError,
)
from quicksand.guest.agent import extents, values
from quicksand.guest.agent.channel import Channel
from quicksand.guest.agent.extents import Extent
from quicksand.guest.agent.session import Session
from quicksand.guest.agent.wire import Stream
from quicksand.guest.carried import require_able
from quicksand.guest.execution import StdinSource, checked, iterate_chunks

COPIES = "copies"
"""The capability of agents that write files without their holes, set times and make hard links."""

LIST_PAGE = 1000
LIST_MAX = 1_000_000
LIST_TEXT_MAX = 64 * 1024 * 1024
"""Bytes of all names and link targets that `list` returns, at most."""

METADATA = "metadata"
"""The capability of agents that keep notes about files, and can write a file in place."""

METADATA_MAX = 4096
"""Bytes of all keys and values of one file."""

IDENTITY_MAX = 40
"""Bytes: two hexadecimal numbers of 64 bits and a colon are 33."""

READ_MAX = 256 * 1024 * 1024
"""The most bytes that `read` returns; `stream` has no limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GuestFile:
    """A file's metadata, from `GuestFiles.stat` and `list`."""

    name: str
    """The last part of the path; bytes that are not UTF-8 are surrogates, as in `os.fsdecode`."""
    type: str
    """"file", "dir", "symlink", "fifo", "socket", "block" or "char"."""
    size: int
    """Bytes."""
    allocated: int
    """Bytes that it occupies on the guest's disk, fewer than ``size`` if it has holes; equal to
    ``size`` if the agent is too old to report it."""
    mode: int
    """Permission bits."""
    uid: int
    gid: int
    mtime: float
    """Unix time."""
    target: str | None = None
    """The target of a symlink."""
    mtime_ns: int = 0
    """Unix time in nanoseconds."""
    identity: str = ""
    """The same for all hard links to one file; "" for a file with one name, and if the agent is too
    old to report it."""
    links: int = 1
    """Its hard links; 1 if the agent is too old to report them."""
    metadata: Mapping[str, str] = field(default_factory=dict)
    """Clients' notes about the file (`GuestFiles.write`), if they were requested."""

    @property
    def is_dir(self) -> bool:
        return self.type == "dir"

    @classmethod
    def parse(cls, value: object, name: str | None = None) -> GuestFile:
        """Parse the agent's description of a file. Raises AgentProtocolError."""
        try:
            assert isinstance(value, dict)
            target = _decode(value, "target") if value.get("type") == "symlink" else None
            return cls(
                name=name if name is not None else _decode(value, "name"),
                type=values.text(value["type"], 16),
                size=values.whole(value["size"]),
                allocated=values.whole(value.get("allocated", value["size"])),
                mode=values.whole(value["mode"]) & 0o7777,
                uid=values.whole(value["uid"]),
                gid=values.whole(value["gid"]),
                mtime=values.whole(value["mtime_ns"]) / 1e9,
                target=target,
                mtime_ns=values.whole(value["mtime_ns"]),
                identity=values.text(value.get("identity", ""), IDENTITY_MAX),
                links=values.whole(value.get("links", 1)),
                metadata=_notes(value.get("metadata", {})),
            )
        except (AssertionError, KeyError, ValueError) as error:
            raise AgentProtocolError(
                "the agent describes a file in a way that makes no sense"
            ) from error


@checked_methods
class GuestFiles:
    """The files of one guest (`Sandbox.files`). Paths are absolute.

    Every method raises AgentRefusedError whose message names the path, with the code "not_found",
    "exists", "forbidden", "no_space" or another one of the protocol. It is a FileNotFoundError,
    FileExistsError, PermissionError, IsADirectoryError or NotADirectoryError of Python's, too,
    where one of these says the same. Every method also raises ConfigError for a path with a NUL;
    StateError if the sandbox is not running; MachineError, AgentError if the guest is gone.
    """

    def __init__(self, session: Callable[[], Awaitable[Session]]) -> None:
        self._session = session

    async def read(self, path: str, *, offset: int = 0, length: int | None = None) -> bytes:
        """A file's bytes. Raises ConfigError beyond 256 MiB; use `stream` for larger files."""
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
        """Yield a file's bytes in pieces, at the reader's pace. ``offset`` and ``length`` are in
        bytes."""
        params = {**_path("path", path), "offset": offset, "length": length}
        channel = (await self._session()).open("file_read", params, streams=(Stream.STDOUT,))
        try:
            with _by_errno():
                await channel.opened()
                async for data in _content(channel, path):
                    yield data
        except AgentRefusedError as error:
            await self._tell_directory(path, error)
            raise
        finally:
            channel.close()

    async def extents(self, path: str) -> AsyncIterator[Extent]:
        """Yield the parts of a file that are not holes, at the reader's pace; the last one marks
        the end of the file.

        Where an older agent does not report holes, blocks of 64 KiB of zeros count as holes.
        """
        params = {**_path("path", path), "sparse": True}
        channel = (await self._session()).open("file_read", params, streams=(Stream.STDOUT,))
        try:
            with _by_errno():
                knows = (await channel.opened()).get("sparse") is True
                content = _content(channel, path)
                found = extents.decode(content) if knows else extents.without_zeros(content)
                async for extent in found:
                    yield extent
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
        mtime_ns: int | None = None,
        in_place: bool = False,
        metadata: Mapping[str, str] | None = None,
    ) -> int:
        """Write a file; returns the bytes written. An old file stays until everything has arrived.

        ``content`` may be bytes, text, an open file or an (async) iterable of bytes. ``parents``
        creates missing directories, ``exclusive`` refuses to replace a file. ``mtime_ns`` is the
        time of its last change, in nanoseconds since 1970; an older agent leaves it out.

        ``in_place`` writes into the existing file, so that its hard links and watchers stay with
        it; readers then see it grow, and the first part stays if the rest does not arrive. An older
        agent replaces the file anyway. ``metadata`` replaces all earlier notes about the file
        (extended attributes ``user.e2b.KEY``, 4096 bytes at most): AgentTooOldError if the agent is
        older, code "unsupported" if the file system keeps none.
        """
        params: dict[str, Any] = {
            **_path("path", path),
            "mode": mode,
            "user": user,
            "parents": parents,
            "append": append,
            "exclusive": exclusive,
            "mtime_ns": mtime_ns,
            "in_place": in_place,
            "metadata": None if metadata is None else dict(metadata),
        }
        session = await self._session()
        if metadata:
            require_able(session, METADATA, "metadata of files")
        return await self._write(session, path, params, checked(content))

    async def write_extents(
        self,
        path: str,
        content: AsyncIterable[Extent],
        *,
        mode: int | None = None,
        mtime_ns: int | None = None,
    ) -> int:
        """Write a file of which only the data between holes is sent, in rising order; the last
        extent marks its end. Returns the bytes of data. An old file stays until everything has
        arrived. An older agent gets zeros for the holes, and leaves the time out."""
        session = await self._session()
        params: dict[str, Any] = {**_path("path", path), "mode": mode, "mtime_ns": mtime_ns}
        if not session.can(COPIES):
            return await self._write(session, path, params, extents.with_zeros(content))
        params["sparse"] = True
        return await self._write(session, path, params, extents.encode(content))

    async def _write(
        self, session: Session, path: str, params: dict[str, Any], content: StdinSource
    ) -> int:
        channel = session.open("file_write", params, streams=())
        try:
            with _by_errno():
                await self._send(channel, content)
                reply = await channel.reply
        except AgentRefusedError as error:
            await self._tell_directory(path, error)
            raise
        finally:
            channel.close()
        written = reply.get("bytes")
        return written if isinstance(written, int) else 0

    async def _tell_directory(self, path: str, error: AgentRefusedError) -> None:
        """Raise GuestIsADirectoryError if ``path`` was refused because it is a directory: the agent
        checks that itself and has no error number for it."""
        if error.code != "bad_request" or error.errno is not None:
            return
        try:
            is_directory = (await self.stat(path)).is_dir
        except AgentRefusedError:
            return
        if is_directory:
            raise GuestIsADirectoryError(error.words, code=error.code, hint=error.advice) from error

    @staticmethod
    async def _send(channel: Channel, content: StdinSource) -> None:
        async for chunk in iterate_chunks(content):
            if channel.reply.done():
                return  # the agent has already refused, and the reply tells why
            await channel.write(chunk)
        channel.write_eof()

    async def stat(self, path: str, *, follow: bool = True, metadata: bool = False) -> GuestFile:
        """Return the facts about ``path``; ``follow`` resolves a symlink. With ``metadata``
        clients' notes about it are read, too; an older agent has none."""
        flags = {"follow": follow, "metadata": metadata}
        reply = await self._request("file_stat", {**_path("path", path), **flags})
        return GuestFile.parse(reply, name=path.rstrip("/").rpartition("/")[2] or "/")

    async def exists(self, path: str) -> bool:
        """Whether there is anything at ``path``, even a dangling symlink."""
        try:
            await self.stat(path, follow=False)
        except AgentRefusedError as error:
            if error.code != "not_found":
                raise
            return False
        return True

    async def list(self, path: str, *, metadata: bool = False) -> builtins.list[GuestFile]:
        """The entries of a directory, sorted by name. ``metadata`` is that of `stat`."""
        found: list[GuestFile] = []
        text = 0
        after: dict[str, Any] = {}
        while True:
            params = {**_path("path", path), "limit": LIST_PAGE, "metadata": metadata, **after}
            reply = await self._request("file_list", params)
            entries = reply.get("entries")
            if not isinstance(entries, list) or len(entries) > LIST_PAGE:
                raise AgentProtocolError("the agent's list of files is no list")
            found += [GuestFile.parse(entry) for entry in entries]
            if not entries or (reply.get("next") is None and reply.get("next_b64") is None):
                return found
            text += sum(map(_text_of, found[-len(entries) :]))
            if len(found) > LIST_MAX or text > LIST_TEXT_MAX:
                raise AgentProtocolError(f"{path} has too many entries: more than {len(found)}")
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
        """Create a directory."""
        flags = {"mode": mode, "parents": parents, "exist_ok": exist_ok}
        await self._request("file_mkdir", {**_path("path", path), **flags})

    async def symlink(self, path: str, target: str, *, mtime_ns: int | None = None) -> None:
        """Make ``path`` a symlink to ``target``; ``mtime_ns`` is that of `write`."""
        params = {**_path("path", path), **_path("target", target), "mtime_ns": mtime_ns}
        await self._request("file_symlink", params)

    async def link(
        self, path: str, existing: str, *, overwrite: bool = True, follow: bool = False
    ) -> None:
        """Make ``path`` a hard link to the file ``existing``, or with ``follow`` to the target of
        that symlink. Code "not_found" if the agent is too old for it."""
        names = {**_path("from", existing), **_path("to", path)}
        await self._request("file_link", {**names, "overwrite": overwrite, "follow": follow})

    async def set_mtime(self, path: str, mtime_ns: int) -> None:
        """Set when a file, a directory or a symlink itself was last changed, in nanoseconds since
        1970. An older agent leaves it as it is."""
        if (await self._session()).can(COPIES):
            await self._request("file_set_time", {**_path("path", path), "mtime_ns": mtime_ns})

    async def chmod(self, path: str, mode: int) -> None:
        """Set permission bits."""
        await self._request("file_chmod", {**_path("path", path), "mode": mode})

    async def chown(self, path: str, user: str) -> None:
        """Give a file to ``user`` and that user's group."""
        await self._request("file_chown", {**_path("path", path), "user": user})

    async def _request(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        session = await self._session()
        with _by_errno():
            return await session.request(method, params)


_CLASSES: Mapping[int, builtins.type[AgentRefusedError]] = {
    1: GuestPermissionError,  # EPERM
    2: GuestFileNotFoundError,  # ENOENT
    13: GuestPermissionError,  # EACCES
    17: GuestFileExistsError,  # EEXIST
    20: GuestNotADirectoryError,  # ENOTDIR
    21: GuestIsADirectoryError,  # EISDIR
}
"""The classes by Linux's error numbers, which may differ from those of this host."""

_CLASSES_BY_CODE: Mapping[str, builtins.type[AgentRefusedError]] = {
    "not_found": GuestFileNotFoundError,
    "exists": GuestFileExistsError,
    "forbidden": GuestPermissionError,
}
"""For errors without a number."""


@contextlib.contextmanager
def _by_errno() -> Iterator[None]:
    """Turn a refusal into the subclass that is also an OSError of Python's, if there is one."""
    try:
        yield
    except AgentRefusedError as error:
        number = error.errno
        of_code = _CLASSES_BY_CODE.get(error.code) if number is None else None
        kind = of_code if number is None else _CLASSES.get(number)
        if kind is None or isinstance(error, OSError):
            raise
        raise kind(
            error.words,
            code=error.code,
            errno=number,
            parameter=error.parameter,
            hint=error.advice,
        ) from error.__cause__


async def _content(channel: Channel, path: str) -> AsyncIterator[bytes]:
    while True:
        item = await channel.read()
        if isinstance(item, tuple):
            yield item[1]
        elif item.get("event") == "end":
            if (error := item.get("error")) is not None:
                raise channel.refusal(error, f"reading {path} failed")
            return


def _text_of(file: GuestFile) -> int:
    notes = sum(len(key) + len(value) for key, value in file.metadata.items())
    return len(file.name) + len(file.target or "") + notes


def _notes(value: object) -> dict[str, str]:
    """The metadata of a file. Raises ValueError."""
    if not isinstance(value, dict):
        raise ValueError("no metadata")
    found = {values.text(key, METADATA_MAX): values.text(value[key], METADATA_MAX) for key in value}
    if sum(len(key) + len(text) for key, text in found.items()) > METADATA_MAX:
        raise ValueError("too much metadata")
    return found


def _path(key: str, path: str) -> dict[str, str]:
    """A path as a parameter: as text, or in base64 if it is not UTF-8. Raises ConfigError."""
    if not isinstance(path, str) or "\0" in path:
        raise ConfigError(f"{path!r} is no path")
    return values.parameter(key, path)


def _decode(value: dict[str, Any], key: str) -> str:
    encoded = value.get(f"{key}_b64")
    if isinstance(encoded, str):
        try:
            name = base64.b64decode(encoded, validate=True)
        except binascii.Error as error:
            raise ValueError(str(error)) from error
        return values.bounded(name.decode("utf-8", "surrogateescape"))
    return values.text(value[key])


def files_of(session: Session) -> GuestFiles:
    """Return the files of the guest of this session."""

    async def present() -> Session:
        return session

    return GuestFiles(present)
