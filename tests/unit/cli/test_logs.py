"""Reading logs that rotate and grow."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from quicksand.base.paths import Paths
from quicksand.records.layout import sandbox_dir

from quicksand_tui.cli.output import Exit
from quicksand_tui.cli.this_host.looking import Log, last_lines
from tests.conftest import wait_for
from tests.each import each
from tests.unit.cli.run_cli import MODULE, make_stopped, quicksand


@pytest.fixture
def console(places: Paths) -> Path:
    """The console log of a stopped sandbox called "web"."""
    record = make_stopped(places, "web")
    return sandbox_dir(places, record.id).console_log


def test_both_pieces_are_shown_the_older_first(console: Path) -> None:
    console.with_name("console.log.1").write_bytes(b"one\n")
    console.write_bytes(b"two\n")
    assert quicksand("logs", "web").stdout == b"one\ntwo\n"


def test_a_missing_log_is_an_empty_one(console: Path) -> None:
    result = quicksand("logs", "web")
    assert (result.returncode, result.stdout, result.stderr) == (0, b"", b"")


def test_the_bytes_stay_as_they_are_where_no_terminal_is(console: Path) -> None:
    raw = bytes(range(256)) + b"\x1b[2J"
    console.write_bytes(raw)
    assert quicksand("logs", "web").stdout == raw


def test_plain_leaves_out_what_a_terminal_would_act_on_wherever_it_goes(console: Path) -> None:
    console.write_bytes(b"\x1b]0;owned\x07\x1b[31mred\x1b[0m\x07\ttab\r\n\xe4\xbd\xa0\n")
    assert quicksand("logs", "web", "--plain").stdout == "red\ttab\n你\n".encode()
    assert b"escape" in quicksand("logs", "--help").stdout


def test_what_qemu_said_is_another_log(console: Path) -> None:
    console.with_name("qemu.log").write_bytes(b"warning\n")
    assert quicksand("logs", "web", "--qemu").stdout == b"warning\n"


@each(("count", "shown"), [(None, b"a\nb\nc"), (0, b""), (1, b"c"), (2, b"b\nc"), (9, b"a\nb\nc")])
def test_the_last_lines(count: int | None, shown: bytes) -> None:
    assert b"".join(last_lines(iter([b"a\n", b"b\nc"]), count)) == shown


def test_on_a_terminal_only_text_is_shown(console: Path) -> None:
    console.write_bytes(b"\x1b]0;owned\x07\x1b[31mred\x1b[0m\x07\ttab\r\nnext\n")
    ours, theirs = pty.openpty()
    with subprocess.Popen([*MODULE, "logs", "web"], stdout=theirs) as process:
        os.close(theirs)
        shown = b""
        try:
            while data := os.read(ours, 4096):
                shown += data
        except OSError:
            pass  # how Linux tells that the other end is closed
    os.close(ours)
    assert process.returncode == 0
    assert shown == b"red\ttab\r\nnext\r\n"


def test_a_rotated_log_is_read_on_without_a_gap(tmp_path: Path) -> None:
    path = tmp_path / "console.log"
    path.write_bytes(b"1")
    with contextlib.closing(Log(path)) as log:
        assert b"".join(log.read_all()) == b"1"
        with path.open("ab") as file:
            file.write(b"2")
        path.rename(tmp_path / "console.log.1")
        assert b"".join(log.read_new()) == b"2"
        path.write_bytes(b"3")
        assert b"".join(log.read_new()) == b"3"
        assert b"".join(log.read_new()) == b""


def test_following_ends_with_the_sandbox_and_misses_nothing(console: Path) -> None:
    console.write_bytes(b"first\n")
    lock = os.open(console.with_name("lock"), os.O_RDWR)
    fcntl.flock(lock, fcntl.LOCK_EX)
    with subprocess.Popen([*MODULE, "logs", "-f", "web"], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"first\n"
        with console.open("ab") as file:
            file.write(b"second\n")
        assert process.stdout.readline() == b"second\n"
        with console.open("ab") as file:
            file.write(b"last\n")
        os.close(lock)
        assert process.stdout.read() == b"last\n"
    assert process.returncode == 0


def test_following_can_be_interrupted(console: Path) -> None:
    console.write_bytes(b"first\n")
    lock = os.open(console.with_name("lock"), os.O_RDWR)
    fcntl.flock(lock, fcntl.LOCK_EX)
    with subprocess.Popen(
        [*MODULE, "logs", "-f", "web"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == b"first\n"
        process.send_signal(signal.SIGINT)
        assert process.stderr.read() == b""
    os.close(lock)
    assert process.returncode == Exit.INTERRUPTED


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_following_takes_hardly_any_cpu_time(console: Path) -> None:
    console.write_bytes(b"first\n")
    lock = os.open(console.with_name("lock"), os.O_RDWR)
    fcntl.flock(lock, fcntl.LOCK_EX)
    with subprocess.Popen([*MODULE, "logs", "-f", "web"], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        switches = Path(f"/proc/{process.pid}/status")

        def waits() -> int:
            line = next(
                n for n in switches.read_text().splitlines() if n.startswith("voluntary_ctxt")
            )
            return int(line.split()[1])

        before = waits()
        wait_for(lambda: waits() > before + 2, what="three looks at the log")
        process.kill()
    os.close(lock)
