"""The values of variables, and the names of files, that a command has from its client at another
machine.

The values are those that it passes on to a guest (`-e NAME`). They must not be in the command's
argv, which all users of the machine can read, nor are they variables of the command itself.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, MutableMapping
from pathlib import Path
from typing import NamedTuple

PASSED_ON = "QUICKSAND_PASSED_ON"
"""The one variable that holds all of them, as JSON."""

BYTES_MAX = 96 * 1024
"""The most bytes of that JSON. Linux allows 128 KiB for one variable (MAX_ARG_STRLEN)."""


def encode_values(values: Mapping[str, str]) -> str:
    """Return the JSON. It is ASCII, also with the surrogates of bytes that are not UTF-8."""
    return json.dumps(dict(values))


def take_values(environ: MutableMapping[str, str]) -> dict[str, str] | None:
    """Remove the variable from ``environ``, and return its values; None if it is missing, or was
    not written by `encode_values`."""
    text = environ.pop(PASSED_ON, None)
    if text is None:
        return None
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    is_right = isinstance(found, dict) and all(isinstance(one, str) for one in found.values())
    return found if is_right else None


CLIENT_FILES = "QUICKSAND_CLIENT_FILES"
"""The variable that gives a command all of these names, as JSON."""

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
