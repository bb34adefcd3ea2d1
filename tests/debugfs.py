"""Reads an ext4 file system with debugfs, which knows nothing of our own reader."""

from __future__ import annotations

import asyncio
import subprocess
from dataclasses import dataclass
from pathlib import Path

from quicksand_images.oci.ext4 import quoted
from quicksand_images.toolbox import Tool


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A file."""

    mode: int
    """Its type and permissions (inode(7))."""
    uid: int
    gid: int
    size: int


async def list_tree(disk: Path, debugfs: Tool) -> dict[str, Found]:
    """Return all files by their paths."""
    found: dict[str, Found] = {}
    level = [""]
    while level:
        below: list[str] = []
        for directory, entries in (await asyncio.to_thread(_list, disk, debugfs, level)).items():
            for name, entry in entries.items():
                if name == "." and not directory:
                    found["/"] = entry
                elif name not in (".", ".."):
                    found[f"{directory}/{name}"] = entry
                    if entry.mode & 0o170000 == 0o040000:
                        below.append(f"{directory}/{name}")
        level = below
    return found


def _list(disk: Path, debugfs: Tool, directories: list[str]) -> dict[str, dict[str, Found]]:
    listings: list[dict[str, Found]] = []
    commands = "".join(f"ls -p {quoted(directory or '/')}\n" for directory in directories)
    for line in _ask(disk, debugfs, commands).split("\n"):
        parts = line.split("/")
        if not line.startswith("/") or len(parts) != 8:
            continue  # a command that is repeated, or the end of a listing
        _, _, mode, uid, gid, name, size, _ = parts
        if name == ".":
            listings.append({})
        if name:
            ids = [int(uid) % 2**32, int(gid) % 2**32]  # it shows large ones as negative
            entry = Found(mode=int(mode, 8), uid=ids[0], gid=ids[1], size=int(size or 0))
            listings[-1][name] = entry
    return dict(zip(directories, listings, strict=True))


async def copy_out(disk: Path, debugfs: Tool, path: str, target: Path) -> None:
    """Copy a file of the file system to the new file ``target``."""
    command = f"dump {quoted(path)} {quoted(str(target))}\n"
    await asyncio.to_thread(_ask, disk, debugfs, command)


def _ask(disk: Path, debugfs: Tool, commands: str) -> str:
    script = disk.with_suffix(".ask")
    script.write_text(commands)
    argv = [*debugfs.command, "-f", str(script), str(disk)]
    done = subprocess.run(argv, capture_output=True, check=True)
    return done.stdout.decode("utf-8", "surrogateescape")
