"""What a wheel has besides our packages: the recipes of images, and the man pages, which are made
here. hatchling runs this for a wheel, from a checkout or from an sdist, and says where."""

from __future__ import annotations

import runpy
import shutil
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

RECIPES = "quicksand_images/recipes"
PACKAGES = ("quicksand_disks", "quicksand_images", "quicksand_wheels")
"""What lies beside the recipes and is none."""
MAN = "share/man/man1"


class WheelContents(BuildHookInterface[Any]):
    """Adds files to a wheel."""

    _made: Path | None = None

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Called before a build; ``version`` is "standard" or "editable"."""
        if self.target_name != "wheel" or version != "standard":
            return
        root = Path(self.root)
        for path in recipe_files(root / "images"):
            name = path.relative_to(root / "images").as_posix()
            build_data["force_include"][str(path)] = f"{RECIPES}/{name}"
        self._made = Path(tempfile.mkdtemp(prefix="quicksand-man-"))
        manual = runpy.run_path(str(root / "scripts" / "manual.py"))
        for path in manual["write_man_pages"](self._made):
            build_data["shared_data"][str(path)] = f"{MAN}/{path.name}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Called after a build."""
        if self._made is not None:
            shutil.rmtree(self._made, ignore_errors=True)


def recipe_files(images: Path) -> list[Path]:
    """Returns the recipes in a directory, and what they name beside them: all but our packages."""
    return sorted(
        path
        for path in images.rglob("*")
        if path.is_file()
        and path.relative_to(images).parts[0] not in PACKAGES
        and not any(
            part.startswith(".") or part == "__pycache__"
            for part in path.parts[len(images.parts) :]
        )
    )
