"""Files that another machine sends: who may read them, and what they may replace."""

from __future__ import annotations

from pathlib import Path

import pytest
from quicksand.base.errors import PathError, RemoteProtocolError
from quicksand.guest.agent.wire import Stream
from quicksand.remote.peer_link import Answer, Request
from quicksand.remote.sending import fetch_file

from tests.unit.remote.far import links


def sends(data: bytes, *, size: int) -> Answer:
    """A far end that says ``size`` and sends ``data``."""

    async def answer(request: Request) -> None:
        request.answer(bytes=size)
        await request.channel.send(Stream.STDOUT, data)
        request.channel.finish(Stream.STDOUT)
        request.channel.tell("end")

    return answer


async def test_a_file_that_was_fetched_is_only_its_owners(tmp_path: Path) -> None:
    target = tmp_path / "save.quicksand"
    async with links(sends(b"secret", size=6)) as (link, _):
        await fetch_file(link, "1", "x", target)
    assert target.read_bytes() == b"secret"
    assert target.stat().st_mode & 0o777 == 0o600
    assert list(tmp_path.iterdir()) == [target]


async def test_a_picture_that_was_fetched_may_be_read_by_others(tmp_path: Path) -> None:
    async with links(sends(b"png", size=3)) as (link, _):
        await fetch_file(link, "1", "x", tmp_path / "x.png", 0o644)
    assert (tmp_path / "x.png").stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize("kind", ["link", "directory"])
async def test_what_is_no_regular_file_is_not_replaced(tmp_path: Path, kind: str) -> None:
    target = tmp_path / "target"
    other = tmp_path / "other"
    other.write_text("mine")
    if kind == "link":
        target.symlink_to(other)
    else:
        target.mkdir()
    async with links(sends(b"x", size=1)) as (link, _):
        await link.request("ping")
        with pytest.raises(PathError, match="not a regular file"):
            await fetch_file(link, "1", "x", target)
    assert target.is_symlink() or target.is_dir()
    assert other.read_text() == "mine"
    assert sorted(tmp_path.iterdir()) == [other, target]


async def test_no_more_is_written_than_was_announced(tmp_path: Path) -> None:
    async with links(sends(bytes(200_000), size=10)) as (link, _):
        with pytest.raises(RemoteProtocolError, match="more of"):
            await fetch_file(link, "1", "x", tmp_path / "x")
    assert list(tmp_path.iterdir()) == []
