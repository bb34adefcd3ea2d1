"""Log files that grow, rotate, vanish and begin anew."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from quicksand_tui.door.log_tail import FIRST_MAX, READ_MAX, SKIPPED, FileLog

OpenLog = Callable[[Path], FileLog]


@pytest.fixture
def open_log() -> Iterator[OpenLog]:
    logs: list[FileLog] = []

    def make(path: Path) -> FileLog:
        logs.append(FileLog(path))
        return logs[-1]

    yield make
    for log in logs:
        log.close()


def test_a_log_is_read_from_its_end_and_then_as_it_grows(tmp_path: Path, open_log: OpenLog) -> None:
    path = tmp_path / "console.log"
    path.write_bytes(b"one\ntwo\n")
    log = open_log(path)
    assert log.read() == "one\ntwo\n"
    assert log.read() == ""
    with path.open("ab") as file:
        file.write(b"three\n")
    assert log.read() == "three\n"


def test_the_older_piece_comes_first(tmp_path: Path, open_log: OpenLog) -> None:
    path = tmp_path / "console.log"
    (tmp_path / "console.log.1").write_bytes(b"old\n")
    path.write_bytes(b"new\n")
    assert open_log(path).read() == "old\nnew\n"


def test_a_rotation_loses_nothing(tmp_path: Path, open_log: OpenLog) -> None:
    path = tmp_path / "console.log"
    path.write_bytes(b"one\n")
    log = open_log(path)
    assert log.read() == "one\n"
    with path.open("ab") as file:
        file.write(b"two\n")
    path.rename(tmp_path / "console.log.1")
    path.write_bytes(b"three\n")
    assert log.read() == "two\nthree\n"
    assert log.read() == ""


def test_a_log_that_is_not_there_yet_is_empty_until_it_is(
    tmp_path: Path, open_log: OpenLog
) -> None:
    path = tmp_path / "console.log"
    log = open_log(path)
    assert log.read() == ""
    path.write_bytes(b"here\n")
    assert log.read() == "here\n"
    path.unlink()
    assert log.read() == ""
    path.write_bytes(b"again\n")
    assert log.read() == "again\n"


def test_a_character_that_is_written_in_two_parts_is_one(tmp_path: Path, open_log: OpenLog) -> None:
    path = tmp_path / "console.log"
    path.write_bytes("é".encode()[:1])
    log = open_log(path)
    first = log.read()
    with path.open("ab") as file:
        file.write("é".encode()[1:])
    assert first + log.read() == "é"


def test_a_guest_that_writes_without_end_is_bounded(tmp_path: Path, open_log: OpenLog) -> None:
    path = tmp_path / "console.log"
    path.write_bytes(b"x" * (FIRST_MAX + 1000))
    log = open_log(path)
    assert len(log.read()) == FIRST_MAX
    with path.open("ab") as file:
        file.write(b"y" * (READ_MAX + 5000))
    text = log.read()
    assert text.startswith(SKIPPED) and len(text) == READ_MAX + len(SKIPPED)


def test_a_closed_log_reads_nothing(tmp_path: Path) -> None:
    path = tmp_path / "console.log"
    path.write_bytes(b"x")
    log = FileLog(path)
    log.read()
    log.close()
    log.close()
    assert log.read() == ""
