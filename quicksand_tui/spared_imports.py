"""What Textual imports and the first paint does not need."""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import Any


class _Late(ModuleType):
    """A module that is imported when somebody wants more of it than Textual does."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)  # what the import system asks every module
        if sys.modules.get(self.__name__) is self:
            sys.modules.pop(self.__name__, None)
        return getattr(importlib.import_module(self.__name__), name)


class _Types(_Late):
    """`textual.types` names types for others. Of it Textual wants one name itself, and with that
    come four widgets, a fifteenth of all that it imports."""

    def __getattr__(self, name: str) -> Any:
        light = importlib.import_module("textual._types")
        return getattr(light, name) if hasattr(light, name) else super().__getattr__(name)


class _PlatformDirs(_Late):
    """`platformdirs` tells Textual where downloads go: for a picture of the screen."""

    def user_downloads_path(self) -> Any:
        return super().__getattr__("user_downloads_path")()


def spare_imports() -> None:
    """Call it before Textual is imported. Whoever wants a name of one of these modules later, gets
    the true one; a submodule only after that."""
    sys.modules.setdefault("textual.types", _Types("textual.types"))
    sys.modules.setdefault("platformdirs", _PlatformDirs("platformdirs"))
    _import_asyncio_without_tls()


def _import_asyncio_without_tls() -> None:
    """Python may be built without `ssl`, so asyncio does without it where it is missing; nothing
    here has a connection that needs it. Others can import it as ever."""
    if "asyncio" in sys.modules or "ssl" in sys.modules:
        return
    sys.modules["ssl"] = None  # type: ignore[assignment] # what marks a module as missing
    try:
        import asyncio  # noqa: F401
    finally:
        del sys.modules["ssl"]
