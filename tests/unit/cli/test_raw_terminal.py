"""Raw mode of our terminal, from a stop to its end."""

from __future__ import annotations

import asyncio
import os
import pty
import signal
import termios
from typing import Any

import pytest

from quicksand_tui.cli.guests import terminal


async def test_a_terminal_that_has_gone_is_no_fault_when_we_go_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    unhandled: list[dict[str, Any]] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: unhandled.append(context))
    master, ours = pty.openpty()
    monkeypatch.setattr(terminal, "STDIN", ours)
    try:
        with terminal.raw_terminal():
            assert not termios.tcgetattr(ours)[3] & termios.ICANON
            os.close(master)
            os.kill(os.getpid(), signal.SIGCONT)
            went_on = asyncio.Event()
            loop.add_signal_handler(signal.SIGUSR1, went_on.set)
            os.kill(os.getpid(), signal.SIGUSR1)
            await went_on.wait()
    finally:
        loop.remove_signal_handler(signal.SIGUSR1)
        os.close(ours)
    assert unhandled == []
