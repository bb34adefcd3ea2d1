"""Packages of Alpine: what a mirror's index says, what apk may want of it, and whether a package is
what the index says."""

from __future__ import annotations

import base64
import hashlib
import io
import re
import tarfile
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from quicksand.base.arch import Architecture
from quicksand.base.errors import ImageError, ImageNotFound
from quicksand.disks.packages.pages import shown

DATABASE = "/lib/apk/db/installed"
REPOSITORIES = "/etc/apk/repositories"
INDEX = "APKINDEX.tar.gz"
INDEX_MAX = 64 * 1024 * 1024
"""Bytes of an unpacked index; that of Alpine's community has 10 MB."""

PACKAGES_MAX = 5000
"""Packages that are fetched for one layer."""

ARCHES = {Architecture.X86_64: "x86_64", Architecture.ARM64: "aarch64"}
"""Architectures as Alpine names them."""

_NAME = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9+._-]*")
_CONDITION = re.compile(r"[<>=~@]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """A package as an index or the database of what is installed describes it."""

    name: str
    version: str
    size: int = 0
    checksum: str = ""
    """Of the part with the metadata: "Q1" and its SHA-1 in base64."""
    depends: tuple[str, ...] = ()
    provides: tuple[str, ...] = ()
    install_if: tuple[str, ...] = ()
    """It is installed as soon as all of these are."""
    repository: str = ""

    @property
    def file(self) -> str:
        return f"{self.name}-{self.version}.apk"


def parse_packages(text: str, repository: str = "") -> list[Package]:
    """Return the packages in an index or a database. What makes no sense is left out."""
    found = []
    for paragraph in text.split("\n\n"):
        lines = (line.partition(":") for line in paragraph.splitlines())
        fields = {key: value for key, colon, value in reversed(list(lines)) if colon}
        name, version, size = fields.get("P", ""), fields.get("V", ""), fields.get("S", "0")
        if not _NAME.fullmatch(name) or not _NAME.fullmatch(version) or not size.isdecimal():
            continue
        found.append(
            Package(
                name=name,
                version=version,
                size=int(size),
                checksum=fields.get("C", ""),
                depends=tuple(fields.get("D", "").split()),
                provides=tuple(_plain(word) for word in fields.get("p", "").split()),
                install_if=tuple(fields.get("i", "").split()),
                repository=repository,
            )
        )
    return found


def may_want(
    names: Iterable[str], offers: Sequence[Package], installed: Sequence[Package]
) -> list[Package]:
    """Return what apk may want in order to install ``names``. Raises ImageNotFound for a name that
    nobody offers."""
    providers: dict[str, list[Package]] = {}
    for offer in offers:
        for word in (offer.name, *offer.provides):
            providers.setdefault(word, []).append(offer)
    there = {package.name: package.version for package in installed}
    known = {word for package in installed for word in (package.name, *package.provides)}
    chosen: dict[str, Package] = {}
    left = list(names)
    for name in left:
        if name not in providers and name not in known:
            raise ImageNotFound(f"the mirrors of the base have no package {name!r}")
    while left:
        for offer in providers.get(_plain(left.pop()), ()):
            # The same is there; another version could be wanted by a condition.
            if offer.name in chosen or there.get(offer.name) == offer.version:
                continue
            chosen[offer.name] = offer
            left += [word for word in offer.depends if not word.startswith("!")]
        if not left:
            left += _completed(offers, {*chosen, *known}, there | dict.fromkeys(chosen, ""))
        if len(chosen) > PACKAGES_MAX:
            raise ImageError(f"more than {PACKAGES_MAX} packages would be installed")
    return sorted(chosen.values(), key=lambda package: package.name)


def _completed(
    offers: Sequence[Package], there: set[str], named: Mapping[str, str]
) -> Iterator[str]:
    """Yield what is installed since all that it waits for is there."""
    for offer in offers:
        conditions = [_plain(word) for word in offer.install_if]
        if conditions and offer.name not in named and all(word in there for word in conditions):
            yield offer.name


def _plain(word: str) -> str:
    """Return a dependency without the versions that will do."""
    return _CONDITION.split(word, maxsplit=1)[0]


def parse_repositories(text: str) -> list[str]:
    """Return the addresses in /etc/apk/repositories, without those for packages that are asked for
    by a tag."""
    lines = (line.strip().rstrip("/") for line in text.splitlines())
    return [line for line in lines if line.startswith(("https://", "http://"))]


def read_index(path: Path, repository: str) -> str:
    try:
        *_, last = split_members(path.read_bytes())
        with tarfile.open(fileobj=io.BytesIO(last[1]), mode="r:") as archive:
            file = archive.extractfile("APKINDEX")
            if file is None:
                raise ValueError("it is no file")
            return file.read(INDEX_MAX).decode("utf-8", "replace")
    except (ValueError, KeyError, tarfile.TarError) as error:
        raise ImageError(f"the index of {shown(repository)} cannot be read: {error}") from error


def is_right(path: Path, package: Package) -> bool:
    """Whether a package has the metadata of the index, and the files of its metadata. (Signatures
    are for the guest's apk.)"""
    try:
        members = list(split_members(path.read_bytes(), most=3))
        control, content = members[-2][0], members[-1][0]
        with tarfile.open(fileobj=io.BytesIO(members[-2][1]), mode="r:") as archive:
            file = archive.extractfile(".PKGINFO")
            text = "" if file is None else file.read(INDEX_MAX).decode("utf-8", "replace")
    except (ValueError, KeyError, IndexError, tarfile.TarError):
        return False
    found = re.search(r"^datahash = ([0-9a-f]{64})$", text, re.MULTILINE)
    digest = hashlib.sha1(control, usedforsecurity=False).digest()
    is_named = package.checksum == f"Q1{base64.b64encode(digest).decode()}"
    return is_named and found is not None and found[1] == hashlib.sha256(content).hexdigest()


def split_members(data: bytes, most: int = 2) -> Iterator[tuple[bytes, bytes]]:
    """Yield the gzip members of an index or a package, each as it is and, but for the files of a
    package, unpacked. Raises ValueError."""
    for number in range(most):
        if not data:
            return
        if number == most - 1 and most == 3:
            yield data, b""
            return
        unpacker = zlib.decompressobj(wbits=31)
        try:
            content = unpacker.decompress(data, INDEX_MAX)
        except zlib.error as error:
            raise ValueError(str(error)) from error
        if not unpacker.eof:
            raise ValueError("it is cut off, or too large")
        rest = unpacker.unused_data
        yield data[: len(data) - len(rest)], content
        data = rest
