"""The app on this terminal with a guest that answers nothing; what is typed there goes to a file.
Usage: pane_app.py FILE."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from quicksand_panes.guest_terminal import Sink

from quicksand_tui.door import service
from quicksand_tui.opening.opening import run_app
from tests.unit.app.fakes import FakeService, FakeTerminal

LOG = Path(sys.argv[1])


class Recorder(FakeTerminal):
    def write(self, data: bytes) -> None:
        with LOG.open("ab") as file:
            file.write(data)


class Service(FakeService):
    def open_terminal(
        self,
        sandbox_id: str,
        session: str,
        size: tuple[int, int],
        sink: Sink,
        *,
        birth: str = "",
        directory: str = "",
    ) -> FakeTerminal:
        guest = Recorder(session, size, sink)
        asyncio.get_running_loop().call_soon(guest.say, b"guest$ ")
        return guest


service.EngineService = Service  # type: ignore[misc]
sys.exit(run_app())
