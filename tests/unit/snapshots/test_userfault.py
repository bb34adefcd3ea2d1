"""Which pages a process has written, as this host's kernel tells it. A small child of the test
plays QEMU."""

from __future__ import annotations

import errno
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from quicksand.base import injection
from quicksand.base.errors import MachineError
from quicksand.qemu.keeper_parts import launch as giving
from quicksand.qemu.keeper_parts.launch import launch
from quicksand.qemu.process import keeper_environment
from quicksand.snapshots import paged, proving, tracking, userfault
from quicksand.snapshots.tier_choice import choose_tier
from quicksand.snapshots.tracking import ANONYMOUS, SOFT_DIRTY, WRITE_PROTECT
from quicksand.snapshots.userfault import track

from tests import filters, kernel
from tests.filters import run_filtered
from tests.unit.snapshots.test_guest_ram import PAGES, SIZE, Child, image_byte, runs_of

pytestmark = kernel.needs_write_protection
"""By what the host is, not by what the code says of it: where it should work, it must."""


@pytest.fixture
def image(tmp_path: Path) -> Path:
    path = tmp_path / "image"
    path.write_bytes(
        b"".join(bytes([image_byte(page)]) * os.sysconf("SC_PAGESIZE") for page in range(PAGES))
    )
    return path


@pytest.fixture(autouse=True)
def of_the_keeper(monkeypatch: pytest.MonkeyPatch) -> None:
    """The keeper is a script and finds the module in another way."""
    monkeypatch.setitem(sys.modules, "injection", injection)


@pytest.fixture
def child(image: Path) -> Iterator[Child]:
    child = Child(image)
    yield child
    child.close()


def test_exactly_the_pages_written_since_the_last_time_are_listed(child: Child) -> None:
    child.write({1: 1, 700: 2})
    written = track(child.ram())
    assert written.take() == [(1, 1), (700, 1)]
    assert written.look() == written.take() == []
    pages = {0, 1, 2, 511, 512, 513, PAGES - 1, *range(2000, 2100)}
    child.write(dict.fromkeys(pages, 9))
    assert written.look() == written.take() == runs_of(pages)
    assert written.take() == []
    assert child.ram().written() == runs_of(pages | {700})


@pytest.mark.parametrize("regions", [userfault.REGIONS, 1000, 100, 1])
def test_many_pieces_are_each_listed_once(
    child: Child, monkeypatch: pytest.MonkeyPatch, regions: int
) -> None:
    """From 512 pieces on the kernel does not tell where it stopped."""
    monkeypatch.setattr(userfault, "REGIONS", regions)
    written = track(child.ram())
    written.clear()
    pages = {*range(0, PAGES, 2), PAGES - 1}
    assert len(runs_of(pages)) > 1000
    child.write(dict.fromkeys(pages, 9))
    assert written.look() == written.take() == runs_of(pages)
    assert written.take() == []


def test_what_is_written_while_many_pieces_are_listed_is_listed_once(child: Child) -> None:
    written = track(child.ram())
    written.clear()
    for number in range(20):
        child.write(dict.fromkeys(range(number % 2, PAGES, 2), number))
        writer = threading.Thread(
            target=child.write, args=(dict.fromkeys(range(PAGES // 2, PAGES, 2), number),)
        )
        writer.start()
        found = written.take()
        writer.join()
        ends = [first + count for first, count in found]
        assert all(end < first for end, (first, _) in zip(ends, found[1:], strict=False))


def test_reading_is_not_writing_and_leaves_no_trace(child: Child) -> None:
    ram = child.ram()
    written = track(ram)
    written.clear()
    child.ask("hash")
    ram.read([(0, PAGES)], memoryview(bytearray(SIZE)))
    assert written.look() == written.take() == ram.written() == []


def test_what_is_written_from_outside_counts(child: Child) -> None:
    written = track(child.ram())
    written.clear()
    child.ram().write([(5, 2)], memoryview(bytearray(2 * 4096)))
    assert written.take() == [(5, 2)]


def test_a_second_client_finds_what_the_first_has_begun(child: Child) -> None:
    track(child.ram()).clear()
    child.write({3: 1})
    again = track(child.ram())
    assert again.take() == [(3, 1)]
    links = [os.readlink(path) for path in Path(f"/proc/{child.process.pid}/fd").iterdir()]
    assert links.count(userfault.LINK) == 1


def test_more_regions_than_one_scan_reports(child: Child, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(userfault, "REGIONS", 7)
    written = track(child.ram())
    written.clear()
    pages = {*range(0, PAGES, 3), *range(1000, 1400)}
    child.write(dict.fromkeys(pages, 1))
    assert written.look() == runs_of(pages)
    assert written.take() == runs_of(pages)
    assert written.take() == []


def test_no_write_is_lost_while_lists_are_taken(child: Child) -> None:
    """The child writes without a pause; what was listed and read since is its memory at the end."""
    ram = child.ram()
    written = track(ram)
    written.clear()
    copy = bytearray(SIZE)
    dice = random.Random(1)
    done = threading.Event()

    def storm() -> None:
        for byte in range(150):
            child.write({dice.randrange(PAGES): byte for _ in range(40)})
        done.set()

    thread = threading.Thread(target=storm)
    thread.start()
    before = bytearray(SIZE)
    ram.read([(0, PAGES)], memoryview(before))
    copy[:] = before
    last = False
    while True:
        last = done.is_set()
        for first, count in written.take():
            part = memoryview(copy)[first * 4096 : (first + count) * 4096]
            ram.read([(first, count)], part)
        if last:
            break
    thread.join()
    now = bytearray(SIZE)
    ram.read([(0, PAGES)], memoryview(now))
    assert copy == now


def test_a_range_that_is_not_registered_is_an_error(child: Child) -> None:
    with pytest.raises(MachineError, match="not known"):
        userfault.WrittenPages(child.ram()).take()


def test_a_process_that_is_gone_is_an_error(child: Child) -> None:
    ram = child.ram()
    written = track(ram)
    child.kill()
    child.close()
    with pytest.raises(MachineError):
        written.take()
    with pytest.raises(OSError, match=r"\w"):
        track(ram)


# Having it made


def test_a_running_process_goes_on_as_before(child: Child) -> None:
    before = child.ask("hash")
    number = injection.call_in_running(child.process.pid, giving.USERFAULTFD, giving.FLAGS)
    assert os.readlink(f"/proc/{child.process.pid}/fd/{number}") == userfault.LINK
    assert child.ask("hash") == before
    assert "TracerPid:\t0" in Path(f"/proc/{child.process.pid}/status").read_text()


def test_a_call_that_fails_says_so(child: Child) -> None:
    flags = giving.FLAGS | 1 << 30  # with the others anybody may ask for one
    said = injection.call_in_running(child.process.pid, giving.USERFAULTFD, flags)
    assert said == -errno.EINVAL
    assert child.ask("look", 1) == [1]


def test_a_process_that_ended_is_an_error(child: Child) -> None:
    child.kill()
    with pytest.raises(OSError, match=r"\w"):
        injection.call_in_running(child.process.pid, giving.USERFAULTFD, giving.FLAGS)


def run_launch(tmp_path: Path, *words: str, tracked: bool = True) -> tuple[int, str]:
    """Execute a program as the keeper does; its exit code, and what it said."""
    program = [sys.executable, "-I", "-S", "-c", *words]
    pid, out, err = launch(program, {}, {}, str(tmp_path), None, None, tracked=tracked)
    with open(out, "rb") as said, open(err, "rb"):
        text = said.read().decode()
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), text


LIST = """
import os
paths = [f"/proc/self/fd/{name}" for name in os.listdir("/proc/self/fd")]
print([os.readlink(path) for path in paths if os.path.lexists(path)])
"""


def test_what_the_keeper_launches_has_one(tmp_path: Path) -> None:
    code, text = run_launch(tmp_path, LIST)
    assert (code, text.count(userfault.LINK)) == (0, 1)
    assert userfault.LINK not in run_launch(tmp_path, LIST, tracked=False)[1]


def test_the_end_of_what_it_launches_is_its_own(tmp_path: Path) -> None:
    assert run_launch(tmp_path, "import os; os._exit(31)")[0] == 31
    assert run_launch(tmp_path, "import os; os.kill(os.getpid(), 9)")[0] == -9


def test_a_program_that_cannot_be_executed_is_an_error_as_before(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        launch([str(tmp_path / "none")], {}, {}, str(tmp_path), None, None)


@pytest.mark.parametrize("refused", ["ask_to_be_traced", "is_possible"])
def test_where_it_is_refused_programs_run_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: str
) -> None:
    """By ptrace, or since the steps are not known for the system."""
    monkeypatch.setattr(injection, refused, lambda: False)
    assert userfault.LINK not in run_launch(tmp_path, LIST)[1]


@pytest.mark.parametrize("asked", [SOFT_DIRTY, ANONYMOUS, WRITE_PROTECT, ""])
def test_a_level_that_does_without_keeps_the_keeper_from_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: str
) -> None:
    monkeypatch.setenv(tracking.VARIABLE, asked)
    assert keeper_environment().get(tracking.VARIABLE, "") == asked
    assert (userfault.LINK in run_launch(tmp_path, LIST)[1]) is (asked in (WRITE_PROTECT, ""))


UNDER_A_FILTER = """
import os, sys
from quicksand.base import injection
from quicksand.qemu.keeper_parts.launch import launch
from tests.filters import install

sys.modules["injection"] = injection
install(int(sys.argv[1]), int(sys.argv[2]))
pid, out, err = launch(sys.argv[3:], {}, {}, "/", None, None)
with open(out, "rb") as said:
    print(said.read().decode())
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""


@pytest.mark.parametrize("action", [filters.KILL_PROCESS, filters.KILL_THREAD, filters.TRAP])
@pytest.mark.parametrize("number", [filters.USERFAULTFD, filters.PTRACE])
def test_a_filter_that_kills_for_it_costs_only_the_tracking(
    tmp_path: Path, number: int, action: int
) -> None:
    (tmp_path / "file").write_text("there")
    program = [str(shutil.which("cat")), str(tmp_path / "file")]
    done = run_filtered(UNDER_A_FILTER, number, action, *program)
    assert (done.stdout.split(), done.stderr) == (["there", "0"], "")


@pytest.mark.parametrize("fails_at", ["_step", "_restore"])
def test_what_is_left_half_changed_is_started_again_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails_at: str
) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.EIO, "no reason that is known")

    monkeypatch.setattr(injection, fails_at, fail)
    code, text = run_launch(tmp_path, LIST)
    assert (code, text.count(userfault.LINK)) == (0, 0)


def test_a_keeper_that_dies_at_it_leaves_no_process(tmp_path: Path) -> None:
    """Killed between the two system calls that change and restore the program's registers."""
    code = f"""
import os, signal, sys
sys.path.insert(0, {os.path.dirname(injection.__file__)!r})
import injection
pid = os.fork()
if pid == 0:
    injection.ask_to_be_traced()
    os.execv("/bin/sleep", ["sleep", "1000"])
print(pid, flush=True)
wait = injection._wait
def die(pid, seconds=None):
    if wait(pid, seconds) and (before := sys._getframe(1).f_code.co_name) == "_step":
        os.kill(os.getpid(), signal.SIGKILL)
    return True
injection._wait = die
injection.call_at_exec(pid, 323, 0)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert done.returncode == -signal.SIGKILL
    from tests.conftest import wait_for

    wait_for(lambda: not Path(f"/proc/{int(done.stdout)}").exists(), what="its end")


# Levels


def test_the_best_level_is_proved(child: Child, monkeypatch: pytest.MonkeyPatch) -> None:
    found = tracking.start_tracking(child.ram())
    assert (found.name, found.why) == (WRITE_PROTECT, "")
    assert tracking.find_level().name == WRITE_PROTECT
    monkeypatch.setattr(userfault.WrittenPages, "look", lambda _: [])
    found = tracking.start_tracking(child.ram())
    assert found.name in (SOFT_DIRTY, ANONYMOUS)
    assert "other pages" in found.why
    assert tracking.find_level().name == found.name


def test_what_is_proved_does_not_go_by_the_path_of_programs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    assert proving.find_refusal.__wrapped__() == ""


@pytest.mark.parametrize("best", [SOFT_DIRTY, ANONYMOUS])
def test_a_level_can_be_asked_for(child: Child, monkeypatch: pytest.MonkeyPatch, best: str) -> None:
    monkeypatch.setenv(tracking.VARIABLE, best)
    found = tracking.start_tracking(child.ram())
    assert found.name in (best, ANONYMOUS)
    assert best in found.why


def test_under_a_filter_nothing_is_tried_that_it_may_kill_for(
    child: Child, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    status = tmp_path / "status"
    status.write_text("Name:\tx\nSeccomp:\t2\n")
    monkeypatch.setattr(userfault, "STATUS", status)
    monkeypatch.setattr(userfault, "prove", pytest.fail)
    assert userfault.is_filtered()
    found = tracking.start_tracking(child.ram())
    assert found.name != WRITE_PROTECT
    assert "QEMU has no userfaultfd" in found.why
    assert tracking.find_level().name == WRITE_PROTECT  # another process has tried


FIND_LEVEL = """
import sys
from quicksand.snapshots import tracking
from tests.filters import install

install(int(sys.argv[1]), int(sys.argv[2]))
found = tracking.find_level()
print(found.name, found.why, sep="\\n")
"""


@pytest.mark.parametrize("action", [filters.KILL_PROCESS, filters.TRAP, filters.REFUSE])
@pytest.mark.parametrize("number", [filters.USERFAULTFD, filters.PTRACE, filters.PIDFD_GETFD])
def test_the_whole_way_to_the_level_is_tried(number: int, action: int) -> None:
    """That the kernel tracks memory of this process is not enough: QEMU's userfaultfd is made by
    ptrace and fetched."""
    done = run_filtered(FIND_LEVEL, number, action)
    assert done.returncode == 0, done.stderr
    name, why = done.stdout.splitlines()
    assert name != WRITE_PROTECT
    names = {filters.USERFAULTFD: "userfaultfd", filters.PTRACE: "ptrace"}
    assert names.get(number, "pidfd_getfd") in why


@pytest.mark.parametrize("level", [SOFT_DIRTY, WRITE_PROTECT])
def test_why_the_level_is_lower_is_said(monkeypatch: pytest.MonkeyPatch, level: str) -> None:
    why = "" if level == WRITE_PROTECT else "ptrace is refused"
    monkeypatch.setattr(paged, "find_level", lambda: tracking.Level(name=level, why=why))
    said = choose_tier().copied
    assert level in said
    assert why in said


def test_without_the_system_it_is_for_other_levels_are_used(
    child: Child, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(injection, "is_possible", lambda: False)
    found = tracking.start_tracking(child.ram())
    assert found.name != WRITE_PROTECT
    assert "x86_64" in found.why


def test_soft_dirty_bits_are_tried_out() -> None:
    assert tracking.tracks_soft_dirty() is kernel.has_soft_dirty_bits()
