"""Small disks, made by the tools that make our images, or by hand."""

from __future__ import annotations

import os
import struct
import subprocess
from collections.abc import Mapping
from pathlib import Path

from quicksand_disks.changes import FileChange
from quicksand_disks.comparing.side_by_side import compare
from quicksand_disks.ext4.filesystem import FileSystem
from quicksand_disks.qcow2.layers import Chain, Layer, Ranges
from quicksand_disks.qcow2.writing import CLUSTER
from quicksand_images.toolbox import Tool

MIB = 1024 * 1024
TIME = 1_700_000_000
OURS = (
    "none,has_journal,ext_attr,dir_index,filetype,extent,64bit,flex_bg,sparse_super,metadata_csum"
)
"""Features like those of our images."""


class MemoryDisk:
    """A disk in memory."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    @property
    def size(self) -> int:
        return len(self.data)

    def read(self, offset: int, length: int) -> bytes:
        return self.data[offset : offset + length].ljust(length, b"\0")


class Maker:
    """mke2fs and debugfs."""

    def __init__(self, mke2fs: Tool, debugfs: Tool, place: Path) -> None:
        self._mke2fs = mke2fs
        self._debugfs = debugfs
        self._place = place

    def filesystem(
        self,
        tree: Path,
        *,
        features: str = OURS,
        options: tuple[str, ...] = ("-b", "1024", "-I", "256"),
        size: int = 4 * MIB,
    ) -> bytes:
        """A disk with the files in ``tree``."""
        path = self._place / "made.ext4"
        path.unlink(missing_ok=True)
        extended = "root_owner=0:0,lazy_itable_init=0,lazy_journal_init=0"
        argv = [*self._mke2fs.command, "-q", "-F", "-O", features, *options, "-E", extended]
        _run([*argv, "-d", str(tree), str(path), f"{size // 1024}k"], self._mke2fs)
        return path.read_bytes()

    def debug(self, disk: bytes, *commands: str) -> bytes:
        """``disk`` after commands of debugfs."""
        path = self._place / "debugged.ext4"
        script = self._place / "commands"
        path.write_bytes(disk)
        script.write_text("\n".join(commands) + "\n")
        _run([*self._debugfs.command, "-w", "-f", str(script), str(path)], self._debugfs)
        return path.read_bytes()

    def ask(self, disk: bytes, command: str) -> str:
        """What debugfs says."""
        path = self._place / "asked.ext4"
        path.write_bytes(disk)
        return _run([*self._debugfs.command, "-R", command, str(path)], self._debugfs)


def _run(argv: list[str], tool: Tool) -> str:
    done = subprocess.run(
        argv,
        env={**os.environ, **tool.env, "E2FSPROGS_FAKE_TIME": str(TIME)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def diff_bytes(a: bytes, b: bytes) -> list[FileChange]:
    """The changes between two disks, of which nothing is known to be shared."""
    touched = Ranges([(0, max(len(a), len(b)))])
    return compare(FileSystem(MemoryDisk(a)), FileSystem(MemoryDisk(b)), touched)


def brief(changes: list[FileChange]) -> dict[str, str]:
    """Path -> what happened, in one line."""
    return {
        change.path: " ".join(
            (
                change.kind.value,
                *change.differs,
                *map(_number, (change.size_before, change.size_after)),
            )
        )
        for change in changes
    }


def _number(size: int | None) -> str:
    return "-" if size is None else str(size)


def fill(tree: Path, files: Mapping[str, bytes | str | None]) -> Path:
    """Make files (bytes), links (a string) and directories (None), all of the same time."""
    tree.mkdir(exist_ok=True)
    for name, content in files.items():
        path = tree / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if content is None:
            path.mkdir(exist_ok=True)
        elif isinstance(content, str):
            path.symlink_to(content)
        else:
            path.write_bytes(content)
    for path in (tree, *tree.rglob("*")):
        os.utime(path, (TIME, TIME), follow_symlinks=False)
    return tree


def write_clusters(path: Path, clusters: Mapping[int, bytes | None]) -> None:
    """Give a layer that `create_overlay` made clusters: number -> content, or None for one that is
    marked as zeros. (Its refcounts are not kept: nobody writes to it again.)"""
    with path.open("r+b") as file:
        file.seek(40)
        (l1_offset,) = struct.unpack(">Q", file.read(8))
        for number, content in clusters.items():
            table, at = divmod(number, CLUSTER // 8)
            file.seek(l1_offset + 8 * table)
            place = struct.unpack(">Q", file.read(8))[0] & 0x00FFFFFFFFFFFE00
            if place == 0:
                place = _append(file, bytes(CLUSTER))
                file.seek(l1_offset + 8 * table)
                file.write(struct.pack(">Q", place | 1 << 63))
            entry = 1 if content is None else _append(file, content.ljust(CLUSTER, b"\0")) | 1 << 63
            file.seek(place + 8 * at)
            file.write(struct.pack(">Q", entry))


def _append(file: object, data: bytes) -> int:
    from typing import BinaryIO, cast

    stream = cast(BinaryIO, file)
    place = stream.seek(0, os.SEEK_END)
    stream.write(data)
    return place


def open_chain(*paths: Path) -> Chain:
    """To be closed with `close_chain`."""
    return Chain([Layer(path) for path in paths])


def close_chain(*chains: Chain) -> None:
    for layer in {layer for chain in chains for layer in chain.layers}:
        layer.close()
