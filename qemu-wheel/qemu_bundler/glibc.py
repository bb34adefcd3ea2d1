"""Which glibc binaries need, and so which tag their wheel can have (PEP 600)."""

from __future__ import annotations

import re
from collections.abc import Iterable

from qemu_bundler.bundle import BundleError
from qemu_bundler.elf import Elf

HOST_LIBRARIES = frozenset(
    (
        "ld-linux-x86-64.so.2",
        "ld-linux-aarch64.so.1",
        "libc.so.6",
        "libm.so.6",
        "libpthread.so.0",
        "libdl.so.2",
        "librt.so.1",
        "libutil.so.1",
        "libresolv.so.2",
    )
)
"""What a bundle takes from its host: glibc, which fits its own loader only, and nothing else. PEP
600 would allow more (libgcc_s, GLib …), but a minimal system lacks them."""

LOADERS = {
    "x86_64": "/lib64/ld-linux-x86-64.so.2",
    "aarch64": "/lib/ld-linux-aarch64.so.1",
}

MARKS = {"GLIBC_ABI_DT_RELR": (2, 36)}
"""Versions that stand for an ability of the loader, and since when it is there (glibc NEWS)."""

OLDEST = (2, 17)
"""The oldest glibc that a tag names: that of manylinux2014 (PEP 599), older ones are long gone."""

_VERSION = re.compile(r"GLIBC_(\d+)\.(\d+)(?:\.\d+)?")


def newest_glibc(elves: Iterable[Elf]) -> tuple[int, int]:
    """Return the version of the oldest glibc that has all symbols that these files need. Raises
    BundleError for a symbol that no version of it promises."""
    return max((_since(elf, one) for elf in elves for one in _wanted(elf)), default=OLDEST)


def manylinux_tag(elves: Iterable[Elf]) -> str:
    """Return the platform tag of a wheel with these files. Raises BundleError if they are for more
    than one machine, or for none that is known."""
    files = list(elves)
    machines = {elf.machine for elf in files}
    if len(machines) != 1 or not machines <= LOADERS.keys():
        raise BundleError(f"a wheel is for one machine, and these are for {sorted(machines)}")
    major, minor = max(newest_glibc(files), OLDEST)
    return f"manylinux_{major}_{minor}_{machines.pop()}"


def _wanted(elf: Elf) -> Iterable[str]:
    for library, versions in elf.versions.items():
        if library in HOST_LIBRARIES:
            yield from versions


def _since(elf: Elf, version: str) -> tuple[int, int]:
    if version in MARKS:
        return MARKS[version]
    found = _VERSION.fullmatch(version)
    if found is None:
        raise BundleError(
            f"{elf.path.name} needs {version} of glibc: it is not known which release has that"
        )
    return int(found[1]), int(found[2])
