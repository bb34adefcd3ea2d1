"""Routes keys from the terminal's driver to the focused pane."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Protocol, cast

from quicksand_tui.kit.textual_private import RawDriver, driver_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from textual.app import App
    from textual.timer import Timer

    from quicksand_tui.kit.deliberate_keys import Hands


COMMAND_WAIT_S = 5.0
"""The most seconds that keys wait for a command to the panes, whose pane may be gone."""


class TakesRawKeys(Protocol):
    """A widget with ``takes_raw_keys``: it gets keys as the bytes that the terminal sends."""

    @property
    def takes_raw_keys(self) -> bool: ...

    def type(self, data: bytes) -> None: ...

    def call_later(self, callback: Callable[[], None]) -> bool:
        """Calls back when all earlier events are handled."""


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
            pane.call_later(partial(_type, pane, data))

    def await_command(self) -> None:
        """Holds keys back until the next command is carried out."""
        if self._behind is None:
            self._behind = b""
            self._wait = self._app.set_timer(COMMAND_WAIT_S, self._forget)

    def _forget(self) -> None:
        """Drops the held keys: nobody knows where the command would have led."""
        self._behind = None

    def command_done(self) -> None:
        """Sends the held keys to the pane or the dialog to which the command has led; call it right
        behind the command."""
        if (pane := self.pane) is not None:
            self._release(partial(self._to_pane, pane))
        else:
            # A dialog takes keys when it is laid out.
            self._app.call_after_refresh(self._release, self._to_dialog)

    def _to_pane(self, pane: TakesRawKeys, typed: bytes) -> None:
        pane.call_later(partial(_type, pane, typed))

    def _to_dialog(self, typed: bytes) -> None:
        if self.pane is None and (driver := self.driver) is not None:
            driver.replay(typed)

    def _release(self, send: Callable[[bytes], None]) -> None:
        typed, self._behind = self._behind, None
        # Neither the prefix nor its command is text; later keys are judged anew.
        self._hands.meant()
        if self._wait is not None:
            self._wait.stop()
            self._wait = None
        if typed:
            send(typed)


def _type(pane: TakesRawKeys, data: bytes) -> None:
    """Types keys into the pane that had the focus when they were typed, whatever has it by now."""
    if pane.takes_raw_keys:
        pane.type(data)
