"""The screen of a real machine, as that of a sandbox of another machine: which is this one, over a
private sshd where there is one."""

from __future__ import annotations

import asyncio
import io
import tempfile
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from quicksand import RemoteHost, Sandbox
from quicksand.base.paths import Paths
from quicksand.errors import DisplayError, StateError
from quicksand.life.sandbox_desktop import Desktop
from quicksand_pixels import parse_cells

from quicksand_tui.door.screen_messages import ROWS
from quicksand_tui.door.service import EngineService
from tests.ssh_server import far_environ, find_sshd, with_sshd, without_sshd
from tests.unit.pixels.test_engine_screen import Sink

pytestmark = pytest.mark.vm


@pytest.fixture
async def there(vm: Sandbox, places: Paths) -> AsyncIterator[Sandbox]:
    way = with_sshd if find_sshd() is not None else without_sshd
    with (
        tempfile.TemporaryDirectory(prefix="qsh-") as root,
        way(Path(root), far_environ()) as far,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setenv("PATH", far.environ()["PATH"])
        sandbox = Sandbox.attach(vm.name, host=far.address)
        yield sandbox
        sandbox.close()
        await RemoteHost(far.address).shared().ended()


async def picture_of(sandbox: Sandbox) -> Image.Image:
    return await sandbox.screenshot(format="image")


async def seen_by(sandbox: Sandbox) -> Image.Image:
    """What a viewer sees: a text of QEMU's on its own console, as long as the guest has none."""
    async with sandbox.display() as client:
        await client.next_update()
        frame = client.frame
        size = frame.width, frame.height
        return Image.frombytes("RGB", size, bytes(frame.pixels), "raw", "RGBX")


async def test_all_that_a_screen_has_is_there_from_another_machine(
    vm: Sandbox, there: Sandbox, tmp_path: Path
) -> None:
    here = await picture_of(vm)
    assert len(here.getcolors() or ()) > 1, "a text is to be seen"

    async def looks() -> None:
        assert (await picture_of(there)).tobytes() == here.tobytes()
        assert (await seen_by(there)).tobytes() == here.tobytes()

    async def has_its_size() -> None:
        assert await there.query_display_size() == here.size

    async def has_a_part() -> None:
        data = await there.screenshot(region=(0, 0, 32, 16), format="png")
        with Image.open(io.BytesIO(data)) as part:
            assert part.size == (32, 16)
        assert (await there.screenshot(tmp_path / "x.png")).exists()

    async def is_recorded() -> None:
        async with there.record(tmp_path / "x.gif") as recording:
            assert recording.size == here.size
        with Image.open(tmp_path / "x.gif") as found:
            assert found.size == here.size

    async def moves() -> None:
        await there.mouse_move(100, 200)
        assert await there.query_mouse_position() == (100, 200)

    async def says_where_it_is_not() -> None:
        assert (there.vnc_port, there.vnc_password) == (None, None)
        with pytest.raises(StateError, match=r"vnc_socket is not there"):
            there.vnc_socket  # noqa: B018

    async def waits() -> None:
        with pytest.raises(TimeoutError):
            await there.wait_for_screen("change", timeout=0.3)

    table: dict[str, Callable[[], Coroutine[Any, Any, object]]] = {
        "display": looks,
        "screenshot": has_a_part,
        "record": is_recorded,
        "query_display_size": has_its_size,
        "set_display_size": lambda: there.set_display_size(800, 600),
        "wait_for_screen": waits,
        "type_text": lambda: there.type_text("ls\n"),
        "press_key": lambda: there.press_key("ctrl", "a"),
        "key_down": lambda: there.key_down("shift"),
        "key_up": lambda: there.key_up("shift"),
        "mouse_move": moves,
        "mouse_move_px": lambda: there.mouse_move_px(5, 6),
        "mouse_click": lambda: there.mouse_click("right", 5, 6, pixels=True),
        "mouse_down": there.mouse_down,
        "mouse_up": there.mouse_up,
        "mouse_drag": lambda: there.mouse_drag((1, 1), (900, 900)),
        "mouse_scroll": lambda: there.mouse_scroll(2),
        "query_mouse_position": there.query_mouse_position,
        "vnc_socket": says_where_it_is_not,
        "vnc_port": says_where_it_is_not,
        "vnc_password": says_where_it_is_not,
    }
    assert set(table) == {name for name in vars(Desktop) if not name.startswith("_")}
    for call in table.values():
        await call()


async def test_the_app_shows_it_over_reverts_until_its_end(vm: Sandbox, there: Sandbox) -> None:
    service = EngineService()
    sink = Sink()
    try:
        service.meet({"box": str(there.host)})
        found = ""
        async with asyncio.timeout(120):
            while not found:
                world = await asyncio.to_thread(service.read)
                found = next((view.id for view in world.sandboxes if view.host), "")
                await asyncio.sleep(0.05)
        screen = service.open_screen(found, sink)
        screen.order(way=ROWS, grid=(80, 30, 10, 20))
        first = await asyncio.to_thread(sink.pictures.get, timeout=60)
        assert (first.width, first.height) == await vm.query_display_size()
        shades = {cell for row in parse_cells(first.data) for cell in row.cells}
        assert len(shades) > 1, "a text is to be seen"
        screen.order(drained=1)
        cells = await service.ask("", lambda engine: engine.look_at_screen(found, (40, 12)))
        assert cells
        await vm.checkpoint("one")
        await vm.revert("one")
        # In place, all goes on; else the next machine is shown.
        screen.order(again=2)
        await asyncio.to_thread(sink.pictures.get, timeout=60)
        while not sink.whys.empty():
            sink.whys.get_nowait()
        screen.order(drained=2)
        async with there.display() as client:
            await client.next_update()
            await vm.stop(grace=0)
            with pytest.raises(DisplayError, match="has ended"):
                while True:
                    await client.next_update()
        assert "has ended" in await asyncio.to_thread(sink.whys.get, timeout=60)
        screen.close()
    finally:
        await asyncio.to_thread(service.close)
