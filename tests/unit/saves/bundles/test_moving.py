"""Saves that move between machines, file by file: what is there already is not sent, what breaks is
gone on with, and nothing that comes is believed."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from quicksand.base.errors import (
    BundleError,
    DiskSpaceError,
    RemoteUnreachableError,
    SaveError,
    SaveNotFoundError,
    StateError,
)
from quicksand.hosted import save_moving
from quicksand.hosted.save_moving import Mover, MovingSaves, Terms
from quicksand.remote.peer_link import Link, Request
from quicksand.saves import travelling as depots
from quicksand.saves.bundle import receiving
from quicksand.saves.bundle.manifest import Bundle, parse_json
from quicksand.saves.travelling import Arriving, Depot, SaveSource

from tests.unit.remote.far import links
from tests.unit.saves.bundles.making import Home, contents, digests, places_in

LAYER = os.urandom(64 * 1024)


class Line:
    """A connection to the machine of `there`, which can be cut (a `SharedConnection`)."""

    def __init__(self, there: Home) -> None:
        self.bulk = asyncio.Lock()
        self.there = MovingSaves(there.paths)
        self.sent = 0
        """Bytes of files that have gone over it."""
        self.cut_after: int | None = None
        """Bytes of files after which it breaks."""
        self._stack = contextlib.AsyncExitStack()
        self._ends: tuple[Link, Link] | None = None

    async def link(self) -> Link:
        if self._ends is None or self._ends[0].ended.is_set():
            await self._stack.aclose()
            self.there.away()
            self._ends = await self._stack.enter_async_context(links(self._answer))
        return self._ends[0]

    async def _answer(self, request: Request) -> None:
        if self.cut_after is not None and request.method in ("save_put", "save_read"):
            self._count(request)

        async def before_keeping() -> None:
            pass

        await self.there.answer(request, before_keeping)

    def _count(self, request: Request) -> None:
        piece, send = request.channel.piece, request.channel.send

        async def counted_piece() -> Any:
            found = await piece()
            self._look(len(found.data))
            return found

        async def counted_send(stream: int, data: bytes | memoryview) -> None:
            self._look(len(data))
            await send(stream, data)

        request.channel.piece = counted_piece  # type: ignore[method-assign]
        request.channel.send = counted_send  # type: ignore[method-assign]

    def _look(self, count: int) -> None:
        self.sent += count
        if self.cut_after is not None and self.sent > self.cut_after:
            self.cut_after = None
            assert self._ends is not None
            for end in self._ends:
                end.end(RemoteUnreachableError("cut"))
            raise RemoteUnreachableError("cut")

    @contextlib.contextmanager
    def use(self) -> Iterator[None]:
        yield

    def can(self, capability: str) -> bool:
        return capability == "saves"

    def got_on(self) -> None:
        pass

    async def ended(self) -> None:
        pass

    async def close(self) -> None:
        await self._stack.aclose()
        self.there.away()


@pytest.fixture
async def line(there: Home) -> AsyncIterator[Line]:
    found = Line(there)
    yield found
    await found.close()


def mover(line: Line, home: Home, **terms: Any) -> Mover:
    return Mover(line, home.paths, Terms(**terms), None)  # type: ignore[arg-type]


def arrived(home: Home) -> list[str]:
    """What lies in the depot of a machine."""
    place = home.paths.cache / "incoming"
    return sorted(path.name for path in place.glob("*") if path.name != "lock")


async def test_a_save_is_sent_with_its_image(here: Home, there: Home, line: Line) -> None:
    moved = await mover(line, here).send("env")
    assert (moved.name, moved.was_there) == ("env", False)
    assert digests(there.saves.find("env")) == digests(here.saves.find("env"))
    image = there.images.get("debian")
    assert image is not None and there.images.verify(image) == []
    assert arrived(there) == []


async def test_a_save_is_fetched_with_its_image(here: Home, there: Home) -> None:
    line = Line(here)
    try:
        moved = await mover(line, there).fetch("env")
    finally:
        await line.close()
    assert moved.sent > 0
    assert digests(there.saves.find("env")) == digests(here.saves.find("env"))
    assert arrived(there) == []


async def test_of_a_child_only_its_own_layer_is_sent(here: Home, there: Home, line: Line) -> None:
    await mover(line, here).send("env")
    child = here.add_save("child", LAYER, over=here.saves.find("env"))
    moved = await mover(line, here).send("child")
    layers = child.require().layers
    assert layers is not None
    assert moved.sent == layers[-1].size
    there_now = there.saves.find("child")
    assert digests(there_now) == digests(child)
    # What was there already is shared, not copied.
    parent = there.saves.find("env")
    assert (there_now.root / "overlays/0.qcow2").samefile(parent.root / "overlays/0.qcow2")


async def test_a_save_that_is_there_is_not_sent_again(here: Home, line: Line) -> None:
    await mover(line, here).send("env")
    again = await mover(line, here).send("env")
    assert (again.was_there, again.sent) == (True, 0)


async def test_a_name_that_is_taken_is_refused_before_anything_is_sent(
    here: Home, there: Home, line: Line
) -> None:
    there.add_image()
    there.add_save("env", b"another")
    before = contents(there.paths.data)
    with pytest.raises(SaveError, match="already"):
        await mover(line, here).send("env")
    assert contents(there.paths.data) == before
    assert (await mover(line, here, name="other").send("env")).name == "other"
    await mover(line, here, replace=True).send("env")
    assert digests(there.saves.find("env")) == digests(here.saves.find("env"))


@pytest.mark.parametrize("fetches", [False, True])
async def test_a_line_that_is_cut_is_gone_on_with(here: Home, there: Home, fetches: bool) -> None:
    line = Line(here if fetches else there)
    line.cut_after = 100_000
    try:
        if fetches:
            moved = await mover(line, there).fetch("env")
        else:
            moved = await mover(line, here).send("env")
    finally:
        await line.close()
    assert line.cut_after is None
    assert digests(there.saves.find("env")) == digests(here.saves.find("env"))
    assert moved.sent > 0
    assert arrived(there) == []


async def test_what_arrived_before_a_cut_is_kept_for_the_next_attempt(
    here: Home, there: Home, line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(save_moving, "TRIES", 0)
    whole = (await mover(Line(Home.make(here.paths.data.parent / "third")), here).send("env")).sent
    line.cut_after = 150_000
    with pytest.raises(RemoteUnreachableError):
        await mover(line, here).send("env")
    assert there.saves.get("env") is None
    assert arrived(there)
    again = await mover(line, here).send("env")
    assert 0 < again.sent < whole
    assert digests(there.saves.find("env")) == digests(here.saves.find("env"))
    assert arrived(there) == []


async def test_a_full_disk_leaves_nothing(
    here: Home, there: Home, line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: Arriving, data: bytes) -> None:
        raise DiskSpaceError("the disk is full")

    before = contents(there.paths.data)
    with monkeypatch.context() as patch:
        patch.setattr(Arriving, "write", fail)
        with pytest.raises(DiskSpaceError, match="full"):
            await mover(line, here).send("env")
    assert contents(there.paths.data) == before
    assert arrived(there) == []
    monkeypatch.setattr(receiving, "DISK_RESERVE", 2**62)
    with pytest.raises(DiskSpaceError, match="free"):
        await mover(line, here).send("env")


async def test_a_cancelled_move_leaves_nothing(
    here: Home, there: Home, line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    sending = asyncio.Event()
    plain = Mover._advance

    def advance(self: Mover, stage: str, count: int) -> None:
        sending.set()
        plain(self, stage, count)

    monkeypatch.setattr(Mover, "_advance", advance)
    before = contents(there.paths.data)
    moving = asyncio.create_task(mover(line, here).send("env"))
    await sending.wait()
    moving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await moving
    assert contents(there.paths.data) == before
    assert arrived(there) == []


async def test_a_save_that_is_not_there_cannot_be_moved(
    here: Home, there: Home, line: Line
) -> None:
    with pytest.raises(SaveNotFoundError):
        await mover(line, here).send("nothing")
    with pytest.raises(SaveNotFoundError):
        await mover(line, here).fetch("nothing")


# A hostile other side


@pytest.fixture
def depot(there: Home) -> Iterator[Depot]:
    found = Depot(there.paths)
    found.open()
    yield found
    found.close()


@pytest.fixture
def source(here: Home) -> Iterator[SaveSource]:
    found = SaveSource("env", here.paths)
    found.open(lambda stage, done, total: None)
    yield found
    found.close()


def test_a_file_that_has_another_digest_is_refused_and_removed(
    depot: Depot, source: SaveSource, there: Home
) -> None:
    first = depot.expect(source.manifest)[0]
    arriving = depot.take(first.sha256, 0)
    arriving.begin()
    arriving.write(os.urandom(first.size))
    with pytest.raises(BundleError, match="another digest"):
        arriving.finish()
    arriving.close()
    assert arrived(there) == []
    with pytest.raises(BundleError, match="not arrived"):
        depot.publish()


def test_no_more_is_taken_than_was_announced(depot: Depot, source: SaveSource) -> None:
    first = depot.expect(source.manifest)[0]
    arriving = depot.take(first.sha256, 0)
    arriving.begin()
    arriving.write(bytes(first.size))
    with pytest.raises(BundleError, match="more than"):
        arriving.write(b"x")
    arriving.close()


def test_only_what_is_expected_is_taken(depot: Depot, source: SaveSource) -> None:
    with pytest.raises(BundleError, match="not expected"):
        depot.take("0" * 64, 0)
    depot.expect(source.manifest)
    for name in ("0" * 64, "../../etc/passwd", ""):
        with pytest.raises(BundleError, match="not expected"):
            depot.take(name, 0)


def test_a_file_that_became_another_one_is_not_published(
    depot: Depot, source: SaveSource, there: Home
) -> None:
    for one in depot.expect(source.manifest):
        arriving = depot.take(one.sha256, 0)
        arriving.begin()
        arriving.write(source.read(one.sha256, 0, one.size))
        arriving.finish()
        arriving.close()
        depot.keep(one.sha256)
    whole = there.paths.cache / "incoming" / arrived(there)[0]
    whole.write_bytes(bytes(whole.stat().st_size))
    with pytest.raises(BundleError, match=r"damaged|not a usable qcow2"):  # whichever it is
        depot.publish()
    assert there.saves.list() == []


def test_an_image_is_no_save(depot: Depot, here: Home, source: SaveSource) -> None:
    bundle = Bundle.from_json(parse_json(source.manifest))
    image = Bundle(
        name=bundle.base.name,
        created=0.0,
        content=None,
        base=bundle.base,
        files=bundle.image_files,
    )
    with pytest.raises(BundleError, match="an image"):
        depot.expect(image.encode())


def test_one_save_is_taken_at_a_time(
    depot: Depot, there: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(depots, "LOCK_WAIT_S", 0.0)
    with pytest.raises(StateError, match="another save"):
        Depot(there.paths).open()


@given(
    st.binary(max_size=300)
    | st.dictionaries(st.text(), st.integers()).map(lambda value: json.dumps(value).encode())
)
def test_a_manifest_of_any_kind_is_read_or_refused(data: bytes) -> None:
    with pytest.raises(BundleError):
        Depot(places_in(Path("/nowhere"))).expect(data)
