"""Writing in steps: what is written while the next steps are filled, and what fails meanwhile."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from quicksand.base.checksum import crc32
from quicksand.base.errors import DiskSpaceError
from quicksand.snapshots.guest_ram import PAGE
from quicksand.snapshots.pages import CHUNK
from quicksand.snapshots.stepwise import BUFFERS, THREAD, StepWriter

STEPS = 3 * BUFFERS


@pytest.fixture
def steps(tmp_path: Path) -> Iterator[StepWriter]:
    found = StepWriter(tmp_path / "file")
    yield found
    found.close()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith(THREAD)]


def write_step(steps: StepWriter, number: int, *, last: bool = False) -> int:
    """Write a step of its own bytes; returns its checksum."""
    data = bytes([1 + number]) * CHUNK
    steps.buffer[:] = data
    steps.write(number * CHUNK, [(0, CHUNK)], last=last)
    return crc32(data)


@pytest.mark.parametrize("last", [False, True])
def test_every_step_is_written_to_its_place_whatever_was_filled_meanwhile(
    tmp_path: Path, steps: StepWriter, last: bool
) -> None:
    crcs = [write_step(steps, n, last=last and n == STEPS - 1) for n in range(STEPS)]
    found = steps.seal(crcs, None)
    assert (found.size, found.crcs) == (STEPS * CHUNK, tuple(crcs))
    with (tmp_path / "file").open("rb") as file:
        assert [crc32(file.read(CHUNK)) for _ in range(STEPS)] == crcs


def test_steps_are_filled_while_one_is_written_until_no_buffer_is_left(
    steps: StepWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    goes_on = threading.Event()
    real = os.pwrite

    def slow(descriptor: int, data: memoryview, offset: int) -> int:
        assert goes_on.wait(60)
        return real(descriptor, data, offset)

    monkeypatch.setattr(os, "pwrite", slow)
    crcs = [write_step(steps, n) for n in range(BUFFERS - 1)]
    one_more = threading.Thread(target=lambda: crcs.append(write_step(steps, BUFFERS - 1)))
    one_more.start()
    one_more.join(0.1)
    assert one_more.is_alive(), "its buffer would be filled while it is written"
    goes_on.set()
    one_more.join(60)
    assert steps.seal(crcs, None).size == BUFFERS * CHUNK


def test_a_full_disk_is_told_by_a_later_step_and_what_waits_is_not_written(
    tmp_path: Path, steps: StepWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[int] = []
    real = os.pwrite

    def full(descriptor: int, data: memoryview, offset: int) -> int:
        if offset >= 2 * CHUNK:
            raise OSError(errno.ENOSPC, "No space left on device")
        written.append(offset)
        return real(descriptor, data, offset)

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(DiskSpaceError, match=str(tmp_path / "file")):
        for number in range(STEPS):
            write_step(steps, number)
    assert number < 2 + BUFFERS
    assert written == [0, CHUNK]


def test_the_last_step_tells_of_a_full_disk_in_a_step_before(
    steps: StepWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int, data: memoryview, offset: int) -> int:
        if offset == 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        return len(data)

    monkeypatch.setattr(os, "pwrite", full)
    write_step(steps, 0)
    with pytest.raises(DiskSpaceError):
        steps.write(CHUNK, [(0, PAGE)], last=True)
