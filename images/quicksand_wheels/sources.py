"""The sources of wheels: a package index, the releases of a forge, a page with links, a directory,
or one wheel.

The usual index is the one that pip and uv use on this host, by the environment and pip's
configuration files (pip documentation, "Configuration").
"""

from __future__ import annotations

import asyncio
import configparser
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol
from urllib.parse import unquote, urlsplit

from packaging.utils import canonicalize_name

from quicksand_wheels.errors import AskedError, RefusedError
from quicksand_wheels.files import open_file
from quicksand_wheels.links import (
    ACCEPT,
    SHOWN_MAX,
    Link,
    file_of,
    is_allowed,
    parse_page,
    shown,
)
from quicksand_wheels.wanted import Wanted
from quicksand_wheels.web import Page, Web
from quicksand_wheels.wheel import SUFFIX, WheelName, is_wheel, parse_wheel_name

PUBLIC_INDEX = "https://pypi.org/simple/"
VARIABLES = ("PIP_INDEX_URL", "UV_DEFAULT_INDEX", "UV_INDEX_URL")
SECTIONS = ("global", "install")
"""Sections of pip's configuration that count for an installation; the last wins."""


def index_url(environ: Mapping[str, str] = os.environ) -> str:
    """Return the address of the package index. Raises AskedError for one that is not fit."""
    url = _from_environment(environ) or _from_files(environ, "index-url") or PUBLIC_INDEX
    if not is_allowed(url):
        raise AskedError(
            f"the package index is {shown(url)}, and nothing is fetched from there: anybody on the "
            "way could change it",
            hint="set PIP_INDEX_URL to an address with https",
        )
    return url


def certificates(environ: Mapping[str, str] = os.environ) -> list[str]:
    """Files with further certificates that pip is configured to trust."""
    found = _from_files(environ, "cert")
    return [found] if found and Path(found).is_file() else []


def _from_environment(environ: Mapping[str, str]) -> str:
    for name in VARIABLES:
        # uv lets an index have a name in front ("work=https://…"), so only before the scheme.
        value = environ.get(name, "").strip()
        before, _, rest = value.partition("=")
        if value:
            return rest if rest and "/" not in before else value
    return ""


def _from_files(environ: Mapping[str, str], key: str) -> str:
    found = ""
    for path in _files(environ):
        parser = configparser.RawConfigParser()
        try:
            with open_file(path) as file:
                parser.read_string(file.read().decode())
        except (OSError, UnicodeError, configparser.Error):
            continue  # pip itself reports the error in it
        for section in SECTIONS:
            found = parser.get(section, key, fallback=found)
    return found.strip()


def _files(environ: Mapping[str, str]) -> Iterator[Path]:
    """pip's files in the order in which it reads them; the last wins."""
    only = environ.get("PIP_CONFIG_FILE", "")
    if only == os.devnull:
        return
    for base in environ.get("XDG_CONFIG_DIRS", "/etc/xdg").split(":"):
        yield Path(base, "pip", "pip.conf")
    yield Path("/etc/pip.conf")
    try:
        own = Path.home()
    except RuntimeError:  # the system knows none
        own = None
    if own is not None:
        yield own / ".pip" / "pip.conf"
        yield Path(environ.get("XDG_CONFIG_HOME") or own / ".config", "pip", "pip.conf")
    yield Path(sys.prefix, "pip.conf")
    if only:
        yield Path(only)


INDEX = "index"
"""The word for the package index that pip and uv use here."""

PAGES_MAX = 20
"""The most pages of a list of releases."""

_FORGE = "github.com"
_API = "https://api.github.com/repos/{owner}/{name}/releases?per_page=100"
_REPOSITORY = re.compile(r"/([A-Za-z0-9_.-]+)/([A-Za-z0-9_.-]+?)(?:\.git)?(?:/releases)?/?")


class Source(Protocol):
    """A source of wheels."""

    label: str
    """The name of the source in messages."""

    async def find(self, package: str, web: Web) -> list[Link]:
        """List the wheels of a package. Raises WheelsError."""
        ...


class Index:
    """A package index with one page for each project (PEP 503, PEP 691)."""

    def __init__(self, url: str) -> None:
        self._url = url if url.endswith("/") else f"{url}/"
        self.label = shown(self._url)

    async def find(self, package: str, web: Web) -> list[Link]:
        page = await web.page(f"{self._url}{package}/", ACCEPT)
        if page is None:
            return []
        return await _links_in(page, self.label, package)


class Releases:
    """The releases of a project, by its forge's API."""

    def __init__(self, url: str, label: str) -> None:
        self._url, self.label = url, label

    async def find(self, package: str, web: Web) -> list[Link]:
        found: list[Link] = []
        url = self._url
        for _ in range(PAGES_MAX):
            page = await web.page(url, ACCEPT)
            if page is None:
                break
            found += await _links_in(page, self.label, package)
            if not page.following:
                break
            url = page.following
        return found


class Site:
    """An address that may be any of these."""

    def __init__(self, url: str) -> None:
        self._url, self.label = url, shown(url)

    async def find(self, package: str, web: Web) -> list[Link]:
        # First as an index, whose own page can be very large.
        return await Index(self._url).find(package, web) or await Releases(
            self._url, self.label
        ).find(package, web)


class OneWheel:
    """A single wheel, on this host or elsewhere."""

    def __init__(self, link: Link) -> None:
        self._link, self.label = link, link.source

    async def find(self, package: str, web: Web) -> list[Link]:
        return of_package([self._link], package)


class Directory:
    """A directory with wheels on this host."""

    def __init__(self, path: Path) -> None:
        self._path, self.label = path, str(path)

    async def find(self, package: str, web: Web) -> list[Link]:
        return of_package(await asyncio.to_thread(self._list), package)

    def _list(self) -> list[Link]:
        try:
            paths = sorted(self._path.glob(f"*{SUFFIX}"))
        except OSError as error:
            raise RefusedError(f"{self._path} cannot be read: {error.strerror}") from error
        return [Link(file=path.name, path=path, source=self.label) for path in paths]


async def _links_in(page: Page, label: str, package: str) -> list[Link]:
    """Return the wheels of a package on a page; in a thread, since pages can be large."""

    def read() -> list[Link]:
        return of_package(parse_page(page.body, page.kind, page.url, label), package)

    return await asyncio.to_thread(read)


def parse_source(text: str) -> Source:
    """Return the source that a user means: a directory, a wheel, an address, a project on a forge,
    or `INDEX`. Raises AskedError."""
    if text == INDEX:
        return Index(index_url())
    parts = urlsplit(text) if "://" in text else None
    if parts is not None and parts.scheme in ("http", "https"):
        return _parse_address(text)
    path = Path(unquote(parts.path)) if parts is not None and parts.scheme == "file" else None
    try:
        path = (path or Path(text).expanduser()).absolute()
    except RuntimeError as error:
        raise AskedError(
            f"{text}: the home directory that it means is not known", hint="write it in full"
        ) from error
    if path.is_dir():
        return Directory(path)
    if is_wheel(path.name) and path.is_file():
        return OneWheel(link_to(path))
    raise AskedError(
        f"{text[:SHOWN_MAX]!r} is no source of wheels",
        hint="name a directory, a .whl, an address with https, or `index`",
    )


def _parse_address(url: str) -> Source:
    if not is_allowed(url):
        raise AskedError(
            f"nothing is fetched from {shown(url)}: anybody on the way could change it",
            hint="use an address with https",
        )
    parts = urlsplit(url)
    if is_wheel(file_of(url)):
        return OneWheel(Link(file=file_of(url), url=url, source=shown(url)))
    found = _REPOSITORY.fullmatch(parts.path)
    if parts.hostname == _FORGE and found is not None:
        return Releases(_API.format(owner=found[1], name=found[2]), shown(url))
    return Site(url)


def link_to(path: Path) -> Link:
    """A wheel on this host."""
    return Link(file=path.name, path=path, source=str(path.parent))


def of_package(links: Sequence[Link], package: str) -> list[Link]:
    """Return those of a package; links without a proper name are left out."""
    start = [link for link in links if _may_be(link.file, package)]
    return [link for link in start if (name := _name_of(link)) and name.package == package]


def _may_be(file: str, package: str) -> bool:
    # Parsing a name takes a while, and releases have thousands.
    return canonicalize_name(file.partition("-")[0]) == package


def _name_of(link: Link) -> WheelName | None:
    try:
        return parse_wheel_name(link.file)
    except RefusedError:
        return None


def choose(links: Sequence[Link], wanted: Wanted, arch: str) -> tuple[WheelName, Link] | None:
    """Return the wheel that fits best: the newest wanted version, and among these one for the
    architecture ("x86_64", "aarch64") rather than for any; None if none fits. Since none of a
    wheel's code is run, tags of Python and of systems do not matter."""
    named = [(name, link) for link in links if (name := _name_of(link)) is not None]
    for_us = [(name, link) for name, link in named if name.arch in (arch, None)]
    for_us = [(name, link) for name, link in for_us if not link.is_yanked or _is_pinned(wanted)]
    good = set(wanted.versions.filter({name.version for name, _ in for_us}))
    fitting = [(name, link) for name, link in for_us if name.version in good]
    return max(fitting, key=lambda pair: _rank(*pair), default=None)


def _rank(name: WheelName, link: Link) -> tuple[object, ...]:
    on_linux = any("linux" in tag.platform for tag in name.tags)
    build = name.build or (-1, "")
    return name.version, name.arch is not None, on_linux, build, link.path is not None, link.file


def _is_pinned(wanted: Wanted) -> bool:
    """Whether exactly one version is requested: then it may be one that was withdrawn (PEP 592)."""
    return any(one.operator in ("==", "===") and "*" not in one.version for one in wanted.versions)


def other_archs(links: Sequence[Link], wanted: Wanted) -> set[str]:
    """Return the architectures for which there are wanted wheels."""
    names = [name for link in links if (name := _name_of(link)) is not None]
    return {
        name.arch
        for name in names
        if name.arch is not None and wanted.versions.contains(name.version, prereleases=True)
    }
