"""The builder's interface for the engine (`ImageBuilder` in quicksand.life.image_building)."""

from collections.abc import Mapping
from typing import Any

from quicksand.base.arch import Architecture
from quicksand.base.progress import Progress
from quicksand.disks.images.image_store import ImageStore
from quicksand.disks.images.recipes import has_recipe, recipe_names

import quicksand_images
from quicksand_images.recipe import DEPTH_MAX, Layer, read_recipe

__all__ = ["check_arch", "ensure_image", "recipe_names", "suggested_options"]


def check_arch(name: str, arch: Architecture) -> None:
    """Raise ImageError if the recipe ``name`` is not for ``arch``, or wrong; ImageNotFound."""
    read_recipe(name, arch)


def suggested_options(name: str) -> Mapping[str, Any]:
    """Return the options that the recipe ``name``, and those below it, suggest for its machines.
    Raises ImageNotFound, ImageError."""
    suggested: dict[str, Any] = {}
    for _ in range(DEPTH_MAX):
        recipe = read_recipe(name)
        suggested = {**recipe.machine, **suggested}
        if not isinstance(recipe, Layer) or not has_recipe(recipe.base):
            break
        name = recipe.base
    return suggested


async def ensure_image(
    name: str,
    progress: Progress | None = None,
    *,
    arch: Architecture | None = None,
    store: ImageStore | None = None,
    any_recipe: bool = False,
) -> object:
    """As `quicksand_images.ensure_image`, but loads the code that builds only when called."""
    return await quicksand_images.ensure_image(
        name, progress, arch=arch, store=store, any_recipe=any_recipe
    )
