"""Reads the files of an ext4 file system with debugfs, which needs no root and no mount."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from quicksand.base.errors import HostError
from quicksand.base.tools import run_tool

from quicksand_images.toolbox import Tool

OUTPUT_MAX = 512 * 1024 * 1024
"""Bytes that debugfs may write of a file system."""

LINE_MAX = 8000
"""Bytes of a command. debugfs reads its lines into BUFSIZ bytes (8192 with glibc; 8191 are left,
debugfs/debugfs.c, source_file), and takes what is left of a longer one for another command."""

DEPTH_MAX = 256
FILES_MAX = 1_000_000
_TO_FILE = 'out=$1; shift; exec "$@" >"$out"'
_DIRECTORY, _KIND = 0o040000, 0o170000


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A file."""

    mode: int
    """Its type and permissions (inode(7))."""
    uid: int
    gid: int
    size: int
    """Bytes; 0 for a directory."""

    @property
    def is_directory(self) -> bool:
        return self.mode & _KIND == _DIRECTORY


async def list_tree(image: Path, debugfs: Tool, root: str = "/") -> dict[str, Found]:
    """Return the files below the directory ``root`` with their paths, and with "/" for the root
    directory if that is the root. Raises ToolError, HostError for a file system that goes too
    deep."""
    found: dict[str, Found] = {}
    level = [root.rstrip("/")]
    for _ in range(DEPTH_MAX):
        if not level:
            return found
        below: list[str] = []
        for directory, entries in (await _list(image, debugfs, level)).items():
            for name, entry in entries.items():
                if name == ".":
                    if not directory:
                        found["/"] = entry
                elif name != "..":
                    found[f"{directory}/{name}"] = entry
                    if entry.is_directory:
                        below.append(f"{directory}/{name}")
        if len(found) > FILES_MAX:
            break
        level = below
    raise HostError(f"the file system in {image} has too many files, or goes too deep")


async def _list(
    image: Path, debugfs: Tool, directories: Sequence[str]
) -> dict[str, dict[str, Found]]:
    """List directories, all at once."""
    commands = [f"ls -p {quoted(directory or '/')}" for directory in directories]
    lines = await _run(image, debugfs, commands)
    listings: list[dict[str, Found]] = []
    for line in lines:
        parts = line.split("/")
        if not line.startswith("/") or len(parts) != 8:
            continue  # a command that is repeated, or the end of a listing
        _, _, mode, uid, gid, name, size, _ = parts
        if name == ".":
            listings.append({})
        if not listings or not name:
            continue
        try:
            ids = [int(uid) % 2**32, int(gid) % 2**32]  # it shows large ones as negative
            entry = Found(mode=int(mode, 8), uid=ids[0], gid=ids[1], size=int(size or 0))
        except ValueError as error:
            raise HostError(f"debugfs lists {line!r} in {image}") from error
        listings[-1][name] = entry
    if len(listings) != len(directories):
        raise HostError(f"{len(directories) - len(listings)} directories of {image} are unreadable")
    return dict(zip(directories, listings, strict=True))


async def copy_out(image: Path, debugfs: Tool, files: Mapping[str, Path]) -> None:
    """Copy files of a file system, given by their paths there, to new files of this host. Raises
    ToolError, and HostError if one is not there afterwards."""
    await _run(
        image,
        debugfs,
        [f"dump {quoted(inner)} {quoted(str(path))}" for inner, path in files.items()],
    )
    for inner, path in files.items():
        if not path.is_file():
            raise HostError(f"{inner} cannot be read in the file system of {image}")


async def read_link(image: Path, debugfs: Tool, path: str) -> str:
    """Return what a symbolic link leads to, or "" if it is none. Raises ToolError."""
    for line in await _run(image, debugfs, [f"stat {quoted(path)}"]):
        if line.startswith('Fast link dest: "'):
            return line.removeprefix('Fast link dest: "').rstrip().removesuffix('"')
    return ""


def quoted(text: str) -> str:
    """Quote an argument of debugfs (libss: a quotation mark is doubled). Raises HostError for one
    that would begin a command of its own: debugfs has commands that read and write host files."""
    if "\n" in text or "\0" in text:
        raise HostError(f"{text[:200]!r} cannot be given to debugfs")
    return '"' + text.replace('"', '""') + '"'


def command_line(command: str) -> bytes:
    """Return a command of debugfs as a line of a file. Raises HostError for one that debugfs would
    read as several."""
    line = command.encode("utf-8", "surrogateescape")
    if len(line) >= LINE_MAX or b"\n" in line:
        raise HostError(f"debugfs cannot be given {command[:200]!r}… ({len(line)} bytes)")
    return line + b"\n"


async def _run(image: Path, debugfs: Tool, commands: Sequence[str]) -> list[str]:
    """Run commands of debugfs that only read; return the lines that it writes. Its names are any
    bytes, which are surrogates in them."""
    script, output = image.with_suffix(".ask"), image.with_suffix(".told")
    text = b"".join(map(command_line, commands))
    await asyncio.to_thread(script.write_bytes, text)
    argv = [
        "sh",
        "-c",
        _TO_FILE,
        "sh",
        str(output),
        *debugfs.command,
        "-f",
        str(script),
        str(image),
    ]
    try:
        await run_tool(argv, env=debugfs.env)
        if output.stat().st_size > OUTPUT_MAX:
            raise HostError(f"the file system in {image} has too many files")
        data = await asyncio.to_thread(output.read_bytes)
    finally:
        script.unlink(missing_ok=True)
        output.unlink(missing_ok=True)
    return data.decode("utf-8", "surrogateescape").split("\n")
