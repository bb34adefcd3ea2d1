"""What may fail is noted: who, when, what, and why."""

from __future__ import annotations

import asyncio
import os
import re
import stat
import threading
from pathlib import Path

import pytest
from quicksand.base.effort import LINE_MAX, LOG_MAX, best_effort, note
from quicksand.base.errors import HostError, MachineError, QemuDiedError, StateError


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "engine.log"


def test_what_was_not_possible_is_noted_with_its_reason(log: Path) -> None:
    with best_effort("resume the guest", log):
        raise QemuDiedError("QEMU ended", log="a line\nof its log")
    line = log.read_text()
    assert re.fullmatch(
        r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ \[(\d+)\] could not resume the guest: "
        r"QemuDiedError: QEMU ended\n",
        line,
    ), line
    assert f"[{os.getpid()}]" in line
    assert stat.S_IMODE(log.stat().st_mode) == 0o600


@pytest.mark.parametrize(
    "error", [OSError(5, "Input/output error"), TimeoutError(), StateError("x")]
)
def test_errors_of_the_host_and_of_the_engine_may_happen(log: Path, error: Exception) -> None:
    with best_effort("do it", log):
        raise error
    assert log.read_text().rstrip().endswith(f"{type(error).__name__}: {error}".rstrip(": "))


def test_nothing_is_noted_of_what_was_possible(log: Path) -> None:
    with best_effort("do it", log):
        pass
    assert not log.exists()


@pytest.mark.parametrize("error", [ValueError("x"), KeyError("x"), KeyboardInterrupt()])
def test_a_fault_of_ours_and_an_interruption_are_raised(log: Path, error: BaseException) -> None:
    with pytest.raises(type(error)), best_effort("do it", log):
        raise error
    assert not log.exists()


def test_only_the_kinds_that_are_named_may_happen(log: Path) -> None:
    with best_effort("do it", log, MachineError):
        raise QemuDiedError("QEMU ended")
    with pytest.raises(HostError), best_effort("do it", log, MachineError):
        raise HostError("no")


async def test_a_cancellation_is_raised(log: Path) -> None:
    begun = asyncio.Event()

    async def work() -> None:
        with best_effort("wait", log):
            begun.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(work())
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not log.exists()


def test_hostile_words_stay_one_plain_line(log: Path) -> None:
    with best_effort("ask \x1b[2J", log):
        raise MachineError("\x1b]0;owned\x07\nroot: all is well\udcff" + "x" * 10_000)
    data = log.read_bytes()
    assert data.count(b"\n") == 1
    assert b"\x1b" not in data
    assert len(data) <= LINE_MAX + 64


def test_it_is_bounded(log: Path) -> None:
    for number in range(3 * LOG_MAX // 500):
        note(log, f"{number} {'x' * 500}")
    older = log.with_name("engine.log.1")
    assert sorted(path.name for path in log.parent.iterdir()) == ["engine.log", "engine.log.1"]
    assert 0 < log.stat().st_size <= LOG_MAX
    assert 0 < older.stat().st_size <= LOG_MAX
    numbers = [int(line.split()[2]) for line in (older.read_text() + log.read_text()).splitlines()]
    assert numbers == list(range(numbers[0], 3 * LOG_MAX // 500)), "the latest ones, each once"


def test_several_programs_write_whole_lines(log: Path) -> None:
    def write(name: str) -> None:
        for number in range(50):
            note(log, f"{name}{number} {'x' * 100} end")

    threads = [threading.Thread(target=write, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    lines = log.read_text().splitlines()
    assert len(lines) == 200
    assert all(line.endswith(" end") for line in lines)


def test_a_log_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    note(tmp_path / "gone" / "engine.log", "x")
    assert not (tmp_path / "gone").exists(), "no directory is made for it"
    os.mkfifo(tmp_path / "fifo")
    note(tmp_path / "fifo", "x")
    (tmp_path / "directory").mkdir()
    note(tmp_path / "directory", "x")


def test_a_link_is_not_followed(tmp_path: Path, log: Path) -> None:
    (tmp_path / "other").write_text("another's\n")
    log.symlink_to(tmp_path / "other")
    note(log, "x")
    assert (tmp_path / "other").read_text() == "another's\n"


def test_a_full_disk_is_no_error(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int, data: bytes) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("quicksand.base.effort.os.write", full)
    with best_effort("do it", log):
        raise StateError("x")


def test_a_log_that_cannot_be_begun_anew_closes_nothing_of_others(
    log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.write_bytes(bytes(LOG_MAX))
    close = os.close
    closed: list[int] = []
    opened: list[int] = []

    def open_once(path: Path) -> int:
        if opened:
            raise OSError(28, "No space left on device")
        opened.append(os.open(path, os.O_WRONLY))
        return opened[0]

    def note_close(descriptor: int) -> None:
        closed.append(descriptor)
        close(descriptor)

    monkeypatch.setattr("quicksand.base.effort._open", open_once)
    monkeypatch.setattr("quicksand.base.effort.os.close", note_close)
    note(log, "x")
    assert closed == opened


def test_an_older_file_that_cannot_be_replaced_lets_it_grow_no_further(log: Path) -> None:
    log.with_name("engine.log.1").mkdir()
    (log.with_name("engine.log.1") / "in the way").touch()
    for _ in range(3 * LOG_MAX // 500):
        note(log, "x" * 500)
    assert log.stat().st_size <= LOG_MAX
