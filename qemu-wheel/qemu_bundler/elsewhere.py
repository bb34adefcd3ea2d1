"""What bundles on macOS and on Windows share: programs and libraries of one prefix, such as
Homebrew's or MSYS2's, and each library that any of them needs, but for the system's own."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from qemu_bundler.bundle import FIRMWARE, KEYMAPS, Bundle, BundleError, Origin

Run = Callable[[Sequence[str]], str]
"""Runs a program and returns what it prints; raises BundleError if it fails."""


def run(argv: Sequence[str]) -> str:
    """Run a program. Raises BundleError with the end of what it printed."""
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode:
        raise BundleError(f"{argv[0]} failed: {(done.stderr or done.stdout).strip()[-500:]}")
    return done.stdout


def find_closure(
    programs: Iterable[Path],
    needed: Callable[[Path], Iterable[str]],
    find: Callable[[Path, str], Path | None],
) -> dict[str, Path]:
    """Find the libraries that some programs need, those that these need, and so on: the files by
    the names that they get. ``find`` returns the file that a binary means by a name, None if it is
    the system's. Raises BundleError for two of one name."""
    found: dict[str, Path] = {}
    left = [*programs]
    while left:
        binary = left.pop()
        for name in needed(binary):
            library = find(binary, name)
            if library is None:
                continue
            known = found.setdefault(library.name, library)
            if known.resolve() != library.resolve():
                raise BundleError(f"{known} and {library} have one name")
            if known is library:
                left.append(library)
    return found


def add_firmware(bundle: Bundle, share: Path, guests: Sequence[str], origin: Origin) -> None:
    """Add firmware and keymaps of QEMU's own directory. Raises BundleError."""
    names = dict.fromkeys(name for guest in guests for name in FIRMWARE[guest])
    for name in (*names, *(f"keymaps/{layout}" for layout in KEYMAPS)):
        if not (share / name).is_file():
            raise BundleError(f"{share / name} does not exist")
        bundle.add(share / name, bundle.firmware / name, origin)
