"""The app's way to a screen, with the process that encodes."""

from __future__ import annotations

import queue
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from PIL import Image
from quicksand.display.place import RfbClient
from quicksand_pixels import parse_cells
from quicksand_pixels.user_input import Chord

from quicksand_tui.door import engine_screen as door
from quicksand_tui.door.engine_screen import EngineScreen
from quicksand_tui.door.screen_messages import ROWS, Drawn
from quicksand_tui.door.service import EngineService
from tests.conftest import wait_for
from tests.unit.pixels.fake_desktop import FakeDesktop
from tests.unit.pixels.screens import desktop

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

RED, BLUE = b"\xff\x00\x00", b"\x00\x00\xff"


class Sink:
    def __init__(self) -> None:
        self.pictures: queue.Queue[Drawn] = queue.Queue()
        self.whys: queue.Queue[str] = queue.Queue()

    def drawn(self, picture: Drawn) -> None:
        self.pictures.put(picture)

    def gone(self, why: str) -> None:
        self.whys.put(why)

    def told(self, message: str) -> None:
        self.whys.put(message)


@pytest.fixture
def socket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The place of the machine's screen; the registry knows it as that of any sandbox."""
    path = tmp_path / "vnc.sock"

    def machine(_: str) -> Any:
        made = path.stat().st_ctime_ns if path.exists() else 0
        return SimpleNamespace(root=path.parent, vnc_socket=path, made=made)

    sandbox = SimpleNamespace(display=lambda: RfbClient.open(path), close=lambda: None)
    monkeypatch.setattr(door, "Registry", lambda _: SimpleNamespace(machine=machine))
    monkeypatch.setattr(door, "Sandbox", SimpleNamespace(open=lambda _: sandbox))
    return path


@pytest.fixture
def sink() -> Sink:
    return Sink()


@pytest.fixture
def screen(socket: Path, sink: Sink) -> Iterator[EngineScreen]:
    service = EngineService()
    try:
        found = service.open_screen("0123456789ab", sink)
        found.order(way=ROWS, grid=(40, 12, 10, 20))
        yield found
    finally:
        service.close()


def plain(colour: str) -> Image.Image:
    return Image.new("RGB", (320, 200), colour)


def colours(picture: Drawn) -> set[bytes]:
    return {cell[:3] for found in parse_cells(picture.data) for cell in found.cells}


@pytest.fixture
def guest(socket: Path) -> Iterator[FakeDesktop]:
    with FakeDesktop(socket, plain("red")) as found:
        yield found


def test_pictures_come_one_after_the_other_is_drained(
    guest: FakeDesktop, screen: EngineScreen, sink: Sink
) -> None:
    first = sink.pictures.get(timeout=60)
    assert (first.width, first.height, first.is_whole) == (320, 200, True)
    assert colours(first) == {RED}
    guest.show(plain("lime"))
    guest.show(plain("blue"))
    assert sink.pictures.empty(), "the first one was not drained"
    screen.order(drained=1)
    second = sink.pictures.get(timeout=60)
    assert colours(second) == {BLUE} and not second.is_whole


def test_keys_pointer_and_png(
    guest: FakeDesktop, screen: EngineScreen, sink: Sink, tmp_path: Path
) -> None:
    sink.pictures.get(timeout=60)
    screen.press(Chord("a", control=True))
    screen.point(12, 34, 1)
    wait_for(lambda: ("pointer", 12, 34, 1) in guest.events, what="the pointer")
    keys = [event[1:3] for event in guest.events if event[0] == "key"]
    assert keys == [(0xFFE3, 1), (97, 1), (97, 0), (0xFFE3, 0)]
    told: queue.Queue[str] = queue.Queue()
    screen.save(tmp_path / "one.png", told.put)
    assert told.get(timeout=60) == ""
    screen.save(tmp_path / "missing" / "one.png", told.put)
    assert "No such file" in told.get(timeout=60)
    with Image.open(tmp_path / "one.png") as saved:
        assert saved.size == (320, 200)


def test_a_screen_that_is_gone_is_told_and_the_next_one_is_shown(
    guest: FakeDesktop, screen: EngineScreen, sink: Sink, socket: Path
) -> None:
    sink.pictures.get(timeout=60)
    screen.order(drained=1)  # it is found out when there is a next one to wait for
    guest.end()
    assert "has ended" in sink.whys.get(timeout=60)
    with FakeDesktop(socket, desktop()):
        assert sink.pictures.get(timeout=60).is_whole


def test_a_closed_screen_leaves_no_connection(
    guest: FakeDesktop, screen: EngineScreen, sink: Sink
) -> None:
    sink.pictures.get(timeout=60)
    assert guest.viewers == 2
    screen.close()
    wait_for(lambda: guest.viewers == 0, what="the end of both connections")
    screen.press(Chord("a"))
    screen.close()
