"""The builder as the engine knows it (`ImageBuilder` in quicksand.life.image_building)."""

from collections.abc import Mapping
from typing import Any

from quicksand.base.arch import Architecture

from quicksand_images.build import ensure_image
from quicksand_images.recipe import load_recipe, recipe_names

__all__ = ["check_arch", "ensure_image", "recipe_names", "suggested_options"]


def check_arch(name: str, arch: Architecture) -> None:
    """Raise ImageError if the recipe ``name`` is not for ``arch``, or wrong; ImageNotFound."""
    load_recipe(name, arch)


def suggested_options(name: str) -> Mapping[str, Any]:
    """Return the options that the recipe ``name`` suggests for its machines. Raises ImageNotFound,
    ImageError."""
    return load_recipe(name).machine
