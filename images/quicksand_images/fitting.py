"""Whether an image in the store is already what a recipe would make."""

from __future__ import annotations

import asyncio

from quicksand.base.arch import Architecture
from quicksand.base.files import read_json
from quicksand.base.progress import Progress
from quicksand.disks.images.image_store import MANIFEST, ImageStore
from quicksand.disks.images.stored_image import StoredImage

from quicksand_images.layers import layer_digest
from quicksand_images.recipe import Layer


def find_stored(store: ImageStore, name: str, arch: Architecture | None) -> StoredImage | None:
    """Return the current version of an image or, if that is not for ``arch``, the newest usable one
    that is; None if there is none."""
    image = store.get(name, arch)
    if image is None or image.errors or arch is None or image.arch == arch.value:
        return image
    return None


async def find_equal(
    layer: Layer, base: StoredImage, store: ImageStore, progress: Progress | None
) -> StoredImage | None:
    """Return the image of a layer if it would be the same on this version of its base, though that
    has another digest. If it must be rebuilt only because it would not be, ``progress`` reports
    that. Raises OSError."""
    image = await asyncio.to_thread(_find_made, layer, store)
    if image is None or lies_on(image, layer, base):
        return image
    if progress is not None:
        progress(f"{layer.name!r} is built anew, since {base.name!r} below it has changed", 0, 0)
    return None


async def stays(layer: Layer, store: ImageStore, progress: Progress | None) -> bool:
    """Whether the image of a layer was made by this recipe, on any version of its base. If there is
    another version of the base by now, ``progress`` reports that. Raises OSError."""
    image = await asyncio.to_thread(_find_made, layer, store)
    if image is None:
        return False
    base = await asyncio.to_thread(find_stored, store, layer.base, layer.arch)
    has_changed = base is not None and not base.errors and not lies_on(image, layer, base)
    if progress is not None and has_changed:
        earlier = f"{layer.name!r} is based on an earlier version of {layer.base!r}"
        progress(f"{earlier}: `images build {layer.name}` makes it anew", 0, 0)
    return True


def _find_made(layer: Layer, store: ImageStore) -> StoredImage | None:
    image = find_stored(store, layer.name, layer.arch)
    is_usable = image is not None and not image.errors
    return image if is_usable and image is not None and is_made_by(image, layer) else None


def is_made_by(image: StoredImage, layer: Layer) -> bool:
    """Whether an image was made by this recipe, on any version of its base. Blocks for I/O. Raises
    OSError."""
    try:
        below = read_json(image.root / MANIFEST).get("below")
    except ValueError:
        return False
    match below:
        case {"name": layer.base, "digest": str(base)}:
            return layer_digest(layer, base) == image.recipe
    return False


def lies_on(image: StoredImage, layer: Layer, base: StoredImage) -> bool:
    """Whether an image that the recipe has made would be the same on ``base``: that is the version
    on which it was made, or one with the same files and words, of which only the recipe has
    changed."""
    ours = {part: found["sha256"] for part, found in image.files.items()}
    return (
        image.cmdline == base.cmdline
        and dict(image.machine) == {**base.machine, **layer.machine}
        and all(ours.get(part) == found["sha256"] for part, found in base.files.items())
    )
