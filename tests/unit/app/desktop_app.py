"""The app on this terminal with a sandbox whose screen is at a socket.

Usage: desktop_app.py SOCKET.
"""

from __future__ import annotations

import asyncio
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from quicksand.display.place import RfbClient

from quicksand_tui.door import engine_screen, service
from quicksand_tui.door.service_protocol import ScreenSink
from quicksand_tui.opening.opening import run_app
from tests.unit.app.fakes import FULL, WEB, FakeService

SOCKET = Path(sys.argv[1])


def machine(_: str) -> Any:
    made = SOCKET.stat().st_ctime_ns if SOCKET.exists() else 0
    return SimpleNamespace(root=SOCKET.parent, vnc_socket=SOCKET, made=made)


class Service(FakeService):
    def __init__(self, *_: Any) -> None:
        super().__init__(replace(FULL, sandboxes=(replace(WEB, has_display=True),)))
        self._tasks: set[asyncio.Task[Any]] = set()

    def open_screen(self, sandbox_id: str, sink: ScreenSink) -> Any:
        loop = asyncio.get_running_loop()
        place = engine_screen.ScreenHere(sandbox_id)
        return engine_screen.EngineScreen(lambda: place, sink, engine=loop, tasks=self._tasks)


async def type_text(text: str) -> None:
    with SOCKET.with_name("typed").open("a") as file:
        file.write(text)


sandbox = SimpleNamespace(
    display=lambda: RfbClient.open(SOCKET), type_text=type_text, close=lambda: None
)
for name, value in (
    ("Registry", lambda _: SimpleNamespace(machine=machine)),
    ("Sandbox", SimpleNamespace(open=lambda _: sandbox)),
):
    setattr(engine_screen, name, value)
service.EngineService = Service  # type: ignore[misc]
sys.exit(run_app())
