"""A bundle of MSYS2's QEMU. Not run here: no Windows was at hand; what is pure is tested.

Windows looks for DLLs in the directory of the program first, so they lie beside it, and nothing has
to be changed in them.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from pathlib import Path

from qemu_bundler.bundle import Bundle, BundleError, Made, Origin
from qemu_bundler.elsewhere import Run, add_firmware, find_closure, run
from qemu_bundler.notices import write_licences

TAG = "win_amd64"
_NEEDED = re.compile(r"^\tDLL Name: (\S+)$", re.MULTILINE)
_VERSION = re.compile(r"version (\d+\.\d+\.\d+)")
_OWNER = re.compile(r" is owned by (\S+) (\S+)$", re.MULTILINE)


def parse_needed(objdump: str) -> list[str]:
    """The DLLs in what `objdump -p` prints of a program or a DLL."""
    return _NEEDED.findall(objdump)


def is_system(name: str, system: Collection[str]) -> bool:
    """Whether a DLL is Windows' own: ``system`` are the names in System32, in small letters. API
    sets have no files."""
    small = name.lower()
    return small in system or small.startswith(("api-ms-win-", "ext-ms-"))


def parse_owner(pacman: str) -> Origin:
    """The package in what `pacman -Qo` prints of a file. Raises BundleError."""
    if (found := _OWNER.search(pacman)) is None:
        raise BundleError(f"pacman does not say whose a file is: {pacman[:200]!r}")
    source = re.sub(r"^mingw-w64-(?:[a-z0-9]+-)?x86_64-", "mingw-w64-", found[1])
    return Origin(found[1], found[2], source, found[2])


def licences_of(prefix: Path, origin: Origin) -> Path:
    """The directory of a package's licences, which has the name of the software alone."""
    return prefix / "share" / "licenses" / origin.source.removeprefix("mingw-w64-")


def assemble(guests: Sequence[str], root: Path, prefix: Path, system: Path, run: Run = run) -> Made:
    """Make a bundle of the QEMU in ``prefix`` (MSYS2's mingw64 or ucrt64); ``system`` is System32.
    Raises BundleError, OSError."""
    programs = [prefix / "bin" / f"qemu-system-{guest}.exe" for guest in guests]
    programs.append(prefix / "bin" / "qemu-img.exe")
    windows = {path.name.lower() for path in system.iterdir()}

    def find(binary: Path, name: str) -> Path | None:
        found = prefix / "bin" / name
        if found.is_file():  # before Windows' own, as the loader does
            return found
        if is_system(name, windows):
            return None
        raise BundleError(f"{binary} needs {name}, which does not exist")

    def needed_of(path: Path) -> list[str]:
        return parse_needed(run(["objdump", "-p", str(path)]))

    libraries = find_closure(programs, needed_of, find)
    said = _VERSION.search(run([str(programs[0]), "--version"]))
    if said is None:
        raise BundleError(f"{programs[0]} does not say its version")
    bundle = Bundle(root)
    for path in (*programs, *libraries.values()):
        bundle.add(path, root / path.name, parse_owner(run(["pacman", "-Qo", str(path)])))
    qemu = bundle.origins[programs[0].name]
    add_firmware(bundle, prefix / "share" / "qemu", guests, qemu)
    write_licences(bundle, lambda one: licences_of(prefix, one), "msys2")
    return Made(bundle=bundle, qemu=qemu, version=said[1], tag=TAG)
