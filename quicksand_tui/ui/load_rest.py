"""Loads the modules that the app has not needed for its first frames: it may run for days, and the
package be upgraded meanwhile. Then nothing that is opened or left needs a file of the package any
more."""

from __future__ import annotations

import asyncio
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from quicksand_tui.ui.freed_memory import give_back_for_ever
from quicksand_tui.verbs import lazy_engine

if TYPE_CHECKING:
    from textual.app import App

TABLES = (
    *("ui.lazy_parts", "screens.lazy_screens", "cockpit.lazy_tabs", "door.lazy_door"),
    "verbs.lazy_engine",
)
LATER = ("door.surroundings",)
"""Other modules imported only when they are used (scripts/deferred_imports.toml)."""
FETCHING = frozenset(
    {
        "install_package",
        "parse_source",
        "parse_wanted",
        "fetch_and_install",
        "install_wheel",
        "uninstall_qemu",
    }
)
"""Names that are left out: what fetches packages begins nothing that must end well, and takes 8 MB
for httpx."""
SHEETS = Path(__file__).parents[1] / "screens"


def import_all() -> None:
    """Imports all that the app may need. Blocks, for half a second of processor time."""
    for table in TABLES:
        module = import_module(f"quicksand_tui.{table}")
        for name in sorted(set(module.__all__) - FETCHING):
            getattr(module, name)
    for name in LATER:
        import_module(f"quicksand_tui.{name}")
    lazy_engine.make_whole()


async def stay_fit(app: App[int]) -> None:
    """Make the app whole, and then keep it small, until it ends."""
    await make_whole(app)
    await give_back_for_ever()


async def make_whole(app: App[int]) -> None:
    """Reads all style sheets, and imports all modules on another thread."""
    for sheet in sorted(SHEETS.glob("*.tcss")):
        if not app.stylesheet.has_source(str(sheet)):
            app.stylesheet.read(sheet)
    await asyncio.to_thread(import_all)
    app.stylesheet.reparse()
    app.stylesheet.update(app)
