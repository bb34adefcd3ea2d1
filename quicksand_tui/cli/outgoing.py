"""Files of this host into a guest."""

from __future__ import annotations

import asyncio
import io
import os
import stat
from collections.abc import AsyncIterable, AsyncIterator
from pathlib import Path
from typing import Protocol

from quicksand.errors import AgentRefusedError
from quicksand.guest_files import GuestFile

from quicksand_tui.cli.streams import READ_SIZE, FdReader
from quicksand_tui.cli.transfer import Tally, TransferError, split_contents

STDIN = 0
OPEN = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
"""Not through a symlink, and without waiting for the other end of a pipe."""


class Files(Protocol):
    """What is needed of `GuestFiles`."""

    async def write(
        self, path: str, content: AsyncIterable[bytes], *, mode: int | None = None
    ) -> int: ...

    async def stat(self, path: str, *, follow: bool = True) -> GuestFile: ...

    async def mkdir(self, path: str, *, mode: int = 0o755, exist_ok: bool = False) -> None: ...

    async def symlink(self, path: str, target: str) -> None: ...

    async def remove(self, path: str) -> None: ...


async def from_stdin(files: Files, target: str, tally: Tally) -> None:
    """Write stdin to one file of the guest."""
    await files.write(target, tally.count(FdReader(STDIN)))


async def send(files: Files, source: str, target: str, tally: Tally, *, follow: bool) -> None:
    """Copy ``source`` of this host to ``target`` in the guest; see `incoming.fetch`."""
    source, contents = split_contents(source)
    try:
        found = Path(source).stat() if follow or contents else Path(source).lstat()
    except OSError as error:
        raise TransferError(f"{source}: {error.strerror}") from error
    name = Path(source).name
    if name in ("", ".."):
        name = Path(source).resolve().name
    if follow:
        source = os.path.realpath(source)
    there = await _stat(files, target)
    sender = _Sender(files, tally)
    if contents:
        if not stat.S_ISDIR(found.st_mode):
            raise TransferError(f"{source} is not a directory")
        if there is None:
            await files.mkdir(target, mode=stat.S_IMODE(found.st_mode))
        await sender.fill(source, target)
        return
    if there is not None and there.is_dir:
        target = f"{target.rstrip('/')}/{name}"
    elif target.endswith("/"):
        raise TransferError(f"{target} is not a directory of the sandbox")
    await sender.take(source, target, found)


async def _stat(files: Files, path: str) -> GuestFile | None:
    try:
        return await files.stat(path)
    except AgentRefusedError as error:
        if error.code != "not_found":
            raise
        return None


class _Sender:
    def __init__(self, files: Files, tally: Tally) -> None:
        self._files = files
        self._tally = tally

    async def fill(self, source: str, target: str) -> None:
        """Copy all entries of the directory ``source`` into the guest's ``target``."""
        try:
            entries = sorted(os.scandir(source), key=lambda entry: entry.name)
        except OSError as error:
            raise TransferError(f"{source}: {error.strerror}") from error
        for entry in entries:
            path = f"{target.rstrip('/')}/{entry.name}"
            try:
                await self.take(entry.path, path, entry.stat(follow_symlinks=False))
            except (TransferError, AgentRefusedError) as error:
                self._tally.fail(entry.path, error)
            except OSError as error:
                self._tally.fail(entry.path, error.strerror or error)

    async def take(self, source: str, target: str, found: os.stat_result) -> None:
        """Copy one thing. Raises TransferError, AgentRefusedError."""
        mode = stat.S_IMODE(found.st_mode)
        if stat.S_ISDIR(found.st_mode):
            await self._files.mkdir(target, mode=mode, exist_ok=True)
            await self.fill(source, target)
        elif stat.S_ISLNK(found.st_mode):
            await self._symlink(source, target)
        elif stat.S_ISREG(found.st_mode):
            await self._file(source, target, mode)
        else:
            raise TransferError(f"{source} is a pipe, socket or device, left out")

    async def _file(self, source: str, target: str, mode: int) -> None:
        try:
            descriptor = os.open(source, OPEN)
        except OSError as error:
            raise TransferError(f"{source}: {error.strerror}") from error
        with io.FileIO(descriptor) as file:
            await self._files.write(target, self._tally.count(_read(file, source)), mode=mode)
        self._tally.files += 1

    async def _symlink(self, source: str, target: str) -> None:
        leads_to = os.readlink(source)  # noqa: PTH115 - a Path would drop slashes and dots
        try:
            await self._files.symlink(target, leads_to)
        except AgentRefusedError as error:
            if error.code != "exists" or (await self._files.stat(target, follow=False)).is_dir:
                raise
            await self._files.remove(target)
            await self._files.symlink(target, leads_to)
        self._tally.files += 1


async def _read(file: io.FileIO, source: str) -> AsyncIterator[bytes]:
    try:
        while chunk := await asyncio.to_thread(file.read, READ_SIZE):
            yield chunk
    except OSError as error:
        raise TransferError(f"{source}: {error.strerror}") from error
