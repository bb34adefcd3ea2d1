"""Builds the images that sandboxes boot from: `python -m quicksand_images build debian`."""

from quicksand_images.build import build_image, ensure_image

__all__ = ["build_image", "ensure_image"]
