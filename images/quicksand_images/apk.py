"""Packages of Alpine: the contents of a mirror's index, and the packages that apk may want."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from quicksand.base.arch import Architecture
from quicksand.base.errors import ImageError, ImageNotFound
from quicksand_wheels.links import shown

DATABASE = "/lib/apk/db/installed"
REPOSITORIES = "/etc/apk/repositories"

OFFERS_MAX = 200_000
"""Packages in all indexes together; Alpine has 40,000."""

WORDS_MAX = 1_000_000
"""Names that packages need, provide or wait for, in all indexes together; Alpine has 400,000."""

TEXT_MAX = 64 * 1024 * 1024
"""The most bytes kept of all indexes together; Alpine's take 10 MB."""

PARAGRAPH_MAX = 16 * 1024 * 1024
"""Bytes that describe one package. In a database these are also the names of its files."""

REPOSITORIES_MAX = 16
"""Repositories that are asked for one image."""

SIZE_DIGITS = 15
"""The most digits of a package's size; Python refuses to read numbers of thousands."""

PACKAGES_MAX = 5000
"""Packages that are fetched for one image."""

ARCHES = {Architecture.X86_64: "x86_64", Architecture.ARM64: "aarch64"}
"""Architectures as Alpine names them."""

_NAME = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9+._-]*")
_CONDITION = re.compile(r"[<>=~@]")
_FIELD = re.compile(rb"^([PVSCDpik]):(.*)$", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """A package as described by an index or the database of installed packages. Lists of words are
    kept as one text: a list would take ten times as much."""

    name: str
    version: str
    size: int = 0
    checksum: str = ""
    """The checksum of the part with the metadata: "Q1" and its SHA-1 in base64."""
    depends: str = ""
    provides: str = ""
    install_if: str = ""
    """The packages that must all be installed for it to be installed automatically."""
    priority: int = 0
    """Its priority: of several packages that provide the same, apk takes the highest."""
    repository: str = ""

    @property
    def file(self) -> str:
        return f"{self.name}-{self.version}.apk"

    @property
    def provided(self) -> Iterator[str]:
        """Yield its own name, and the names that it provides."""
        yield self.name
        yield from map(_plain, self.provides.split())


@dataclass(slots=True, kw_only=True)
class Limits:
    """The bounds on what may still be read of lists of packages."""

    packages: int = OFFERS_MAX
    words: int = WORDS_MAX
    text: int = TEXT_MAX

    def take(self, package: Package, of: str) -> None:
        """Count a package. Raises ImageError if ``of``, which lists it, has too much."""
        texts = (package.depends, package.provides, package.install_if)
        self.packages -= 1
        self.words -= sum(text.count(" ") + 1 for text in texts if text)
        self.text -= sum(map(len, (package.name, package.version, package.checksum, *texts)))
        if self.packages < 0:
            raise ImageError(f"{of} have more than {OFFERS_MAX} packages")
        if self.words < 0 or self.text < 0:
            raise ImageError(f"{of} have more dependencies than real ones, {WORDS_MAX} at most")


def parse_packages(
    pieces: Iterable[bytes], repository: str = "", limits: Limits | None = None
) -> list[Package]:
    """Return the packages in an index or a database, given in pieces. Nonsense is left out. Raises
    ImageError beyond ``limits``."""
    of = f"the lists up to {shown(repository)}" if repository else f"the lists in {DATABASE}"
    left = Limits() if limits is None else limits
    found = []
    for package in _parse(pieces, repository, of):
        left.take(package, of)
        found.append(package)
    return found


def _parse(pieces: Iterable[bytes], repository: str, of: str) -> Iterator[Package]:
    for paragraph in _paragraphs(pieces, of):
        fields: dict[bytes, str] = {}
        for line in _FIELD.finditer(paragraph):
            # Names are ASCII; a text with other characters would take four times as much memory.
            fields.setdefault(line[1], line[2].decode("ascii", "ignore"))
        name, version, size = fields.get(b"P", ""), fields.get(b"V", ""), fields.get(b"S", "0")
        if not _NAME.fullmatch(name) or not _NAME.fullmatch(version):
            continue
        if not size.isdecimal() or len(size) > SIZE_DIGITS:
            continue
        priority = fields.get(b"k", "0")
        yield Package(
            name=name,
            version=version,
            size=int(size),
            checksum=fields.get(b"C", ""),
            depends=fields.get(b"D", ""),
            provides=fields.get(b"p", ""),
            install_if=fields.get(b"i", ""),
            priority=int(priority) if re.fullmatch(r"[0-9]{1,9}", priority) else 0,
            repository=repository,
        )


def _paragraphs(pieces: Iterable[bytes], of: str) -> Iterator[bytes]:
    """Yield them one by one: a list of millions would need gigabytes."""
    waiting = bytearray()
    for piece in pieces:
        # An end that began in the previous piece is found, too.
        start, searched = 0, max(0, len(waiting) - 1)
        waiting += piece
        while (end := waiting.find(b"\n\n", max(start, searched))) >= 0:
            yield bytes(waiting[start:end])
            start = end + 2
        del waiting[:start]
        if len(waiting) > PARAGRAPH_MAX:
            raise ImageError(f"{of} describe a package with more than {PARAGRAPH_MAX} bytes")
    yield bytes(waiting)


def may_want(
    names: Iterable[str], offers: Sequence[Package], installed: Sequence[Package]
) -> list[Package]:
    """Return the packages that apk may want in order to install ``names``. Raises ImageNotFound for
    a name that nobody offers."""
    providers: dict[str, list[Package]] = {}
    for offer in offers:
        for word in offer.provided:
            providers.setdefault(word, []).append(offer)
    there = {package.name: package.version for package in installed}
    known = {word for package in installed for word in package.provided}
    chosen: dict[str, Package] = {}
    left, handled = list(names), set[str]()
    for name in left:
        if name not in providers and name not in known:
            raise ImageNotFound(f"the mirrors have no package {name!r}")
    while left:
        word = _plain(left.pop())
        for offer in () if word in handled else providers.get(word, ()):
            # The same one is there; a condition could require another version.
            if offer.name in chosen or there.get(offer.name) == offer.version:
                continue
            chosen[offer.name] = offer
            left += _needs(offer)
        handled.add(word)
        if not left:
            left += _completed(offers, {*chosen, *known}, there | dict.fromkeys(chosen, ""))
        if len(chosen) > PACKAGES_MAX:
            raise ImageError(f"more than {PACKAGES_MAX} packages would be installed")
    return sorted(chosen.values(), key=lambda package: package.name)


def _completed(
    offers: Sequence[Package], there: set[str], named: Mapping[str, str]
) -> Iterator[str]:
    """Yield the packages that are installed because all their conditions are met."""
    for offer in offers:
        if not offer.install_if:
            continue
        conditions = [_plain(word) for word in offer.install_if.split()]
        if conditions and offer.name not in named and all(word in there for word in conditions):
            yield offer.name


def closure(names: Iterable[str], offers: Sequence[Package]) -> list[Package]:
    """Return ``names`` and the packages that they need, regardless of versions: of several
    providers, the one that apk would prefer. Raises ImageNotFound."""
    by_name = {offer.name: offer for offer in reversed(offers)}
    chosen: dict[str, Package] = {}
    there: set[str] = set()
    left = list(names)
    while left:
        word = _plain(left.pop())
        if word in there:
            continue
        offer = by_name.get(word) or max(
            (offer for offer in offers if offer.provides and word in offer.provided),
            key=lambda offer: (offer.priority, offer.name),
            default=None,
        )
        if offer is None:
            raise ImageNotFound(f"the mirrors have no package {word!r}")
        chosen[offer.name] = offer
        there.update(offer.provided)
        left += _needs(offer)
    return sorted(chosen.values(), key=lambda package: package.name)


def _needs(package: Package) -> list[str]:
    return [word for word in package.depends.split() if not word.startswith("!")]


def _plain(word: str) -> str:
    """Return a dependency without its conditions on versions."""
    return _CONDITION.split(word, maxsplit=1)[0]


def parse_repositories(text: str) -> list[str]:
    """Return the addresses in /etc/apk/repositories, without tagged ones, which apply only on
    request."""
    lines = (line.strip().rstrip("/") for line in text.splitlines())
    return [line for line in lines if line.startswith(("https://", "http://"))]
