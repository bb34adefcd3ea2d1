"""Reads what the dynamic loader reads of an ELF file: what it needs, and where it looks for it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from elftools.common.exceptions import ELFError
from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerNeedSection
from elftools.elf.segments import InterpSegment

from qemu_bundler.bundle import BundleError

MAGIC = b"\x7fELF"
TEXTS = {"DT_NEEDED": "needed", "DT_RPATH": "rpath", "DT_RUNPATH": "runpath"}
MACHINES = {"EM_X86_64": "x86_64", "EM_AARCH64": "aarch64"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Elf:
    """A program or a library."""

    path: Path
    machine: str
    """As in a wheel's tag: x86_64, aarch64; of another one ELF's own name."""
    interpreter: str
    """The loader that a program asks for; "" for a library."""
    needed: tuple[str, ...]
    """Names of libraries (DT_NEEDED)."""
    rpath: str
    """Where the loader looks for them before LD_LIBRARY_PATH (DT_RPATH), "" for nowhere."""
    runpath: str
    """Where it looks after LD_LIBRARY_PATH (DT_RUNPATH), which makes it ignore ``rpath``."""
    versions: Mapping[str, frozenset[str]]
    """Versions of symbols by the library that must have them (.gnu.version_r)."""


def is_elf(path: Path) -> bool:
    """Whether a regular file begins as an ELF file does. Raises OSError."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(len(MAGIC)) == MAGIC


def find_elves(directory: Path) -> list[Elf]:
    """Read all ELF files below a directory. Raises BundleError, OSError."""
    return [read_elf(path) for path in sorted(directory.rglob("*")) if is_elf(path)]


def read_elf(path: Path) -> Elf:
    """Read one file. Raises BundleError if it is no dynamically linked ELF file, OSError."""
    with path.open("rb") as file:
        try:
            return _read(path, ELFFile(file))
        except (ELFError, ValueError, KeyError, AttributeError, UnicodeError) as error:
            raise BundleError(f"{path} cannot be read as an ELF file: {error}") from error


def _read(path: Path, file: ELFFile) -> Elf:
    dynamic = next((s for s in file.iter_sections() if isinstance(s, DynamicSection)), None)
    if dynamic is None:
        raise ValueError("it is not linked dynamically")
    texts: dict[str, list[str]] = {name: [] for name in TEXTS}
    for tag in dynamic.iter_tags():
        if (name := tag.entry.d_tag) in TEXTS:
            # The library gives a tag whose value is a text an attribute of the tag's name.
            texts[name].append(str(getattr(tag, TEXTS[name])))
    interpreter = next(
        (s.get_interp_name() for s in file.iter_segments() if isinstance(s, InterpSegment)), ""
    )
    machine = str(file["e_machine"])
    return Elf(
        path=path,
        machine=MACHINES.get(machine, machine),
        interpreter=interpreter,
        needed=tuple(texts["DT_NEEDED"]),
        rpath=":".join(texts["DT_RPATH"]),
        runpath=":".join(texts["DT_RUNPATH"]),
        versions=dict(_versions(file)),
    )


def _versions(file: ELFFile) -> Iterator[tuple[str, frozenset[str]]]:
    for section in file.iter_sections():
        if isinstance(section, GNUVerNeedSection):
            for library, wanted in section.iter_versions():
                yield str(library.name), frozenset(str(one.name) for one in wanted)
