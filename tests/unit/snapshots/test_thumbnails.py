"""The small picture of the screen beside a checkpoint: its size, its bounds, and what happens when
there is none to be had."""

from __future__ import annotations

import asyncio
import io
import logging
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from quicksand.base.errors import HistoryError, QemuDiedError, StateError
from quicksand.base.paths import Paths
from quicksand.records.layout import MachineDir, SandboxDir, sandbox_dir
from quicksand.records.registry import Registry
from quicksand.snapshots import recognition
from quicksand.snapshots.history import History, Origin, import_node
from quicksand.snapshots.recognition import (
    BYTES_MAX,
    PICTURE_SIDE,
    keep_thumbnail,
    look_at_screen,
    read_thumbnail,
    shrink,
)
from quicksand.snapshots.tree import list_checkpoints
from quicksand_vnc import Picture

from tests.faults import Fault, fault
from tests.unit.snapshots.boxes import make_base, make_box

__all__ = ["fault"]

ID = "0123456789ab"


@pytest.fixture
def place(tmp_path: Path) -> SandboxDir:
    found = SandboxDir(tmp_path / "box")
    (found.checkpoints / ID).mkdir(parents=True)
    return found


def noise(width: int, height: int) -> Picture:
    return Picture(width, height, os.urandom(3 * width * height))


def decode(data: bytes) -> Image.Image:
    with Image.open(io.BytesIO(data), formats=("PNG",)) as image:
        return image.convert("RGB")


@given(st.integers(1, 700), st.integers(1, 700))
def test_it_is_small_and_has_the_screens_shape(width: int, height: int) -> None:
    small = decode(shrink(Picture(width, height, bytes([10, 200, 30]) * (width * height))))
    assert max(small.size) == min(PICTURE_SIDE, max(width, height))
    factor = min(1.0, PICTURE_SIDE / max(width, height))
    assert abs(small.width - width * factor) <= 1
    assert abs(small.height - height * factor) <= 1
    assert small.getcolors() == [(small.width * small.height, (10, 200, 30))]


def test_no_screen_makes_a_file_above_the_bound() -> None:
    assert len(shrink(noise(PICTURE_SIDE, PICTURE_SIDE))) < BYTES_MAX
    assert len(shrink(noise(1280, 800))) < BYTES_MAX


async def test_what_is_kept_is_read_back(place: SandboxDir) -> None:
    assert read_thumbnail(place, ID) is None
    shown = noise(40, 20)
    await keep_thumbnail(shown, place, ID)
    data = read_thumbnail(place, ID)
    assert data is not None
    assert decode(data).tobytes() == shown.rgb
    await keep_thumbnail(None, place, ID)
    assert read_thumbnail(place, ID) == data


@pytest.mark.parametrize(
    "error",
    [QemuDiedError("QEMU ended"), StateError("QEMU refused"), OSError(24, "too many files")],
    ids=["died", "refused", "files"],
)
async def test_without_a_picture_there_is_a_note_and_no_error(
    error: Exception,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def fail(machine: MachineDir) -> Picture:
        raise error

    monkeypatch.setattr(recognition, "take_picture", fail)
    with caplog.at_level(logging.DEBUG, "quicksand.thumbnails"):
        assert await look_at_screen(MachineDir(tmp_path), has_display=True) is None
    assert "no picture of the screen" in caplog.text
    caplog.clear()
    assert await look_at_screen(MachineDir(tmp_path), has_display=False) is None
    assert not caplog.text


async def test_a_machine_that_is_gone_has_no_picture(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG, "quicksand.thumbnails"):
        assert await look_at_screen(MachineDir(tmp_path / "1"), has_display=True) is None
    assert "no picture of the screen" in caplog.text


async def test_a_qemu_that_does_not_answer_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def hang(machine: MachineDir) -> Picture:
        await asyncio.Event().wait()
        raise AssertionError

    monkeypatch.setattr(recognition, "take_picture", hang)
    monkeypatch.setattr(recognition, "PATIENCE_S", 0.01)
    with caplog.at_level(logging.DEBUG, "quicksand.thumbnails"):
        assert await look_at_screen(MachineDir(tmp_path), has_display=True) is None
    assert "TimeoutError" in caplog.text


async def test_a_full_disk_leaves_no_picture_no_litter_and_a_note(
    place: SandboxDir,
    fault: Fault,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def in_this_thread(work: Callable[[], None]) -> None:
        work()  # the only one in which writes fail

    monkeypatch.setattr(recognition, "in_thread_to_the_end", in_this_thread)
    with (
        caplog.at_level(logging.DEBUG, "quicksand.thumbnails"),
        fault.at(1, place.root),
    ):
        await keep_thumbnail(noise(400, 300), place, ID)
        assert fault.struck
    assert "was not kept" in caplog.text
    assert list((place.checkpoints / ID).iterdir()) == []


@pytest.mark.parametrize("kind", ["large", "link", "fifo", "directory"])
def test_what_is_no_picture_of_ours_is_not_read(place: SandboxDir, kind: str) -> None:
    path = place.screen(ID)
    match kind:
        case "large":
            path.touch()
            os.truncate(path, BYTES_MAX + 1)
        case "link":
            path.symlink_to("/dev/zero")
        case "fifo":
            os.mkfifo(path)
        case _:
            path.mkdir()
    with pytest.raises(HistoryError):
        read_thumbnail(place, ID)


async def test_it_goes_with_its_checkpoint(places: Paths, tmp_path: Path) -> None:
    registry = Registry(places)
    base = make_base(tmp_path)
    record, other = make_box(registry, base, "one"), make_box(registry, base, "two")
    one, two = sandbox_dir(places, record.id), sandbox_dir(places, other.id)
    history = History(one)
    (node,) = history.nodes()
    size = list_checkpoints(history)[0].size
    await keep_thumbnail(noise(320, 200), one, node.id)
    kept = read_thumbnail(one, node.id)
    assert kept is not None
    assert list_checkpoints(history)[0].size >= size + len(kept)
    imported = import_node(Origin(place=one, node=node), two, tag="from one")
    assert read_thumbnail(two, imported.id) == kept
    history.delete(node.tag)
    assert not (one.checkpoints / node.id).exists()
    assert read_thumbnail(two, imported.id) == kept
