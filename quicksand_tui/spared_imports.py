"""What Textual imports and the first paint does not need."""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import Any

NAME = "textual.types"


class _Types(ModuleType):
    """`textual.types` names types for others. Of it Textual wants one name itself, and with that
    come four widgets, a fifteenth of all that it imports; here they come when they are asked for.
    """

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)  # what the import system asks every module
        light = importlib.import_module("textual._types")
        if hasattr(light, name):
            return getattr(light, name)
        if sys.modules.get(NAME) is self:
            del sys.modules[NAME]
        return getattr(importlib.import_module(NAME), name)


def spare_imports() -> None:
    """Call it before Textual is imported. All names stay what and where they are."""
    sys.modules.setdefault(NAME, _Types(NAME))
