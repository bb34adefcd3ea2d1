"""Tables of names that are imported when they are used (PEP 562), each written once.

Such a module holds imports, and nothing else::

    if TYPE_CHECKING:
        from quicksand.guest.shell import Shell
    else:
        __getattr__, __dir__ = on_demand()

Type checkers and editors read them. When the first name is used, the module's code is run once more
as these see it, with imports that only note the requested names.

Other packages can add names to a table by the group of entry points that it gives. Its imports of
such names are for type checkers only: it says from which packages the others come.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from importlib import import_module
from types import CodeType, ModuleType
from typing import Any

Home = tuple[str, str]
"""The target of a name: a module, and a name in it."""


class _Noted:
    """The result of an import that is only noted."""

    def __init__(self, module: str, *_: object) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        if name == "__all__":  # an import of `*`
            return import_module(self._module).__all__
        return self._module, name  # true, as TYPE_CHECKING must be


class _Table:
    def __init__(
        self, code: CodeType, own: dict[str, Any], group: str, packages: tuple[str, ...]
    ) -> None:
        self._code = code
        self._own = own
        self._group = group
        self._packages = packages

    @functools.cached_property
    def homes(self) -> dict[str, Home]:
        found: dict[str, Any] = {"__builtins__": {"__import__": _Noted}}
        exec(self._code, found)  # noqa: S102 - the code that called `on_demand`
        own = ("TYPE_CHECKING", on_demand.__name__)
        return {
            name: home
            for name, home in found.items()
            if isinstance(home, tuple)
            and home[1] not in own
            and (not self._packages or home[0].partition(".")[0] in self._packages)
        }

    @functools.cached_property
    def entered(self) -> dict[str, Home]:
        """The names that other packages add."""
        if not self._group:
            return {}
        found = import_module("quicksand.base.entering").entered(self._group)
        return {name: (one.module, one.attr) for name, one in found.items()}

    def look_up(self, name: str) -> Any:
        if name == "__all__":
            found = {**self.homes, **self.entered}
            return sorted(name for name in found if not name.startswith("_"))
        if home := self.homes.get(name) or self.entered.get(name):
            return getattr(import_module(home[0]), home[1])
        raise AttributeError(f"module {self._own['__name__']!r} has no attribute {name!r}")

    def names(self) -> list[str]:
        return sorted({*self._own, *self.homes, *self.entered})


def on_demand(
    group: str = "", packages: tuple[str, ...] = ()
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return the ``__getattr__`` and the ``__dir__`` of the calling module, a table. ``__all__`` is
    its public names. ``group``: the entry points by which other packages add names; ``packages``
    have all other names."""
    caller = sys._getframe(1)
    table = _Table(caller.f_code, caller.f_globals, group, packages)
    return table.look_up, table.names


def homes_of(table: ModuleType) -> dict[str, Home]:
    """Return the names of a table and their targets, in its order."""
    found: dict[str, Home] = vars(table)["__getattr__"].__self__.homes
    return found
