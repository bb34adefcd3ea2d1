"""Files are opened by their names: what is no file is refused, and waits for nobody."""

from __future__ import annotations

import ast
import errno
import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import quicksand
import quicksand_disks
import quicksand_wheels
from quicksand.base.files import is_locked, read_json, tail, try_lock
from quicksand.base.regular import NotAFileError, open_regular, read_file
from quicksand.base.sharing import copy_sparse
from quicksand.disks.images.stored_image import sha256_file

from quicksand_tui.door.log_tail import FileLog
from quicksand_tui.home.config_file import read_config
from quicksand_tui.home.state import StateFile

pytestmark = pytest.mark.timeout(120)


def bind(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))


PLANTED: dict[str, Callable[[Path], None]] = {
    "a FIFO": os.mkfifo,
    "a directory": Path.mkdir,
    "a socket": bind,
    "a device": lambda path: path.symlink_to("/dev/null"),
}


@pytest.fixture(params=PLANTED)
def planted(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, str]:
    path = tmp_path / "record"
    PLANTED[request.param](path)
    return path, request.param


@pytest.mark.parametrize("flags", [os.O_RDONLY, os.O_WRONLY, os.O_RDWR, os.O_RDWR | os.O_CREAT])
def test_what_is_no_file_is_refused_for_what_it_is(planted: tuple[Path, str], flags: int) -> None:
    path, kind = planted
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(NotAFileError, match=f"it is {kind}, and no file") as caught:
        open_regular(path, flags)
    assert caught.value.errno == (errno.EISDIR if kind == "a directory" else errno.EINVAL)
    assert caught.value.filename == str(path)
    assert len(os.listdir("/proc/self/fd")) <= before


def test_a_file_is_opened(tmp_path: Path) -> None:
    path = tmp_path / "record"
    os.close(open_regular(path, os.O_RDWR | os.O_CREAT))
    path.write_text("x")
    assert read_file(path) == b"x"
    assert path.stat().st_mode & 0o777 == 0o600
    with pytest.raises(FileNotFoundError):
        read_file(tmp_path / "none")


def test_whoever_reads_a_record_a_lock_or_a_log_gets_an_error(
    planted: tuple[Path, str], tmp_path: Path
) -> None:
    path, _ = planted
    readers: list[Callable[[], object]] = [
        lambda: read_json(path),
        lambda: tail(path),
        lambda: try_lock(path),
        lambda: is_locked(path),
        lambda: sha256_file(path),
        lambda: copy_sparse(path, tmp_path / "copy"),
    ]
    for read in readers:
        with pytest.raises(OSError, match="and no file"):
            read()
    with pytest.raises(OSError, match="and no file"):
        FileLog(path).read()
    file = StateFile(path)
    assert file.read() == {}
    assert file.problem
    assert "cannot be read" in read_config(path).problems[0].what


# Every other place

OF_THE_KERNEL_OR_THE_PROGRAM = {
    "guest/network.py",
    "base/cpu.py",
    "base/capacity.py",
    "base/processes.py",
    "base/tick_rate.py",
    "warm/template_maker.py",
    "disks/images/boot_files.py",  # our agent
    "qemu/keeper_successor.py",
    "qemu/debs.py",
    "qemu/keeper_parts/adopting.py",
    "qemu/keeper_parts/launch.py",
    "qemu/keeper_parts/bounds.py",
    "qemu/keeper_parts/owner.py",
    "saves/proof.py",
    "snapshots/guest_ram.py",
    "snapshots/paged.py",
    "snapshots/userfault.py",
    "fleet/over_ray/ray_processes.py",
}
"""They read below /proc, /sys, /etc and /var/lib/dpkg, and what this package consists of."""

DELIBERATE = {
    "base/regular.py",
    "files.py",  # of quicksand_wheels: the same
    "qcow2_header.py",  # of quicksand_disks: the same
    "mounts/directories.py",  # directories, without following links
    "base/removal.py",  # its own, with descriptors only: the keeper runs it
    "saves/bundle/streams.py",  # a bundle may come from a pipe
    "qemu/keeper_parts/keeper_files.py",  # what `regular` has opened
    "saves/verifying.py",
}


def opened_by_name(path: Path) -> Iterator[int]:
    """Lines in which an existing file is opened for reading by its name."""
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.Call):
            continue
        text = ast.unparse(node)
        match node.func:
            case ast.Attribute(attr="read_bytes"):
                yield node.lineno
            case ast.Attribute(attr="read_text") if "await" not in text:
                yield node.lineno
            case ast.Attribute(value=ast.Name(id="os"), attr="open"):
                new = "flags" in text or "O_EXCL" in text or "O_DIRECTORY" in text
                if not new and "O_DIRECT" not in text and "os.devnull" not in text:
                    yield node.lineno
            case ast.Attribute(attr="open") | ast.Name(id="open"):
                modes = {arg.value for arg in node.args if isinstance(arg, ast.Constant)}
                if modes & {"r", "rb", "r+b", "ab", "a"} or text.startswith("open("):
                    yield node.lineno


def test_no_other_module_opens_what_it_has_not_proven() -> None:
    known = OF_THE_KERNEL_OR_THE_PROGRAM | DELIBERATE
    roots = (
        Path(str(one.__file__)).parent for one in (quicksand, quicksand_disks, quicksand_wheels)
    )
    found = {
        f"{path.relative_to(root)}:{line}"
        for root in roots
        for path in root.rglob("*.py")
        if path.relative_to(root).as_posix() not in known
        for line in opened_by_name(path)
    }
    assert found == set(), "quicksand.base.regular opens them"
