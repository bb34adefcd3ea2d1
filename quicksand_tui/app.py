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


def run_app(*, read_only: bool = False) -> int:
    """Run the app in this terminal; returns the exit status."""
    # Until the first paint nothing becomes garbage: looking for it would only take time.
    gc.disable()
    from quicksand_tui.application import QuicksandApp
    from quicksand_tui.config import ConfigFile
    from quicksand_tui.places import config_file, is_config_named
    from quicksand_tui.service import EngineService
    from quicksand_tui.settings import Settings

    file = ConfigFile(config_file(), must_exist=is_config_named())
    settings = Settings(file, read_only=read_only)
    plain_glyphs = ascii_only(settings.config.ascii)
    if plain_glyphs and sys.__stderr__ is not None:
        # Textual's own characters: better a question mark than an exception.
        sys.__stderr__.reconfigure(errors="replace")
    service = EngineService()
    app = QuicksandApp(
        service, settings=settings, ascii_glyphs=plain_glyphs, painted=_collect_garbage
    )
    try:
        app.run(mouse=settings.config.mouse)
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
