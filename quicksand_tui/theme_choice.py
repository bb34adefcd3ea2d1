"""Which theme the user wants: said for this run, or chosen once and remembered."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from quicksand_tui.state_files import StateFile

AUTO = "auto"
"""Instead of a theme's name: the one that fits the terminal."""

FILE_NAME = "appearance.json"


class ThemeChoice:
    """``name`` is a theme's, or "" if the terminal decides."""

    def __init__(self, file: StateFile | None = None, *, wish: str = "") -> None:
        """``wish`` is for this run only; "auto" forgets what was chosen."""
        self._file = file
        self._facts = {} if file is None else file.read()
        remembered = self._facts.get("theme")
        self.name = wish or (remembered if isinstance(remembered, str) else "")
        if self.name == AUTO:
            self.name = ""
        self.problem = ""
        """What to tell the user of the file."""
        if file is not None and file.problem:
            self.problem = f"{file.path} cannot be read and is ignored: {file.problem}"

    def remember(self, name: str) -> None:
        """Keep ``name`` for the next runs; "" lets the terminal decide again. Raises OSError."""
        self.name = name
        if self._file is None or self._facts.get("theme", "") == name:
            return
        self._facts = {**self._facts, "theme": name}
        self._file.write(self._facts)


def theme_wish(said: str, environ: Mapping[str, str]) -> str:
    """The theme for this run: ``--theme``, or what the environment says."""
    return said or environ.get("QUICKSAND_THEME", "") or environ.get("TEXTUAL_THEME", "")
