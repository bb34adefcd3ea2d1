"""The client's names for the files that its command reads or writes in a place here (`places`). The
command uses these names in messages, since the place is unknown to the user and is removed."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

CLIENT_FILES = "QUICKSAND_CLIENT_FILES"
"""The variable that gives a command all of these names, as JSON."""

BYTES_MAX = 96 * 1024
"""The most bytes of that JSON. Linux allows 128 KiB for one variable (MAX_ARG_STRLEN)."""


class ClientFiles(NamedTuple):
    """The files of a command."""

    directory: str
    """The client's working directory."""
    named: Mapping[str, str]
    """The user's words for each name in the place."""

    def encode(self) -> str:
        """Return the JSON. It is ASCII, also with the surrogates of bytes that are not UTF-8."""
        return json.dumps([self.directory, dict(self.named)])

    @classmethod
    def read(cls, environ: Mapping[str, str]) -> ClientFiles | None:
        """Return what a variable written by `encode` holds; None if there is none."""
        try:
            match json.loads(environ.get(CLIENT_FILES, "null")):
                case [str(directory), dict(named)] if all(
                    isinstance(one, str) for one in named.values()
                ):
                    return cls(directory, named)
        except (ValueError, RecursionError):
            pass
        return None

    def told(self, path: str | os.PathLike[str]) -> str:
        """Return a path as the client knows it: as its user wrote it if it is relative, else in
        full. Other paths are returned unchanged."""
        known = self.named.get(Path(path).name)
        place = Path(path).parent
        if known is None or place not in (Path(), Path.cwd()):
            return os.fspath(path)
        return str(Path(self.directory) / known) if place.is_absolute() else known

    def told_text(self, text: str) -> str:
        """Return a text in which the full paths are replaced by the client's."""
        place = f"{Path.cwd()}/"
        # The longest first: one path may begin with another.
        for name in sorted(self.named, key=len, reverse=True) if place in text else ():
            text = text.replace(f"{place}{name}", self.told(f"{place}{name}"))
        return text
