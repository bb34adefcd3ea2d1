"""The config as the running app has it: read at the start, and again when the file changes."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from quicksand_tui.config import Config, ConfigFile, Loaded, Problem

if TYPE_CHECKING:
    from quicksand_tui.keymap import Keymap
    from quicksand_tui.saves_spec import Told


class Settings:
    """What counts now. `look` may be called in a thread, the rest on the UI's."""

    def __init__(self, file: ConfigFile | None = None, *, read_only: bool = False) -> None:
        """``read_only`` counts whatever the file says."""
        self._file = file
        self._loaded = file.read() if file is not None else Loaded()
        self._changed: Loaded | None = None
        self.read_only = read_only or self._loaded.config.read_only
        """From the start to the end: shells that are open would be left behind otherwise."""

    @property
    def config(self) -> Config:
        return self._loaded.config

    @property
    def problems(self) -> tuple[Problem, ...]:
        return self._loaded.problems

    @property
    def keymap(self) -> Keymap:
        return self.config.keymap

    def check(self, themes: Collection[str]) -> None:
        """Find out whether there is the theme."""
        if self.config.theme:
            from quicksand_tui.config_reader import check_theme

            self._loaded = check_theme(self._loaded, themes)

    def look(self) -> None:
        """Look whether the file has changed; blocks for the disk."""
        if self._file is not None and (loaded := self._file.read_if_changed()) is not None:
            self._changed = loaded

    def take_change(self, themes: Collection[str]) -> str | None:
        """Let what a `look` has found count. Gives what to tell; None if nothing has changed."""
        loaded, self._changed = self._changed, None
        if loaded is None:
            return None
        from quicksand_tui.config_reader import SETTINGS

        before = self.config
        self._loaded = loaded
        self.check(themes)
        later = [
            setting.name
            for setting in SETTINGS
            if not setting.live
            and getattr(before, setting.name) != getattr(self.config, setting.name)
        ]
        count = "; at the next start " + ", ".join(later) if later else ""
        return f"The config was read again{count}"

    def report(self) -> Told | None:
        """What is wrong in it; None if nothing is."""
        if not self.problems:
            return None
        from quicksand_tui.saves_spec import Told

        path = "" if self._file is None else f" in {self._file.path}"
        number = len(self.problems)
        summary = f"{number} problem{'s' if number != 1 else ''}{path}: the rest counts"
        return Told(summary=summary, lines=tuple(problem.text for problem in self.problems))
