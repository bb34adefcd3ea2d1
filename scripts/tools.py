"""Get the programs that the tests run, including QEMU for guests of each architecture: installed as
root, otherwise unpacked in the data directory. tests/conftest.py puts the unpacked ones on the
PATH."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from quicksand.base.arch import Architecture
from quicksand.base.errors import QuicksandError
from quicksand.base.paths import paths
from quicksand.qemu.provision import ensure_qemu
from quicksand_images.toolbox import keep_tool

PACKAGES = {"tmux": "tmux", "cpio": "cpio", "zstd": "zstd"}
"""The packages by program. The end-to-end tests type into tmux; cpio and zstd read our files."""

ON_LINUX = {
    "ps": "procps",
    "mkfs.ext4": "e2fsprogs",
    "debugfs": "e2fsprogs",
    "smbtorture": "samba-testsuite",
    "ssh": "openssh-client",
    "rsync": "rsync",
    "git": "git",
}
"""Disks are filled, and taken apart; samba's tests run against our SMB server, and SSH clients
against our SSH server."""

SERVICES = {"sshd": "openssh-server"}
"""Other machines are reached through an sshd of the tests' own. Where services are managed, its
package would start one for everybody, and unpacked it does not find its parts. So it is installed
in containers only, and elsewhere the tests do without it if it is missing."""
MANAGER = Path("/run/systemd/system")
"""It exists while systemd runs, sd_booted(3)."""


def wanted() -> dict[str, str]:
    """The packages to get, by program."""
    if sys.platform != "linux":
        return PACKAGES
    in_container = os.geteuid() == 0 and not MANAGER.exists()
    return PACKAGES | ON_LINUX | (SERVICES if in_container else {})


async def main() -> int:
    for program, package in wanted().items():
        await keep_tool(program, package, paths().data / "tools")
    # For guests of the other architecture: a package of 9 MB.
    for arch in Architecture:
        await ensure_qemu(arch=arch.value)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(asyncio.run(main()))
    except QuicksandError as error:
        sys.exit(f"error: {error}\nhint: {error.hint}")
