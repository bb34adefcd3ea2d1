"""What servers tell of what guests wrote is read while they write it."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from quicksand.mounts.known_mounts import ENTRIES, read_told
from quicksand.records.layout import MachineDir
from quicksand_smb.trigger_report import SUFFIX, TriggerReport


def kept_in(root: Path) -> tuple[MachineDir, TriggerReport]:
    machine = MachineDir(root)
    told = TriggerReport()
    told.map_to(f"{machine.share_socket(0)}{SUFFIX}")
    return machine, told


def test_the_last_written_is_the_first_and_each_is_there_once(tmp_path: Path) -> None:
    machine, told = kept_in(tmp_path)
    assert read_told(machine, 0) == ()
    before = int(time.time())
    for path in (".envrc", ".git/config", ".envrc"):
        told.record(tuple(path.split("/")))
    found = read_told(machine, 0)
    assert {written.path for written in found} == {".envrc", ".git/config"}
    assert all(before <= written.time <= time.time() for written in found)


def test_of_very_many_the_last_are_kept(tmp_path: Path) -> None:
    machine, told = kept_in(tmp_path)
    for number in range(3 * ENTRIES):
        told.record((f"{number}", ".envrc"))
    kept = {int(written.path.split("/")[0]) for written in read_told(machine, 0)}
    assert kept == set(range(2 * ENTRIES, 3 * ENTRIES))
    assert machine.share_told(0).stat().st_size == machine.share_told(0).stat().st_blocks * 512


def test_a_server_that_is_begun_anew_forgets_nothing(tmp_path: Path) -> None:
    """A guest can make one end; and what it wrote before would be told no more."""
    machine, told = kept_in(tmp_path)
    for path in (".git/hooks/x", ".envrc"):
        told.record(tuple(path.split("/")))
    told._count()  # it ended in the midst of telling
    assert read_told(machine, 0) == ()
    another = TriggerReport()
    another._memory = told._memory
    another.resume()
    assert {written.path for written in read_told(machine, 0)} == {".git/hooks/x", ".envrc"}
    another.record((".npmrc",))
    another.record((".envrc",))
    found = [written.path for written in read_told(machine, 0)]
    assert sorted(found) == [".envrc", ".git/hooks/x", ".npmrc"]


def test_a_very_long_path_is_told_by_its_end_and_what_cannot_be_printed_by_marks(
    tmp_path: Path,
) -> None:
    machine, told = kept_in(tmp_path)
    told.record((*["x" * 200] * 9, ".envrc"))
    told.record(("\x1b[31m\u202e", "a\nb", ".envrc"))
    long, strange = sorted(read_told(machine, 0), key=lambda written: -len(written.path))
    assert long.path.startswith("...x")
    assert long.path.endswith("x/.envrc")
    assert strange.path.isprintable()


def test_without_a_file_nothing_is_told_and_nothing_is_written_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "other").write_text("theirs")
    (tmp_path / f"smb0.sock{SUFFIX}").symlink_to(tmp_path / "other")
    machine, told = kept_in(tmp_path)
    told.record((".envrc",))
    assert (tmp_path / "other").read_text() == "theirs"
    assert read_told(machine, 0) == ()


@given(st.binary(max_size=64), st.integers(0, 16000))
def test_whatever_the_file_holds_it_is_read(data: bytes, at: int) -> None:
    """A server that the guest has taken over can write anything there."""
    root = Path(os.environ["QUICKSAND_DATA_DIR"])
    machine, told = kept_in(root)
    told.record((".envrc",))
    with machine.share_told(0).open("r+b") as file:
        os.pwrite(file.fileno(), data, at)
    assert all(written.path.isprintable() for written in read_told(machine, 0))


def test_no_half_written_path_is_read(tmp_path: Path) -> None:
    machine, told = kept_in(tmp_path)
    paths = [("a" * 100, ".envrc"), ("b" * 100, ".envrc")]
    done = threading.Event()

    def write() -> None:
        while not done.is_set():
            for number in range(ENTRIES):
                told.record((f"{number}", ".x"))
            for path in paths:
                told.record(path)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(300):
            for written in read_told(machine, 0):
                first = written.path.split("/")[0]
                assert first.isdecimal() or first in ("a" * 100, "b" * 100), written.path
    finally:
        done.set()
        writer.join()
