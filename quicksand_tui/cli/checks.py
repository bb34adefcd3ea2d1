"""What `doctor` says of one thing."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    OK = "ok"
    NOTE = "note"
    """It works, but there is something to know."""
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Check:
    """What one check found."""

    name: str
    level: Level
    found: str
    hint: str = ""
    """What to do."""
