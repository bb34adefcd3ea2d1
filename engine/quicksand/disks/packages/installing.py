"""Installs images from wheels into the image store: found, fetched, checked, unpacked, published.

Everything is made in a directory beside the images and gets its place by one rename, so a process
that is killed leaves the store as it was; the next one removes what it left. The base of a package
is installed before the package.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from packaging.version import Version
from quicksand_wheels.links import Link
from quicksand_wheels.sources import (
    Directory,
    Source,
    certificates,
    choose,
    link_to,
    other_archs,
)
from quicksand_wheels.wanted import Wanted, find_requirement
from quicksand_wheels.wheel import Wheel, WheelName, is_wheel

from quicksand.base.arch import Architecture
from quicksand.base.errors import ImageError, ImageNotFound, QuicksandError
from quicksand.base.files import give_back, map_os_errors, try_named_lock
from quicksand.base.paths import expand, make_private_dir
from quicksand.base.progress import Progress
from quicksand.base.remedies import Remedy, Words
from quicksand.base.staging import staging
from quicksand.base.threads import in_stoppable_thread, in_thread_to_the_end
from quicksand.disks.images.image_store import ImageStore
from quicksand.disks.images.stored_image import Origin, StoredImage, sha256_file
from quicksand.disks.packages.contents import BaseImage, OverlayImage, find_entry_point, find_image
from quicksand.disks.packages.names import GROUP, image_of, package_of
from quicksand.disks.packages.sources import (
    PROJECT,
    Web,
    find_links,
    parse_source,
    usual_sources,
)
from quicksand.disks.packages.unpacking import Unpacking
from quicksand.disks.packages.wanted import (
    arch_of,
    check_arch,
    parse_wanted,
    parse_wheel_name,
    wheel_errors,
)

DEPTH_MAX = 8
"""The most packages that may lie on each other."""

LOCK_POLL_S = 0.1

WAITING = "waiting for another installation of this image"
LOOKING = "looking for wheels"
PUBLISHING = "adding to the store"


@dataclass(frozen=True, slots=True, kw_only=True)
class Installed:
    """An image that is in the store now."""

    image: StoredImage
    origin: Origin
    is_new: bool
    """Whether this installation has put it there."""
    is_below: bool = False
    """Whether it was installed only because another package lies on it."""
    notes: tuple[str, ...] = ()
    """Remarks for the user."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Offer:
    """A wheel that has been fetched and has an image."""

    path: Path
    name: WheelName
    origin: Origin
    image: BaseImage | OverlayImage
    requires: tuple[str, ...]
    notes: tuple[str, ...] = ()


async def install_package(
    what: str,
    store: ImageStore,
    *,
    sources: Sequence[str] = (),
    arch: Architecture | None = None,
    progress: Progress | None = None,
) -> list[Installed]:
    """Install the image of a package, given by name or as the path of a wheel, and the images below
    it; return them, the lowest first. ``sources`` are asked in this order instead of the usual ones
    (`sources.parse_source`). Raises as `Installer.install`."""
    wanted, found = await asyncio.to_thread(_read_words, what, sources)
    async with Web(certificates=certificates()) as web:
        installer = Installer(
            store, sources=found, web=web, arch=arch or Architecture.host(), progress=progress
        )
        await installer.install(wanted)
    return installer.installed


def _read_words(what: str, sources: Sequence[str]) -> tuple[Wanted | Path, list[Source]]:
    """Return the requested package, and the sources for it. Blocks: a home directory, and so pip's
    settings, can be on the network."""
    wanted = expand(what).absolute() if is_wheel(what) else parse_wanted(what)
    found = [parse_source(one) for one in sources]
    if isinstance(wanted, Path) and not sources:
        found.append(Directory(wanted.parent))  # its base may be beside it
    return wanted, found if sources else [*found, *usual_sources()]


class Installer:
    """Installs packages, one after the other."""

    def __init__(
        self,
        store: ImageStore,
        *,
        sources: Sequence[Source],
        web: Web,
        arch: Architecture,
        progress: Progress | None = None,
    ) -> None:
        self._store = store
        self._sources = sources
        self._web = web
        self._arch = arch
        self._progress = progress
        self.installed: list[Installed] = []
        """All images so far that were requested or lie below one, the lowest first."""

    async def install(self, what: Wanted | Path) -> Installed:
        """Install a package by its name, or a wheel of this host, after its base.

        Images in the store are not fetched again. Raises ImageNotFound if no source has the
        package, ImageError for a wheel that cannot be used, ConfigError, HostError; after an error
        or a cancellation no part of an image is left.
        """
        return await self._install(what, above=())

    async def _install(self, what: Wanted | Path, above: tuple[str, ...]) -> Installed:
        package = what.package if isinstance(what, Wanted) else parse_wheel_name(what.name).package
        image = image_of(package)
        if image in above or len(above) >= DEPTH_MAX:
            chain = " on ".join((*above, image))
            raise ImageError(f"{chain}: an image cannot be based on itself, or on so many others")
        async with self._alone(image), _staging(self._store.root) as made:
            found = await self._find(what, made, is_below=bool(above))
            if isinstance(found, _Offer):
                found = await self._add(found, made, (*above, image))
        known = [one.image.root for one in self.installed]
        if found.image.root not in known:
            self.installed.append(found)
        return found

    async def _find(self, what: Wanted | Path, made: Path, *, is_below: bool) -> _Offer | Installed:
        """Find and fetch a wheel with an image, or return the image that it has made before."""
        if isinstance(what, Path):
            link = replace(link_to(what), sha256=await asyncio.to_thread(_digest_of, what))
            if there := await self._find_installed(parse_wheel_name(what.name), link, is_below):
                return there
            if offer := await self._look_into(link, made):
                return offer
            raise ImageError(
                f"{what.name} has no image: it is what the public index has in place of a wheel "
                "that is too large for it",
                hint=Words(
                    Remedy("install", name=image_of(parse_wheel_name(what.name).package)),
                    f" looks for it where it is, as in the releases of {PROJECT}",
                    python=f"it is in the releases of {PROJECT}",
                ),
            )
        return await self._find_in_sources(what, made, is_below=is_below)

    async def _find_in_sources(
        self, wanted: Wanted, made: Path, *, is_below: bool
    ) -> _Offer | Installed:
        stubs: list[str] = []
        troubles: list[str] = []
        for source in self._sources:
            self._say(LOOKING)
            try:
                links = await find_links(source, wanted.package, self._web)
            except QuicksandError as error:
                troubles.append(str(error))
                continue
            chosen = choose(links, wanted, self._arch)
            if chosen is None:
                troubles.append(f"{source.label}: {_why_none(links, wanted)}")
                continue
            name, link = chosen
            if there := await self._find_installed(name, link, is_below):
                return there
            if offer := await self._look_into(link, made):
                notes = [f"{stub} has no image; it comes from {source.label}" for stub in stubs]
                return replace(offer, notes=tuple(notes))
            stubs.append(f"{link.file} of {source.label}")
        raise _not_found(wanted, stubs, troubles)

    async def _find_installed(
        self, name: WheelName, link: Link, is_below: bool
    ) -> Installed | None:
        """Find the image that this wheel has made before."""

        def find() -> Installed | None:
            for image in self._store.versions(image_of(name.package)):
                origin = image.package
                if origin is None or image.errors or image.arch != self._arch.value:
                    continue
                same = (origin.name, origin.version) == (name.package, str(name.version))
                if same and link.sha256 in ("", origin.sha256):
                    if self._is_for_use(is_below):
                        self._store.make_current(image)
                    return Installed(image=image, origin=origin, is_new=False, is_below=is_below)
            return None

        return await in_thread_to_the_end(find)

    def _is_for_use(self, is_below: bool) -> bool:
        """Whether new sandboxes should boot from an image, even if there is another one of its
        name: not if only another package needs it, or if it is for another architecture."""
        return not is_below and self._arch is Architecture.host()

    async def _look_into(self, link: Link, made: Path) -> _Offer | None:
        """Get a wheel and look into it; None if it has no image."""
        path, digest = link.path, link.sha256
        if path is None:
            path = made / link.file
            digest = await self._web.fetch(link, path, self._progress)
        digest = digest or await asyncio.to_thread(_digest_of, path)

        def look() -> _Offer | None:
            with wheel_errors(), Wheel(path) as wheel:
                entry = find_entry_point(wheel.entry_points(GROUP), wheel.name.package)
                image = find_image(wheel, entry, self._arch, arch_of(wheel.name))
                if image is None:
                    return None
                check_arch(image.arch, wheel.name)
                origin = Origin(
                    name=wheel.name.package,
                    version=str(wheel.name.version),
                    file=link.file,
                    sha256=digest,
                    source=link.source,
                )
                return _Offer(
                    path=path,
                    name=wheel.name,
                    origin=origin,
                    image=image,
                    requires=wheel.requires,
                )

        return await in_thread_to_the_end(look)

    async def _add(self, offer: _Offer, made: Path, above: tuple[str, ...]) -> Installed:
        """Unpack a wheel and publish its image, after the image on which it lies."""
        below = None
        if isinstance(offer.image, OverlayImage):
            below = await self._below(offer, offer.image, above)
        name = image_of(offer.name.package)
        place = made / "image"

        def unpack(check: Callable[[], None]) -> dict[str, Any]:
            with map_os_errors(place):
                place.mkdir(mode=0o700)
            with wheel_errors(), Wheel(offer.path) as wheel:
                work = Unpacking(wheel, place, progress=self._progress, check=check)
                if isinstance(offer.image, OverlayImage):
                    assert below is not None
                    return work.overlay(offer.image, offer.origin, name, below)
                return work.base(offer.image, offer.origin, name)

        manifest = await in_stoppable_thread(unpack)
        self._say(PUBLISHING)
        is_below = len(above) > 1
        image = await in_thread_to_the_end(
            lambda: self._store.publish(place, manifest, current=self._is_for_use(is_below))
        )
        notes = offer.notes
        if image.package != offer.origin:
            other = "was built or imported" if image.package is None else image.package.file
            notes = (*notes, f"the very same image is there already: {other}")
        return Installed(
            image=image, origin=offer.origin, is_new=True, is_below=is_below, notes=notes
        )

    async def _below(
        self, offer: _Offer, image: OverlayImage, above: tuple[str, ...]
    ) -> StoredImage:
        """Find or install the image on which an overlay lies. The published packages require
        certain versions of a package; a save of ours requires an exact image."""
        if image.digest:
            there = await asyncio.to_thread(self._store.find_version, image.base, image.digest)
            if there is not None:
                return there
        package = package_of(image.base)
        wanted = find_requirement(offer.requires, package) or Wanted(package=package)
        found = await asyncio.to_thread(self._find_below, wanted, image)
        if found is None:
            try:
                found = (await self._install(wanted, above)).image
            except ImageNotFound as error:
                raise ImageNotFound(
                    f"{offer.origin.file} is based on the image {image.base!r}: {error}",
                    hint=error.advice,
                ) from error
        if image.digest not in ("", found.digest):
            raise ImageError(
                f"{offer.origin.file} is based on the image {image.base!r} with the digest "
                f"{image.digest[:12]}, and that of {wanted} is {found.digest[:12]}"
            )
        return found

    def _find_below(self, wanted: Wanted, image: OverlayImage) -> StoredImage | None:
        """Return the newest image in the store that was installed from the wanted package."""
        found = [
            (Version(origin.version), one)
            for one in self._store.versions(image.base)
            if (origin := one.package) is not None
            and not one.errors
            and one.arch == image.arch.value
            and wanted.versions.contains(origin.version, prereleases=True)
            and image.digest in ("", one.digest)
        ]
        return max(found, key=lambda pair: pair[0])[1] if found else None

    @contextlib.asynccontextmanager
    async def _alone(self, image: str) -> AsyncIterator[None]:
        """Hold the lock of an image's name, as a build of it does."""
        root = await asyncio.to_thread(make_private_dir, self._store.root)
        with map_os_errors(root):
            while (lock := try_named_lock(path := root / f".{image}.lock")) is None:
                self._say(WAITING)
                await asyncio.sleep(LOCK_POLL_S)
        try:
            yield
        finally:
            give_back(path, lock)

    def _say(self, stage: str) -> None:
        if self._progress is not None:
            self._progress(stage, 0, 0)


@contextlib.asynccontextmanager
async def _staging(root: Path) -> AsyncIterator[Path]:
    """Do the work of `staging` in threads: removing a killed process's files can take a while."""
    place = staging(root)
    made = await in_thread_to_the_end(place.__enter__)
    try:
        yield made
    finally:
        await in_thread_to_the_end(lambda: place.__exit__(None, None, None))


def _digest_of(path: Path) -> str:
    try:
        return sha256_file(path)
    except FileNotFoundError as error:
        raise ImageNotFound(f"there is no {path}") from error
    except OSError as error:
        raise ImageError(f"{path} cannot be read: {error.strerror}") from error


def _why_none(links: Sequence[Link], wanted: Wanted) -> str:
    if not links:
        return "not there"
    others = ", ".join(sorted(Architecture(arch).debian for arch in other_archs(links, wanted)))
    return f"only for {others}" if others else "no such version"


def _not_found(wanted: Wanted, stubs: Sequence[str], troubles: Sequence[str]) -> ImageNotFound:
    image = image_of(wanted.package)
    told = [*(f"{stub} has no image" for stub in stubs), *troubles]
    why = "; ".join(told) or "there is no source to ask"
    where = f"its image is in the releases of {PROJECT}; " if stubs else ""
    hint = Words(
        where,
        Words("`--from`", python="`sources=`"),
        " names a directory, an address or a wheel that has it",
    )
    return ImageNotFound(f"no image {image!r} was found for {wanted}: {why}", hint=hint)
