"""Builds the images that sandboxes boot from: `python -m quicksand_images build debian`.

The names below are imported when first used: who only asks which recipes there are, as the app does
when it starts, loads no builder.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from quicksand_images.build import build_image, ensure_image

__all__ = ["build_image", "ensure_image"]


def __getattr__(name: str) -> Any:
    """Import a public name and keep it (PEP 562)."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.build"), name)
    globals()[name] = value
    return value
