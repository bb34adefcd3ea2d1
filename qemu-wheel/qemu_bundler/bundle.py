"""What a bundle is on every system: directories, firmware, and where each file is from."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field
from pathlib import Path

GUESTS = ("x86_64", "aarch64")
"""The guests' architectures for which there can be a program."""

FIRMWARE = {
    "x86_64": (
        "bios-256k.bin",  # SeaBIOS, of every PC
        "kvmvapic.bin",  # the option ROM of an emulated interrupt controller (hw/i386/vapic.c)
        "linuxboot_dma.bin",  # starts a bzImage given as -kernel
        "pvh.bin",  # starts an ELF file given as -kernel
        "vgabios-stdvga.bin",  # for a user's own -vga std
        "efi-virtio.rom",  # for a user's own -device virtio-net-pci; ours are without
    ),
    "aarch64": (
        "efi-virtio.rom",  # likewise; QEMU itself starts a kernel on virt (hw/arm/boot.c)
    ),
}
"""Files of firmware by guest. There is none of UEFI: all our machines start a kernel directly."""

KEYMAPS = ("en-us",)
"""A VNC server does not start without the layout that it is for, en-us if none is named."""


class BundleError(Exception):
    """A bundle cannot be made, or is not what it must be. The message says what to do if anything
    can be done."""


@dataclass(frozen=True, slots=True)
class Origin:
    """A package from which files of a bundle are."""

    name: str
    version: str
    source: str
    """The source package, or what stands for it."""
    source_version: str


@dataclass(slots=True)
class Bundle:
    """The directory that `get_bin_dir` will name, while it is being made."""

    root: Path
    origins: dict[str, Origin] = field(default_factory=dict)
    """By the path of a file relative to `root`, with slashes."""

    @property
    def libraries(self) -> Path:
        return self.root / "lib"

    @property
    def modules(self) -> Path:
        return self.root / "lib" / "qemu"

    @property
    def firmware(self) -> Path:
        return self.root / "share" / "qemu"

    @property
    def licences(self) -> Path:
        """Spelled as the published package spells it."""
        return self.root / "licenses"

    def add(self, source: Path, target: Path, origin: Origin) -> Path:
        """Copy a file, not a link, into the bundle; return ``target``. Raises OSError."""
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)
        executable = target.parent == self.root
        target.chmod(0o755 if executable else 0o644)
        self.origins[target.relative_to(self.root).as_posix()] = origin
        return target


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """A finished bundle."""

    bundle: Bundle
    qemu: Origin
    """The package of the emulator."""
    version: str
    """QEMU's own version, as 7.2.22."""
    tag: str
    """The platform of the wheel: manylinux_2_36_x86_64, macosx_13_0_arm64, win_amd64."""
