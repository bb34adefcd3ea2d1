"""Data directories on file systems that can fill up."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from quicksand.base.paths import Paths, paths

from tests.conftest import link_images, our_processes, wait_for

MIB = 1024 * 1024


@contextlib.contextmanager
def small_disk(prepared: Paths, at: Path, size: int) -> Iterator[Paths]:
    """The data directory on a file system of ``size`` bytes."""
    with small_file_system(at, size), data_directory(prepared, at) as found:
        yield found


@contextlib.contextmanager
def small_file_system(at: Path, size: int) -> Iterator[Path]:
    """A file system of ``size`` bytes, in memory, at the new directory ``at``."""
    require_root()
    at.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", at], check=True)
    try:
        yield at
    finally:
        subprocess.run(["umount", "-l", at], check=True)


@contextlib.contextmanager
def small_ext4(prepared: Paths, at: Path, size: int) -> Iterator[Paths]:
    """The data directory on a file system of ``size`` bytes that has a disk below it. (A tmpfs that
    is full has no pages for the holes of a mapped file either: SIGBUS for whoever reads them.)"""
    require_root()
    mkfs = shutil.which("mkfs.ext4", path=f"{os.environ['PATH']}:/usr/sbin:/sbin")
    assert mkfs is not None, "mkfs.ext4 is needed: install e2fsprogs"
    image = at.with_suffix(".img")
    with image.open("wb") as file:
        file.truncate(size)
    subprocess.run([mkfs, "-q", "-m", "0", image], check=True)
    at.mkdir()
    with loop_device(image) as device:
        subprocess.run(["mount", device, at], check=True)
        try:
            with data_directory(prepared, at) as found:
                yield found
        finally:
            subprocess.run(["umount", at], check=True)


@contextlib.contextmanager
def loop_device(image: Path) -> Iterator[str]:
    """A block device whose content is that of a file."""
    argv = ["losetup", "--find", "--show", str(image)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"there are no loop devices: {done.stderr.strip()}")
    device = done.stdout.strip()
    try:
        yield device
    finally:
        subprocess.run(["losetup", "--detach", device], check=True)


def require_root() -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can mount a small file system")


@contextlib.contextmanager
def data_directory(prepared: Paths, at: Path) -> Iterator[Paths]:
    """``at`` is the data directory; nothing runs in it in the end."""
    (at / "qemu").symlink_to(prepared.data / "qemu")
    link_images(prepared.images, at / "images")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("QUICKSAND_DATA_DIR", str(at))
        yield paths()
        wait_for(lambda: not our_processes(str(at)), what="its processes to end")
