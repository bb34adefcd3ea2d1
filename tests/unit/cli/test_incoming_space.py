"""Copies out of a guest and the space that they take: holes stay holes, a full disk is no mess.

The guest is a real agent on this host: `quicksand-agent serve`.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import secrets
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from quicksand.base.arch import Architecture
from quicksand.base.capacity import DISK_RESERVE
from quicksand.base.errors import AgentUnreachableError, DiskSpaceError
from quicksand.disks.images.boot_files import find_agent
from quicksand.guest.agent.channel import ALL_OUTPUT, Channel
from quicksand.guest.agent.session import Session, connect
from quicksand.guest.agent.wire import Stream
from quicksand.guest.guest_files import GuestFiles

from quicksand_tui.cli.guests import incoming
from quicksand_tui.cli.guests import transfer as survey
from quicksand_tui.cli.guests.transfer import NotEnoughSpaceError, Tally

MIB = 1024 * 1024
START_S = 60.0


@contextlib.asynccontextmanager
async def guest(directory: Path) -> AsyncIterator[Session]:
    """A session with an agent that runs on this host."""
    socket = directory / "agent.sock"
    token = secrets.token_hex(8)
    argv = [str(find_agent(Architecture.host())), "serve", "--unix", str(socket), "--token", token]
    agent = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        async with asyncio.timeout(START_S):
            while True:
                try:
                    session = await connect(socket, token, timeout=START_S)
                    break
                except AgentUnreachableError:
                    await asyncio.sleep(0.01)
        yield session
        session.close()
    finally:
        agent.kill()
        agent.wait()


class OldSession(Session):
    """What an agent is asked that knows nothing of holes: it overlooks the word."""

    def open(
        self, method: str, params: dict[str, Any], *, streams: tuple[Stream, ...] = ALL_OUTPUT
    ) -> Channel:
        known = {key: value for key, value in params.items() if key != "sparse"}
        return super().open(method, known, streams=streams)


@pytest.fixture
async def files(tmp_path: Path) -> AsyncIterator[GuestFiles]:
    async with guest(tmp_path) as session:

        async def get() -> Session:
            return session

        yield GuestFiles(get)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    place = tmp_path / "source"
    place.mkdir()
    return place


@pytest.fixture
def target(tmp_path: Path) -> Path:
    place = tmp_path / "target"
    place.mkdir()
    return place


async def fetch(
    files: GuestFiles, source: Path | str, target: Path, *, to_the_full: bool = False
) -> Tally:
    tally = Tally()
    await incoming.fetch(
        files, str(source), str(target), tally, follow=False, to_the_full=to_the_full
    )
    return tally


def make_sparse(path: Path, size: int, **data: bytes) -> None:
    with path.open("wb") as file:
        for place, content in data.items():
            file.seek(int(place.removeprefix("at")))
            file.write(content)
        file.truncate(size)


def allocated(path: Path) -> int:
    return path.stat().st_blocks * 512


async def test_holes_are_holes_here_too(files: GuestFiles, source: Path, target: Path) -> None:
    make_sparse(source / "disk", 3 * 1024 * MIB, at0=b"begin", at1073741824=b"middle" * 50_000)
    make_sparse(source / "hole", 100 * MIB)
    make_sparse(source / "full", 0, at0=os.urandom(3 * MIB))
    (source / "empty").touch()
    tally = await fetch(files, f"{source}/.", target)
    assert (tally.files, tally.failed) == (4, 0)
    for name in ("disk", "hole", "full", "empty"):
        assert (target / name).stat().st_size == (source / name).stat().st_size
        assert allocated(target / name) <= allocated(source / name) + 64 * 1024
    # `cmp` reads 3 GiB of zeros; looking at the data is enough.
    with (target / "disk").open("rb") as file:
        assert file.read(5) == b"begin"
        file.seek(1 << 30)
        assert file.read(300_000) == b"middle" * 50_000
        assert file.read(MIB) == bytes(MIB)
    assert (target / "full").read_bytes() == (source / "full").read_bytes()
    assert tally.bytes < 8 * MIB


async def test_an_agent_that_knows_no_holes_is_copied_from_too(
    tmp_path: Path, source: Path, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_sparse(source / "disk", 64 * MIB, at0=b"begin", at33554432=os.urandom(300_000))
    async with guest(tmp_path) as session:
        session.__class__ = OldSession

        async def get() -> Session:
            return session

        await fetch(GuestFiles(get), source / "disk", target)
    assert (target / "disk").read_bytes() == (source / "disk").read_bytes()
    assert allocated(target / "disk") < 2 * MIB


async def test_files_that_the_kernel_makes_up_come_whole(files: GuestFiles, target: Path) -> None:
    await fetch(files, Path("/proc/self/status"), target)
    assert b"VmRSS" in (target / "status").read_bytes()


class Disk:
    """A disk with little space, as far as statvfs(2) is asked."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, spare: int) -> None:
        self.spare = spare
        monkeypatch.setattr(survey, "spare", lambda _: self.spare)
        monkeypatch.setattr(incoming, "spare", lambda _: self.spare)


async def test_what_does_not_fit_is_told_before_anything_is_written(
    files: GuestFiles, source: Path, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (source / "tree" / "deep").mkdir(parents=True)
    for number in range(6):
        (source / "tree" / "deep" / str(number)).write_bytes(os.urandom(MIB))
    Disk(monkeypatch, 5 * MIB)
    with pytest.raises(NotEnoughSpaceError, match=r"6\.03 MiB are to be copied") as caught:
        await fetch(files, source / "tree", target)
    assert "--yes" in caught.value.hint
    assert list(target.iterdir()) == []
    with pytest.raises(NotEnoughSpaceError):
        await fetch(files, source / "tree" / "deep", target / "new" / "elsewhere")
    tally = await fetch(files, source / "tree", target, to_the_full=True)
    assert tally.files == 6


async def test_a_hole_takes_no_space_and_small_files_always_go(
    files: GuestFiles, source: Path, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_sparse(source / "disk", 1 << 40, at0=b"begin")
    Disk(monkeypatch, 2 * MIB)
    assert (await fetch(files, source / "disk", target)).files == 1
    Disk(monkeypatch, -DISK_RESERVE)
    (source / "small").write_bytes(b"small")
    assert (await fetch(files, source / "small", target)).files == 1


async def test_a_file_that_grew_meanwhile_stops_at_the_reserve(
    files: GuestFiles, source: Path, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk(monkeypatch, 50 * MIB)
    for name in "abc":
        (source / name).write_bytes(os.urandom(3 * MIB))
    (target / "c").write_bytes(b"what was there")
    (target / "other").write_bytes(b"what was there")
    real = os.pwrite

    def pwrite(descriptor: int, data: bytes, offset: int) -> int:
        count = real(descriptor, data, offset)
        disk.spare -= count * 7
        return count

    monkeypatch.setattr(os, "pwrite", pwrite)
    with pytest.raises(DiskSpaceError, match=r"no space left for .*/c") as caught:
        await fetch(files, f"{source}/.", target)
    assert "2 files were copied" in caught.value.hint
    assert sorted(path.name for path in target.iterdir()) == ["a", "b", "c", "other"]
    assert (target / "c").read_bytes() == (target / "other").read_bytes() == b"what was there"
    assert (target / "b").read_bytes() == (source / "b").read_bytes()


async def test_a_disk_that_is_full_leaves_what_was_there(
    files: GuestFiles, source: Path, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (source / "big").write_bytes(os.urandom(3 * MIB))
    (target / "big").write_bytes(b"what was there")
    real = os.pwrite

    def pwrite(descriptor: int, data: bytes, offset: int) -> int:
        if offset > MIB:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(descriptor, data, offset)

    monkeypatch.setattr(os, "pwrite", pwrite)
    with pytest.raises(DiskSpaceError, match="no space left for"):
        await fetch(files, source / "big", target, to_the_full=True)
    assert [path.name for path in target.iterdir()] == ["big"]
    assert (target / "big").read_bytes() == b"what was there"
