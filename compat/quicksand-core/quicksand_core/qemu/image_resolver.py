"""Finding the files of an image or a save by its name."""

from __future__ import annotations

from pathlib import Path

from quicksand import Architecture, ResolvedImage, Sandbox, SaveManifest
from quicksand.base.paths import Paths, paths
from quicksand.disks.images import resolve
from quicksand.saves.boot_disk import find_base, save_files
from quicksand.saves.finding import find_save
from quicksand.saves.ownership import is_own
from quicksand.saves.resolving import find_meaning
from quicksand.saves.save_manifest import VERSION as SAVE_VERSION
from quicksand.saves.save_manifest import Save

__all__ = ["SAVE_VERSION", "ImageResolver"]


class ImageResolver:
    """Finds images and saves as `Sandbox` does. All methods block for I/O."""

    def resolve(self, image: str, *, arch: str | None = None) -> ResolvedImage:
        """The files of an image or a save, by name or path, for guests of ``arch`` (by default of
        this host; a save has its own). Raises ImageNotFound (a RuntimeError) with similar names,
        ImageError, SaveError, ConfigError for an unknown architecture."""
        here = paths()
        meaning = find_meaning(image, here)
        if meaning.save is not None:
            return _of_save(meaning.save, here, trusted=meaning.is_own)
        wanted = Architecture.host() if arch is None else Architecture.parse(arch)
        return _told(resolve.ImageResolver(here).resolve(image, wanted), ())

    def validate_save(self, path: Path) -> SaveManifest:
        """`Sandbox.validate_save`. Raises SaveNotFoundError, SaveError (a ValueError)."""
        return Sandbox.validate_save(path)

    def _resolve_save(self, save_dir: Path) -> ResolvedImage:
        """The files of the save in a directory, which published overlay packages ask for. Raises
        SaveError."""
        here = paths()
        root = Path(save_dir).absolute()
        return _of_save(find_save(str(root), here), here, trusted=is_own(root, here))


def _of_save(save: Save, here: Paths, *, trusted: bool) -> ResolvedImage:
    return _told(find_base(save, here, trusted=trusted), save_files(save, here))


def _told(image: resolve.ResolvedImage, above: tuple[Path, ...]) -> ResolvedImage:
    """An image with the layers above it, as the published core tells of it: with an architecture
    only if that is not the host's."""
    is_foreign = image.guest_arch is not Architecture.host()
    return ResolvedImage(
        name=image.name,
        chain=[*image.chain, *above],
        kernel=image.kernel,
        initrd=image.initrd,
        guest_arch=image.guest_arch.image_arch if is_foreign else None,
    )
