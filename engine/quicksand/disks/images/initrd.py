"""Makes the initrd with which a guest boots: the image's own with the agent appended. The kernel
unpacks one archive after the other, so the agent always matches the engine, whatever the image."""

from __future__ import annotations

from pathlib import Path

from quicksand.base.arch import Architecture
from quicksand.base.errors import ImageError
from quicksand.base.regular import read_file
from quicksand.disks.images.boot_files import keep
from quicksand.disks.images.cpio import CpioEntry, build_cpio

AGENT = "quicksand-agent"
SUFFIX = ".cpio"


def find_agent(arch: Architecture) -> Path:
    """Find the agent's binary for guests of ``arch``. Raises ImageError if there is none."""
    package = Path(__file__).resolve().parents[2]
    checkout = package.parents[1]
    for root in (package / "_agent", checkout / "guest-agent" / "prebuilt"):
        path = root / arch.value / AGENT
        if path.is_file():
            return path
    raise ImageError(f"this installation has no guest agent for {arch.value}")


def compose_initrd(initrd: Path, arch: Architecture, cache: Path) -> Path:
    """Return a file with ``initrd`` and the agent, made once and kept in ``cache``. Blocks for I/O.

    Raises ImageError if there is no agent, DiskSpaceError, PathError.
    """
    agent = find_agent(arch)
    return keep(cache, SUFFIX, [initrd, agent], lambda: _with_agent(initrd, agent))


def _with_agent(initrd: Path, agent: Path) -> bytes:
    archive = build_cpio(
        [
            CpioEntry(name="quicksand", mode=0o040700),
            CpioEntry(name="quicksand/agent", mode=0o100700, data=agent.read_bytes()),
        ]
    )
    image = read_file(initrd)
    # An archive has to start on a 4-byte boundary (buffer-format.rst).
    return image + bytes(-len(image) % 4) + archive
