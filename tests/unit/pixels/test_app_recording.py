"""Recordings that the app begins: they are told at their end, and complete however that comes."""

from __future__ import annotations

import queue
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from PIL import Image
from quicksand.base.errors import StateError
from quicksand.display.recording import Recording
from quicksand.records.layout import MachineDir

from quicksand_tui.door import engine
from quicksand_tui.door.service import EngineService
from tests.conftest import wait_for
from tests.unit.pixels.fake_desktop import FakeDesktop
from tests.unit.pixels.screens import desktop


@pytest.fixture
def sandbox(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    machine = MachineDir(tmp_path)

    @asynccontextmanager
    async def record(path: Path) -> AsyncIterator[Recording]:
        opened = Recording.open(path, lambda: machine, seconds=60, fps=30, scale=1, replace=False)
        async with opened as found:
            yield found

    found = SimpleNamespace(record=record, close=lambda: None)
    monkeypatch.setattr(engine, "Sandbox", SimpleNamespace(open=lambda _: found))
    return found


def test_it_is_told_when_it_is_stopped(sandbox: Any, tmp_path: Path) -> None:
    told: queue.Queue[str] = queue.Queue()
    service = EngineService()
    try:
        with FakeDesktop(tmp_path / "vnc.sock", desktop()):
            path = tmp_path / "x.gif"
            service.record_screen("0123456789ab", path, told.put).stop()
            assert told.get(timeout=60).startswith(f"Recorded as {path}: ")
            with Image.open(path) as image:
                assert image.size == (640, 400)
    finally:
        service.close()


def test_the_end_of_the_app_leaves_a_whole_file(sandbox: Any, tmp_path: Path) -> None:
    service = EngineService()
    path = tmp_path / "out" / "x.gif"
    path.parent.mkdir()
    with FakeDesktop(tmp_path / "vnc.sock", desktop()) as screen:
        service.record_screen("0123456789ab", path, lambda _: None)
        _wait_for_pictures(path.parent)
        service.close()
        wait_for(lambda: screen.viewers == 0, what="the recorder to go")
    with Image.open(path) as image:
        assert image.size == (640, 400)
    assert list(path.parent.iterdir()) == [path]


def _wait_for_pictures(directory: Path) -> None:
    from tests.conftest import wait_for

    wait_for(lambda: any(found.stat().st_size for found in directory.iterdir()), what="a picture")


def test_what_cannot_be_recorded_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: str) -> Any:
        raise StateError("the sandbox is not running")

    monkeypatch.setattr(engine, "Sandbox", SimpleNamespace(open=refuse))
    told: queue.Queue[str] = queue.Queue()
    service = EngineService()
    try:
        service.record_screen("0123456789ab", tmp_path / "x.gif", told.put)
        assert told.get(timeout=60) == "Nothing was recorded: the sandbox is not running"
    finally:
        service.close()
