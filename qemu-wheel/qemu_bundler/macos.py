"""A bundle of Homebrew's QEMU. Not run here: no macOS was at hand; its command lines are tested.

A library's place is in what needs it: `install_name_tool` changes each to one beside that file
(@loader_path), which breaks the signature, so all are signed anew (ad hoc), the emulators with the
entitlement without which HVF refuses them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from qemu_bundler.bundle import Bundle, BundleError, Made, Origin
from qemu_bundler.elsewhere import Run, add_firmware, find_closure, run
from qemu_bundler.notices import write_licences

SYSTEM = ("/usr/lib/", "/System/")
"""Where the libraries of macOS are, which have no files there since macOS 11."""

ENTITLEMENTS = """\
<?xml version="1.0" encoding="UTF-8"?>
<plist version="1.0"><dict><key>com.apple.security.hypervisor</key><true/></dict></plist>
"""
MACHINES = {"arm64": "arm64", "x86_64": "x86_64"}

_NEEDED = re.compile(r"^\t(\S.*) \(compatibility version .*\)$", re.MULTILINE)
_OLDEST = re.compile(r"^\s+(?:minos|version) (\d+)\.(\d+)", re.MULTILINE)
_VERSION = re.compile(r"version (\d+\.\d+\.\d+)")


def parse_needed(otool: str) -> list[str]:
    """The libraries in what `otool -L` prints, the file's own name included if it is one."""
    return _NEEDED.findall(otool)


def parse_oldest(otool: str) -> tuple[int, int]:
    """The oldest macOS that a file is for, in what `otool -l` prints (LC_BUILD_VERSION, before that
    LC_VERSION_MIN_MACOSX). Raises BundleError."""
    if (found := _OLDEST.search(otool)) is None:
        raise BundleError("otool does not say which macOS a file is for")
    return int(found[1]), int(found[2])


def platform_tag(oldest: Sequence[tuple[int, int]], machine: str) -> str:
    """The platform tag of a wheel whose files are for these releases. From macOS 11 on only the
    first number counts (packaging.tags)."""
    major, minor = max(oldest)
    return f"macosx_{major}_{0 if major >= 11 else minor}_{MACHINES[machine]}"


def find_library(prefix: Path, binary: Path, name: str) -> Path | None:
    """The file that ``binary`` means by a name; None if it is the system's. Raises BundleError."""
    if name.startswith(SYSTEM) or Path(name).name == binary.name:
        return None
    for start, place in (("@loader_path/", binary.parent), ("@rpath/", prefix / "lib")):
        if name.startswith(start):
            found = place / name.removeprefix(start)
            break
    else:
        found = Path(name)
    if not found.is_file():
        raise BundleError(f"{binary} needs {name}, which does not exist")
    return found


def plan_relocation(path: Path, needed: Sequence[str], inside: Mapping[str, str]) -> list[str]:
    """The command line that lets a file of the bundle find its libraries. ``inside``: the place of
    each of them, relative to the file."""
    words = ["install_name_tool"]
    if path.suffix == ".dylib":
        words += ["-id", f"@loader_path/{path.name}"]
    for name in needed:
        if (place := inside.get(Path(name).name)) is not None and Path(name).name != path.name:
            words += ["-change", name, f"@loader_path/{place}"]
    return [*words, str(path)]


def plan_signature(path: Path, entitlements: Path | None) -> list[str]:
    """The command line that signs a file ad hoc."""
    words = ["codesign", "--force", "--sign", "-"]
    if entitlements is not None:
        words += ["--entitlements", str(entitlements)]
    return [*words, str(path)]


def assemble(
    guests: Sequence[str], root: Path, work: Path, prefix: Path, machine: str, run: Run = run
) -> Made:
    """Make a bundle of the QEMU in ``prefix`` (`brew --prefix`). Raises BundleError, OSError."""
    programs = [prefix / "bin" / f"qemu-system-{guest}" for guest in guests]
    programs.append(prefix / "bin" / "qemu-img")
    needed = {}

    def needed_of(path: Path) -> list[str]:
        needed[path.name] = parse_needed(run(["otool", "-L", str(path)]))
        return needed[path.name]

    libraries = find_closure(
        programs, needed_of, lambda binary, name: find_library(prefix, binary, name)
    )
    said = _VERSION.search(run([str(programs[0]), "--version"]))
    if said is None:
        raise BundleError(f"{programs[0]} does not say its version")
    qemu = _origin(programs[0])
    bundle = Bundle(root)
    files = [bundle.add(path, root / path.name, qemu) for path in programs]
    files += [bundle.add(p, bundle.libraries / name, _origin(p)) for name, p in libraries.items()]
    add_firmware(bundle, prefix / "share" / "qemu", guests, qemu)
    entitlements = work / "entitlements.plist"
    entitlements.write_text(ENTITLEMENTS)
    for path in files:
        is_program = path.parent == root
        inside = {name: f"lib/{name}" if is_program else name for name in libraries}
        run(plan_relocation(path, needed[path.name], inside))
        is_emulator = path.name.startswith("qemu-system-")
        run(plan_signature(path, entitlements if is_emulator else None))
    cellar = prefix / "Cellar"
    write_licences(bundle, lambda one: cellar / one.name / one.version, "homebrew")
    oldest = [parse_oldest(run(["otool", "-l", str(path)])) for path in files]
    return Made(bundle=bundle, qemu=qemu, version=said[1], tag=platform_tag(oldest, machine))


def _origin(library: Path) -> Origin:
    """The formula of a file, whose real place is …/Cellar/FORMULA/VERSION/…"""
    parts = library.resolve().parts
    if "Cellar" in parts[:-3]:
        at = parts.index("Cellar")
        return Origin(parts[at + 1], parts[at + 2], parts[at + 1], parts[at + 2])
    raise BundleError(f"{library} is of no formula of Homebrew's")
