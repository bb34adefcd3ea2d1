"""Makes the initrd that a guest boots with: the image's own with the agent appended. The kernel
unpacks one archive after the other, so the agent always matches the engine, whatever the image."""

from __future__ import annotations

import hashlib
import os
import re
import secrets
from pathlib import Path

from quicksand.base.arch import Architecture
from quicksand.base.errors import ImageError
from quicksand.base.files import map_os_errors
from quicksand.base.listing import TEMPORARY, own_files
from quicksand.base.paths import make_private_dir
from quicksand.base.regular import create, read_file
from quicksand.disks.images.cpio import CpioEntry, build_cpio

AGENT = "quicksand-agent"
INITRDS = "initrd"
"""The directory of composed initrds in the cache."""

_NAMES = re.compile(rf"[0-9a-f]{{32}}\.cpio|\.[0-9a-f]{{32}}\.cpio{TEMPORARY}|\.[0-9a-f]{{16}}")


def find_agent(arch: Architecture) -> Path:
    """Find the agent's binary for guests of ``arch``. Raises ImageError if there is none."""
    package = Path(__file__).resolve().parents[2]
    checkout = package.parents[1]
    for root in (package / "_agent", checkout / "guest-agent" / "prebuilt"):
        path = root / arch.value / AGENT
        if path.is_file():
            return path
    raise ImageError(f"this installation has no guest agent for {arch.value}")


def list_initrds(cache: Path) -> list[Path]:
    """Files that `compose_initrd` has made in ``cache``, also those that a killed process has left
    unfinished, or set aside to remove them. Blocks for I/O."""
    return own_files(cache / INITRDS, _NAMES)


def set_aside(initrd: Path) -> Path:
    """A free name for an initrd that is about to be removed, by which no start finds it."""
    return initrd.with_name(f".{secrets.token_hex(8)}")


def compose_initrd(initrd: Path, arch: Architecture, cache: Path) -> Path:
    """Return a file with ``initrd`` and the agent, made once and kept in ``cache``. Blocks for I/O.

    Raises ImageError if there is no agent, DiskSpaceError, PathError.
    """
    agent = find_agent(arch)
    target = cache / INITRDS / f"{_key(initrd, agent)}.cpio"
    if target.is_file():
        return target
    make_private_dir(target.parent)
    archive = build_cpio(
        [
            CpioEntry(name="quicksand", mode=0o040700),
            CpioEntry(name="quicksand/agent", mode=0o100700, data=agent.read_bytes()),
        ]
    )
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
    try:
        with map_os_errors(target), create(temporary) as file:
            image = read_file(initrd)
            # An archive has to start on a 4-byte boundary (buffer-format.rst).
            file.write(image + bytes(-len(image) % 4) + archive)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)
    return target


def _key(*files: Path) -> str:
    """Identify files by inode, size and time, since published files never change in place."""
    parts = []
    for file in files:
        found = file.stat()
        parts.append(f"{found.st_dev}\0{found.st_ino}\0{found.st_size}\0{found.st_mtime_ns}")
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:32]
