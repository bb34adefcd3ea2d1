"""Shows the terminal of a command at another machine in ours."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from typing import TYPE_CHECKING

from quicksand.base.errors import RemoteError
from quicksand_vt import Restoring

from quicksand_tui.cli.guests.executing import FdReader, FdWriter
from quicksand_tui.cli.guests.terminal import raw_terminal, terminal_size

if TYPE_CHECKING:
    from quicksand.remote.asking import AskedCommand

    from quicksand_tui.cli.runner import Signals

STDIN, STDOUT = 0, 1
KILLED = 128 + signal.SIGKILL


async def show_in_terminal(command: AskedCommand, signals: Signals) -> None:
    """Shows the command's terminal in ours until it ends."""
    loop = asyncio.get_running_loop()
    writer = FdWriter(STDOUT)
    restoring = Restoring()
    typing = asyncio.create_task(_type(command, signals), name="quicksand-typed")
    with raw_terminal():
        loop.add_signal_handler(signal.SIGWINCH, lambda: command.resize(*terminal_size()))
        try:
            async for _, data in command.pieces():
                if before := restoring.feed(data):
                    await writer.write(before)
                await writer.write(data)
        finally:
            loop.remove_signal_handler(signal.SIGWINCH)
            typing.cancel()
            await asyncio.wait((typing,))
            if command.exit_code in (None, KILLED):
                # The command could not put our terminal right by itself.
                await writer.write(restoring.undo(terminal_size()[0]) + b"\r\n")
            await writer.close()


async def _type(command: AskedCommand, signals: Signals) -> None:
    async for data in FdReader(STDIN):
        with contextlib.suppress(RemoteError):
            await command.feed(data)
    signals.end(signal.SIGHUP)
