"""Routes keys from the terminal's driver to the focused pane."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Protocol, cast

from quicksand_tui.kit.textual_private import RawDriver, driver_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from textual.app import App
    from textual.timer import Timer

    from quicksand_tui.kit.hands import Hands


COMMAND_WAIT_S = 5.0
"""Seconds that keys wait at most for a command to the panes, whose pane may be gone."""


class TakesRawKeys(Protocol):
    """A widget with ``takes_raw_keys``: it gets keys as the bytes that the terminal sends."""

    def type(self, data: bytes) -> None: ...

    def call_later(self, callback: Callable[[], None]) -> bool:
        """Calls back when all events that it got before are handled."""


class PaneKeys:
    """Types into the focused pane, byte for byte; keys after a command to the panes wait until it
    is carried out."""

    def __init__(self, app: App[int], hands: Hands) -> None:
        self._app = app
        self._hands = hands
        self._behind: bytes | None = None
        """Keys after a command that is not carried out yet; None if there is no such command."""
        self._wait: Timer | None = None

    @property
    def driver(self) -> RawDriver | None:
        """The app's own driver; None in tests and in a browser."""
        return driver_of(self._app)

    @property
    def pane(self) -> TakesRawKeys | None:
        """The focused pane, if it takes keys."""
        # The classes are not imported here: they load with the first pane.
        focused = self._app.focused
        return cast("TakesRawKeys", focused) if getattr(focused, "takes_raw_keys", False) else None

    def update(self) -> None:
        """Tells the driver whether keys go to a guest."""
        if (driver := self.driver) is not None:
            driver.raw = self.pane is not None

    def type(self, data: bytes) -> None:
        if self._behind is not None:
            self._behind += data
        elif (pane := self.pane) is not None:
            # Keys and pastes from before the driver knew of the pane are still in its queue.
            pane.call_later(partial(self._type_now, data))

    def _type_now(self, data: bytes) -> None:
        """Types into what has the focus by now: a shell may have taken the place of its wait."""
        if (pane := self.pane) is not None:
            pane.type(data)

    def await_command(self) -> None:
        """Holds keys back until the command that comes next is carried out."""
        if self._behind is None:
            self._behind = b""
            self._wait = self._app.set_timer(COMMAND_WAIT_S, self.command_done)

    def command_done(self) -> None:
        """Sends the held keys to the widget that has the focus after the command."""
        typed, self._behind = self._behind, None
        # Neither the prefix nor its command is text; later keys are judged anew.
        self._hands.meant()
        if self._wait is not None:
            self._wait.stop()
        if not typed:
            return
        if (pane := self.pane) is not None:
            pane.type(typed)
        elif (driver := self.driver) is not None:
            driver.replay(typed)
