"""Saves: copies of a sandbox's disk that outlive it (format 6 of the specification, with
additions). A store is a directory of saves.

A name is looked for first in the workspace of the current directory (``.quicksand/sandboxes``),
then among the user's own saves. All errors are QuicksandErrors.
"""

from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from quicksand.saves.public import delete, export, import_, list, restore, verify  # noqa: A004

__all__ = ["delete", "export", "import_", "list", "restore", "verify"]


def __getattr__(name: str) -> Any:
    """Import the functions when one of them is used (PEP 562): a program that only reads a manifest
    does without the reading and writing of bundles."""
    if name not in __all__:
        raise AttributeError(f"module 'quicksand.saves' has no attribute {name!r}")
    return getattr(import_module("quicksand.saves.public"), name)


def __dir__() -> Sequence[str]:
    return sorted({*globals(), *__all__})
