"""What a user has set, and the file that says so; `quicksand_tui.config_reader` reads it, and is
loaded only where there is one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from quicksand_tui.actions import default_keymap
from quicksand_tui.keymap import DEFAULT_PREFIX, Keymap, Prefix
from quicksand_tui.text import sanitise

LOOK_EVERY_S = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """What does not count, and why."""

    line: int = 0
    """From 1; 0 if it is about the whole file."""
    key: str = ""
    """What is set there, for example "keys.stop"."""
    what: str

    @property
    def text(self) -> str:
        """One line, fit to be shown."""
        where = f"line {self.line}: " if self.line else ""
        key = f"{self.key}: " if self.key else ""
        return sanitise(f"{where}{key}{self.what}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """What a user has set; what is not set is as it is here."""

    theme: str = ""
    """ "" lets the terminal decide. Whether there is one of that name, the app knows."""
    ascii: bool | None = None
    """None lets the locale decide."""
    mouse: bool = True
    read_only: bool = False
    look_every_s: float = LOOK_EVERY_S
    prefix: Prefix = DEFAULT_PREFIX
    keymap: Keymap = field(default_factory=default_keymap)


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """What a config file says."""

    config: Config = field(default_factory=Config)
    problems: tuple[Problem, ...] = ()
    lines: Mapping[str, int] = field(default_factory=dict)
    """Where what is set is set."""


class ConfigFile:
    """A config that is looked at again and again. Used in one thread at a time."""

    def __init__(self, path: Path, *, must_exist: bool = False) -> None:
        self.path = path
        self._must_exist = must_exist
        self._stamp: tuple[int, ...] = ()

    def read(self) -> Loaded:
        self._stamp = self._look()
        if not self._stamp and not self._must_exist:
            return Loaded()
        from quicksand_tui.config_reader import read_config

        return read_config(self.path, must_exist=self._must_exist)

    def read_if_changed(self) -> Loaded | None:
        """None while it is as it was when it was read last."""
        return None if self._look() == self._stamp else self.read()

    def _look(self) -> tuple[int, ...]:
        try:
            found = self.path.stat()
        except (OSError, ValueError):
            return ()
        return (found.st_mtime_ns, found.st_size, found.st_ino)
