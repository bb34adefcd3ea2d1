"""Makes an image for the store from the contents of a wheel. Blocks for I/O."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from quicksand_disks import ForeignDisk, check_backing_name
from quicksand_wheels.wheel import FILE_MAX, Wheel

from quicksand.base.arch import Architecture
from quicksand.base.capacity import check_space
from quicksand.base.errors import ImageError
from quicksand.base.files import map_os_errors
from quicksand.base.progress import Progress
from quicksand.base.regular import open_file
from quicksand.base.sharing import share_file
from quicksand.disks.images.boot_files import KERNEL_HEAD, kernel_arch
from quicksand.disks.images.disk_headers import check_qcow2, disk_errors, require_sane_snapshots
from quicksand.disks.images.stored_image import (
    INITRD_MAX,
    KERNEL_MAX,
    KEY,
    LAYERS_MAX,
    Origin,
    StoredImage,
    file_name,
    layer_part,
)
from quicksand.disks.packages.contents import BaseImage, OverlayImage
from quicksand.disks.packages.wanted import wheel_errors

STAGE = "unpacking"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """A file of a package, and the part of an image that it becomes."""

    part: str
    name: str
    limit: int


class Unpacking:
    """Unpacks the image of a wheel into a directory of the store's file system."""

    def __init__(
        self, wheel: Wheel, made: Path, *, progress: Progress | None, check: Callable[[], None]
    ) -> None:
        """``check`` raises if the work must end."""
        self._wheel = wheel
        self._made = made
        self._report = progress or (lambda stage, done, total: None)
        self._check = check
        self._done = self._total = 0

    def base(self, image: BaseImage, origin: Origin, name: str) -> dict[str, Any]:
        """Unpack a whole image; return its manifest for the store. Raises ImageError,
        DiskSpaceError, PathError."""
        parts = [
            _Part(part="disk", name=image.disk, limit=FILE_MAX),
            _Part(part="kernel", name=image.kernel, limit=KERNEL_MAX),
            _Part(part="initrd", name=image.initrd, limit=INITRD_MAX),
        ]
        self._unpack(parts, overlay=False)
        self._check_kernel(image)
        return _manifest(name, origin, image.arch, [part.part for part in parts], self._created())

    def overlay(
        self, image: OverlayImage, origin: Origin, name: str, below: StoredImage
    ) -> dict[str, Any]:
        """Unpack the layers of an overlay and share the files of the image below it; return the
        manifest for the store. Raises as `base`."""
        lower = len(below.chain)
        if lower + len(image.layers) > LAYERS_MAX:
            raise ImageError(f"{origin.file} makes a disk of more than {LAYERS_MAX} layers")
        parts = [
            _Part(part=layer_part(lower + number), name=layer, limit=FILE_MAX)
            for number, layer in enumerate(image.layers)
        ]
        self._unpack(parts, overlay=True)
        shared = [*map(layer_part, range(lower)), "kernel", "initrd"]
        for part in shared:
            source = below.root / str(below.files[part]["name"])
            share_file(source, self._made / file_name(part))
        names = [*shared, *(part.part for part in parts)]
        manifest = _manifest(name, origin, image.arch, names, self._created())
        return {
            **manifest,
            "cmdline": below.cmdline,
            "machine": {**below.machine, **image.machine},
            "below": {"name": below.name, "version": below.version, "digest": below.digest},
        }

    def _unpack(self, parts: list[_Part], *, overlay: bool) -> None:
        sizes = [self._wheel.size_of(part.name) for part in parts]
        self._total = sum(sizes)
        check_space(self._made, self._total)
        for part, size in zip(parts, sizes, strict=True):
            target = self._made / file_name(part.part)
            is_disk = part.part not in ("kernel", "initrd")
            watch = ForeignDisk(part.name, size, allow_backing=overlay) if is_disk else None

            def look(data: bytes, watch: ForeignDisk | None = watch) -> None:
                self._check()
                if watch is not None:
                    self._look(watch, data)
                self._report(STAGE, self._done, self._total)
                self._done += len(data)

            with map_os_errors(target), wheel_errors():
                self._wheel.unpack(part.name, target, limit=part.limit, look=look)
            if is_disk:
                self._check_disk(target, part.name, overlay=overlay)

    def _look(self, watch: ForeignDisk, data: bytes) -> None:
        try:
            with disk_errors():
                watch.look(data)
        except ImageError as error:
            raise ImageError(f"{self._wheel.path.name}: {error}", hint=error.advice) from error

    def _check_disk(self, path: Path, name: str, *, overlay: bool) -> None:
        try:
            header = check_qcow2(path, allow_backing=overlay)
        except ImageError as error:
            reason = error.__cause__ or error
            message = f"{self._wheel.path.name}: {name} is refused: {reason}"
            raise ImageError(message, hint=error.advice) from error
        require_sane_snapshots(path, f"{self._wheel.path.name}: {name}")
        try:
            if overlay and header.backing_file is None:
                raise ValueError("it has no backing file, as an overlay has")
            check_backing_name(header.backing_file)
        except ValueError as error:
            raise ImageError(f"{self._wheel.path.name}: {name} is refused: {error}") from error

    def _check_kernel(self, image: BaseImage) -> None:
        with open_file(self._made / file_name("kernel")) as file:
            found = kernel_arch(file.read(KERNEL_HEAD))
        if found not in (None, image.arch):
            assert found is not None
            raise ImageError(
                f"{self._wheel.path.name}: {image.kernel} is refused: it is for {found.debian}, "
                f"and its image for {image.arch.debian}"
            )

    def _created(self) -> float:
        return self._wheel.newest()


def _manifest(
    name: str, origin: Origin, arch: Architecture, parts: list[str], created: float
) -> dict[str, Any]:
    return {
        "name": name,
        "version": origin.version,
        "arch": arch.value,
        "created": created,
        "cmdline": "",
        "files": {part: {"name": file_name(part)} for part in parts},
        KEY: origin.to_json(),
    }
