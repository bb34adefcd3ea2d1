"""Records are written whole or not at all, locks are the kernel's, tails are bounded."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from quicksand.base import files
from quicksand.base.errors import ConfigError, DiskSpaceError, PathError
from quicksand.base.files import (
    JSON_MAX,
    is_locked,
    lock_within,
    map_os_errors,
    read_json,
    tail,
    try_lock,
    try_named_lock,
    write_json,
)

from tests.conftest import wait_for
from tests.each import each

HOLD = """
import fcntl, os, sys
descriptor = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
fcntl.flock(descriptor, fcntl.LOCK_SH if sys.argv[2] == "shared" else fcntl.LOCK_EX)
print("locked", flush=True)
sys.stdin.read()
"""


@contextlib.contextmanager
def locked_elsewhere(path: Path, *, kind: str = "exclusive") -> Iterator[subprocess.Popen[bytes]]:
    """Another process holds the flock on ``path``."""
    child = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", HOLD, str(path), kind],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"locked\n"
        yield child
        child.kill()


def test_a_lock_that_is_a_link_is_refused_and_makes_nothing_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "lock").symlink_to(tmp_path / "elsewhere")
    for lock in (try_lock, is_locked, lambda path: lock_within(path, 0)):
        with pytest.raises(OSError, match="it is a symbolic link, and no file"):
            lock(tmp_path / "lock")
    assert not (tmp_path / "elsewhere").exists()


@pytest.fixture
def record(tmp_path: Path) -> Path:
    """A record that exists."""
    path = tmp_path / "record.json"
    write_json(path, {"version": "old"})
    return path


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


# Writing


def test_what_is_written_is_read_back(record: Path) -> None:
    for value in ({}, {"é\ud800\n": [None, 1.5, "\0"]}, {"list": list(range(1000))}):
        write_json(record, value)
        assert read_json(record) == value
    assert names(record.parent) == ["record.json"]
    assert stat.S_IMODE(record.stat().st_mode) == 0o600


@pytest.mark.parametrize("durable", [True, False])
def test_a_crash_before_the_rename_leaves_the_old_record(
    record: Path, monkeypatch: pytest.MonkeyPatch, durable: bool
) -> None:
    class PowerCut(BaseException):
        pass

    def crash(*_: object) -> None:
        raise PowerCut

    monkeypatch.setattr(Path, "replace", crash)
    with pytest.raises(PowerCut):
        write_json(record, {"version": "new"}, durable=durable)
    assert read_json(record) == {"version": "old"}
    assert names(record.parent) == ["record.json"]


def test_the_record_is_on_the_disk_before_it_gets_its_name(
    record: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []
    fsync, replace = os.fsync, Path.replace

    def logged_fsync(descriptor: int) -> None:
        kind = "directory" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file"
        size = os.fstat(descriptor).st_size
        steps.append(f"sync {kind}" if kind == "directory" or size else "sync empty file")
        fsync(descriptor)

    def logged_replace(path: Path, target: Path) -> Path:
        steps.append("rename")
        return replace(path, target)

    monkeypatch.setattr(os, "fsync", logged_fsync)
    monkeypatch.setattr(Path, "replace", logged_replace)
    write_json(record, {"version": "new"})
    assert steps == ["sync file", "rename", "sync directory"]
    steps.clear()
    write_json(record, {"version": "newer"}, durable=False)
    assert steps == ["rename"]


CRASH = """
import os, sys
from pathlib import Path
from quicksand.base import files
real = getattr(os, sys.argv[2])
def crash(*arguments):
    if sys.argv[3] == "after":
        real(*arguments)
    os.kill(os.getpid(), 9)
setattr(os, sys.argv[2], crash)
files.write_json(Path(sys.argv[1]), {"version": "new"})
"""


@pytest.mark.parametrize(
    ("call", "when", "expected"),
    [
        ("fsync", "before", "old"),
        ("fsync", "after", "old"),
        ("replace", "before", "old"),
        ("replace", "after", "new"),
    ],
)
def test_a_writer_killed_at_any_step_leaves_a_whole_record(
    record: Path, call: str, when: str, expected: str
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", CRASH, str(record), call, when], timeout=120, check=False
    )
    assert done.returncode == -9
    assert read_json(record) == {"version": expected}
    write_json(record, {"version": "next"})
    assert read_json(record) == {"version": "next"}


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EIO])
@pytest.mark.parametrize("call", ["open", "fsync"])
def test_an_error_of_the_disk_is_named_and_leaves_the_old_record(
    record: Path, monkeypatch: pytest.MonkeyPatch, call: str, number: int
) -> None:
    def fail(*_: object) -> int:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patch:
        patch.setattr(os, call, fail)
        kind = PathError if number == errno.EIO else DiskSpaceError
        with pytest.raises(kind, match=str(record)) as caught:
            write_json(record, {"version": "new"})
    assert isinstance(caught.value.__cause__, OSError)
    assert read_json(record) == {"version": "old"}
    assert names(record.parent) == ["record.json"]
    write_json(record, {"version": "new"})


@pytest.fixture
def tiny(tmp_path: Path) -> Iterator[Path]:
    """A file system of 64 KiB."""
    if os.getuid() != 0:
        pytest.skip("needs root to mount a small file system")
    place = tmp_path / "tiny"
    place.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", place], check=False)
    if done.returncode:
        pytest.skip("mounting is not allowed here")
    yield place
    subprocess.run(["umount", place], check=True)


def test_a_full_disk_keeps_the_old_record_and_no_litter(tiny: Path) -> None:
    record, ballast = tiny / "record.json", tiny / "ballast"
    write_json(record, {"version": "old"})
    with contextlib.suppress(OSError):
        ballast.write_bytes(bytes(1024 * 1024))
    for durable in (True, False):
        with pytest.raises(DiskSpaceError, match="no space left"):
            write_json(record, {"version": "new"}, durable=durable)
    assert read_json(record) == {"version": "old"}
    assert names(tiny) == ["ballast", "record.json"]
    ballast.unlink()
    write_json(record, {"version": "new"})
    assert read_json(record) == {"version": "new"}


@pytest.mark.parametrize(
    "value", [{"x": object()}, {"x": {1, 2}}, {(1, 2): 3}, {"x": float("nan")}]
)
def test_what_is_no_json_leaves_the_old_record(record: Path, value: Any) -> None:
    with pytest.raises(ConfigError, match=r"record\.json is not written"):
        write_json(record, value)
    assert read_json(record) == {"version": "old"}
    assert names(record.parent) == ["record.json"]


def test_a_place_that_cannot_be_written_is_named(record: Path) -> None:
    for place in (record / "below-a-file", record.parent / "missing" / "x", Path("/proc/x")):
        with pytest.raises(PathError, match=str(place)):
            write_json(place, {})
    too_long = record.parent / ("x" * 300)
    with pytest.raises(PathError, match="too long"):
        write_json(too_long, {})


def test_a_descriptor_is_left_open_by_no_failure(
    record: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = len(os.listdir("/proc/self/fd"))

    def fail(_: int) -> None:
        raise OSError(errno.ENOSPC, "full")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fail)
        for _ in range(20):
            with pytest.raises(DiskSpaceError):
                write_json(record, {})
    assert len(os.listdir("/proc/self/fd")) <= before


# Reading


@each(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'"x"',
        b"5",
        b"{}{}",
        b"\xff\xfe",
        b"{\x00}",
        b"[" * 100_000,
        b'{"x": ' * 100_000,
        b'{"x": ' + b"9" * 5000 + b"}",
        b'{"x"',
    ],
    ids=lambda content: repr(content[:8]),
)
def test_what_is_no_json_object_is_a_value_error(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x"
    path.write_bytes(content)
    with pytest.raises(ValueError):
        read_json(path)


@given(st.binary(max_size=200))
def test_any_bytes_are_an_object_or_a_value_error(content: bytes) -> None:
    path = Path(f"/proc/self/fd/{os.memfd_create('x')}")
    try:
        path.write_bytes(content)
        with contextlib.suppress(ValueError):
            assert isinstance(read_json(path), dict)
    finally:
        os.close(int(path.name))


def test_a_file_beyond_all_records_is_refused_without_reading_it(tmp_path: Path) -> None:
    path = tmp_path / "huge"
    path.touch()
    os.truncate(path, 2**40)
    with pytest.raises(ValueError, match="larger than"):
        read_json(path)
    path.write_text(json.dumps({"x": " " * (JSON_MAX - 9)}))
    assert path.stat().st_size == JSON_MAX
    assert read_json(path)


# Errors


def test_only_a_full_disk_is_called_full() -> None:
    path = Path("/some/where")
    for number in errno.errorcode:
        with pytest.raises((DiskSpaceError, PathError)) as caught, map_os_errors(path):
            raise OSError(number, os.strerror(number))
        full = number in (errno.ENOSPC, errno.EDQUOT)
        assert isinstance(caught.value, DiskSpaceError) is full
        assert str(path) in str(caught.value)
        assert full or os.strerror(number) in str(caught.value)
        assert bool(caught.value.hint) is full


def test_an_error_without_a_number_keeps_its_words() -> None:
    with pytest.raises(PathError, match="cannot write /x: a link"), map_os_errors(Path("/x")):
        raise OSError("a link")


def test_other_errors_pass_as_they_are() -> None:
    with pytest.raises(KeyError), map_os_errors(Path("/x")):
        raise KeyError("x")


# Locks


def test_a_lock_is_held_by_one(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    assert not is_locked(path)
    first = try_lock(path)
    assert first is not None
    assert not os.get_inheritable(first)
    assert is_locked(path)
    assert try_lock(path) is None
    os.close(first)
    assert not is_locked(path)
    second = try_lock(path)
    assert second is not None
    os.close(second)


def test_a_lock_ends_with_its_process_however_it_ends(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with locked_elsewhere(path) as child:
        assert is_locked(path)
        assert try_lock(path) is None
        assert lock_within(path, 0.02) is None
        child.kill()
        lock = lock_within(path, 10)
        assert lock is not None
        os.close(lock)


def test_a_copy_of_the_descriptor_keeps_the_lock(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    lock = try_lock(path)
    assert lock is not None
    copy = os.dup(lock)
    os.close(lock)
    assert is_locked(path)
    os.close(copy)
    assert not is_locked(path)


def test_looking_at_a_lock_takes_it_from_nobody_else_who_looks(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with locked_elsewhere(path, kind="shared"):
        assert not is_locked(path)
        assert try_lock(path) is None


def test_looking_at_a_lock_makes_no_file(tmp_path: Path) -> None:
    assert not is_locked(tmp_path / "missing" / "lock")
    assert not is_locked(tmp_path / "lock")
    assert try_lock(tmp_path / "lock", create=False) is None
    assert names(tmp_path) == []


def test_waiting_for_a_lock_ends_as_soon_as_it_is_free(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with locked_elsewhere(path) as child:
        assert child.stdin is not None
        child.stdin.close()
        lock = lock_within(path, 10)
    assert lock is not None
    os.close(lock)


def test_no_descriptor_is_left_by_locks_that_were_not_had(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    lock = try_lock(path)
    assert lock is not None
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        assert try_lock(path) is None
        assert is_locked(path)
    assert len(os.listdir("/proc/self/fd")) <= before
    os.close(lock)
    wait_for(lambda: not is_locked(path), what="the lock to be free")


# Tails


def test_a_tail_of_nothing_is_empty(tmp_path: Path) -> None:
    assert tail(tmp_path / "log") == ""
    (tmp_path / "log").touch()
    assert tail(tmp_path / "log") == ""


@given(st.binary(max_size=60), st.binary(max_size=60), st.integers(0, 130))
def test_a_tail_is_the_end_of_both_pieces(older: bytes, newer: bytes, limit: int) -> None:
    with temporary() as directory:
        log = directory / "log"
        log.with_name("log.1").write_bytes(older)
        log.write_bytes(newer)
        whole = older + newer
        expected = whole[max(0, len(whole) - limit) :]
        assert tail(log, limit=limit) == expected.decode("utf-8", "replace")


@contextlib.contextmanager
def temporary() -> Iterator[Path]:
    """A directory for one example; pytest's lasts for the whole test."""
    import tempfile

    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


def test_the_tail_of_a_huge_log_reads_its_end_only(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with log.open("wb") as file:
        file.truncate(2**40)
        file.seek(0, os.SEEK_END)
        file.write(b"the end")
    assert tail(log, limit=7) == "the end"
    assert len(tail(log)) == 4096


def test_a_character_cut_in_two_is_no_error(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("é" * 10)
    assert tail(log, limit=3) == "\N{REPLACEMENT CHARACTER}é"
    assert files.tail(log, limit=4) == "éé"


def test_a_named_lock_that_is_waited_for_is_never_one_whose_file_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever had it removes the file between our opening and our locking it."""
    path = tmp_path / "lock"
    flock = fcntl.flock
    removed: list[Path] = []

    def beaten(descriptor: int, operation: int) -> None:
        if not removed:
            path.unlink()
            removed.append(path)
        flock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", beaten)
    lock = lock_within(path, 1, take=try_named_lock)
    assert removed and lock is not None
    assert os.path.samestat(os.fstat(lock), path.stat())
    os.close(lock)
