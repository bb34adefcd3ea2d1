"""Saving when a block ends, however it ends."""

from __future__ import annotations

import asyncio
import os
import signal
import threading

from quicksand.saves.store import SaveStore


class AutoSave:
    """The save that a sandbox's stop makes, and SIGTERM turned into such a stop."""

    def __init__(self, name: str, store: SaveStore) -> None:
        self.name = name
        self.store = store
        self._watching = False
        self._terminated = False

    def watch(self) -> None:
        """From now on SIGTERM cancels this task, so that its blocks end in order; unless the
        program has a handler of its own."""
        task = asyncio.current_task()
        if threading.current_thread() is not threading.main_thread() or task is None:
            return
        if signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
            return

        def terminate() -> None:
            if not self._terminated:
                self._terminated = True
                task.cancel()

        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, terminate)
        self._watching = True

    def release(self) -> None:
        """The sandbox is saved and stopped: a SIGTERM that has come ends this process."""
        if self._watching:
            self._watching = False
            asyncio.get_running_loop().remove_signal_handler(signal.SIGTERM)
        if self._terminated:
            os.kill(os.getpid(), signal.SIGTERM)
