"""The serving process can do its work and little else, and says what holds."""

from __future__ import annotations

import errno
import os
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest
from quicksand_smb import confine, seccomp

from tests.each import each

USERS = [os.getuid(), 65534] if os.getuid() == 0 else [os.getuid()]


@pytest.fixture
def place() -> Iterator[Path]:
    place = Path(tempfile.mkdtemp(prefix="qst-"))
    for name in ("share", "read-only", "outside"):
        (place / name).mkdir()
    (place / "read-only" / "file").write_text("data")
    (place / "outside" / "secret").write_text("secret")
    yield place
    shutil.rmtree(place)


@pytest.mark.parametrize("user", USERS)
def test_a_confined_process_serves_and_does_nothing_else(place: Path, user: int) -> None:
    for path in (place, *place.rglob("*")):
        os.chown(path, user, user)
    directories = [str(place / name) for name in ("share", "read-only", "outside")]
    command = [sys.executable, "-m", "tests.unit.smb.confined", *directories, str(user)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    measures = [line for line in lines if line.startswith("measure")]
    if any("landlock: no" in line or "seccomp: no" in line for line in measures):
        pytest.skip("; ".join(measures))
    assert not [line for line in lines if line.startswith("could")], done.stdout
    assert not [line for line in measures if ": yes" not in line]
    assert lines[-1] == "served"
    assert (place / "read-only" / "file").read_text() == "data"


def test_without_measures_the_process_could_do_it_all(place: Path) -> None:
    """The attempts are real ones: unconfined, most of them succeed."""
    code = (
        "import sys; from tests.unit.smb import confined; from quicksand_smb import confine;"
        "confine.confine = lambda *a, **k: [];"
        "all_ = confined.attempts;"
        "confined.attempts = lambda *a: {n: f for n, f in all_(*a).items()"
        " if n not in ('exec', 'fork', 'unshare', 'ptrace', 'root')};"
        "confined.main(*sys.argv[1:])"
    )
    directories = [str(place / name) for name in ("share", "read-only", "outside")]
    command = [sys.executable, "-c", code, *directories, str(os.getuid())]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    could = [line for line in done.stdout.splitlines() if line.startswith("could")]
    assert len(could) >= 10, done.stdout + done.stderr


def test_what_is_written_to_the_standard_descriptors_never_meets_the_stream() -> None:
    ours, theirs = socket.socketpair()
    code = (
        "import os, sys; from quicksand_smb import confine;"
        "stream = confine.take_stream();"
        "assert stream > 2 and not os.get_inheritable(stream);"
        "os.write(1, b'leak'); os.write(2, b'leak'); print('leak', flush=True);"
        "assert os.read(0, 5) == b'';"
        "os.write(stream, b'protocol'); raise SystemError('leak')"
    )
    with ours, theirs:
        end = theirs.fileno()
        done = subprocess.run(
            [sys.executable, "-c", code], stdin=end, stdout=end, stderr=end, check=False
        )
        theirs.close()
        assert ours.recv(1000) == b"protocol" and ours.recv(1000) == b""
    assert done.returncode == 1


def test_a_log_gets_what_is_written_to_descriptor_2(tmp_path: Path) -> None:
    code = (
        "import os, sys; from quicksand_smb import confine;"
        "log = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT, 0o600);"
        "confine.take_stream(log); os.write(2, b'told')"
    )
    log = tmp_path / "log"
    done = subprocess.run(
        [sys.executable, "-c", code, log], capture_output=True, stdin=subprocess.DEVNULL, check=True
    )
    assert log.read_bytes() == b"told" and done.stderr == b""


def test_what_the_system_lacks_is_reported_and_the_rest_holds() -> None:
    lacking = mock.Mock(side_effect=OSError(errno.ENOSYS, "Function not implemented"))
    with (
        mock.patch.object(confine, "_call", lacking),
        mock.patch.object(confine, "_limit", lambda name, *_: confine.Measure(name, True, "1")),
        mock.patch.object(confine, "_no_new_privileges", return_value=""),
        mock.patch.object(confine, "_drop_capabilities", return_value=""),
        mock.patch.object(seccomp, "install", lacking),
        mock.patch("os.umask", return_value=0),
    ):
        report = {str(measure) for measure in confine.confine([("/", True)])}
    assert "landlock: no ([Errno 38] Function not implemented)" in report
    assert "seccomp: no ([Errno 38] Function not implemented)" in report
    assert {"no new privileges: yes", "descriptors: yes (1)"} <= report


# The filter, run by a machine of a few lines instead of the kernel

ALLOW, FAIL, KILL = 0x7FFF0000, 0x00050000, 0x80000000
ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}


def run(program: bytes, arch: int, number: int, *arguments: int) -> int:
    data = struct.pack("<IIQ6Q", number, arch, 0, *(arguments + (0,) * 6)[:6])
    code = list(struct.iter_unpack("=HBBI", program))
    accumulator = at = 0
    while True:
        operation, on_true, on_false, value = code[at]
        at += 1
        if operation == 0x06:
            return int(value)
        if operation == 0x20:
            (accumulator,) = struct.unpack_from("<I", data, value)
        elif operation == 0x54:
            accumulator &= value
        else:
            holds = {0x15: accumulator == value, 0x25: accumulator > value}
            holds[0x45] = bool(accumulator & value)
            at += on_true if holds[operation] else on_false


@each(("machine", "column"), [("x86_64", 0), ("aarch64", 1)])
def test_the_filter_refuses_its_list_and_allows_the_rest(machine: str, column: int) -> None:
    program, arch = seccomp.program(machine), ARCHITECTURES[machine]
    refused = {numbers[column] for numbers in seccomp._REFUSED.values()} - {-1}
    for number in range(470):
        if number == 435:
            expected = FAIL | errno.ENOSYS
        elif number in refused or number == (56, 220)[column]:
            expected = FAIL | errno.EPERM  # clone with no flags is fork
        else:
            expected = ALLOW
        assert run(program, arch, number) == expected, number
    for number in (470, 1000, 0x40000000, 0x40000000 | 59, 0xFFFFFFFF):
        assert run(program, arch, number) == FAIL | errno.ENOSYS
    assert run(program, 0x40000003, 59) == KILL  # i386 on x86_64 has other numbers
    clone, fchmodat, mknodat = ((56, 268, 259), (220, 53, 33))[column]
    assert run(program, arch, clone, 0x3D0F00) == ALLOW  # a thread
    assert run(program, arch, clone, 0x1200011) == FAIL | errno.EPERM  # fork
    for mode, allowed in ((0o777, True), (0o2755, True), (0o4755, False), (0o6755, False)):
        assert (run(program, arch, fchmodat, 0, 0, mode) == ALLOW) is allowed
    for mode, allowed in ((0o010600, True), (0o140600, True), (0o100600, True),
                          (0o020600, False), (0o060600, False)):  # fmt: skip
        assert (run(program, arch, mknodat, 0, 0, mode) == ALLOW) is allowed


def test_the_filter_of_an_unknown_machine_is_said_to_be_missing() -> None:
    machine = mock.Mock(machine="pdp11")
    with mock.patch("os.uname", return_value=machine), pytest.raises(OSError, match="pdp11"):
        seccomp.install()
