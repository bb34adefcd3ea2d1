"""Tells paths as they are known where the command was typed. For another machine, a command runs in
a directory of this one that only this one knows, with the files that it reads or writes."""

from __future__ import annotations

import os
from pathlib import Path

from quicksand.remote.passed_on import ClientFiles


def told(path: str | Path) -> str:
    """Returns the path of a file that was given to this command."""
    files = ClientFiles.read(os.environ)
    return os.fspath(path) if files is None else files.told(path)


def told_text(text: str) -> str:
    """Returns a message with such paths in it."""
    files = ClientFiles.read(os.environ)
    return text if files is None else files.told_text(text)
