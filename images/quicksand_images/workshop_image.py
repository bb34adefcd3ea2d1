"""Finds the image for the sandbox of a build (`workshop.py`), by the programs on its disk."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from quicksand.base.arch import Architecture
from quicksand.base.errors import HostError, QuicksandError
from quicksand.base.progress import Progress
from quicksand.base.remedies import Remedy, Words
from quicksand.disks.images.image_store import ImageStore
from quicksand.disks.images.stored_image import StoredImage
from quicksand_disks import DiskFileError
from quicksand_disks.ext4 import read_from_disk

from quicksand_images import fetching
from quicksand_images.apk import DATABASE

APT = "/usr/bin/apt-get"
FILESYSTEM_TOOLS = ("mke2fs", "debugfs")
SBIN = ("/usr/sbin", "/sbin")
PUBLISHED_WITH_APT = "ubuntu"
PUBLISHED_SMALL = "alpine"
FIRST = ("debian", "ubuntu", "debian-12", "alpine")
"""The images that are preferred among usable ones: they are small."""

PROGRAM_MAX = 64 * 1024 * 1024
"""The most bytes of a program or a list that is looked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """An image in the store, with the programs on its disk."""

    image: StoredImage
    has_apt: bool
    has_apk: bool
    has_filesystem_tools: bool

    def serves(self, *, apt: bool) -> bool:
        """Whether a build can work in it, with apt if necessary. e2fsprogs can be installed."""
        return self.has_apt or (not apt and (self.has_filesystem_tools or self.has_apk))


async def find_image(
    name: str, store: ImageStore, *, apt: bool, lacking: Sequence[str], progress: Progress
) -> Found:
    """Return the image for the sandbox in which ``name`` is built, which needs ``apt`` or only
    e2fsprogs: the best one of the store or, if none is usable, a published one, which is installed.
    ``lacking`` are the programs that are missing on the host.

    Raises HostError if there is none.
    """
    found = await asyncio.to_thread(_best, store, apt)
    if found is not None:
        return found
    wanted = PUBLISHED_WITH_APT if apt else PUBLISHED_SMALL
    missing = (
        f"a build of {name!r} needs {', '.join(lacking)}, which this host lacks; no image here has "
        f"{'apt' if apt else 'or gets e2fsprogs'} for a sandbox to build in"
    )
    install = Remedy("install", name=wanted)
    hint = Words(
        Words(install, python=f"`quicksand.install({wanted!r})`"),
        " gets one where its source can be reached, ",
        Remedy("import_bundle", file="FILE"),
        " an image that was exported on another machine",
    )
    try:
        await fetching.install_package(wanted, store, arch=Architecture.host(), progress=progress)
    except QuicksandError as error:
        raise HostError(
            f"{missing}, and the published {wanted!r} cannot be installed: {error}", hint=hint
        ) from error
    found = await asyncio.to_thread(_best, store, apt)
    if found is None:
        raise HostError(f"{missing}, nor has the published {wanted!r}", hint=hint)
    return found


def _best(store: ImageStore, apt: bool) -> Found | None:
    host = Architecture.host()
    images = [store.get(image.root.parent.name, host) for image in store.list()]
    found = [
        look
        for image in images
        if image is not None and not image.errors and image.arch == host.value
        if (look := look_into(image)) is not None and look.serves(apt=apt)
    ]
    return min(found, key=_rank, default=None)


def _rank(found: Found) -> tuple[bool, int, str]:
    name = found.image.name
    place = FIRST.index(name) if name in FIRST else len(FIRST)
    return not found.has_filesystem_tools, place, name


def look_into(image: StoredImage) -> Found | None:
    """Return the programs on an image's disk; None if we cannot read that."""
    try:
        has = [
            any(_has(image, f"{directory}/{program}") for directory in SBIN)
            for program in FILESYSTEM_TOOLS
        ]
        return Found(
            image=image,
            has_apt=_has(image, APT),
            has_apk=_has(image, DATABASE),
            has_filesystem_tools=all(has),
        )
    except DiskFileError:
        return None


def _has(image: StoredImage, path: str) -> bool:
    return read_from_disk(image.chain, path, most=PROGRAM_MAX) is not None
