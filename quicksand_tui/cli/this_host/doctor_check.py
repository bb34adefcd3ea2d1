"""The result of one check of `doctor`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    OK = "ok"
    NOTE = "note"
    """It works, but the user should know something about it."""
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Check:
    """The result of one check."""

    name: str
    level: Level
    found: str
    hint: str = ""
    """The user's remedy."""
