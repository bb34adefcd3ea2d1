"""Builds or installs a missing image when it is first used, much as `docker run` pulls.

The builder is a package of its own that need not be installed, and it builds on the engine. So the
engine knows only its name and interface, and imports it only when needed.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
import time
from collections.abc import Mapping
from typing import Any, Protocol, cast

from quicksand.base.arch import Architecture
from quicksand.base.errors import ImageError, ImageNotFound, QuicksandError
from quicksand.base.paths import Paths, expand
from quicksand.base.progress import SHARES, Course, Progress
from quicksand.base.remedies import Remedy, Words
from quicksand.disks.images.image_store import ImageStore
from quicksand.disks.images.recipes import PACKAGE, has_recipe, recipe_names
from quicksand.disks.images.resolve import ImageResolver, is_file
from quicksand.disks.packages.names import PUBLISHED, also_called, plain
from quicksand.qemu.binaries import can_get_qemu, find_binaries, how_to_install
from quicksand.records.config import SandboxConfig

CLEAR_LINE = "\r\x1b[K"

BUILT_UNTIL = 0.85
"""The share of a first start's time at which the image is built: 60 of some 70 seconds."""


class ImageBuilder(Protocol):
    """The module ``builder`` of `PACKAGE`."""

    def recipe_names(self) -> tuple[str, ...]:
        """Return the names of the images that can be built."""
        ...

    def suggested_options(self, name: str) -> Mapping[str, Any]:
        """Return the options that a recipe suggests. Raises ImageNotFound, ImageError."""
        ...

    def check_arch(self, name: str, arch: Architecture) -> None:
        """Raise ImageError if a recipe is not for that architecture, ImageNotFound."""
        ...

    async def ensure_image(
        self,
        name: str,
        progress: Progress | None = None,
        *,
        arch: Architecture | None = None,
        store: ImageStore | None = None,
        any_recipe: bool = False,
    ) -> object:
        """Build an image, or wait for another build of it. Raises ImageError, HostError."""
        ...


def find_builder() -> ImageBuilder | None:
    """The builder; None if it is not installed."""
    if importlib.util.find_spec(PACKAGE) is None:
        return None
    return cast("ImageBuilder", importlib.import_module(f"{PACKAGE}.builder"))


def buildable_images() -> tuple[str, ...]:
    """Return the names of the images for which there is a recipe; none without the builder."""
    return recipe_names()


def suggested_options(
    name: str, paths: Paths, arch: Architecture | str | None = None
) -> Mapping[str, Any]:
    """Return the options that the image ``name`` for guests of ``arch`` (None: this host's)
    suggests for its machines: those in the store's manifest or, if it is not built yet, in its
    recipe. A missing or broken image suggests nothing: resolving it reports the error. Blocks for
    I/O."""
    try:
        return find_suggested_options(name, paths, arch)
    except QuicksandError:
        return {}


def find_suggested_options(
    name: str, paths: Paths, arch: Architecture | str | None = None
) -> Mapping[str, Any]:
    """As `suggested_options`, but raises QuicksandError for an image that is broken or cannot be
    read now."""
    wanted = Architecture.host() if arch is None else Architecture.parse(arch)
    return known_options(_suggestions(name, ImageStore(paths.images), wanted))


def _suggestions(name: str, store: ImageStore, arch: Architecture) -> Mapping[str, Any]:
    if is_file(name):
        path = expand(name)
        return store.load(path).machine if path.is_dir() else {}
    stored = (store.get(one, arch) for one in also_called(name))
    image = next((found for found in stored if found is not None), None)
    if image is not None and image.errors:
        raise ImageError(f"the image {name} is broken: {'; '.join(image.errors)}")
    if image is not None:
        return image.machine
    builder = find_builder() if has_recipe(name) else None
    return {} if builder is None else builder.suggested_options(name)


def known_options(suggested: Mapping[str, Any]) -> dict[str, Any]:
    """Return the suggestions that are options of this version's machines."""
    known = SandboxConfig.__dataclass_fields__
    return {name: value for name, value in suggested.items() if name in known}


async def build_if_missing(
    name: str,
    paths: Paths,
    *,
    arch: Architecture | None = None,
    build: bool | None = None,
    progress: Progress | None = None,
) -> Progress | None:
    """Build the image ``name`` for guests of ``arch`` (None: this host's) if it is missing and has
    a recipe; install it if it is known to be published; or wait for another process that does so.
    Does nothing for any other name: resolving it reports the error.

    Returns the progress for the start of a machine of it: ``progress`` or, if the image was built,
    one that continues the count of the build. ``build`` None builds only if stderr is a terminal.
    Raises ImageNotFound naming the command if the image is missing and must not be made, else as
    `quicksand_images.build_image` or `install_package`.
    """
    resolver = ImageResolver(paths)
    if resolver.knows(name, arch or Architecture.host()):
        return progress
    builder = find_builder()
    has_recipe = builder is not None and name in builder.recipe_names()
    if not has_recipe and plain(name) not in PUBLISHED:
        return progress
    if arch is not None and builder is not None and has_recipe:
        builder.check_arch(name, arch)
    if build is None:
        build = is_watched()
    if not build:
        if not has_recipe:
            return progress  # resolving it tells how to install it
        raise _not_built(name, arch or Architecture.host())
    line = _Line() if progress is None and is_watched() else None
    report = progress if line is None else line.report
    course = Course(report)
    try:
        if builder is not None and has_recipe:
            told = _named(f"building {name}", course.part(until=BUILT_UNTIL))
            await builder.ensure_image(name, told, arch=arch, store=resolver.store, any_recipe=True)
        else:
            told = _in_hundredths(_named(f"installing {name}", report))
            await _install(plain(name), resolver.store, arch, told)
    finally:
        if line is not None:
            line.clear()
    return course.part(SHARES) if progress is not None and course.has_begun else progress


def _not_built(name: str, arch: Architecture) -> ImageNotFound:
    """Return the error for an image that is not built. It mentions missing QEMU, too: whoever has
    just installed us would learn of it only by the next error."""
    if arch is Architecture.host():
        missing = f"{name!r} is not built yet"
        build, both = Remedy("build_image", name=name), Remedy("setup_image", name=name)
    else:
        missing = f"{name!r} is not built yet for {arch.debian}"
        build = Remedy("build_image_for", name=name, arch=arch.debian)
        both = Remedy("setup_image_for", name=name, arch=arch.debian)
    hint = Words(build, " builds it")
    try:
        find_binaries(arch.value)
    except QuicksandError:
        if can_get_qemu():
            hint = Words(both, " gets both")
        else:
            hint = Words(how_to_install(), "; then ", hint)
        missing += ", and there is no QEMU that it could run in"
    return ImageNotFound(Words(f"Image not found: {missing}; ", hint), hint=hint)


async def _install(
    name: str, store: ImageStore, arch: Architecture | None, progress: Progress | None
) -> None:
    # The code that fetches wheels is loaded for this only.
    from quicksand.disks.packages.installing import install_package  # noqa: PLC0415

    await install_package(name, store, arch=arch, progress=progress)


def _named(what: str, report: Progress | None) -> Progress | None:
    """Wrap ``report`` so that every stage names the whole of which it is a part."""
    if report is None:
        return None
    return lambda stage, done, total: report(f"{what}: {stage}", done, total)


def _in_hundredths(report: Progress | None) -> Progress | None:
    """Wrap ``report`` so that bytes become hundredths: those who follow a start count steps."""
    if report is None:
        return None

    def told(stage: str, done: int, total: int) -> None:
        report(stage, min(99, done * 100 // total) if total else 0, 100 if total else 0)

    return told


def is_watched() -> bool:
    """Whether stderr is a terminal."""
    try:
        return sys.stderr is not None and os.isatty(sys.stderr.fileno())
    except (OSError, ValueError):
        return False


class _Line:
    """Shows progress on one line of stderr, which it rewrites."""

    def __init__(self) -> None:
        self._began = time.monotonic()

    def report(self, stage: str, done: int, total: int) -> None:
        share = f", {100 * done // total} %" if total else ""
        text = f"{stage}{share}, {time.monotonic() - self._began:.0f} s"
        # A line that wraps could not be rewritten.
        self._write(CLEAR_LINE + text[: shutil.get_terminal_size().columns - 1])

    def clear(self) -> None:
        self._write(CLEAR_LINE)

    def _write(self, text: str) -> None:
        sys.stderr.write(text)
        sys.stderr.flush()
