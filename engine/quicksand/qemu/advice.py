"""The remedies for a missing QEMU, which depend on this host."""

from __future__ import annotations

import shutil
import sys

from quicksand.base.arch import Architecture
from quicksand.base.remedies import Remedy, Words
from quicksand.qemu import debs

ELSEWHERE = "set QUICKSAND_QEMU_DIR to its directory"
_HOMEBREW = "install Homebrew (https://brew.sh), then run this again"
_MANAGERS = (
    ("apt-get", "apt-get install qemu-system-x86 qemu-utils"),
    ("dnf", "dnf install qemu-system-x86-core qemu-img"),
    ("pacman", "pacman -S qemu-base"),
    ("zypper", "zypper install qemu-x86 qemu-tools"),
    ("apk", "apk add qemu-system-x86_64 qemu-img"),
)
"""Programs that install packages, and the command of each that installs QEMU."""


def can_get_qemu() -> bool:
    """Whether `provision.ensure_qemu` knows a way to get QEMU on this host."""
    return shutil.which("brew") is not None if sys.platform == "darwin" else debs.is_apt_host()


def how_to_get(arch: str) -> Words:
    """Return how to get QEMU where there is none for guests of ``arch`` (x86_64, aarch64), or an
    old one."""
    if not can_get_qemu():
        return Words(how_to_install())
    wanted = Architecture(arch)
    is_ours = wanted is Architecture.host()
    remedy = Remedy("get_qemu") if is_ours else Remedy("get_qemu_for", arch=wanted.debian)
    return Words(
        remedy,
        f" gets it, or {ELSEWHERE}",
        python=f"install QEMU, or {ELSEWHERE}",
    )


def how_to_install() -> str:
    """Return how the user can install QEMU by other means than ours."""
    if sys.platform == "darwin":
        return _HOMEBREW
    for program, command in _MANAGERS:
        if shutil.which(program) is not None:
            return f"as root: {command}"
    return f"install QEMU 7.2 or newer, or {ELSEWHERE}"
