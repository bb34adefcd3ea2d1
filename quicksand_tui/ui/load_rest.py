"""Loads the modules that the app has not needed for its first frames: it may run for days, and the
package be upgraded meanwhile. Then nothing that is opened or left needs a file of the package any
more."""

from __future__ import annotations

import asyncio
import gc
from ctypes import CDLL
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from quicksand_tui.verbs import lazy_engine

if TYPE_CHECKING:
    from textual.app import App


M_ARENA_MAX = -8
"""The parameter of mallopt(3) for the most heaps (glibc's malloc.h)."""
HEAPS = 2
EVERY_S = 60.0
"""Seconds between two times; one takes about a millisecond of another thread."""


async def give_back_for_ever() -> None:
    """Keep the number of heaps small from now on, and give back what is free now and then."""
    library = _c_library()
    if library is not None:
        library.mallopt(M_ARENA_MAX, HEAPS)
    while True:
        # Only after Python has looked at young objects: an app that rests makes none.
        if any(gc.get_count()[1:]):
            gc.collect()
        if library is not None:
            await asyncio.to_thread(library.malloc_trim, 0)
        await asyncio.sleep(EVERY_S)


def _c_library() -> CDLL | None:
    """Returns the C library of this process if it is glibc."""
    try:
        library = CDLL(None)
    except (OSError, TypeError):  # a system without dlopen of the program itself
        return None
    return library if hasattr(library, "malloc_trim") and hasattr(library, "mallopt") else None


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
