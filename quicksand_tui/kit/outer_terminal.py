"""The terminal that the app runs in, as far as it is known."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from quicksand_driver.terminal_queries import UNKNOWN, TerminalAbilities, in_multiplexer
from quicksand_driver.textual_private import driver_of
from textual.signal import Signal

if TYPE_CHECKING:
    from quicksand_driver.probe import Probe
    from textual.app import App


class OuterTerminal:
    """The abilities of the terminal, and whether it has the mouse."""

    def __init__(self, app: App[int], probe: Probe | None) -> None:
        """``probe`` owns the terminal until the app has it; without a probe nothing is known."""
        self._app = app
        self.abilities = probe.abilities if probe is not None else UNKNOWN
        """The abilities that the terminal has told so far."""
        self.in_multiplexer = in_multiplexer(os.environ)
        """The terminal is tmux or the like, which does not draw what the real one can."""
        self.changed: Signal[None] = Signal(app, "terminal-changed")
        """The terminal no longer shows earlier drawings, or has told more of itself."""

    def take(self, abilities: TerminalAbilities) -> None:
        """Takes the terminal's answers."""
        self.abilities = abilities
        self.changed.publish(None)

    @property
    def has_mouse(self) -> bool:
        """Whether the terminal has the mouse, so that the user can select text with it."""
        driver = driver_of(self._app)
        return driver is not None and not driver.mouse

    def toggle_mouse(self) -> bool:
        """Gives the mouse to the terminal, or takes it back. Returns False if there is no mouse."""
        driver = driver_of(self._app)
        if driver is None:
            return False
        driver.mouse = not driver.mouse
        return True
