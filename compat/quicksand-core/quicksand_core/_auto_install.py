"""The function that published image packages call when they are installed without their image."""

from __future__ import annotations

from pathlib import Path

from quicksand.base.errors import ImageError
from quicksand.base.remedies import Remedy, Words
from quicksand.disks.packages.names import image_of

from quicksand_core._index import QUICKSAND_INDEX_URL

__all__ = ["QUICKSAND_INDEX_URL", "auto_install_images"]


def auto_install_images(package_name: str, images_dir: Path) -> bool:
    """Always raises ImageError, which says how the image is got. The original runs pip here, while
    a sandbox starts; this engine installs nothing that nobody asked for, and runs no code of a
    wheel that it fetches."""
    image = image_of(package_name)
    raise ImageError(
        f"the package {package_name} is installed without its image: {images_dir} has none",
        hint=Words(
            Remedy("install", name=image),
            f" gets it for Sandbox(image={image!r})",
            python=f"`quicksand.install({image!r})` gets it for Sandbox(image={image!r})",
        ),
    )
