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


OTHERS = """
import sys
from quicksand_tui.spared_imports import spare_imports
spare_imports()
spare_imports()
import textual.app
assert "ssl" not in sys.modules and "platformdirs.api" not in sys.modules
place = textual.app.user_downloads_path()
import platformdirs
assert place == platformdirs.user_downloads_path()
assert type(platformdirs).__name__ == "module", platformdirs
import platformdirs.version
import ssl
ssl.create_default_context()
import asyncio
asyncio.run(asyncio.sleep(0))
"""


def run(program: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program], check=True, stdout=subprocess.PIPE, text=True
    )
    return done.stdout


def test_names_are_what_they_were() -> None:
    assert "cannot import name 'nothing' from 'textual.types'" in run(SPARED)


def test_modules_that_were_spared_can_be_imported() -> None:
    run(OTHERS)
