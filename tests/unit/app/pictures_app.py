"""The app on this terminal with a sandbox whose shell says what is in files.

Usage: pictures_app.py DIRECTORY. A letter that is typed is answered with what the file of that name
says.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

from quicksand_panes.guest_terminal import Sink

from quicksand_tui.door import service
from quicksand_tui.opening.opening import run_app
from tests.unit.app.fakes import FULL, FakeService, FakeTerminal

SAID = Path(sys.argv[1])


class Guest(FakeTerminal):
    def write(self, data: bytes) -> None:
        super().write(data)
        # Like a real one, it says nothing before it is open; keys may have been typed ahead.
        asyncio.get_running_loop().call_soon(self._answer, data.decode())

    def _answer(self, letters: str) -> None:
        for letter in letters:
            if (path := SAID / letter).exists():
                self.say(path.read_bytes())

    def report(self, data: bytes, opening: int) -> None:
        super().report(data, opening)
        with (SAID / "reported").open("ab") as file:
            file.write(data)


class Service(FakeService):
    def __init__(self, *_: Any) -> None:
        super().__init__(FULL)

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
        self.terminals.append(Guest(session, size, sink))
        return self.terminals[-1]


service.EngineService = Service  # type: ignore[misc]
sys.exit(run_app())
