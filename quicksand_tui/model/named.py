"""Things with an id or a path, which people call by another name."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Self


class Named(str):
    """An id or a path that shown commands call by another name."""

    __slots__ = ("shown",)
    shown: str

    def __new__(cls, value: str, shown: str) -> Self:
        made = super().__new__(cls, value)
        made.shown = shown
        return made


def shown(word: str) -> str:
    """Returns the name of a thing on the screen."""
    return word.shown if isinstance(word, Named) else word
