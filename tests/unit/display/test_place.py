"""The client of a sandbox's screen: what is particular to QEMU, and whose errors it raises."""

from __future__ import annotations

import asyncio
import struct
from pathlib import Path

import pytest
from quicksand.base.errors import ConfigError, DisplayError
from quicksand.display.place import RfbClient, vnc_errors
from quicksand_vnc import AskedError, VncError

from tests.unit.vnc.fake_vnc import FakeVnc, serve


@pytest.fixture
def socket(tmp_path: Path) -> Path:
    return tmp_path / "vnc.sock"


@pytest.mark.parametrize("frame", [1400, 1408])
async def test_a_pixel_is_met_whatever_width_vnc_tells(socket: Path, frame: int) -> None:
    """QEMU makes parts of 1408 columns of what is sent, and the guest pixels of its 1400."""
    met: list[int] = []
    done = asyncio.Event()

    async def script(server: FakeVnc) -> None:
        await server.greet(frame, 900)
        while len(met) < 1400:
            _, _, x, _ = struct.unpack(">BBHH", await server.reader.readexactly(6))
            met.append(x * 0x7FFF // 1408 * 1400 // 0x7FFF)
        done.set()

    async with serve(socket, script), RfbClient.open(socket) as client:
        for x in range(1400):
            await client.pointer(x, 0, width=1400 if frame == 1408 else None)
        await done.wait()
    assert max(abs(found - x) for x, found in enumerate(met)) <= 1


async def test_its_errors_are_the_engines(socket: Path) -> None:
    async def script(server: FakeVnc) -> None:
        await server.greet(1, 1)
        server.writer.close()

    async with serve(socket, script), RfbClient.open(socket) as client:
        with pytest.raises(ConfigError, match="cannot have 0x0") as caught:
            await client.resize(0, 0)
        assert "16777216 pixels in all" in caught.value.hint
        with pytest.raises(DisplayError, match="has ended"):
            await client.next_update()
    with pytest.raises(DisplayError, match="cannot be reached"):
        async with RfbClient.open(socket.with_name("nowhere")):
            pass


def test_errors_of_pictures_and_keys_keep_their_words() -> None:
    for theirs, ours in ((AskedError, ConfigError), (VncError, DisplayError)):
        with pytest.raises(ours, match="why") as caught, vnc_errors():
            raise theirs("why", hint="what to do")
        assert caught.value.hint == "what to do"
