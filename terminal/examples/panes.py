"""Shows a program of this machine in panes: `python panes.py htop`. Ctrl-] and % opens another pane
of it, Ctrl-] and q leaves."""

from __future__ import annotations

import asyncio
import fcntl
import os
import pty
import struct
import sys
import termios
from collections.abc import Iterable

from quicksand_panes.guest_terminal import GuestTerminal, LinkState, LinkStatus, Said, Sink
from quicksand_panes.splits import Way
from quicksand_panes.widgets import PanePrefixed, Workspace, WorkspaceEmptied
from textual import on
from textual.app import App


class Local(GuestTerminal):
    """A program of this machine in a terminal of its own."""

    def __init__(
        self,
        session: str,
        size: tuple[int, int],
        sink: Sink,
        *,
        birth: str = "",
        directory: str = "",
    ) -> None:
        process, self._file = pty.fork()
        if not process:
            os.execvp(sys.argv[1], sys.argv[1:])
        self._sink, self._loop = sink, asyncio.get_running_loop()
        self.resize(*size)
        self._loop.add_reader(self._file, self._read)
        sink.status(LinkStatus(state=LinkState.OPEN, session=str(process), opening=1))

    def _read(self) -> None:
        try:
            self._sink.output(os.read(self._file, 4096), Said.NOW)
        except OSError:  # EIO: the program has ended
            self._loop.remove_reader(self._file)
            self._sink.status(LinkStatus(state=LinkState.ENDED))

    def write(self, data: bytes) -> None:
        os.write(self._file, data)

    def report(self, data: bytes, opening: int) -> None:
        self.write(data)

    def resize(self, columns: int, rows: int) -> None:
        fcntl.ioctl(self._file, termios.TIOCSWINSZ, struct.pack("4H", rows, columns, 0, 0))

    def parsed(self, count: int) -> None:
        """Output is read as it comes, so nothing waits for this."""

    def leave(self) -> None:
        self._loop.remove_reader(self._file)
        os.close(self._file)

    end = leave


class Panes(App[None]):
    def compose(self) -> Iterable[Workspace]:
        yield Workspace(Local)

    @on(PanePrefixed)
    def command(self, event: PanePrefixed) -> None:
        if event.key == "percent_sign":
            self.query_one(Workspace).split(Way.BESIDE)
        elif event.key == "q":
            self.exit()

    @on(WorkspaceEmptied)
    def leave(self) -> None:
        self.exit()


if __name__ == "__main__":
    Panes().run()
