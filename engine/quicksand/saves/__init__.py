"""Saves: disks that outlive their sandbox (format 6 of the specification, with additions).

The functions are imported when first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from quicksand.saves.bundle.service import export, import_

__all__ = ["export", "import_"]

_HOMES = {"bundle.service": ("export", "import_")}


def __getattr__(name: str) -> Any:
    """Import a public name from its module and keep it (PEP 562)."""
    for module, names in _HOMES.items():
        if name in names:
            value = getattr(import_module(f"quicksand.saves.{module}"), name)
            globals()[name] = value
            return value
    raise AttributeError(f"module 'quicksand.saves' has no attribute {name!r}")
