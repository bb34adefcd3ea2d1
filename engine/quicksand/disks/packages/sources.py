"""Where image packages are looked for, and fetching as the engine does it: with its errors, and
with room left on the disk. `quicksand_wheels` finds and fetches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import httpx
from quicksand_wheels import sources, web
from quicksand_wheels.links import Link, is_allowed
from quicksand_wheels.sources import Index, Source
from quicksand_wheels.web import PAUSE_S, Page

from quicksand.base.capacity import check_space
from quicksand.base.files import map_os_errors
from quicksand.base.progress import Progress
from quicksand.disks.packages.wanted import wheel_errors

IMAGES_INDEX = "https://microsoft.github.io/quicksand/simple/"
"""The index from which the published packages themselves get the wheels that are too large for the
public index (quicksand-core 0.14.0, `_index.py`)."""

PROJECT = "https://github.com/microsoft/quicksand"
"""The project of the published packages; those wheels are files of its releases."""

STAGE = "downloading"


def usual_sources() -> list[Source]:
    """The sources that are asked unless the user names others, in this order. Raises
    ConfigError."""
    return [usual_index(), Index(IMAGES_INDEX), parse_source(PROJECT)]


def usual_index() -> Index:
    """The index that pip and uv use here. Raises ConfigError."""
    with wheel_errors():
        return Index(sources.index_url())


def parse_source(text: str) -> Source:
    """Return the source that a user means: a directory, a wheel, an address, a project on a forge,
    or "index". Raises ConfigError."""
    with wheel_errors():
        return sources.parse_source(text)


async def find_links(source: Source, package: str, client: Web) -> list[Link]:
    """List the wheels of a package at a source. Raises ImageError, HostError."""
    with wheel_errors():
        return await source.find(package, client)


class Web(web.Web):
    """Connections to sources; a context manager."""

    def __init__(
        self,
        *,
        certificates: Sequence[str] = (),
        pause: float = PAUSE_S,
        auth: httpx.Auth | None = None,
        may_ask: Callable[[str], bool] = is_allowed,
    ) -> None:
        """``certificates`` are files with further authorities; ``may_ask`` tells for each address
        whether it may be fetched. Raises HostError for a file that cannot be read."""
        with wheel_errors():
            super().__init__(certificates=certificates, pause=pause, auth=auth, may_ask=may_ask)

    async def page(self, url: str, accept: str) -> Page | None:
        """Fetch a page; None if there is none at that address. Raises UnreachableError, ImageError
        for one that is too large or that leads to an address that is not allowed."""
        with wheel_errors():
            return await super().page(url, accept)

    async def fetch(
        self,
        link: Link,
        target: Path,
        progress: Progress | None = None,
        *,
        most: int | None = None,
    ) -> str:
        """`download`, told as a stage. Raises ImageError if the file is too large, or if its size
        or digest differs from the source's, UnreachableError, DiskSpaceError, PathError."""
        report = None if progress is None else lambda done, total: progress(STAGE, done, total)
        with map_os_errors(target), wheel_errors():
            return await self.download(link, target, report, most=most)

    def check_space(self, directory: Path, need: int) -> None:
        """Raise DiskSpaceError if so many bytes would make the file system as good as full."""
        check_space(directory, need)
