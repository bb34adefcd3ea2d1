"""The abilities of a terminal, and the memory of earlier answers."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from quicksand.things.frozen import frozen

from quicksand_tui.home.state import StateFile, state_dir
from quicksand_tui.model.text import sanitise

NAME_MAX = 60
"""The longest name of a terminal in characters."""


@frozen
class TerminalAbilities:
    """The known abilities of a terminal."""

    name: str = ""
    """Its own name and version, such as "kitty(0.40.0)"; "" if unknown."""
    background: tuple[int, int, int] | None = None
    """Red, green and blue from 0 to 255."""
    sync_output: bool = False
    """It supports synchronized output (mode 2026)."""
    graphics: str = "none"
    """"kitty", "sixel" or "none"."""
    cell_size: tuple[int, int] | None = None
    """Width and height of a cell in pixels."""
    kitty_keyboard: bool = False
    """It supports kitty's keyboard protocol."""
    mouse_pixels: bool = False
    """It can report the mouse in pixels (mode 1016)."""

    @property
    def is_light(self) -> bool | None:
        """Whether its background is light; None if unknown."""
        if self.background is None:
            return None
        red, green, blue = self.background
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue > 127  # ITU-R BT.709

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, value: object) -> TerminalAbilities:
        """Reads what `to_json` wrote. Raises ValueError for anything else."""
        if not isinstance(value, dict):
            raise ValueError("not an object")
        graphics = value.get("graphics")
        return cls(
            name=sanitise(str(value.get("name", "")), limit=NAME_MAX),
            background=_numbers(value.get("background"), 3, 255),  # type: ignore[arg-type]
            sync_output=value.get("sync_output") is True,
            graphics=graphics if graphics in ("kitty", "sixel") else "none",
            cell_size=_numbers(value.get("cell_size"), 2, 9999),  # type: ignore[arg-type]
            kitty_keyboard=value.get("kitty_keyboard") is True,
            mouse_pixels=value.get("mouse_pixels") is True,
        )


UNKNOWN = TerminalAbilities()


def _numbers(value: object, count: int, limit: int) -> tuple[int, ...] | None:
    if value is None:
        return None
    if not isinstance(value, list) or len(value) != count:
        raise ValueError(f"not {count} numbers: {value!r}")
    if not all(type(number) is int and 0 <= number <= limit for number in value):
        raise ValueError(f"not numbers up to {limit}: {value!r}")
    return tuple(value)


def terminals_file() -> StateFile:
    return StateFile(state_dir() / "terminals.json")


def known_terminal(environ: Mapping[str, str], fd: int = 0) -> TerminalAbilities | None:
    """Returns this terminal's answers of the last run; None if it was never asked."""
    try:
        return TerminalAbilities.from_json(terminals_file().read().get(cache_key(environ, fd)))
    except ValueError:
        return None


def cache_key(environ: Mapping[str, str], fd: int) -> str:
    """Returns the key of a terminal in the cache."""
    try:
        name = os.ttyname(fd)
    except OSError:
        name = ""
    words = [environ.get(word, "") for word in ("TERM_PROGRAM", "TERM_PROGRAM_VERSION", "TERM")]
    return json.dumps([*words, name])
