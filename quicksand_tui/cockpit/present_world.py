"""The present world: the last one that was read, with the saves and what the app itself does."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING

from quicksand_tui.model.shown_saves import NO_SAVES
from quicksand_tui.views.sandbox_rows import with_jobs

if TYPE_CHECKING:
    from quicksand_tui.home.config_file import Settings
    from quicksand_tui.jobs.operations import Operations
    from quicksand_tui.model.shown_saves import SavesView
    from quicksand_tui.model.world import World
    from quicksand_tui.views.happenings import Happening


EVENTS_MAX = 1000
"""The most events of sandboxes that are kept."""


class Present:
    """The last that is known of everything. What looks at the disk writes it, on the UI's loop."""

    def __init__(self, settings: Settings, operations: Operations, read: World) -> None:
        self._settings = settings
        self._operations = operations
        self.read = read
        """The world as the service read it last."""
        self.saves: SavesView = NO_SAVES
        self.events: deque[Happening] = deque(maxlen=EVENTS_MAX)
        """The last events of sandboxes, the latest last."""

    @property
    def world(self) -> World:
        """The world as it is shown to the user, with running jobs."""
        world = replace(
            self.read,
            saves=self.saves,
            keymap=self._settings.keymap,
            read_only=self._settings.read_only,
            removed=self._operations.removed,
        )
        return with_jobs(world, self._operations.jobs)
