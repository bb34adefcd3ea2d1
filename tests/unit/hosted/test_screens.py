"""Screens of sandboxes of another machine: their bytes are passed on, and nothing more is left of
that than whoever looks at them has."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from PIL import Image
from quicksand.base.errors import (
    DisplayError,
    MachineError,
    NoDisplayError,
    RemoteProtocolError,
    RemoteRefusedError,
    RemoteUnreachableError,
    SandboxNotFoundError,
    StateError,
)
from quicksand.base.listing import own_sockets
from quicksand.base.paths import Paths
from quicksand.display.place import (
    RelayedScreen,
    RfbClient,
    ask_size,
    open_screen,
    parse_place,
    place_text,
)
from quicksand.display.screendump import true_width
from quicksand.guest.agent.wire import Stream
from quicksand.hosted import relayed_screen
from quicksand.hosted.protocol import SCREENS
from quicksand.hosted.relayed_screen import ScreenRelay, Screens
from quicksand.records.host_sockets import SCREEN_SOCKETS
from quicksand.records.layout import MachineDir
from quicksand.remote.peer_link import Answer, Link, Request
from quicksand_vnc import Framebuffer

from tests.unit.hosted.running import Running, running
from tests.unit.pixels.fake_desktop import FakeDesktop
from tests.unit.remote.far import links, until

RED, BLUE = b"\xff\0\0\xff", b"\0\0\xff\xff"


class Shared:
    """A connection to the other machine (`Sharing`)."""

    def __init__(self, link: Link, *capabilities: str) -> None:
        self._link = link
        self._capabilities = capabilities
        self.destination = SimpleNamespace(short="box")

    async def link(self) -> Link:
        return self._link

    def can(self, capability: str) -> bool:
        return capability in self._capabilities


@pytest.fixture
def offer(places: Paths) -> Screens:
    return Screens(places)


@contextlib.asynccontextmanager
async def far(answer: Answer, *capabilities: str) -> AsyncIterator[Any]:
    async with links(answer) as (asking, _):
        await asyncio.sleep(0)  # both begin
        yield Shared(asking, *(capabilities or (SCREENS,)))


@contextlib.asynccontextmanager
async def shared_with(offer: Screens) -> AsyncIterator[Any]:
    async def before_keeping() -> None: ...

    async with far(lambda request: offer.answer(request, before_keeping)) as shared:
        yield shared


@contextlib.asynccontextmanager
async def viewer(relay: ScreenRelay) -> AsyncIterator[RfbClient]:
    assert relay.place is not None
    async with open_screen(relay.place) as client:
        yield client


def plain(colour: str, size: tuple[int, int] = (320, 200)) -> Image.Image:
    return Image.new("RGB", size, colour)


@pytest.fixture
def sandbox(places: Paths) -> Iterator[Running]:
    with running(places) as found:
        yield found


@pytest.fixture
def guest(sandbox: Running) -> Iterator[FakeDesktop]:
    with FakeDesktop(sandbox.start(), plain("red")) as found:
        yield found


def sockets(places: Paths) -> list[Path]:
    return own_sockets(places.runtime, SCREEN_SOCKETS)


async def test_pictures_come_and_keys_go(
    offer: Screens, sandbox: Running, guest: FakeDesktop, places: Paths
) -> None:
    async with shared_with(offer) as shared:
        async with ScreenRelay.open(shared, sandbox.id) as relay, viewer(relay) as client:
            (socket,) = sockets(places)
            assert socket.stat().st_mode & 0o777 == 0o600
            await client.next_update()
            assert bytes(client.frame.pixels) == RED * (320 * 200)
            guest.show(plain("blue"))
            await client.next_update()
            assert bytes(client.frame.pixels[:4]) == BLUE
            await client.key(97, True)
            await client.pointer(12, 34, 1)
            await until(lambda: len(guest.events) == 2, "both to arrive")
            assert guest.events == [("key", 97, 1, 0), ("pointer", 12, 34, 1)]
        await until(lambda: guest.viewers == 0, "the far end to notice")
        assert sockets(places) == [] and offer._sent == 0


async def test_what_is_typed_just_before_the_end_arrives(
    offer: Screens, sandbox: Running, guest: FakeDesktop
) -> None:
    async with shared_with(offer) as shared:
        async with ScreenRelay.open(shared, sandbox.id) as relay, viewer(relay) as client:
            for _ in range(1000):
                await client.key(97, True)
        await until(lambda: len(guest.events) == 1000, "all keys to arrive")


async def test_nothing_is_sent_while_nobody_waits_for_a_picture(
    offer: Screens, sandbox: Running, guest: FakeDesktop
) -> None:
    async with (
        shared_with(offer) as shared,
        ScreenRelay.open(shared, sandbox.id) as relay,
        viewer(relay) as client,
    ):
        await client.next_update()
        link = await shared.link()
        heard = link._heard
        guest.show(plain("blue"))
        await client.key(97, True)
        await until(lambda: guest.events, "what is sent to arrive")
        assert link._heard == heard


async def test_the_end_of_a_machine_ends_it_at_once_and_the_next_one_is_shown(
    offer: Screens, sandbox: Running, guest: FakeDesktop
) -> None:
    async with shared_with(offer) as shared, ScreenRelay.open(shared, sandbox.id) as relay:
        async with viewer(relay) as client:
            await client.next_update()
            guest.end()
            with pytest.raises(DisplayError, match="has ended"):
                await client.next_update()
        with pytest.raises(DisplayError):  # it is being reverted
            async with viewer(relay):
                pass
        assert relay.place is not None
        with FakeDesktop(sandbox.start(), plain("blue")):
            async with viewer(relay) as client:
                await client.next_update()
                assert bytes(client.frame.pixels[:4]) == BLUE
        sandbox.stop()
        with pytest.raises(DisplayError):
            async with viewer(relay):
                pass
        assert relay.place is None


@pytest.mark.parametrize(
    ("display", "starts", "name", "error"),
    [
        (False, True, "", NoDisplayError),
        (True, False, "", StateError),
        (True, True, "nobody", SandboxNotFoundError),
        (True, True, "", MachineError),  # its QEMU is just going
    ],
)
async def test_what_cannot_be_shown_is_refused_as_by_a_sandbox_here(
    offer: Screens, places: Paths, display: bool, starts: bool, name: str, error: type[Exception]
) -> None:
    with running(places, display=display) as sandbox:
        if starts:
            sandbox.start()
        async with shared_with(offer) as shared:
            with pytest.raises(error):
                async with ScreenRelay.open(shared, name or sandbox.id):
                    pass
    assert sockets(places) == []


async def test_an_older_machine_is_told_to_be_too_old(offer: Screens) -> None:
    async def answer(request: Request) -> None:
        request.answer()

    async with far(answer, "agent", "sandboxes") as shared:
        with pytest.raises(RemoteRefusedError, match="too old to send screens") as refused:
            async with ScreenRelay.open(shared, "web"):
                pass
    assert "same version" in str(refused.value.advice)


async def test_a_request_that_names_nothing_is_refused(offer: Screens) -> None:
    async with shared_with(offer) as shared:
        link = await shared.link()
        for method, params in (("screen", {}), ("screen_size", {"sandbox": 5})):
            with pytest.raises(RemoteRefusedError, match="no text"):
                await link.request(method, **params)


async def test_screens_of_one_client_are_limited(
    offer: Screens, sandbox: Running, guest: FakeDesktop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relayed_screen, "SCREENS_MAX", 1)
    monkeypatch.setattr(relayed_screen, "CONNECTIONS_MAX", 2)
    async with (
        shared_with(offer) as shared,
        ScreenRelay.open(shared, sandbox.id) as relay,
    ):
        await until(lambda: offer._sent == 0, "the look before to end")
        async with viewer(relay) as client:
            with pytest.raises(DisplayError):
                async with viewer(relay):
                    pass
            await client.next_update()


# The size


async def test_the_true_width_is_asked_for(
    offer: Screens, sandbox: Running, guest: FakeDesktop, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def take_size(machine: MachineDir) -> tuple[int, int]:
        assert machine == sandbox.machine
        return 1400, 900

    monkeypatch.setattr(relayed_screen, "take_size", take_size)
    async with shared_with(offer) as shared, ScreenRelay.open(shared, sandbox.id) as relay:
        assert relay.place is not None
        assert await ask_size(relay.place) == (1400, 900)
        place = parse_place(place_text(relay.place))
        assert place == relay.place
        assert await true_width(Framebuffer.blank(1408, 900), place) == 1400


@pytest.mark.parametrize(
    "size",
    [{}, {"width": -1, "height": 5}, {"width": "5", "height": 5}, {"width": 2**40, "height": 1}],
)
async def test_an_impossible_size_is_not_believed(size: dict[str, Any], places: Paths) -> None:
    async def answer(request: Request) -> None:
        request.answer(**(size if request.method == "screen_size" else {}))

    async with far(answer) as shared, ScreenRelay.open(shared, "web") as relay:
        assert relay.place is not None
        with pytest.raises(DisplayError, match="does not tell"):
            await ask_size(relay.place)
        with pytest.raises(RemoteProtocolError, match="size"):
            await relay._ask_size()
        assert await true_width(Framebuffer.blank(1408, 900), relay.place) == 1408


def test_a_place_is_an_argument_of_a_process(tmp_path: Path) -> None:
    for place in (MachineDir(tmp_path / "relayed:"), RelayedScreen(tmp_path / "x.sock")):
        assert parse_place(place_text(place)) == place


# Who does not keep to the rules


async def test_a_viewer_that_reads_nothing_holds_back_only_itself(
    offer: Screens, sandbox: Running
) -> None:
    with FakeDesktop(sandbox.start(), plain("red", (1600, 1200))) as guest:
        async with (
            shared_with(offer) as shared,
            ScreenRelay.open(shared, sandbox.id) as relay,
            viewer(relay) as slow,
            viewer(relay) as quick,
        ):
            slow._reader._transport.pause_reading()  # type: ignore[attr-defined]
            await slow._request()
            async with asyncio.timeout(60):
                await quick.next_update()
                assert bytes(quick.frame.pixels[:4]) == RED
        await until(lambda: guest.viewers == 0, "both to be gone")


async def for_ever(request: Request) -> None:
    """Does nothing until the connection ends."""
    while True:
        await request.channel.event()


async def endless(request: Request) -> None:
    request.answer()
    while True:
        await request.channel.send(Stream.STDOUT, b"\xff" * 65536)


async def beyond_its_window(request: Request) -> None:
    request.answer()
    for _ in range(8):
        request.channel._credit[Stream.STDOUT] = 1 << 30
        await request.channel.send(Stream.STDOUT, b"RFB 003.008\n" + b"\1" * 65000)
    await for_ever(request)


async def of_a_stream_that_is_none(request: Request) -> None:
    request.answer()
    await request.channel.send(Stream.INPUT, b"RFB 003.008\n")
    await for_ever(request)


async def nothing(request: Request) -> None:
    request.answer()
    request.channel.finish(Stream.STDOUT)


@pytest.mark.parametrize("answer", [endless, beyond_its_window, of_a_stream_that_is_none, nothing])
async def test_a_machine_that_sends_nonsense_is_no_display(answer: Answer, places: Paths) -> None:
    asked = itertools.count()

    async def first_well(request: Request) -> None:
        if next(asked):
            await answer(request)
        else:
            request.answer()

    async with far(first_well) as shared, ScreenRelay.open(shared, "web") as relay:
        async with asyncio.timeout(60):
            with pytest.raises(DisplayError):
                async with viewer(relay):
                    pass
    assert sockets(places) == []


async def test_a_machine_that_does_not_answer_is_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(relayed_screen, "ANSWER_S", 0.01)

    async with far(for_ever) as shared:
        with pytest.raises(RemoteUnreachableError, match="did not answer"):
            async with ScreenRelay.open(shared, "web"):
                pass


async def test_a_machine_that_takes_no_keys_holds_back_who_types(
    offer: Screens, places: Paths
) -> None:
    async def deaf(request: Request) -> None:
        """Takes nothing after the handshake, and gives no credit."""
        request.answer()
        say = request.channel.send
        await say(Stream.STDOUT, b"RFB 003.008\n\1\1" + bytes(4))
        await say(Stream.STDOUT, b"\0\x10\0\x10" + bytes(16) + bytes(4))
        await for_ever(request)

    async with far(deaf) as shared:
        link = await shared.link()
        async with ScreenRelay.open(shared, "web") as relay, viewer(relay) as client:

            async def type_for_ever() -> None:
                while True:
                    await client.key(97, True)

            typing = asyncio.create_task(type_for_ever())
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(1):
                    await asyncio.shield(typing)
            backlog = link._writer.transport.get_write_buffer_size()
            assert not link.ended.is_set() and backlog < 1024 * 1024
            typing.cancel()
            await asyncio.wait([typing])
    assert sockets(places) == []


async def test_who_connects_and_says_nothing_or_nonsense_is_let_go(
    offer: Screens, sandbox: Running, guest: FakeDesktop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relayed_screen, "FIRST_S", 0.05)
    async with shared_with(offer) as shared, ScreenRelay.open(shared, sandbox.id) as relay:
        assert relay.place is not None
        for first in (b"", b"GET / HTTP/1.1\r\n"):
            reader, writer = await asyncio.open_unix_connection(relay.place.vnc_socket)
            writer.write(first)
            with contextlib.suppress(ConnectionError):
                assert await reader.read() == b""
            writer.close()
        await until(lambda: guest.viewers == 0, "the look before to end")


async def test_the_end_of_the_connection_ends_all_of_it(
    offer: Screens, sandbox: Running, guest: FakeDesktop
) -> None:
    async with shared_with(offer) as shared, ScreenRelay.open(shared, sandbox.id) as relay:
        async with viewer(relay) as client:
            await client.next_update()
            (await shared.link()).end(RemoteProtocolError("it broke"))
            with pytest.raises(DisplayError):
                await client.next_update()
        await until(lambda: guest.viewers == 0 and offer._sent == 0, "the far end to notice")


async def test_a_cancellation_at_any_moment_leaves_nothing(
    offer: Screens, sandbox: Running, guest: FakeDesktop, places: Paths
) -> None:
    async def use(shared: Any) -> None:
        async with ScreenRelay.open(shared, sandbox.id) as relay, viewer(relay) as client:
            await client.next_update()

    def ours() -> list[str]:
        names = (task.get_name() for task in asyncio.all_tasks())
        return [name for name in names if name.startswith(("quicksand-screen", "quicksand-pass"))]

    async with shared_with(offer) as shared:
        turns, ended = 0, False
        while not ended:
            task = asyncio.create_task(use(shared))
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
            assert sockets(places) == []
            await until(lambda: guest.viewers == 0 and offer._sent == 0, "the far end to notice")
            await until(lambda: not ours(), "all tasks to end")
            ended = not task.cancelled()
            turns = turns + 1 if turns < 50 else turns * 5 // 4
    assert turns > 10
