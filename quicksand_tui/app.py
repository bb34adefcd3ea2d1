"""Opening the app. Imports next to nothing, so that the import of the rest can be made fast."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import MutableMapping
from dataclasses import replace

from quicksand_tui.outline import NAME, Looks, outline
from quicksand_tui.probe import over_ssh
from quicksand_tui.probing import Probe, terminals_file
from quicksand_tui.remembered import Remembered, memory
from quicksand_tui.shape_memory import recall_shape
from quicksand_tui.spared_imports import spare_imports
from quicksand_tui.state_files import StateFile, state_dir
from quicksand_tui.text import ascii_only
from quicksand_tui.theme_choice import AUTO, FILE_NAME, ThemeChoice, theme_wish

INTERRUPTED = 130
"""As shells have it: 128 and the signal's number."""

COUNT_SAVES_AFTER_S = 1.0
"""Of thousands of saves a look takes seconds, in a thread that holds up the others: who types at
once comes first."""
LOOK_EVERY_SSH_S = 2.0

OVER_SSH = {"TEXTUAL_ANIMATIONS": "none", "TEXTUAL_SMOOTH_SCROLL": "0", "TEXTUAL_FPS": "15"}
"""What Textual is told where each frame crosses a network. It reads them when it is imported."""


class UnknownThemeError(Exception):
    """There is no theme of that name; ``known`` are the names."""

    def __init__(self, name: str, known: tuple[str, ...]) -> None:
        super().__init__(f"there is no theme {name!r}")
        self.known = known


def farewell(names: tuple[str, ...]) -> str:
    """What is said after the app has gone."""
    if not names:
        return ""
    shown = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
    goes = "goes" if len(names) == 1 else "go"
    return f"{shown} {goes} on running; quicksand-tui comes back to {_them(names)}.\n"


def _them(names: tuple[str, ...]) -> str:
    return "it" if len(names) == 1 else "them"


def spare_the_line(environ: MutableMapping[str, str]) -> bool:
    """Over SSH, draw less; what the user has set stays. Returns whether it is SSH."""
    if not over_ssh(environ):
        return False
    for name, value in OVER_SSH.items():
        environ.setdefault(name, value)
    return True


def run_app(*, theme: str = "", ascii_glyphs: bool = False, read_only: bool = False) -> int:
    """Run the app in this terminal; returns the exit status.

    ``theme`` is for this run; "auto" forgets the one that was chosen. Raises UnknownThemeError.
    """
    try:
        # The terminal answers while the app is loaded.
        with Probe(os.environ, terminals_file()) as probe:
            return _run(probe, theme, ascii_glyphs=ascii_glyphs, read_only=read_only)
    except KeyboardInterrupt:
        return INTERRUPTED


def _run(probe: Probe, theme: str, *, ascii_glyphs: bool, read_only: bool) -> int:
    # Until the first paint nothing becomes garbage: looking for it would only take time.
    gc.disable()
    remembered = memory()
    if not theme:
        probe.draw(_outline(*probe.size, remembered, ascii_glyphs=ascii_glyphs))
    is_ssh = spare_the_line(os.environ)
    spare_imports()
    from quicksand_tui.application import QuicksandApp
    from quicksand_tui.config import ConfigFile
    from quicksand_tui.places import config_file, is_config_named
    from quicksand_tui.service import EngineService
    from quicksand_tui.settings import Settings

    file = ConfigFile(config_file(), must_exist=is_config_named())
    settings = Settings(file, read_only=read_only)
    plain_glyphs = ascii_glyphs or ascii_only(settings.config.ascii)
    if plain_glyphs and sys.__stderr__ is not None:
        # Textual's own characters: better a question mark than an exception.
        sys.__stderr__.reconfigure(errors="replace")
    # What is said for this run counts first, then the config, then what was chosen in the app.
    wish = theme_wish(theme, os.environ) or settings.config.theme
    choice = ThemeChoice(StateFile(state_dir() / FILE_NAME), wish=wish)
    probe.gather()
    service = EngineService()
    app = QuicksandApp(
        service,
        settings=settings,
        ascii_glyphs=plain_glyphs,
        painted=_collect_garbage,
        remembered=remembered,
        look_at_least_s=LOOK_EVERY_SSH_S if is_ssh else 0.0,
        theme=choice,
        probe=probe,
        count_saves_after_s=COUNT_SAVES_AFTER_S,
    )
    try:
        if theme == AUTO:
            choice.remember("")
        elif theme and theme not in app.available_themes:
            raise UnknownThemeError(theme, tuple(sorted(app.available_themes)))
        app.run(mouse=settings.config.mouse)
    finally:
        gc.enable()
        # Textual's handlers need the app, and stay when it is over.
        for number in (signal.SIGTSTP, signal.SIGCONT):
            signal.signal(number, signal.SIG_DFL)
        service.close()
    if app.return_code:
        return app.return_code
    sys.stdout.write(farewell(app.running_names))
    return app.return_value or 0


def _outline(columns: int, rows: int, remembered: Remembered, *, ascii_glyphs: bool) -> str:
    """As the screen looked the last time; "" if there was none."""
    looks = Looks.from_json(remembered.get(NAME))
    if looks is None:
        return ""
    looks = replace(
        looks.fitting(os.environ), ascii=ascii_glyphs or ascii_only(looks.ascii or None)
    )
    return outline(columns, rows, looks, recall_shape(remembered))


def _collect_garbage() -> None:
    gc.freeze()
    gc.enable()
