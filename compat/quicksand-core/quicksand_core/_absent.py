"""Names of the published core that have no counterpart here. Asking for one raises an error that
says why."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def refusing(module: str, **names: str) -> Callable[[str], Any]:
    """A module's ``__getattr__`` (PEP 562) that knows ``names``, each with what does its work here,
    and raises ImportError for them."""

    def refuse(name: str) -> Any:
        if (instead := names.get(name)) is None:
            raise AttributeError(f"module {module!r} has no attribute {name!r}", name=name)
        raise ImportError(
            f"{module}.{name} is a part of the published quicksand-core that quicksand-tui does "
            f"not have: {instead}",
            name=module,
        )

    return refuse
