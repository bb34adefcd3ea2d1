"""The client of VNC servers: what it shows is what was sent, whatever else is sent."""

from __future__ import annotations

import asyncio
import struct
from pathlib import Path

import pytest
from quicksand_vnc import AskedError, Rect, VncError
from quicksand_vnc.client import RECTS_MAX, Buttons, VncClient
from quicksand_vnc.picture import PIXELS_MAX

from tests.unit.vnc.fake_vnc import FakeVnc, Script, cursor, filled, raw, resized, serve, update

RED, GREEN, BLUE = b"\xff\0\0\0", b"\0\xff\0\0", b"\0\0\xff\0"


@pytest.fixture
def socket(tmp_path: Path) -> Path:
    return tmp_path / "vnc.sock"


def after_greeting(width: int, height: int, *messages: bytes) -> Script:
    """Answers the first request with these messages."""

    async def script(server: FakeVnc) -> None:
        await server.greet(width, height)
        await server.expect_request(width, height, incremental=False)
        for message in messages:
            server.send(message)

    return script


async def test_the_first_update_is_the_whole_picture(socket: Path) -> None:
    picture = bytes(range(4 * 6))
    async with (
        serve(socket, after_greeting(3, 2, update(raw(0, 0, 3, 2, picture)))),
        VncClient.open(socket) as client,
    ):
        assert await client.next_update() == [Rect(0, 0, 3, 2)]
        assert (client.frame.width, client.frame.height) == (3, 2)
        assert client.frame.pixels == picture


async def test_later_ones_are_what_changed(socket: Path) -> None:
    async def script(server: FakeVnc) -> None:
        await server.greet(4, 4)
        await server.expect_request(4, 4, incremental=False)
        server.send(update(filled(0, 0, 4, 4, RED)))
        await server.expect_request(4, 4, incremental=True)
        server.send(update(filled(1, 1, 2, 2, GREEN), filled(3, 0, 1, 4, BLUE)))

    async with serve(socket, script), VncClient.open(socket) as client:
        await client.next_update()
        assert await client.next_update() == [Rect(1, 1, 2, 2), Rect(3, 0, 1, 4)]
        rows = [RED * 3 + BLUE, RED + GREEN * 2 + BLUE, RED + GREEN * 2 + BLUE, RED * 3 + BLUE]
        assert client.frame.pixels == b"".join(rows)


async def test_nothing_is_asked_for_while_nobody_waits(socket: Path) -> None:
    asked = asyncio.Event()

    async def script(server: FakeVnc) -> None:
        await server.greet(1, 1)
        await server.expect_request(1, 1, incremental=False)
        server.send(update(filled(0, 0, 1, 1, RED)))
        await server.expect(">BBHH", 5, 0, 0, 0)
        await server.expect_request(1, 1, incremental=True)
        asked.set()

    async with serve(socket, script), VncClient.open(socket) as client:
        await client.next_update()
        await client.pointer(0, 0)
        waiting = asyncio.ensure_future(client.next_update())
        await asked.wait()
        waiting.cancel()
        await asyncio.wait((waiting,))


async def test_a_cancelled_wait_loses_nothing(socket: Path) -> None:
    go = asyncio.Event()

    async def script(server: FakeVnc) -> None:
        await server.greet(2, 1)
        await server.expect_request(2, 1, incremental=False)
        server.send(update(filled(0, 0, 2, 1, RED))[:9])
        await go.wait()
        server.send(update(filled(0, 0, 2, 1, RED))[9:])

    async with serve(socket, script), VncClient.open(socket) as client:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(client.next_update(), 0.05)
        go.set()
        assert await client.next_update() == [Rect(0, 0, 2, 1)]


async def test_another_size_is_another_frame_and_all_of_it_is_asked_for(socket: Path) -> None:
    async def script(server: FakeVnc) -> None:
        await server.greet(2, 2)
        await server.expect_request(2, 2, incremental=False)
        server.send(update(filled(0, 0, 2, 2, RED)))
        await server.expect_request(2, 2, incremental=True)
        server.send(update(resized(3, 1)))
        await server.expect_request(3, 1, incremental=False)
        server.send(update(filled(0, 0, 3, 1, GREEN)))

    async with serve(socket, script), VncClient.open(socket) as client:
        await client.next_update()
        before = client.frame
        assert await client.next_update() == [Rect(0, 0, 3, 1)]
        assert client.frame is not before and client.frame.pixels == GREEN * 3
        assert before.pixels == RED * 4


async def test_a_mode_change_with_every_frame_keeps_one_picture(socket: Path) -> None:
    sizes = [(n % 7 + 1, n % 5 + 1) for n in range(300)]

    async def script(server: FakeVnc) -> None:
        await server.greet(9, 9)
        await server.reader.readexactly(10)
        for width, height in sizes:
            pixels = filled(0, 0, width, height, RED)
            server.send(update(resized(width, height)) + update(pixels))
        server.send(update(resized(8, 8)) + update(filled(0, 0, 8, 8, BLUE)))

    async with serve(socket, script), VncClient.open(socket) as client:
        while bytes(client.frame.pixels) != BLUE * 64:
            await client.next_update()


async def test_the_pointers_shape(socket: Path) -> None:
    shape = bytes([3, 2, 1, 255]) + bytes(4)
    async with (
        serve(socket, after_greeting(1, 1, update(cursor(2, 1, shape)))),
        VncClient.open(socket) as client,
    ):
        assert await client.next_update() == []
        assert client.cursor is not None
        assert (client.cursor.hot_x, client.cursor.hot_y) == (1, 2)
        assert client.cursor.pixels == bytes([1, 2, 3, 255]) + bytes(4)


async def test_a_pointer_that_is_hidden(socket: Path) -> None:
    shown, hidden = cursor(1, 1, b"abcd"), cursor(0, 0, b"")
    async with (
        serve(socket, after_greeting(1, 1, update(shown) + update(hidden))),
        VncClient.open(socket) as client,
    ):
        await client.next_update()
        while client.cursor is not None:
            await client.next_update()


async def test_pixels_of_a_server_that_rounds_nothing(socket: Path) -> None:
    async def script(server: FakeVnc) -> None:
        await server.greet(1366, 768)
        for x in range(1366):
            await server.expect(">BBHH", 5, 0, x, 0)

    async with serve(socket, script), VncClient.open(socket) as client:
        for x in range(1366):
            await client.pointer(x, 0)


async def test_keys_and_the_pointer(socket: Path) -> None:
    done = asyncio.Event()

    async def script(server: FakeVnc) -> None:
        await server.greet(96, 50)
        await server.expect(">BBHH", 5, 5, 10, 20)
        await server.expect(">BBHH", 5, 0, 95, 0)
        await server.expect(">BBxxI", 4, 1, 0xFF0D)
        await server.expect(">BBxxI", 4, 0, 0xFF0D)
        done.set()

    async with serve(socket, script), VncClient.open(socket) as client:
        await client.pointer(10, 20, Buttons.LEFT | Buttons.RIGHT)
        await client.pointer(1000, -3)
        await client.key(0xFF0D, True)
        await client.key(0xFF0D, False)
        await asyncio.wait_for(done.wait(), 60)


async def test_a_text_and_a_chord(socket: Path) -> None:
    strokes = [
        *((ord("a"), 1), (ord("a"), 0)),
        *((0xFFE1, 1), (ord("A"), 1), (ord("A"), 0), (0xFFE1, 0)),
        *((0xE9, 1), (0xE9, 0), (0x0100_6F22, 1), (0x0100_6F22, 0), (0xFF0D, 1), (0xFF0D, 0)),
        *((0xFFE3, 1), (0xFFC7, 1), (0xFFC7, 0), (0xFFE3, 0)),
    ]
    done = asyncio.Event()

    async def script(server: FakeVnc) -> None:
        await server.greet(1, 1)
        for keysym, down in strokes:
            await server.expect(">BBxxI", 4, down, keysym)
        done.set()

    async with serve(socket, script), VncClient.open(socket) as client:
        await client.type_text("aAé漢\n", pause_s=0)
        await client.press_key("control", "F10")
        with pytest.raises(AskedError, match="is no key"):
            await client.press_key("ctrl", "nothing")
        await asyncio.wait_for(done.wait(), 60)


@pytest.mark.parametrize("status", [0, 1, 3, 4])
async def test_another_size_is_asked_for(socket: Path, status: int) -> None:
    async def script(server: FakeVnc) -> None:
        await server.greet(10, 10)
        await server.expect(">BxHHBxIHHHHI", 251, 20, 30, 1, 0, 0, 0, 20, 30, 0)
        server.send(update(resized(10, 10, reason=1, status=status)))

    async with serve(socket, script), VncClient.open(socket) as client:
        if status in (0, 4):
            await client.resize(20, 30)
        else:
            with pytest.raises(VncError, match="cannot be given another size"):
                await client.resize(20, 30)


@pytest.mark.parametrize("size", [(0, 1), (1, 0), (70_000, 1), (16384, 16384), ("a", 5)])
async def test_a_size_that_no_display_can_have(socket: Path, size: tuple[int, int]) -> None:
    async with serve(socket, lambda s: s.greet(1, 1)), VncClient.open(socket) as client:
        with pytest.raises(AskedError, match="cannot have") as caught:
            await client.resize(*size)
    assert "16777216 pixels in all" in caught.value.hint


async def test_what_else_a_server_says_is_passed_over(socket: Path) -> None:
    bell, text = b"\x02", struct.pack(">Bxxxi", 3, 5) + b"hello"
    extended = struct.pack(">Bxxxi", 3, -4) + bytes(4)
    picture = update(filled(0, 0, 1, 1, RED))
    async with (
        serve(socket, after_greeting(1, 1, bell + text + extended + update() + picture)),
        VncClient.open(socket) as client,
    ):
        assert await client.next_update() == [Rect(0, 0, 1, 1)]


async def test_a_viewer_that_waits_reminds_the_server(socket: Path) -> None:
    async def script(server: FakeVnc) -> None:
        await server.greet(1, 1)
        await server.expect_request(1, 1, incremental=False)
        await server.expect(">BxxxI", 6, 0)
        server.send(update(filled(0, 0, 1, 1, RED)))

    async with serve(socket, script), VncClient.open(socket) as client:
        assert await client.next_update(brisk_s=0.01) == [Rect(0, 0, 1, 1)]


HOSTILE = {
    "pixels beyond the right edge": (update(filled(1, 0, 2, 1, RED)), "beyond its edge"),
    "pixels beyond the lower edge": (update(filled(0, 1, 1, 2, RED)), "beyond its edge"),
    "a huge rectangle": (
        update(struct.pack(">HHHHi", 0, 0, 65535, 65535, 0)),
        "beyond its edge",
    ),
    "a huge screen": (update(resized(16384, 16384)), "16384x16384 pixels, too many"),
    "a huge screen of the old kind": (
        update(struct.pack(">HHHHi", 0, 0, 65535, 65535, -223)),
        "too many",
    ),
    "a huge pointer": (update(cursor(4096, 4096, b"")), "pointer of 4096x4096"),
    "a compressed pointer": (update(cursor(1, 1, b"", encoding=7)), "pointer"),
    "another encoding": (update(struct.pack(">HHHHi", 0, 0, 1, 1, 7)), "encoding 7"),
    "many screens": (
        update(struct.pack(">HHHHiB3x", 0, 0, 1, 1, -308, 255)),
        "255 screens",
    ),
    "colours": (b"\x01" + bytes(20), "unknown kind 1"),
    "nonsense": (b"\xee" * 40, "unknown kind 238"),
    "an endless text": (struct.pack(">Bxxxi", 3, 2**31 - 1), "text of 2147483647 bytes"),
    "the end": (b"\x00", "has ended"),
}


@pytest.mark.parametrize("name", HOSTILE)
async def test_a_hostile_server_is_an_error_and_nothing_more(socket: Path, name: str) -> None:
    message, words = HOSTILE[name]

    async def script(server: FakeVnc) -> None:
        await server.greet(2, 2)
        server.send(message)
        if name == "the end":
            server.writer.close()

    async with serve(socket, script), VncClient.open(socket) as client:
        for _ in range(2):
            with pytest.raises(VncError, match=words):
                await client.next_update()
        with pytest.raises(VncError):
            await client.pointer(0, 0)
        with pytest.raises(VncError):
            await client.resize(5, 5)


async def test_many_rectangles_are_kept_as_one(socket: Path) -> None:
    one = filled(0, 0, 1, 1, RED)
    messages = update(*[one] * (3 * RECTS_MAX)) + update(*[one] * RECTS_MAX)

    async with (
        serve(socket, after_greeting(4, 4, messages)),
        VncClient.open(socket) as client,
    ):
        found = await client.next_update()
        assert len(found) <= RECTS_MAX and Rect(0, 0, 4, 4) in found


REFUSALS = {
    "no VNC": (b"SSH-2.0-OpenSSH\r\n", "no VNC server"),
    "a password": (b"RFB 003.008\n\x01\x02", "password"),
    "words": (b"RFB 003.008\n\x00" + struct.pack(">I", 5) + b"later", "later"),
    "failure": (
        b"RFB 003.008\n\x01\x01" + struct.pack(">II", 1, 3) + b"bad",
        "refused the connection: bad",
    ),
    "a huge screen": (
        b"RFB 003.008\n\x01\x01" + bytes(4) + struct.pack(">HH16xI", 65535, 65535, 0),
        "too many",
    ),
    "an endless name": (
        b"RFB 003.008\n\x01\x01" + bytes(4) + struct.pack(">HH16xI", 1, 1, 2**32 - 1),
        "text of 4294967295 bytes",
    ),
}


@pytest.mark.parametrize("name", REFUSALS)
async def test_a_greeting_that_is_none(socket: Path, name: str) -> None:
    said, words = REFUSALS[name]

    async def script(server: FakeVnc) -> None:
        server.send(said)

    async with serve(socket, script):
        with pytest.raises(VncError, match=words):
            async with VncClient.open(socket):
                pass


async def test_nobody_is_there(socket: Path) -> None:
    with pytest.raises(VncError, match="cannot be reached"):
        async with VncClient.open(socket):
            pass


async def test_a_host_and_a_port(socket: Path) -> None:
    picture = update(filled(0, 0, 1, 1, RED))
    async with (
        serve(None, after_greeting(1, 1, picture)) as port,
        VncClient.open(("127.0.0.1", port)) as client,
    ):
        assert await client.next_update() == [Rect(0, 0, 1, 1)]
    with pytest.raises(VncError, match=f"cannot be reached at 127.0.0.1:{port}"):
        async with VncClient.open(("127.0.0.1", port)):
            pass


async def test_errors_of_a_class_of_ones_own(socket: Path) -> None:
    class OursError(Exception):
        pass

    class Client(VncClient):
        error = OursError

    async def script(server: FakeVnc) -> None:
        await server.greet(1, 1)
        server.send(b"\xee")

    with pytest.raises(OursError, match="cannot be reached"):
        async with Client.open(socket):
            pass
    async with serve(socket, nonsense):
        with pytest.raises(OursError, match="no VNC server"):
            async with Client.open(socket):
                pass
    socket.unlink()
    async with serve(socket, script), Client.open(socket) as client:
        with pytest.raises(OursError, match="unknown kind 238"):
            await client.next_update()
        with pytest.raises(AskedError):
            await client.resize(0, 0)


async def nonsense(server: FakeVnc) -> None:
    server.send(b"SSH-2.0-OpenSSH\r\n")


async def test_a_silent_server_is_given_up(socket: Path) -> None:
    async def script(server: FakeVnc) -> None:
        await server.reader.read()

    async with serve(socket, script):
        with pytest.raises(VncError, match=r"did not answer within 0\.05 s"):
            async with VncClient.open(socket, timeout=0.05):
                pass


def test_the_bound_is_that_of_memory() -> None:
    assert PIXELS_MAX * 4 == 64 * 1024 * 1024
