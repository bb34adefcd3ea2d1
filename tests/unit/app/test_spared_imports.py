"""Textual with fewer imports is Textual still."""

from __future__ import annotations

import subprocess
import sys

SPARED = """
import sys
from quicksand_tui.spared_imports import spare_imports
spare_imports()
import textual.app
assert "textual.widgets._directory_tree" not in sys.modules
from textual.types import CallbackType, DirEntry, NoSelection
from textual.widgets._directory_tree import DirEntry as real
assert DirEntry is real
import textual.types
assert type(textual.types).__name__ == "module"
for name in textual.types.__all__:
    getattr(textual.types, name)
try:
    from textual.types import nothing
except ImportError as error:
    print(error)
"""


def test_names_are_what_they_were() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SPARED], check=True, stdout=subprocess.PIPE, text=True
    )
    assert "cannot import name 'nothing' from 'textual.types'" in done.stdout
