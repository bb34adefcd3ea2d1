"""Opening the app. Imports next to nothing, so that the import of the rest can be made fast."""

from __future__ import annotations

import gc
import sys

from quicksand_tui.text import ascii_only


def farewell(names: tuple[str, ...]) -> str:
    """What is said after the app has gone."""
    if not names:
        return ""
    shown = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
    goes = "goes" if len(names) == 1 else "go"
    return f"{shown} {goes} on running; quicksand-tui comes back to {_them(names)}.\n"


def _them(names: tuple[str, ...]) -> str:
    return "it" if len(names) == 1 else "them"


def run_app() -> int:
    """Run the app in this terminal; returns the exit status."""
    # Until the first paint nothing becomes garbage: looking for it would only take time.
    gc.disable()
    from quicksand_tui.application import QuicksandApp
    from quicksand_tui.last_used import LastUsed, state_file
    from quicksand_tui.remembered import Remembered, memory_path
    from quicksand_tui.service import EngineService

    plain_glyphs = ascii_only()
    if plain_glyphs and sys.__stderr__ is not None:
        # Textual's own characters: better a question mark than an exception.
        sys.__stderr__.reconfigure(errors="replace")
    service = EngineService()
    app = QuicksandApp(
        service,
        ascii_glyphs=plain_glyphs,
        painted=_collect_garbage,
        remembered=Remembered(memory_path()),
        last_used=LastUsed(state_file),
    )
    try:
        app.run()
    finally:
        gc.enable()
        service.close()
    if app.return_code:
        return app.return_code
    sys.stdout.write(farewell(app.running_names))
    return app.return_value or 0


def _collect_garbage() -> None:
    gc.freeze()
    gc.enable()
