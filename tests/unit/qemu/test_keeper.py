"""The keeper, with shell scripts in QEMU's place: the end is recorded, logs stay bounded, and the
sandbox lives exactly as long as it should."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from quicksand.base.errors import PathError, QemuDiedError
from quicksand.base.files import is_locked, tail, try_lock
from quicksand.base.paths import Paths, make_private_dir
from quicksand.base.removal import make_marked
from quicksand.qemu.binaries import QemuBinaries
from quicksand.qemu.keeper_parts import FIRST, full_disk
from quicksand.qemu.keeper_parts.full_disk import LINE_MAX, SPACE_WANTED, SpaceWatch
from quicksand.qemu.keeper_parts.keeper_files import LOG_LIMIT, BoundedLog
from quicksand.qemu.keeper_parts.launch import control_process
from quicksand.qemu.keeper_parts.launch import launch as launch_plainly
from quicksand.qemu.keeper_parts.loop import TERM_GRACE_S
from quicksand.qemu.process import KEEPER, Listeners, OwnedProcess, launch
from quicksand.qemu.second_machine import FIRST_DESCRIPTOR
from quicksand.records.layout import (
    AGENT_PORTS,
    QMP_MONITORS,
    SHARES,
    RuntimeDir,
    runtime_dir,
    sandbox_dir,
)

from tests.conftest import in_time, wait_for

ID = "b0c5b0c5b0c5"
FOR_EVER = "exec tail -f /dev/null"
DEAF = "exec sleep 10000"
"""As FOR_EVER, but it does not notice that its keeper is gone."""


class Stage:
    """A sandbox's directories, and a script that plays QEMU in them."""

    def __init__(self, paths: Paths) -> None:
        self.place = sandbox_dir(paths, ID)
        self.runtime = runtime_dir(paths, ID)
        make_private_dir(paths.runtime)
        make_marked(make_private_dir(paths.sandboxes) / ID)
        self.place.layers.mkdir()
        self.program = paths.data / "program"
        self.owned: list[OwnedProcess] = []

    def script(self, text: str) -> Path:
        self.program.write_text(f"#!/bin/sh\n{text}\n")
        self.program.chmod(0o700)
        return self.program

    async def launch(
        self,
        script: str,
        *arguments: str,
        discard: bool = False,
        env: Mapping[str, str] | None = None,
        program: Path | None = None,
    ) -> OwnedProcess:
        program = program or self.script(script)
        machine = self.runtime.make(FIRST)
        lock = try_lock(self.place.lock)
        assert lock is not None
        listeners = Listeners(machine)
        try:
            listeners.open()
            owned = await launch(
                QemuBinaries(system=program, img=None, version=(9, 0, 0), env=env or {}),
                arguments,
                sandbox=self.place,
                runtime=self.runtime,
                lock=lock,
                listeners=listeners,
                discard=discard,
            )
        finally:
            listeners.close()
            os.close(lock)
        self.owned.append(owned)
        return owned

    async def end(self, script: str, *arguments: str, **options: Any) -> dict[str, Any]:
        """Run a script to its end; how the keeper says that it ended."""
        owned = await self.launch(script, *arguments, **options)
        await asyncio.wait_for(owned.wait(), 60)
        return self.ended()

    def ended(self) -> dict[str, Any]:
        return dict(json.loads(self.place.exit.read_text()))

    def console(self) -> str:
        return tail(self.place.console_log, limit=10 * LOG_LIMIT)

    async def said(self, text: str) -> None:
        """Wait until the script has said ``text`` on its console."""
        await asyncio.to_thread(wait_for, lambda: text in self.console(), what=f"{text!r}")

    async def until_gone(self) -> None:
        """Wait until keeper and script have freed the lock."""
        await asyncio.to_thread(wait_for, lambda: not is_locked(self.place.lock), what="its end")


@pytest.fixture
async def stage(places: Paths) -> AsyncIterator[Stage]:
    stage = Stage(places)
    yield stage
    for owned in stage.owned:
        owned.cut()
        with contextlib.suppress(ProcessLookupError):
            os.kill(owned.keeper_pid, signal.SIGTERM)
        await asyncio.wait_for(owned.wait(), 60)
    await stage.until_gone()


def alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


# The start


async def test_an_owner_that_dies_while_qemu_starts_leaves_nothing(stage: Stage) -> None:
    """Nobody is there to read that it has started."""
    stage.runtime.make(FIRST)
    lock = try_lock(stage.place.lock)
    assert lock is not None
    leash, held = os.pipe()
    places = [str(stage.place.root), str(stage.runtime.root)]
    words = [*places, str(lock), str(leash), "keep", "--"]
    program = stage.script(DEAF)
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", str(KEEPER), *words, str(program)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        pass_fds=(lock, leash),
    )
    for descriptor in (lock, leash, held):
        os.close(descriptor)
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdout.close()
    process.stdin.close()
    process.wait()
    await stage.until_gone()
    assert stage.ended()["code"] == -signal.SIGKILL
    assert not stage.runtime.root.exists()


async def test_a_start_that_fails_after_qemu_was_launched_leaves_nothing(stage: Stage) -> None:
    """As where there is no space for the link to it."""
    stage.runtime.root.mkdir(mode=0o700, parents=True)
    (stage.runtime.root / "current.new").mkdir()
    with pytest.raises(QemuDiedError):
        await stage.launch(DEAF)
    await stage.until_gone()
    shutil.rmtree(stage.runtime.root)


# The end


@pytest.mark.parametrize(
    ("script", "code"),
    [("exit 0", 0), ("exit 3", 3), ("kill -SEGV $$", -11), ("kill -KILL $$", -9)],
)
async def test_an_end_of_its_own_is_recorded(stage: Stage, script: str, code: int) -> None:
    before = time.time()
    ended = await stage.end(script)
    assert (ended["code"], ended["asked"]) == (code, False)
    assert before - 1 < ended["unix_time"] < time.time() + 1
    assert not stage.runtime.root.exists()
    assert not is_locked(stage.place.lock)


async def test_the_launcher_learns_the_process_ids(stage: Stage) -> None:
    owned = await stage.launch(FOR_EVER)
    assert Path(f"/proc/{owned.qemu_pid}/stat").read_text().split()[3] == str(owned.keeper_pid)
    assert is_locked(stage.place.lock)


async def test_arguments_arrive_exactly(stage: Stage) -> None:
    arguments = ["-device", "a,,b=c", "", " ", 'it\'s "it"', "new\nline", "--", "$HOME;`x`", "é"]
    await stage.end("printf '%s|' \"$@\"", *arguments)
    # The last four are the keeper's own monitor.
    assert stage.console().split("|")[:-5] == arguments


async def test_the_environment_is_small_and_has_what_this_qemu_needs(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET", "token")
    await stage.end("env", env={"LD_LIBRARY_PATH": "/a:/b=c"})
    assert "LD_LIBRARY_PATH=/a:/b=c" in stage.console().splitlines()
    assert "SECRET" not in stage.console()


async def test_qemu_can_dump_no_core_and_reads_nothing(stage: Stage) -> None:
    await stage.end("ulimit -c; readlink /proc/$$/fd/0")
    assert stage.console().split() == ["0", "/dev/null"]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("-accel", "tcg,thread=multi", "-incoming", "defer"), "0"),
        (("-accel", "tcg,thread=multi"), "1"),
        (("-accel", "kvm", "-incoming", "defer"), "1"),
        (("-name", "tcg", "-incoming", "defer"), "1"),
    ],
)
async def test_an_emulator_that_goes_on_takes_no_huge_pages(
    stage: Stage, arguments: tuple[str, ...], told: str
) -> None:
    await stage.end("grep THP_enabled /proc/$$/status", *arguments)
    assert stage.console().split() == ["THP_enabled:", told]


def test_without_the_library_of_c_a_process_is_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: object) -> None:
        raise OSError("cannot open shared object file")

    monkeypatch.setattr("ctypes.CDLL", missing)
    control_process(41, 1)
    assert "THP_enabled:\t1" in Path("/proc/self/status").read_text()


async def test_qemu_inherits_its_sockets_and_the_keeper_keeps_none(stage: Stage) -> None:
    owned = await stage.launch(f"echo ready; {FOR_EVER}")
    await stage.said("ready")

    def sockets(pid: int) -> int:
        found = 0
        for path in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):  # closed since it was listed
                found += os.readlink(path).startswith("socket:")
        return found

    assert sockets(owned.qemu_pid) == AGENT_PORTS + QMP_MONITORS + SHARES + 1
    # Its monitor and its own socket; one of QEMU's would keep clients from noticing the end.
    assert sockets(owned.keeper_pid) == 2


def test_qemu_inherits_the_same_on_any_event_loop(places: Paths, tmp_path: Path) -> None:
    """uvloop forks as the program itself would, and closes nothing in the child."""
    uvloop = pytest.importorskip("uvloop")
    stage, found = Stage(places), tmp_path / "found"
    of_the_program = os.open(os.devnull, os.O_RDONLY)
    os.set_inheritable(of_the_program, True)
    seen = []
    for run in (asyncio.run, uvloop.run):
        run(stage.end(f"ls /proc/self/fd | wc -l >{found}"))
        seen.append(int(found.read_text()))
    for owned in stage.owned:
        owned.cut()
    os.close(of_the_program)
    assert seen[0] == seen[1]


# Programs that do not run


@pytest.mark.parametrize(
    ("kind", "reason"), [("missing", "No such file"), ("unexecutable", "Permission denied")]
)
async def test_a_program_that_cannot_be_executed_is_an_error_that_names_it(
    stage: Stage, kind: str, reason: str
) -> None:
    if kind == "unexecutable":
        stage.script("exit 0").chmod(0o600)
    with pytest.raises(QemuDiedError, match=f"{stage.program} cannot be .*: {reason}"):
        await stage.launch("", program=stage.program)
    assert not is_locked(stage.place.lock)
    assert not stage.place.exit.exists()
    assert not stage.place.qemu_log.exists(), "there was no run"
    stage.runtime.root.joinpath("x").touch()
    remove_runtime(stage.runtime)


def remove_runtime(runtime: RuntimeDir) -> None:
    """What the caller of `launch` does after a failure."""
    shutil.rmtree(runtime.root)


def test_the_keeper_says_failed_with_the_number(tmp_path: Path) -> None:
    found = run_keeper(tmp_path, "/nowhere/program")
    assert found == b"failed 2\n"


def run_keeper(directory: Path, *argv: str) -> bytes:
    """The keeper's stdout, run as the script that it is."""
    lock = os.open(directory / "lock", os.O_RDWR | os.O_CREAT)
    (directory / "run").mkdir()
    leash, held = os.pipe()
    words = [*map(str, (directory, directory / "run", lock, leash)), "keep", "--", *argv]
    done = subprocess.run(
        [sys.executable, "-I", "-S", str(KEEPER), *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        pass_fds=[lock, leash],
        timeout=120,
        check=True,
    )
    for descriptor in (lock, leash, held):
        os.close(descriptor)
    return done.stdout


async def test_without_a_place_for_its_logs_it_is_not_started(stage: Stage) -> None:
    """Nobody would look after it: the keeper would be dead."""
    stage.place.qemu_log.mkdir()
    mark = stage.place.root / "started"
    with pytest.raises(QemuDiedError, match="Is a directory"):
        await stage.launch(f"touch {shlex.quote(str(mark))}")
    assert not is_locked(stage.place.lock)
    assert not mark.exists()
    remove_runtime(stage.runtime)


def test_socket_paths_that_are_too_long_are_refused_before_anything_is_bound(
    tmp_path: Path,
) -> None:
    runtime = RuntimeDir(tmp_path / ("x" * 100), tmp_path)
    runtime.root.mkdir()
    with pytest.raises(PathError, match="longer than the 104 bytes") as caught:
        runtime.make(FIRST)
    assert "QUICKSAND_RUNTIME_DIR" in caught.value.hint
    assert list(runtime.root.iterdir()) == []


def test_sockets_are_private_and_closed_together(places: Paths) -> None:
    runtime = runtime_dir(places, ID)
    runtime.of.mkdir(parents=True)
    machine = runtime.make(FIRST)
    before = len(os.listdir("/proc/self/fd"))
    listeners, others = Listeners(machine), Listeners(machine)
    listeners.open()
    assert len(listeners.descriptors) == AGENT_PORTS + QMP_MONITORS + SHARES
    assert {path.stat().st_mode & 0o777 for path in machine.root.iterdir()} == {0o600}
    listeners.close()
    with pytest.raises(OSError, match="in use"):
        others.open()
    others.close()
    assert len(os.listdir("/proc/self/fd")) <= before
    remove_runtime(runtime)


# Logs


async def test_console_and_errors_have_a_log_each(stage: Stage) -> None:
    await stage.end("echo to the console; echo an error >&2")
    assert stage.console() == "to the console\n"
    assert tail(stage.place.qemu_log) == "an error\n"
    assert stage.place.console_log.stat().st_mode & 0o777 == 0o600


async def test_endless_output_stays_within_two_pieces(stage: Stage) -> None:
    owned = await stage.launch("exec yes a line of a guest that does not stop")
    older = stage.place.console_log.with_name("console.log.1")
    pieces: set[tuple[int, int]] = set()

    def three_pieces() -> bool:
        with contextlib.suppress(FileNotFoundError):  # between two pieces
            found = older.stat()
            pieces.add((found.st_ino, found.st_mtime_ns))
            assert found.st_size <= LOG_LIMIT
            assert stage.place.console_log.stat().st_size <= LOG_LIMIT
        return len(pieces) >= 3

    await asyncio.to_thread(wait_for, three_pieces, what="the third piece of the log")
    assert alive(owned.qemu_pid), "it is not stopped for that"
    owned.cut()
    await asyncio.wait_for(owned.wait(), 60)
    assert sorted(p.name for p in stage.place.root.glob("console*")) == [
        "console.log",
        "console.log.1",
    ]


async def test_the_last_words_are_never_lost(stage: Stage) -> None:
    text = "head -c 3000000 /dev/zero | tr '\\0' x; echo the last words"
    await stage.end(f"({text}) >&2 & {text}; wait")
    assert stage.console().endswith("xthe last words\n")
    assert tail(stage.place.qemu_log).endswith("xthe last words\n")


@settings(max_examples=30)
@given(st.lists(st.integers(0, 5 * 64 * 1024), max_size=40))
def test_a_log_keeps_the_end_of_what_is_written(sizes: list[int]) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "log"
        log, written = BoundedLog(str(path)), b""
        for number, size in enumerate(sizes):
            data = bytes([number]) * size
            log.write(data)
            written += data
        log.file.close()
        older = path.with_name("log.1")
        kept = (older.read_bytes() if older.exists() else b"") + path.read_bytes()
        assert written.endswith(kept)
        assert len(kept) >= min(len(written), LOG_LIMIT)
        assert len(kept) <= 2 * LOG_LIMIT


READ_TWO = "import os, sys; print([os.read(int(n), 9).decode() for n in sys.argv[1:]])"


def test_descriptors_get_their_numbers_even_if_others_have_them(tmp_path: Path) -> None:
    one, other = os.pipe(), os.pipe()
    os.write(one[1], b"one")
    os.write(other[1], b"other")
    numbers = {other[0]: one[0], one[0]: other[0]}  # they change places
    program = [sys.executable, "-I", "-S", "-c", READ_TWO, str(other[0]), str(one[0])]
    place = str(tmp_path)
    pid, out, err = launch_plainly(program, {}, numbers, place, None, None, tracked=False)
    with open(out, "rb") as said, open(err, "rb") as complaint:
        assert said.read() == b"['one', 'other']\n", complaint.read()
    os.waitpid(pid, 0)
    for descriptor in (*one, *other):
        os.close(descriptor)


def test_descriptors_that_are_passed_on_fit_into_what_macos_gives() -> None:
    count = QMP_MONITORS + AGENT_PORTS + SHARES
    assert FIRST_DESCRIPTOR + count < 256


def test_a_log_goes_on_after_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = BoundedLog(str(tmp_path / "log"))
    log.write(b"a" * LOG_LIMIT)
    real_open = open

    def full(path: Any, *arguments: Any, **options: Any) -> Any:
        if str(path) == log.path:
            raise OSError(28, "No space left on device")
        return real_open(path, *arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr("builtins.open", full)
        for _ in range(3):
            log.write(b"lost")
    log.write(b"kept")
    log.write(b" too")
    log.file.close()
    assert (tmp_path / "log").read_bytes() == b"kept too"
    assert (tmp_path / "log.1").read_bytes() == b"a" * LOG_LIMIT


def test_a_log_of_an_earlier_run_counts_for_the_limit(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"a" * LOG_LIMIT)
    log = BoundedLog(str(path))
    log.write(b"b")
    log.file.close()
    assert path.read_bytes() == b"b"


# The lifeline

STUBBORN = "trap '' TERM INT HUP; echo ready; exec tail -f /dev/null"


@pytest.mark.parametrize("script", [f"echo ready; {FOR_EVER}", STUBBORN])
async def test_a_cut_lifeline_kills_at_once(stage: Stage, script: str) -> None:
    async def cut() -> float:
        owned = await stage.launch(script)
        await stage.said("ready")
        begun = time.monotonic()
        owned.cut()
        owned.cut()
        await asyncio.wait_for(owned.wait(), 60)
        taken = time.monotonic() - begun
        assert not alive(owned.qemu_pid)
        assert (stage.ended()["code"], stage.ended()["asked"]) == (-9, True)
        assert not stage.runtime.root.exists()
        return taken

    assert await in_time(cut, TERM_GRACE_S), "at once, without that grace"


async def test_a_stopped_process_is_killed_too(stage: Stage) -> None:
    owned = await stage.launch(FOR_EVER)
    os.kill(owned.qemu_pid, signal.SIGSTOP)
    owned.cut()
    await asyncio.wait_for(owned.wait(), 60)
    assert stage.ended()["code"] == -9


OWNER = """
import asyncio, ctypes, os, signal, sys
from pathlib import Path
from quicksand.base.files import try_lock
from quicksand.records.layout import RuntimeDir, SandboxDir
from quicksand.qemu.binaries import QemuBinaries
from quicksand.qemu.process import Listeners, launch

async def main(sandbox, runtime, program):
    lock = try_lock(sandbox.lock)
    binaries = QemuBinaries(system=program, img=None, version=(9, 0, 0))
    listeners = Listeners(runtime.make("1"))
    listeners.open()
    await launch(
        binaries, [], sandbox=sandbox, runtime=runtime, lock=lock, listeners=listeners,
        discard=True,
    )
    %s
    os.kill(os.getpid(), signal.SIGKILL)

places = [Path(argument) for argument in sys.argv[1:]]
asyncio.run(main(SandboxDir(places[0]), RuntimeDir(places[1], places[0]), places[2]))
"""


FORK_IN_C = "ctypes.PyDLL(None).fork() or ctypes.CDLL(None).sleep(10000)"
"""Python is not told of the child, which keeps all of its parent's descriptors."""


@pytest.mark.parametrize("before", ["pass", "os.fork() or signal.pause()", FORK_IN_C])
async def test_a_sandbox_dies_with_its_script_even_on_kill_9(stage: Stage, before: str) -> None:
    program = stage.script(FOR_EVER)
    arguments = [str(path) for path in (stage.place.root, stage.runtime.root, program)]
    script = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", OWNER % before, *arguments), start_new_session=True
    )
    assert await asyncio.wait_for(script.wait(), 60) == -9
    await stage.until_gone()
    assert not stage.runtime.root.exists()
    await asyncio.to_thread(wait_for, lambda: not stage.place.root.exists(), what="the discarding")
    with contextlib.suppress(ProcessLookupError):
        os.killpg(script.pid, signal.SIGKILL)  # the child


async def test_detached_it_outlives_its_owner(stage: Stage) -> None:
    owned = await stage.launch(f"echo ready; {FOR_EVER}")
    await stage.said("ready")
    owned.detach()
    owned.detach()
    owned.cut()
    # The keeper has seen the end of the lifeline when it no longer waits for it.
    os.kill(owned.qemu_pid, 0)
    assert is_locked(stage.place.lock)
    os.kill(owned.keeper_pid, signal.SIGTERM)
    await stage.until_gone()
    assert (stage.ended()["code"], stage.ended()["asked"]) == (-15, True)
    assert not stage.runtime.root.exists()


async def test_bytes_that_mean_nothing_neither_detach_nor_kill(stage: Stage) -> None:
    owned = await stage.launch(f"echo ready; {FOR_EVER}")
    await stage.said("ready")
    assert owned._lifeline is not None
    os.write(owned._lifeline, b"x\0\n")
    os.kill(owned.qemu_pid, 0)
    owned.cut()
    await asyncio.wait_for(owned.wait(), 60)
    assert stage.ended()["code"] == -9


async def test_a_cancelled_launch_leaves_nothing_running(stage: Stage) -> None:
    for steps in (*range(12), 20, 40, 80):
        task = asyncio.create_task(stage.launch(FOR_EVER))
        for _ in range(steps):
            await asyncio.sleep(0)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            (await task).cut()
        await stage.until_gone()
        # The keeper removes it, or who launched; here we play that part.
        if stage.runtime.root.exists():
            remove_runtime(stage.runtime)
        stage.owned.clear()


# Being asked to stop


async def test_asked_to_stop_it_ends_with_sigterm(stage: Stage) -> None:
    owned = await stage.launch("trap 'echo closing; exit 0' TERM; echo ready; while :; do :; done")
    await stage.said("ready")
    os.kill(owned.keeper_pid, signal.SIGTERM)
    await asyncio.wait_for(owned.wait(), 60)
    assert (stage.ended()["code"], stage.ended()["asked"]) == (0, True)
    assert stage.console().endswith("closing\n")


async def test_one_that_does_not_listen_is_killed_after_its_grace(stage: Stage) -> None:
    owned = await stage.launch(STUBBORN)
    await stage.said("ready")
    started = time.monotonic()
    for _ in range(3):
        os.kill(owned.keeper_pid, signal.SIGTERM)
    await asyncio.wait_for(owned.wait(), 60)
    assert time.monotonic() - started >= TERM_GRACE_S - 0.1
    assert (stage.ended()["code"], stage.ended()["asked"]) == (-9, True)


async def test_a_stopped_process_sees_the_signal(stage: Stage) -> None:
    owned = await stage.launch(FOR_EVER)
    os.kill(owned.qemu_pid, signal.SIGSTOP)
    os.kill(owned.keeper_pid, signal.SIGTERM)
    await asyncio.wait_for(owned.wait(), 60)
    assert stage.ended()["code"] == -15


# Discarding


async def test_what_is_discarded_goes_when_its_owner_is_gone(stage: Stage) -> None:
    owned = await stage.launch(FOR_EVER, discard=True)
    (stage.place.root / "disk.qcow2").write_text("data")
    owned.cut()
    await asyncio.wait_for(owned.wait(), 60)
    assert not stage.place.root.exists()
    assert not stage.runtime.root.exists()


async def test_an_owner_that_lives_can_look_at_the_logs_first(stage: Stage) -> None:
    assert (await stage.end("echo why; exit 1", discard=True))["code"] == 1
    assert stage.console() == "why\n"
    assert not stage.runtime.root.exists()


async def test_detached_and_to_be_discarded_it_leaves_nothing(stage: Stage) -> None:
    owned = await stage.launch(FOR_EVER, discard=True)
    owned.detach()
    os.kill(owned.keeper_pid, signal.SIGTERM)
    await asyncio.to_thread(wait_for, lambda: not stage.place.root.exists(), what="the discarding")
    assert not stage.runtime.root.exists()


async def test_what_is_kept_is_kept(stage: Stage) -> None:
    (stage.place.root / "disk.qcow2").write_text("data")
    owned = await stage.launch(FOR_EVER)
    owned.cut()
    await asyncio.wait_for(owned.wait(), 60)
    assert (stage.place.root / "disk.qcow2").read_text() == "data"


# A full disk of the host


class Monitored:
    """A `SpaceWatch` and QEMU's end of its monitor."""

    def __init__(self, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        ours, self.qemu = socket.socketpair()
        self.free = 0
        monkeypatch.setattr(full_disk, "SPACE_POLL_S", 0.0)
        monkeypatch.setattr(os, "statvfs", lambda _: os.statvfs_result(self._blocks()))
        self.watch = SpaceWatch(ours, str(place), str(place))
        self.mark = place / "disk-full"
        assert self.said() == ["qmp_capabilities"]

    def _blocks(self) -> tuple[int, ...]:
        return (1, 1, self.free, self.free, self.free, 0, 0, 0, 0, 255, 0)

    def emit(self, text: str) -> None:
        self.qemu.sendall(text.encode() + b"\n")
        assert self.watch.read()

    def said(self) -> list[str]:
        self.qemu.setblocking(False)
        try:
            lines = self.qemu.recv(65536).decode().splitlines()
        except BlockingIOError:
            return []
        return [json.loads(line)["execute"] for line in lines]

    def close(self) -> None:
        self.qemu.close()
        self.watch.monitor.close()


@pytest.fixture
def monitored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Monitored]:
    found = Monitored(tmp_path, monkeypatch)
    yield found
    found.close()


NO_SPACE = '{"event": "BLOCK_IO_ERROR", "data": {"device": "", "nospace": true}}'


def test_a_guest_that_waits_for_disk_space_goes_on_when_there_is_some(
    monitored: Monitored,
) -> None:
    monitored.qemu.sendall(NO_SPACE[:20].encode())
    assert monitored.watch.read()
    assert not monitored.mark.exists()
    monitored.emit(NO_SPACE[20:] + "\n" + NO_SPACE)
    assert monitored.mark.exists()
    monitored.watch.look()
    assert monitored.said() == []
    monitored.free = SPACE_WANTED
    monitored.watch.look()
    assert monitored.said() == ["cont"]
    monitored.emit('{"event": "RESUME"}')
    assert not monitored.mark.exists()
    monitored.watch.look()
    assert monitored.said() == []


def test_other_troubles_and_endless_lines_are_no_reason_to_resume(monitored: Monitored) -> None:
    monitored.free = SPACE_WANTED
    monitored.emit(NO_SPACE.replace("true", "false"))
    for _ in range(40):
        monitored.emit("x" * 50_000)
    monitored.watch.look()
    assert monitored.said() == []
    assert len(monitored.watch.line) <= LINE_MAX
    monitored.qemu.close()
    assert not monitored.watch.read()
