"""Puts the recipes of images, which are the files of `images/`, into the wheel (a build hook of
hatchling). So a recipe is one file, and no list names it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class RecipesInWheel(BuildHookInterface):  # type: ignore[type-arg]
    """Adds files while a wheel is built."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":
            return  # they are found where they are
        for path in sorted(Path(self.root, "images").iterdir()):
            if path.is_file() and not path.name.startswith("."):
                build_data["force_include"][str(path)] = f"quicksand_images/recipes/{path.name}"
