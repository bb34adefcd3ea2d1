"""Opens the app. Imports next to nothing at the top, so that the outline comes first."""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
from dataclasses import replace
from typing import TYPE_CHECKING

from quicksand.things.frozen import frozen
from quicksand_driver.probe import Probe
from quicksand_driver.terminal_queries import over_ssh

from quicksand_tui.home.host_table import NODE_SCHEME, SCHEME, may_have_hosts
from quicksand_tui.home.state import (
    AUTO,
    PANES_FILE,
    THEME_FILE,
    PaneMemory,
    Remembered,
    StateFile,
    ThemeChoice,
    config_file,
    is_config_named,
    memory,
    recall_needs,
    recall_shape,
    state_dir,
    terminals_file,
    theme_wish,
)
from quicksand_tui.kit.outline import NAME, Looks, outline
from quicksand_tui.model.text import ascii_only
from quicksand_tui.opening.asyncio_alone import import_asyncio

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, MutableMapping

    from quicksand_tui.door.service import EngineService
    from quicksand_tui.model.world import World
    from quicksand_tui.views.main_layout import Needs, Shape

INTERRUPTED = 130
"""The exit status after Ctrl-C, as in shells: 128 plus the signal's number."""

YOUNG_MAX = 20_000
"""Objects that the running app makes before Python looks for garbage, which takes 2.5 ms then."""

LIST_WAIT_S = 0.5
"""The most seconds that loading the app waits for the list of sandboxes, which takes 0.04 s."""

COUNT_SAVES_AFTER_S = 1.0
"""Seconds until saves are first read. Thousands take seconds, in a thread that slows the others, so
typing right after the start comes first."""
LOOK_EVERY_SSH_S = 2.0
"""The least seconds between two looks at the disk over SSH."""

HOST_VARIABLE = "QUICKSAND_HOST"
"""Names the machine on which the app opens, besides those of the config."""

OVER_SSH = {"TEXTUAL_ANIMATIONS": "none", "TEXTUAL_SMOOTH_SCROLL": "0", "TEXTUAL_FPS": "15"}
"""Textual's settings where each frame crosses a network; Textual reads them when it is imported."""


class UnknownThemeError(Exception):
    """There is no theme of that name; ``known`` holds the names."""

    def __init__(self, name: str, known: tuple[str, ...]) -> None:
        super().__init__(f"there is no theme {name!r}")
        self.known = known


def farewell(names: tuple[str, ...]) -> str:
    """Returns the message after the app has ended."""
    if not names:
        return ""
    shown = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
    return f"still running: {shown} (`quicksand-tui` opens the app again)\n"


def spare_the_line(environ: MutableMapping[str, str]) -> bool:
    """Makes Textual draw less over SSH, unless the user set otherwise. Returns whether it is
    SSH."""
    if not over_ssh(environ):
        return False
    for name, value in OVER_SSH.items():
        environ.setdefault(name, value)
    return True


def run_app(*, theme: str = "", ascii_glyphs: bool = False, read_only: bool = False) -> int:
    """Runs the app in this terminal; returns the exit status.

    ``theme`` is for this run; "auto" forgets the remembered one. Raises UnknownThemeError.
    """
    try:
        # The terminal answers while the app is loading.
        with Probe(os.environ, terminals_file()) as probe:
            return _run(probe, theme, ascii_glyphs=ascii_glyphs, read_only=read_only)
    except KeyboardInterrupt:
        return INTERRUPTED


def _run(probe: Probe, theme: str, *, ascii_glyphs: bool, read_only: bool) -> int:
    # Hardly anything becomes garbage before the first paint, so collecting only takes time.
    gc.disable()
    remembered = memory()
    sketch = None if theme else Sketch.of(probe.size, remembered, ascii_glyphs=ascii_glyphs)
    if sketch is not None:
        probe.draw(sketch.outline())
    is_ssh = spare_the_line(os.environ)
    import_asyncio()
    from quicksand_tui.door.service import EngineService  # noqa: PLC0415

    service = EngineService()
    threading.excepthook = service.thread_failed  # Python writes a traceback across the screen
    look = FirstLook(service.read_sandboxes)
    if sketch is not None and not may_have_hosts(config_file(), os.environ):
        _draw_first_list(probe, sketch, look)
    from quicksand_tui.home.config_file import ConfigFile, Settings  # noqa: PLC0415
    from quicksand_tui.ui.app import QuicksandApp  # noqa: PLC0415

    file = ConfigFile(config_file(), must_exist=is_config_named())
    settings = Settings(file, read_only=read_only)
    plain_glyphs = ascii_glyphs or ascii_only(settings.config.ascii)
    if plain_glyphs and sys.__stderr__ is not None:
        # For Textual's own characters a question mark is better than an exception.
        sys.__stderr__.reconfigure(errors="replace")
    # The order is: this run's wish, the config, the theme remembered by the app.
    wish = theme_wish(theme, os.environ) or settings.config.theme
    choice = ThemeChoice(StateFile(state_dir() / THEME_FILE), wish=wish)
    probe.gather()
    meet_machines(service, settings.config.hosts, os.environ)
    app = QuicksandApp(
        service,
        settings=settings,
        ascii_glyphs=plain_glyphs,
        painted=_collect_garbage,
        remembered=remembered,
        pane_memory=PaneMemory(StateFile(state_dir() / PANES_FILE)),
        look_at_least_s=LOOK_EVERY_SSH_S if is_ssh else 0.0,
        theme=choice,
        probe=probe,
        count_saves_after_s=COUNT_SAVES_AFTER_S,
        seen=service.joined(look.wait()),
    )
    try:
        if theme == AUTO:
            choice.remember("")
        elif theme and theme not in app.available_themes:
            raise UnknownThemeError(theme, tuple(sorted(app.available_themes)))
        app.run(mouse=settings.config.mouse)
    finally:
        gc.enable()
        # Textual leaves its handlers behind, which need the app.
        for number in (signal.SIGTSTP, signal.SIGCONT):
            signal.signal(number, signal.SIG_DFL)
        service.close()
    if app.return_code:
        return app.return_code
    sys.stdout.write(farewell(app.present.read.running_names))
    return app.return_value or 0


def meet_machines(
    service: EngineService, hosts: Mapping[str, str], environ: Mapping[str, str]
) -> None:
    """Tells the service of the other machines: those of the config, and the one that is asked for
    by its name or address, on which the app opens. That may be a local node of the fleet, too."""
    wished = environ.get(HOST_VARIABLE, "")
    name = name_for(wished, hosts)
    if wished and not name and (node := service.find_node(wished.removeprefix(NODE_SCHEME))):
        # Met at once, and not with the first look at the fleet, so that the cursor goes there.
        wished, name = node, node.removeprefix(NODE_SCHEME)
    service.opens_on = name
    service.asked_for = {name: wished} if name and name not in hosts else {}
    service.meet(hosts)


def name_for(wished: str, hosts: Mapping[str, str]) -> str:
    """Returns the name for `--host` of a machine by its name or address; "" for none."""
    if not wished.startswith(SCHEME):
        return wished if wished in hosts else ""
    known = next((name for name, address in hosts.items() if address == wished), "")
    short = wished.removeprefix(SCHEME).removesuffix("/")
    # Without a user or a port, it could be the name of another machine.
    return known or (short if "@" in short or ":" in short else wished)


def _draw_first_list(probe: Probe, sketch: Sketch, look: FirstLook) -> None:
    """Draws the list of sandboxes into the outline. Where there may be other machines, the list
    would lack their headers, and move a moment later."""
    from quicksand_tui.kit.first_list import first_list  # noqa: PLC0415

    if (seen := look.wait(LIST_WAIT_S)) and probe.size == sketch.size:
        probe.draw(first_list(*sketch.size, sketch.looks, sketch.shape, sketch.needs, seen))


@frozen(kw_only=False)
class Sketch:
    """The basis of the outline: the terminal's size, and the looks of the last run."""

    size: tuple[int, int]
    looks: Looks
    shape: Shape
    needs: Needs

    @classmethod
    def of(
        cls, size: tuple[int, int], remembered: Remembered, *, ascii_glyphs: bool
    ) -> Sketch | None:
        """Makes a sketch; None before the first run, and without room."""
        looks = Looks.from_json(remembered.get(NAME))
        if looks is None:
            return None
        plain = ascii_glyphs or ascii_only(looks.ascii or None)
        looks = replace(looks.fitting(os.environ), ascii=plain)
        sketch = cls(size, looks, recall_shape(remembered), recall_needs(remembered))
        return sketch if sketch.outline() else None

    def outline(self) -> str:
        return outline(*self.size, self.looks, self.shape, self.needs)


class FirstLook:
    """Reads the sandboxes in a thread, so that a slow disk delays the app for a moment only."""

    def __init__(self, read: Callable[[], World]) -> None:
        self._read = read
        self._done = threading.Event()
        self._seen: World | None = None
        threading.Thread(target=self._look, name="quicksand-first-look", daemon=True).start()

    def _look(self) -> None:
        try:
            self._seen = self._read()
        except Exception:  # noqa: BLE001 - the next look, at once after it, says what is wrong
            self._seen = None
        finally:
            self._done.set()

    def wait(self, seconds: float = 0.0) -> World | None:
        """Returns the world that was read; None if that takes longer, or failed."""
        return self._seen if self._done.wait(seconds) else None


def _collect_garbage() -> None:
    gc.freeze()
    gc.set_threshold(YOUNG_MAX)
    gc.enable()
