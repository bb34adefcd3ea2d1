"""Which keys are a guest's: from the terminal's driver to the pane that has the focus."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from textual.timer import Timer

from quicksand_tui.panes.driver import RawDriver

if TYPE_CHECKING:
    from quicksand_tui.application import QuicksandApp
    from quicksand_tui.panes.pane import Pane

COMMAND_WAIT_S = 5.0
"""For a command to the panes; then keys go on all the same: its pane may be gone."""


class PaneKeys:
    """Gives the focused pane what is typed, byte for byte; behind a command to the panes only when
    that is carried out."""

    def __init__(self, app: QuicksandApp) -> None:
        self._app = app
        self._behind: bytes | None = None
        """Keys behind a command that is not carried out yet."""
        self._wait: Timer | None = None

    @property
    def driver(self) -> RawDriver | None:
        """None where there is no terminal of ours: in a test, in a browser."""
        driver = self._app._driver
        return driver if isinstance(driver, RawDriver) else None

    @property
    def pane(self) -> Pane | None:
        """The one that has the focus."""
        # Its class is loaded with the first one.
        focused = self._app.focused
        return cast("Pane", focused) if getattr(focused, "takes_raw_keys", False) else None

    def update(self) -> None:
        """Tell the driver whether keys are a guest's now."""
        if (driver := self.driver) is not None:
            driver.raw = self.pane is not None

    def type(self, data: bytes) -> None:
        if self._behind is not None:
            self._behind += data
        elif (pane := self.pane) is not None:
            pane.type(data)

    def await_command(self) -> None:
        """The next key is a command to the panes."""
        if self._behind is None:
            self._behind = b""
            self._wait = self._app.set_timer(COMMAND_WAIT_S, self.command_done)

    def command_done(self) -> None:
        """The command is carried out: what was typed since goes where the focus is now."""
        typed, self._behind = self._behind, None
        if self._wait is not None:
            self._wait.stop()
        if not typed:
            return
        if (pane := self.pane) is not None:
            pane.type(typed)
        elif (driver := self.driver) is not None:
            driver.replay(typed)
