"""Wheels are fetched whole or not at all: bounded, taken up again, compared with what was said."""

from __future__ import annotations

import asyncio
import hashlib
import os
import socket
import threading
import zlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from quicksand.base.errors import DiskSpaceError, HostError, ImageError, PathError, UnreachableError
from quicksand.disks.packages import sources
from quicksand.disks.packages.sources import Web
from quicksand_wheels import web as webs
from quicksand_wheels.links import ACCEPT, Link
from quicksand_wheels.web import TRIES

from tests.conftest import wait_for
from tests.unit.disks.packages.servers import Server

DATA = os.urandom(3 * 1024 * 1024)
SHA256 = hashlib.sha256(DATA).hexdigest()


@pytest.fixture
async def web() -> AsyncIterator[Web]:
    async with Web(pause=0) as found:
        yield found


def link(url: str, **more: object) -> Link:
    return Link(file="x.whl", url=url, source="the test", **more)  # type: ignore[arg-type]


async def test_a_file_arrives_whole_and_its_digest_is_told(
    web: Web, server: Server, tmp_path: Path
) -> None:
    seen: list[tuple[str, int, int]] = []
    wanted = link(server.put("/x.whl", DATA), sha256=SHA256, size=len(DATA))
    found = await web.fetch(wanted, tmp_path / "x", lambda *step: seen.append(step))
    assert (found, (tmp_path / "x").read_bytes()) == (SHA256, DATA)
    assert seen[-1] == ("downloading", len(DATA), len(DATA))
    assert [done for _, done, _ in seen] == sorted({done for _, done, _ in seen})


async def test_a_broken_connection_is_taken_up_where_it_broke(
    web: Web, server: Server, tmp_path: Path
) -> None:
    url = server.put("/x.whl", DATA, breaks=[1_000_000, 700_000, 0, 0])
    assert await web.fetch(link(url, sha256=SHA256), tmp_path / "x") == SHA256
    assert (tmp_path / "x").read_bytes() == DATA
    asked = [request.headers.get("Range") for request in server.requests]
    assert asked[0] is None and all(asked[1:]) and len(asked) == 5
    assert sum(request.sent for request in server.requests) == len(DATA)


async def test_without_ranges_it_begins_anew(web: Web, server: Server, tmp_path: Path) -> None:
    url = server.put("/x.whl", DATA, breaks=[1_000_000, 2_000_000], takes_ranges=False)
    assert await web.fetch(link(url), tmp_path / "x") == SHA256
    assert (tmp_path / "x").read_bytes() == DATA


async def test_a_file_that_changes_meanwhile_is_not_put_together_of_both(
    web: Web, server: Server, tmp_path: Path
) -> None:
    url = server.put("/x.whl", DATA, breaks=[1_000_000])
    new = DATA[::-1]

    def change(stage: str, done: int, total: int) -> None:
        server.answers["/x.whl"].body = new

    assert await web.fetch(link(url), tmp_path / "x", change) == hashlib.sha256(new).hexdigest()
    assert (tmp_path / "x").read_bytes() == new


async def test_an_answer_with_another_part_than_asked_is_refused(
    web: Web, server: Server, tmp_path: Path
) -> None:
    url = server.put("/x.whl", DATA, breaks=[1_000_000], range_said="bytes 5-9/10")
    with pytest.raises(ImageError, match="continued at another place"):
        await web.fetch(link(url), tmp_path / "x")


async def test_a_server_that_always_breaks_off_is_given_up(
    web: Web, server: Server, tmp_path: Path
) -> None:
    url = server.put("/x.whl", DATA, breaks=[0] * 100)
    with pytest.raises(UnreachableError, match=r"x.whl cannot be reached"):
        await web.fetch(link(url), tmp_path / "x")
    assert len(server.requests) == TRIES


async def test_a_server_that_sends_a_byte_now_and_then_is_given_up(
    web: Web, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("quicksand_wheels.web.SLOW_S", 0.4)
    url = server.put("/x.whl", DATA, drips=True)
    with pytest.raises(UnreachableError, match=r"it sends too slowly, [0-9]+ bytes in 0\.4 s"):
        await web.fetch(link(url), tmp_path / "x")
    assert len(server.requests) == 5, "it is asked again as often as one that breaks off"
    with pytest.raises(UnreachableError, match="it sends too slowly"):
        await web.page(url, "*/*")


async def test_a_server_that_never_answers_is_given_up(
    web: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("quicksand_wheels.web.SLOW_S", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/"
        with pytest.raises(UnreachableError, match=r"it did not answer within 0\.1 s"):
            await web.page(url, "*/*")


async def test_one_that_answers_with_an_error_of_its_own_is_asked_again(
    web: Web, server: Server, tmp_path: Path
) -> None:
    url = server.put("/x.whl", b"busy", status=503)
    with pytest.raises(UnreachableError, match="status 503"):
        await web.fetch(link(url), tmp_path / "x")
    assert len(server.requests) == TRIES
    with pytest.raises(UnreachableError, match="status 404"):
        await web.fetch(link(f"{server.url}/none.whl"), tmp_path / "y")
    assert len(server.requests) == TRIES + 1


async def test_another_digest_than_said_is_refused(
    web: Web, server: Server, tmp_path: Path
) -> None:
    url = server.put("/x.whl", DATA)
    with pytest.raises(ImageError, match=r"x.whl is refused: its SHA-256 is .* the test says 0000"):
        await web.fetch(link(url, sha256="0" * 64), tmp_path / "x")


@pytest.mark.parametrize("size", [len(DATA) - 1, len(DATA) + 1])
async def test_another_size_than_said_is_refused_before_anything_is_written(
    web: Web, server: Server, tmp_path: Path, size: int
) -> None:
    url = server.put("/x.whl", DATA)
    with pytest.raises(ImageError, match=f"has {len(DATA)} bytes, and the test says {size}"):
        await web.fetch(link(url, size=size), tmp_path / "x")
    assert (tmp_path / "x").stat().st_size == 0


async def test_an_answer_without_a_length_is_bounded_by_what_was_said(
    web: Web, server: Server, tmp_path: Path
) -> None:
    url = server.put("/x.whl", DATA, has_length=False)
    assert await web.fetch(link(url, size=len(DATA)), tmp_path / "x") == SHA256
    with pytest.raises(ImageError, match="more than the 1000000 bytes that were said"):
        await web.fetch(link(url, size=1_000_000), tmp_path / "y")
    assert (tmp_path / "y").stat().st_size <= 1_000_000


async def test_an_answer_of_unknown_length_ends_at_the_most_that_a_wheel_has(
    web: Web, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webs, "WHEEL_MAX", 1 << 20)
    with pytest.raises(ImageError, match="has 3 MiB, more than 1 MiB"):
        await web.fetch(link(server.put("/x.whl", DATA)), tmp_path / "x")
    url = server.put("/y.whl", DATA, has_length=False)
    with pytest.raises(ImageError, match="more than the 1048576 bytes"):
        await web.fetch(link(url), tmp_path / "y")


async def test_what_is_no_wheel_has_a_bound_of_its_own(
    web: Web, server: Server, tmp_path: Path
) -> None:
    url = server.put("/x.whl", DATA)
    assert await web.fetch(link(url), tmp_path / "x", most=len(DATA)) == SHA256
    with pytest.raises(ImageError, match="has 3 MiB, more than 1 MiB"):
        await web.fetch(link(url), tmp_path / "y", most=1 << 20)
    server.put("/x.whl", DATA, has_length=False)
    for name, size in (("z", None), ("w", len(DATA))):
        with pytest.raises(ImageError, match="more than"):
            await web.fetch(link(url, size=size), tmp_path / name, most=1 << 20)
        assert (tmp_path / name).stat().st_size <= 1 << 20


async def test_a_disk_that_fills_up_is_noticed_without_a_length(
    web: Web, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(root: Path, need: int = 0) -> None:
        if (root / "x").stat().st_size > 1_000_000:
            raise DiskSpaceError(f"{root} is full")

    monkeypatch.setattr(sources, "check_space", full)
    monkeypatch.setattr(webs, "SPACE_EVERY", 1 << 19)
    with pytest.raises(DiskSpaceError):
        await web.fetch(link(server.put("/x.whl", DATA, has_length=False)), tmp_path / "x")
    assert (tmp_path / "x").stat().st_size < len(DATA)


async def test_a_redirection_is_followed_on_this_host_and_to_nowhere_worse(
    web: Web, server: Server, tmp_path: Path
) -> None:
    server.put("/x.whl", DATA)
    url = server.put("/moved", b"", status=302, headers={"Location": "/x.whl"})
    assert await web.fetch(link(url), tmp_path / "x") == SHA256
    for number, target in enumerate(("http://files.example/x.whl", "ftp://127.0.0.1/x")):
        url = server.put("/worse", b"", status=302, headers={"Location": target})
        with pytest.raises((ImageError, UnreachableError), match=r"example|127\.0\.0\.1"):
            await web.fetch(link(url), tmp_path / f"y{number}")


async def test_redirections_without_end_end(web: Web, server: Server) -> None:
    url = server.put("/loop", b"", status=302, headers={"Location": "/loop"})
    with pytest.raises(UnreachableError):
        await web.page(url, ACCEPT)
    assert len(server.requests) < 50


async def test_a_download_that_leads_nowhere_is_an_error_of_ours(
    web: Web, server: Server, tmp_path: Path
) -> None:
    url = server.put("/loop", b"", status=302, headers={"Location": "/loop"})
    with pytest.raises(UnreachableError, match="loop cannot be reached"):
        await web.fetch(link(url), tmp_path / "x")
    wrongs = ("http://127.0.0.1:port/x", "https://x\x01y/", "https://[::1/")
    for number, wrong in enumerate(wrongs):
        with pytest.raises(UnreachableError, match="cannot be reached"):
            await web.fetch(link(wrong), tmp_path / f"y{number}")


async def test_without_tls_only_this_host_is_asked(web: Web, tmp_path: Path) -> None:
    with pytest.raises(ImageError, match=r"nothing is fetched from http://files\.example/x\.whl"):
        await web.page("http://files.example/x.whl", ACCEPT)


async def test_a_missing_page_is_read_as_none(web: Web, server: Server) -> None:
    assert await web.page(f"{server.url}/none", ACCEPT) is None


async def test_a_page_without_end_is_refused(
    web: Web, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webs, "PAGE_MAX", 1 << 20)
    with pytest.raises(ImageError, match="more than 1 MiB"):
        await web.page(server.put("/page", DATA), ACCEPT)


async def test_a_page_that_is_compressed_is_refused_before_it_is_expanded(
    web: Web, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(zlib, "decompressobj", None)  # nothing is to be decompressed
    for number, coding in enumerate(("gzip, gzip", "GZIP", "deflate", "br")):
        url = server.put(f"/{number}", b"\x1f\x8b", headers={"Content-Encoding": coding})
        with pytest.raises(ImageError, match="which was not asked for"):
            await web.page(url, ACCEPT)
    assert {request.headers["Accept-Encoding"] for request in server.requests} == {"identity"}
    url = server.put("/plain", b"plain", headers={"Content-Encoding": "identity"})
    page = await web.page(url, ACCEPT)
    assert page is not None and page.body == b"plain"


async def test_a_password_in_an_address_is_used_and_never_told(web: Web, server: Server) -> None:
    server.put("/page", "<a>", kind="text/html")
    address = server.url.replace("//", "//user:secret@")
    page = await web.page(f"{address}/page", ACCEPT)
    assert page is not None
    assert server.requests[0].headers["Authorization"].startswith("Basic ")
    server.put("/page", "<a>", status=403)
    with pytest.raises(UnreachableError) as caught:
        await web.page(f"{address}/page", ACCEPT)
    assert "secret" not in str(caught.value)


async def test_a_download_can_be_cancelled_in_the_middle(
    web: Web, server: Server, tmp_path: Path
) -> None:
    gate = threading.Event()
    url = server.put("/x.whl", DATA, gate=gate)
    task = asyncio.create_task(web.fetch(link(url), tmp_path / "x"))
    try:
        await asyncio.to_thread(wait_for, server.waiting.is_set, what="half of it")
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    finally:
        gate.set()


async def test_a_full_disk_is_noticed_before_the_download(
    web: Web, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(root: Path, need: int = 0) -> None:
        assert need == len(DATA)
        raise DiskSpaceError(f"{root} is full")

    monkeypatch.setattr(sources, "check_space", full)
    with pytest.raises(DiskSpaceError):
        await web.fetch(link(server.put("/x.whl", DATA)), tmp_path / "x")
    assert (tmp_path / "x").stat().st_size == 0


async def test_what_is_in_the_way_stays(web: Web, server: Server, tmp_path: Path) -> None:
    (tmp_path / "x").write_text("mine")
    with pytest.raises(PathError):
        await web.fetch(link(server.put("/x.whl", DATA)), tmp_path / "x")
    assert (tmp_path / "x").read_text() == "mine"


def test_certificates_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    with pytest.raises(HostError, match=r"none\.pem"):
        Web(certificates=[str(tmp_path / "none.pem")])
