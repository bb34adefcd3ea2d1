"""Applies the config, and each change of it while the app runs."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from quicksand_tui.actions.all_actions import default_keymap, line_keys
from quicksand_tui.kit.base import tell
from quicksand_tui.kit.textual_private import driver_of
from quicksand_tui.ui.themes import fitting_theme

if TYPE_CHECKING:
    from collections.abc import Callable

    from textual.app import App

    from quicksand_tui.door.service import EngineService
    from quicksand_tui.home.config_file import Settings
    from quicksand_tui.kit.key_handling import Keys
    from quicksand_tui.model.specs import Told


class ConfigWatch:
    """Gives the settings to all parts that use them, and reports problems in them."""

    def __init__(
        self,
        app: App[int],
        settings: Settings,
        keys: Keys,
        service: EngineService,
        show: Callable[[], None],
        report: Callable[[Told | None], None],
    ) -> None:
        """``service`` is told of other machines. ``show`` shows the world with other settings;
        ``report`` shows the problems in them, or with None that there are no more."""
        self._service = service
        self._show = show
        self._report = report
        self._app = app
        self._settings = settings
        self._keys = keys

    def look(self) -> None:
        """Applies a change of the config, and reports it."""
        app, settings = self._app, self._settings
        theme = settings.config.theme
        words = settings.take_change(app.available_themes)
        if words is None:
            return
        self.use_keymap()
        self._service.meet(settings.config.hosts)
        if (chosen := settings.config.theme) != theme:
            app.theme = chosen or fitting_theme()
        self._show()
        told = settings.report()
        if told is None:
            self._report(None)
            tell(app, words)
        elif self._keys.panes.pane is None:
            self._report(replace(told, lines=(*told.lines, "", words)))
        else:  # a dialog would interrupt typing into a shell
            tell(app, f"{told.summary}: {told.lines[0]}", severity="warning")

    def use_keymap(self) -> None:
        """Gives the keys to Textual, to the judgement of typing, and to the terminal's driver."""
        keymap = self._settings.keymap
        self._app.set_keymap(keymap.changes_from(default_keymap()))
        self._keys.hands.line_keys = line_keys(keymap)
        if (driver := driver_of(self._app)) is not None:
            driver.prefix = keymap.prefix.data
