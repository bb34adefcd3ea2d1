"""Builds the images that sandboxes boot from: `python -m quicksand_images build debian`.

The names below are imported when first used: a list of the recipes, which the app needs at its
start, loads no builder.
"""

from typing import TYPE_CHECKING

from quicksand.base.on_demand import on_demand

if TYPE_CHECKING:
    from quicksand_images.build import build_image as build_image
    from quicksand_images.build import ensure_image as ensure_image
else:
    __getattr__, __dir__ = on_demand()
