"""Overlays that we write ourselves: qemu-img finds them right, and nothing half-made stays."""

from __future__ import annotations

import errno
import json
import os
import shutil
import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest
from quicksand.base.errors import ConfigError, DiskSpaceError, PathError, QuicksandError
from quicksand.disks.images.disk_headers import check_qcow2
from quicksand.disks.images.disk_layers import create_overlay
from quicksand.qemu.binaries import find_binaries
from quicksand_disks.qcow2.writing import BACKING_NAME_MAX, L2_COVERS, SIZE_MAX

from tests.each import each

MIB = 1024 * 1024
GIB = 1024 * MIB


class QemuImg:
    """qemu-img; formats are always given, so that nothing is guessed from contents."""

    def __init__(self, program: Path, env: dict[str, str]) -> None:
        self.program = program
        self.env = env

    def run(self, *arguments: str | Path, code: int = 0) -> str:
        done = subprocess.run(
            [self.program, *arguments],
            env={**os.environ, **self.env},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == code, done.stderr
        return done.stdout

    def info(self, path: Path) -> dict[str, Any]:
        options = f"driver=qcow2,file.filename={str(path).replace(',', ',,')}"
        found = self.run("info", "--output=json", "--image-opts", options)
        return dict(json.loads(found))

    def check(self, path: Path) -> dict[str, Any]:
        # As the engine opens it: the file alone, whatever its header says of a base.
        file = {"driver": "file", "filename": str(path)}
        image = {"driver": "qcow2", "backing": None, "file": file}
        return dict(json.loads(self.run("check", "--output=json", f"json:{json.dumps(image)}")))


@pytest.fixture
def qemu_img() -> QemuImg:
    try:
        binaries = find_binaries()
        if binaries.img is not None:
            return QemuImg(binaries.img, dict(binaries.env))
    except QuicksandError:
        pass
    found = shutil.which("qemu-img")
    assert found is not None, "no qemu-img on this host"
    return QemuImg(Path(found), {})


@pytest.fixture
def base(tmp_path: Path) -> Path:
    path = tmp_path / "base.qcow2"
    create_overlay(path, backing=Path("/nowhere"), size=GIB)
    return path


@pytest.mark.parametrize(
    "size", [1, 512, 513, MIB, GIB, L2_COVERS, L2_COVERS + 1, 20 * GIB, SIZE_MAX - 511, SIZE_MAX]
)
def test_qemu_img_finds_an_overlay_of_any_size_whole(
    qemu_img: QemuImg, tmp_path: Path, base: Path, size: int
) -> None:
    path = tmp_path / "disk.qcow2"
    create_overlay(path, backing=base, size=size)
    found = qemu_img.check(path)
    assert found["check-errors"] == 0
    assert not {"corruptions", "leaks"} & found.keys()
    info = qemu_img.info(path)
    assert info["virtual-size"] == -(-size // 512) * 512
    assert info["backing-filename"] == str(base)
    assert info["backing-filename-format"] == "qcow2"
    assert info["format-specific"]["data"]["compat"] == "1.1"
    assert not info["dirty-flag"]


def test_a_disk_of_its_own_has_no_backing_file(qemu_img: QemuImg, tmp_path: Path) -> None:
    path = tmp_path / "alone.qcow2"
    create_overlay(path, backing=None, size=MIB)
    assert check_qcow2(path).backing_file is None
    assert "backing-filename" not in qemu_img.info(path)
    assert qemu_img.check(path)["check-errors"] == 0


@each("name", ["a,b=c", "-rf", 'it\'s "it"', "new\nline", " ", "json:{}", "nbd:host:1", "é\u202e"])
def test_odd_names_are_kept_as_they_are(qemu_img: QemuImg, tmp_path: Path, name: str) -> None:
    base, path = tmp_path / name, tmp_path / f"{name}.disk"
    create_overlay(base, backing=Path("/nowhere"), size=GIB)
    create_overlay(path, backing=base, size=GIB)
    assert check_qcow2(path, allow_backing=True).backing_file == str(base)
    assert qemu_img.info(path)["backing-filename"] == str(base)
    assert qemu_img.check(path)["check-errors"] == 0


def test_names_that_are_no_utf_8_are_kept_too(tmp_path: Path) -> None:
    name = b"/base\xff"
    path = tmp_path / "disk"
    create_overlay(path, backing=Path(os.fsdecode(name)), size=GIB)
    assert name in path.read_bytes()[:4096]


def test_the_guest_can_write_into_an_overlay(qemu_img: QemuImg, tmp_path: Path) -> None:
    """Through qemu-img: the data of one image, put into the overlay by a rebase, reads back."""
    base, path, out = tmp_path / "base", tmp_path / "disk", tmp_path / "out"
    content = os.urandom(MIB) + bytes(MIB)
    (tmp_path / "raw").write_bytes(content)
    qemu_img.run("convert", "-f", "raw", "-O", "qcow2", tmp_path / "raw", base)
    create_overlay(path, backing=base, size=2 * MIB)
    # Without its base the overlay has to hold all the data itself.
    qemu_img.run("rebase", "-f", "qcow2", "-b", "", path)
    base.unlink()
    assert not {"corruptions", "leaks"} & qemu_img.check(path).keys()
    qemu_img.run("convert", "-f", "qcow2", "-O", "raw", path, out)
    assert out.read_bytes() == content


def test_an_overlay_takes_next_to_no_space_and_is_private(tmp_path: Path, base: Path) -> None:
    path = tmp_path / "disk.qcow2"
    create_overlay(path, backing=base, size=SIZE_MAX)
    found = path.stat()
    assert found.st_blocks * 512 <= 64 * 1024
    assert stat.S_IMODE(found.st_mode) == 0o600


@each("size", [0, -1, -GIB, SIZE_MAX + 1, 2**63, 2**64])
def test_an_impossible_size_is_refused_and_no_file_made(tmp_path: Path, size: int) -> None:
    path = tmp_path / "disk.qcow2"
    with pytest.raises(ConfigError, match="not possible"):
        create_overlay(path, backing=Path("/base"), size=size)
    assert not path.exists()


def test_the_longest_name_that_qemu_opens_is_the_longest_we_write(
    qemu_img: QemuImg, tmp_path: Path
) -> None:
    path = tmp_path / "disk.qcow2"
    longest = Path("/" + "x" * (BACKING_NAME_MAX - 1))
    create_overlay(path, backing=longest, size=GIB)
    assert qemu_img.check(path)["check-errors"] == 0
    path.unlink()
    with pytest.raises(PathError, match="1023 bytes"):
        create_overlay(path, backing=Path(f"{longest}x"), size=GIB)
    assert not path.exists()


@each("call", ["pwrite", "ftruncate"])
def test_a_full_disk_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    path = tmp_path / "disk.qcow2"
    before = len(os.listdir("/proc/self/fd"))

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, call, full)
        with pytest.raises(DiskSpaceError, match=str(path)):
            create_overlay(path, backing=Path("/base"), size=GIB)
    assert not path.exists()
    assert len(os.listdir("/proc/self/fd")) <= before
    create_overlay(path, backing=Path("/base"), size=GIB)


def test_a_disk_that_exists_is_never_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "disk.qcow2"
    path.write_text("somebody's data")
    with pytest.raises(PathError, match="exists"):
        create_overlay(path, backing=Path("/base"), size=GIB)
    assert path.read_text() == "somebody's data"
    link = tmp_path / "link"
    link.symlink_to(path)
    with pytest.raises(PathError, match="exists"):
        create_overlay(link, backing=Path("/base"), size=GIB)
    assert path.read_text() == "somebody's data"


def test_a_place_that_does_not_exist_is_named(tmp_path: Path) -> None:
    path = tmp_path / "missing" / "disk.qcow2"
    with pytest.raises(PathError, match=str(path)):
        create_overlay(path, backing=Path("/base"), size=GIB)
