"""Get the programs that the tests run, QEMU for guests of each architecture among them: installed
as root, for anybody else unpacked in the data directory. tests/conftest.py puts what was unpacked
on the PATH."""

from __future__ import annotations

import asyncio
import sys

from quicksand.base.arch import Architecture
from quicksand.base.errors import QuicksandError
from quicksand.base.paths import paths
from quicksand.qemu.provision import ensure_qemu
from quicksand_images.toolbox import keep_tool

PACKAGES = {"tmux": "tmux", "cpio": "cpio", "zstd": "zstd"}
"""By program. The end-to-end tests type into tmux; cpio and zstd read what we write."""

ON_LINUX = {
    "ps": "procps",
    "mkfs.ext4": "e2fsprogs",
    "debugfs": "e2fsprogs",
    "smbtorture": "samba-testsuite",
    "sshd": "openssh-server",
}
"""Disks are filled, and taken apart; samba's tests run against our SMB server; other machines are
reached through an sshd of the tests' own."""


async def main() -> int:
    packages = PACKAGES | ON_LINUX if sys.platform == "linux" else PACKAGES
    for program, package in packages.items():
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
