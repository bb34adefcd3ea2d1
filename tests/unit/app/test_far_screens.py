"""Screens of another machine in the app, and by `Sandbox`: over an `ssh` that leads to a far end
which is a process of its own, on this machine."""

from __future__ import annotations

import asyncio
import os
import queue
import signal
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from PIL import Image
from quicksand import RemoteHost, Sandbox
from quicksand.base.errors import NoDisplayError, StateError
from quicksand.base.listing import own_sockets
from quicksand.base.paths import Paths
from quicksand.records.host_sockets import SCREEN_SOCKETS
from quicksand_pixels.user_input import Chord

from quicksand_tui.cockpit.desktop_tab import _no_screen
from quicksand_tui.door import far_host
from quicksand_tui.door.screen_messages import ROWS
from quicksand_tui.door.service import EngineService
from quicksand_tui.model.shown_sandboxes import SandboxView
from tests.ssh_server import far_environ, without_sshd
from tests.unit.app.fakes import until
from tests.unit.hosted.running import Running, running
from tests.unit.pixels.fake_desktop import FakeDesktop
from tests.unit.pixels.test_engine_screen import BLUE, RED, Sink, colours, plain

SIZE = (320, 200)


@pytest.fixture
def ssh(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The file with the process of the last `ssh`."""
    with (
        tempfile.TemporaryDirectory(prefix="qsh-") as root,
        without_sshd(Path(root), far_environ()) as far,
    ):
        program = far.bin / "ssh"
        text = program.read_text().replace("\n", f"\necho $$ > {root}/pid\n", 1)
        program.write_text(text)
        monkeypatch.setenv("PATH", f"{far.bin}{os.pathsep}{os.environ['PATH']}")
        yield Path(root) / "pid"


@pytest.fixture
def sandbox(places: Paths) -> Iterator[Running]:
    with running(places) as found:
        yield found
    assert own_sockets(places.runtime, SCREEN_SOCKETS) == []


@pytest.fixture
def guest(sandbox: Running) -> Iterator[FakeDesktop]:
    with FakeDesktop(sandbox.start(), plain("red")) as found:
        yield found


@pytest.fixture
async def service(
    ssh: Path, sandbox: Running, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[EngineService]:
    monkeypatch.setattr(far_host, "PAUSES_S", (0.05, 0.2))
    service = EngineService()
    service.meet({"box": "ssh://far"})
    yield service
    await asyncio.to_thread(service.close)


async def view_of(service: EngineService) -> SandboxView:
    """The sandbox as the far end tells it."""
    async with asyncio.timeout(60):
        while True:
            world = await asyncio.to_thread(service.read)
            for view in world.sandboxes:
                if view.host and view.is_live and not view.away:
                    return view
            await asyncio.sleep(0.02)


async def test_the_tab_shows_a_screen_of_another_machine_as_one_of_this(
    service: EngineService, guest: FakeDesktop, sandbox: Running, tmp_path: Path
) -> None:
    view = await view_of(service)
    assert _no_screen(view) == ""
    sink = Sink()
    screen = service.open_screen(view.id, sink)
    screen.order(way=ROWS, grid=(40, 12, 10, 20))
    first = await asyncio.to_thread(sink.pictures.get, timeout=60)
    assert (first.width, first.height, first.is_whole) == (*SIZE, True)
    assert colours(first) == {RED}
    guest.show(plain("blue"))
    screen.order(drained=1)
    assert colours(await asyncio.to_thread(sink.pictures.get, timeout=60)) == {BLUE}
    screen.press(Chord("a"))
    screen.point(12, 34, 1)
    await until(lambda: ("pointer", 12, 34, 1) in guest.events)
    assert [event[1] for event in guest.events if event[0] == "key"] == [97, 97]
    told: queue.Queue[str] = queue.Queue()
    screen.save(tmp_path / "one.png", told.put)
    assert await asyncio.to_thread(told.get, timeout=60) == ""
    with Image.open(tmp_path / "one.png") as saved:
        assert saved.size == SIZE
    # Another machine takes its place, as in a revert.
    screen.order(drained=2)
    guest.end()
    assert "has ended" in await asyncio.to_thread(sink.whys.get, timeout=60)
    with FakeDesktop(sandbox.start(), plain("red")) as after:
        again = await asyncio.to_thread(sink.pictures.get, timeout=60)
        assert again.is_whole and colours(again) == {RED}
        screen.close()
        await until(lambda: after.viewers == 0)


async def test_a_machine_that_is_away_and_comes_again(
    service: EngineService, guest: FakeDesktop, ssh: Path
) -> None:
    view = await view_of(service)
    sink = Sink()
    screen = service.open_screen(view.id, sink)
    screen.order(way=ROWS, grid=(40, 12, 10, 20))
    await asyncio.to_thread(sink.pictures.get, timeout=60)
    screen.order(drained=1)
    os.kill(int(ssh.read_text()), signal.SIGKILL)
    assert "has ended" in await asyncio.to_thread(sink.whys.get, timeout=60)
    assert (await asyncio.to_thread(sink.pictures.get, timeout=60)).is_whole
    screen.close()
    await until(lambda: guest.viewers == 0)


async def test_what_the_app_records_there_is_written_here(
    service: EngineService, guest: FakeDesktop, tmp_path: Path
) -> None:
    view = await view_of(service)
    told: queue.Queue[str] = queue.Queue()
    recording = service.record_screen(view.id, tmp_path / "x.gif", told.put)
    await until(lambda: guest.reminders > 0)  # there is a picture
    recording.stop()
    assert "Recorded as" in await asyncio.to_thread(told.get, timeout=60)
    with Image.open(tmp_path / "x.gif") as found:
        assert found.size == SIZE


async def test_a_program_sees_and_records_it_as_one_here(
    ssh: Path, sandbox: Running, guest: FakeDesktop, tmp_path: Path
) -> None:
    there = Sandbox.open(sandbox.id, host="ssh://far")
    async with there.display() as client:
        await client.next_update()
        assert (client.frame.width, client.frame.height) == SIZE
        await client.key(97, True)
    await until(lambda: guest.events == [("key", 97, 1, 0)])
    async with there.record(tmp_path / "x.png", fps=30) as recording:
        assert recording.size == SIZE
        guest.end()
        with FakeDesktop(sandbox.start(), plain("blue")):
            await until(lambda: recording.pictures == 2)
        sandbox.stop()
        done = await recording.wait()
    assert (done.pictures, done.why) == (2, "sandbox")
    with pytest.raises(StateError, match="another machine"):
        there.vnc_socket  # noqa: B018
    for look in (there.display(), there.record(tmp_path / "y.png")):
        with pytest.raises(StateError, match="not running"):
            async with look:
                pass
    there.close()
    await RemoteHost("ssh://far").shared().ended()


async def test_a_sandbox_without_a_display_says_so(ssh: Path, places: Paths) -> None:
    with running(places, display=False) as found:
        found.start()
        there = Sandbox.open(found.id, host="ssh://far")
        with pytest.raises(NoDisplayError, match="has no display"):
            async with there.display():
                pass
        there.close()
        await RemoteHost("ssh://far").shared().ended()
