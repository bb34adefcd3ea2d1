"""Saving when an ``async with`` block ends, even by SIGTERM."""

from __future__ import annotations

import asyncio
import os
import signal
import threading

from quicksand.saves.store import SaveStore


class AutoSave:
    """The save that is made when a sandbox stops. It also turns SIGTERM into a normal stop."""

    def __init__(self, name: str, store: SaveStore) -> None:
        self.name = name
        self.store = store
        self._watching = False
        self._terminated = False

    def watch(self) -> None:
        """Let SIGTERM cancel the present task, so that its blocks are left in order. Does nothing
        if the program has its own handler, or outside of the main thread."""
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
        """Restore SIGTERM's default when the sandbox is stopped; a SIGTERM that came before now
        ends this process."""
        if self._watching:
            self._watching = False
            asyncio.get_running_loop().remove_signal_handler(signal.SIGTERM)
        if self._terminated:
            os.kill(os.getpid(), signal.SIGTERM)
