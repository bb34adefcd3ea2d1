"""The ways out of the app: its key, and signals."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from typing import TYPE_CHECKING

from quicksand_tui.kit.base import tell

if TYPE_CHECKING:
    from textual.app import App

    from quicksand_tui.jobs.operations import Operations
    from quicksand_tui.kit.key_handling import Keys
    from quicksand_tui.screens.dialogs import Dialogs
    from quicksand_tui.screens.terminal_loan import FullShell


class Leaving:
    """Quits the app, and asks first if something would be lost."""

    def __init__(
        self,
        app: App[int],
        operations: Operations,
        dialogs: Dialogs,
        keys: Keys,
        full_shell: FullShell,
    ) -> None:
        self._app = app
        self._operations = operations
        self._dialogs = dialogs
        self._keys = keys
        self._full_shell = full_shell

    def leave(self) -> None:
        """Quits; asks first if jobs are running."""
        jobs = self._operations.jobs
        if not jobs:
            self._app.exit(0)
            return
        losses = tuple(f"{job.name}: its {job.verb.value} is under way" for job in jobs)
        self._dialogs.confirm(
            "Leave now?",
            losses,
            "Leave",
            lambda: self._app.exit(0),
            undo="Jobs are cancelled and undone where possible; a stop continues in the guest.",
            settled=(lambda: not self._operations.jobs, self._tell_settled),
        )

    def _tell_settled(self) -> None:
        """Tells that no job is running. The app does not quit by itself, since a user about to
        cancel would then type into another program."""
        tell(self._app, f"Nothing is under way any more: {self._keys.here.hint('quit')} leaves")

    def heed_signals(self) -> None:
        """Makes SIGTERM, SIGHUP and SIGINT quit the app and restore the terminal; the exit status
        is 128 + n, as in a shell."""
        loop = asyncio.get_running_loop()
        with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):
            for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
                loop.add_signal_handler(number, self._end_by_signal, number)

    def _end_by_signal(self, number: int) -> None:
        if number == signal.SIGINT and self._full_shell.is_open:
            return  # Ctrl-C is meant for the shell
        self._full_shell.terminate()
        self._app.exit(128 + number, return_code=128 + number)
