"""Licences of what is in a bundle, and where the sources of exactly that are: the GPL asks whoever
passes programs on for both."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from qemu_bundler.bundle import Bundle, BundleError, Origin

COMMON = "usr/share/common-licenses"
DOCUMENTS = "usr/share/doc"

_REFERENCE = re.compile(r"/usr/share/common-licenses/([A-Za-z][A-Za-z0-9.+-]*[A-Za-z0-9])")

LICENCE_FILES = ("COPYING*", "LICEN[CS]E*", "Copyright*", "COPYRIGHT*")
"""What licences are called where a package has them in a directory."""

SOURCES_FILE = "SOURCES.md"
SOURCES = {
    "homebrew": "https://formulae.brew.sh/formula/{source}",
    "msys2": "https://packages.msys2.org/base/{source}",
    "debian": "https://snapshot.debian.org/package/{source}/{version}/",
    "ubuntu": "https://launchpad.net/ubuntu/+source/{source}/{version}",
}
"""Where each distribution keeps its sources, Debian and Ubuntu those of every version ever."""


class Package(Protocol):
    """A package in a directory of its own."""

    @property
    def origin(self) -> Origin: ...

    @property
    def root(self) -> Path: ...


def write_notices(
    bundle: Bundle, packages: Sequence[Package], distribution: Mapping[str, str]
) -> None:
    """Write the licences and SOURCES.md. Raises BundleError if a package has no copyright file, or
    one that refers to a licence that is not there."""
    used = {origin.name for origin in bundle.origins.values()}
    common: set[str] = set()
    bundle.licences.mkdir(parents=True, exist_ok=True)
    for package in packages:
        if package.origin.name in used:
            source = _copyright_of(package, packages)
            target = bundle.licences / f"{package.origin.name}.txt"
            shutil.copyfile(source, target)
            target.chmod(0o644)
            common.update(_REFERENCE.findall(target.read_text("utf-8", "replace")))
    for name in sorted(common):
        found = [p.root / COMMON / name for p in packages if (p.root / COMMON / name).is_file()]
        if not found:
            raise BundleError(f"the licence {name} is referred to, and no package has its text")
        target = bundle.licences / "common" / name
        target.parent.mkdir(exist_ok=True)
        shutil.copyfile(found[0], target)
    _write_sources(bundle, distribution)


def write_licences(bundle: Bundle, place_of: Callable[[Origin], Path], distribution: str) -> None:
    """Write the licences, which lie in a directory for each package, and SOURCES.md. Raises
    BundleError if a package has none."""
    for origin in sorted(set(bundle.origins.values()), key=lambda one: one.name):
        place = place_of(origin)
        found = [path for name in LICENCE_FILES for path in place.glob(name) if path.is_file()]
        if not found:
            raise BundleError(f"the package {origin.name} has no licence in {place}")
        target = bundle.licences / origin.name
        target.mkdir(parents=True, exist_ok=True)
        for path in found:
            shutil.copyfile(path, target / path.name)
    _write_sources(bundle, {"ID": distribution})


def _write_sources(bundle: Bundle, distribution: Mapping[str, str]) -> None:
    text = sources_text(bundle.origins, distribution)
    (bundle.licences / SOURCES_FILE).write_text(text, encoding="utf-8")


def _copyright_of(package: Package, packages: Sequence[Package]) -> Path:
    """A package's copyright file, or that of the package whose documents it shares by a link."""
    name = package.origin.name
    documents = package.root / DOCUMENTS / name
    if documents.is_symlink():
        name = documents.readlink().name
    for other in packages:
        found = other.root / DOCUMENTS / name / "copyright"
        if found.is_file() and not found.is_symlink():
            return found
    raise BundleError(f"the package {package.origin.name} has no copyright file")


def sources_text(origins: Mapping[str, Origin], distribution: Mapping[str, str]) -> str:
    """Return SOURCES.md: each package with its files, and where its source is."""
    files: dict[Origin, list[str]] = {}
    for path, origin in sorted(origins.items()):
        files.setdefault(origin, []).append(path)
    told = distribution.get("PRETTY_NAME", distribution["ID"])
    where = SOURCES.get(distribution["ID"])
    lines = [
        "# Where this is from",
        "",
        f"The programs, libraries and firmware here are those of packages of {told}, unchanged but "
        "for the places where programs look for libraries. Beside this file are the licences of "
        "each package, and in `common/` those that several refer to. Many are under the GNU GPL or "
        "LGPL, QEMU among them (GPL, version 2).",
        "",
        "The source of each version is below (for those of Debian and Ubuntu also by "
        "`apt-get source SOURCE=VERSION`). Whoever passes this wheel on has to offer these sources "
        "as well, as section 3 of the GPL 2 and section 6 of the GPL 3 say.",
        "",
        "| package | version | source | version of the source | files |",
        "| --- | --- | --- | --- | --- |",
    ]
    for origin in sorted(files, key=lambda one: one.name):
        source = origin.source
        if where is not None:
            address = where.format(source=source, version=origin.source_version)
            source = f"[{source}]({address})"
        listed = ", ".join(files[origin])
        row = (origin.name, origin.version, source, origin.source_version, listed)
        lines.append(f"| {' | '.join(row)} |")
    return "\n".join(lines) + "\n"
