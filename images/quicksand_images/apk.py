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
from itertools import islice
from pathlib import Path

from quicksand.base.arch import Architecture
from quicksand.base.errors import ImageError, ImageNotFound
from quicksand.base.regular import open_file
from quicksand.disks.packages.pages import shown

DATABASE = "/lib/apk/db/installed"
REPOSITORIES = "/etc/apk/repositories"
INDEX = "APKINDEX.tar.gz"
INDEX_MAX = 64 * 1024 * 1024
"""Bytes of an index, packed or unpacked; that of Alpine's community has 10 MB unpacked."""

APK_MAX = 2 * 1024**3
"""Bytes of a package; the largest of Alpine have some hundred MB."""

HEAD_MAX = 4 * 1024 * 1024
"""Bytes of a package in which its signature and its metadata have to be."""

OFFERS_MAX = 200_000
"""Packages in all indexes together; Alpine has 40,000."""

REPOSITORIES_MAX = 16
"""Repositories that are asked for one layer."""

SIZE_DIGITS = 15
"""Of a package's size; Python refuses to read numbers of thousands."""

MEMBERS_MAX = 1000
"""Files in an index, or in the metadata of a package."""

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


def parse_packages(text: str, repository: str = "", *, most: int = OFFERS_MAX) -> list[Package]:
    """Return the packages in an index or a database. What makes no sense is left out. Raises
    ImageError for more than ``most``."""
    found = list(islice(_parse(text, repository), most + 1))
    if len(found) > most:
        of = f"the lists up to {shown(repository)}" if repository else DATABASE
        raise ImageError(f"{of} have more than {OFFERS_MAX} packages")
    return found


def _parse(text: str, repository: str) -> Iterator[Package]:
    for paragraph in _paragraphs(text):
        lines = (line.partition(":") for line in paragraph.splitlines())
        fields = {key: value for key, colon, value in reversed(list(lines)) if colon}
        name, version, size = fields.get("P", ""), fields.get("V", ""), fields.get("S", "0")
        if not _NAME.fullmatch(name) or not _NAME.fullmatch(version):
            continue
        if not size.isdecimal() or len(size) > SIZE_DIGITS:
            continue
        yield Package(
            name=name,
            version=version,
            size=int(size),
            checksum=fields.get("C", ""),
            depends=tuple(fields.get("D", "").split()),
            provides=tuple(_plain(word) for word in fields.get("p", "").split()),
            install_if=tuple(fields.get("i", "").split()),
            repository=repository,
        )


def _paragraphs(text: str) -> Iterator[str]:
    """Yield them one by one: a list of millions would need gigabytes."""
    start = 0
    while (end := text.find("\n\n", start)) >= 0:
        yield text[start:end]
        start = end + 2
    yield text[start:]


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
    left, handled = list(names), set[str]()
    for name in left:
        if name not in providers and name not in known:
            raise ImageNotFound(f"the mirrors of the base have no package {name!r}")
    while left:
        word = _plain(left.pop())
        for offer in () if word in handled else providers.get(word, ()):
            # The same is there; another version could be wanted by a condition.
            if offer.name in chosen or there.get(offer.name) == offer.version:
                continue
            chosen[offer.name] = offer
            left += [word for word in offer.depends if not word.startswith("!")]
        handled.add(word)
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
    """Return the text of an index, which may have `INDEX_MAX` bytes. Raises ImageError."""
    try:
        with open_file(path) as file:
            data = file.read(INDEX_MAX + 1)
        if len(data) > INDEX_MAX:
            raise ValueError("it is too large")
        *_, last = split_members(data)
        return _content(last[1], "APKINDEX")
    except (ValueError, tarfile.TarError, RecursionError) as error:
        raise ImageError(f"the index of {shown(repository)} cannot be read: {error}") from error


def is_right(path: Path, package: Package) -> bool:
    """Whether a package has the metadata of the index, and the files of its metadata. (Signatures
    are for the guest's apk.)"""
    with open_file(path) as file:
        start = 0
        try:
            for packed, unpacked in split_members(file.read(HEAD_MAX)):
                start += len(packed)
                digest = hashlib.sha1(packed, usedforsecurity=False).digest()
                if package.checksum == f"Q1{base64.b64encode(digest).decode()}":
                    text = _content(unpacked, ".PKGINFO")
                    break
            else:
                return False
        except (ValueError, tarfile.TarError, RecursionError):
            return False
        found = re.search(r"^datahash = ([0-9a-f]{64})$", text, re.MULTILINE)
        file.seek(start)
        # The files may have gigabytes.
        content = hashlib.file_digest(file, "sha256").hexdigest()
    return found is not None and found[1] == content


def _content(data: bytes, name: str) -> str:
    """Return a text in a tar. Raises ValueError, tarfile.TarError, and RecursionError for headers
    that follow each other without end."""
    with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as archive:
        for _ in range(MEMBERS_MAX):
            member = archive.next()
            # With a negative size the next member could be the same again.
            if member is None or member.size < 0:
                break
            file = archive.extractfile(member) if member.name == name and member.isreg() else None
            if file is not None:
                return file.read(min(member.size, INDEX_MAX)).decode("utf-8", "replace")
    raise ValueError(f"it has no {name}")


def split_members(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield the first two gzip members of an index or a package, each as it is and unpacked. Raises
    ValueError."""
    for _ in range(2):
        if not data:
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
