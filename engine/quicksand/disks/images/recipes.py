"""The places of the recipes of images. A recipe is one file, `NAME.toml`, which alone gives its
name.

Starts ask for the names of recipes, so this module finds them without importing the builder, which
reads their contents (`quicksand_images.recipe`).
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

from quicksand.base.errors import ConfigError
from quicksand.disks.packages.names import PUBLISHED, plain

PACKAGE = "quicksand_images"
"""The builder, which need not be installed."""

SUFFIX = ".toml"


def recipe_places() -> tuple[Path, ...]:
    """Return the directories with recipes: those of an installation and of a checkout."""
    found = importlib.util.find_spec(PACKAGE)
    if found is None or not found.submodule_search_locations:
        return ()
    package = Path(next(iter(found.submodule_search_locations))).resolve()
    # The directory above an installed package has other packages, whose files are not recipes.
    near = package.parent
    checkout = (near,) if (near.parent / "pyproject.toml").is_file() else ()
    return (package / "recipes", *checkout)


def recipe_names() -> tuple[str, ...]:
    """Return the names of the images for which there is a recipe. Blocks for I/O."""
    return tuple(sorted({p.stem for place in recipe_places() for p in place.glob(f"*{SUFFIX}")}))


def has_recipe(name: str) -> bool:
    """Whether there is a recipe for the image ``name``. Blocks for I/O."""
    if not name or "/" in name or "\0" in name:
        return False
    return any((place / f"{name}{SUFFIX}").is_file() for place in recipe_places())


def require_own_name(name: str, *, hint: str = "") -> None:
    """Raise ConfigError for the name of an image with a recipe, or of a published one: its next
    start would not be what its user expects. Blocks for I/O."""
    if has_recipe(name) or plain(name) in PUBLISHED:
        raise ConfigError(
            f"{name!r} is the name of an image with a recipe or a package",
            hint=hint or f"choose another name, such as my-{plain(name)}",
        )
