"""`quicksand-tui view desk` for a screen at a socket, without a sandbox: SOCKET [ARGUMENTS]..."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from quicksand.display.place import RfbClient
from quicksand.things.status import Status
from quicksand_driver import probe

from quicksand_tui.cli import runner
from quicksand_tui.cli.guests import view

SOCKET = Path(sys.argv[1])


class Sandbox:
    id, name = "0123456789ab", "desk"

    async def type_text(self, text: str) -> None:
        with SOCKET.with_name("typed").open("a") as file:
            file.write(text)

    def display(self) -> Any:
        return RfbClient.open(SOCKET)


class Registry:
    def __init__(self, *_: object) -> None: ...

    def machine(self, _: str) -> Any:
        made = SOCKET.stat().st_ctime_ns if SOCKET.exists() else 0
        return SimpleNamespace(root=SOCKET.parent, vnc_socket=SOCKET, made=made)

    def inspect(self, _: str) -> Any:
        stopped = SOCKET.with_suffix(".stopped").exists()
        paused = SOCKET.with_suffix(".paused").exists()
        status = Status.PAUSED if paused else Status.RUNNING
        return SimpleNamespace(name="desk", status=status, is_live=not stopped)


@contextlib.asynccontextmanager
async def attached(_: str, **__: bool) -> AsyncIterator[Sandbox]:
    yield Sandbox()


for module, name, value in (
    (probe, "ANSWER_LOCAL_S", 10.0),  # a busy host holds the answers up
    (view, "attached", attached),
    (runner, "Registry", Registry),
    (view, "Registry", Registry),
):
    setattr(module, name, value)
# In a process of its own, as with the command itself: click would end it.
sys.exit(view.view_command.main(["desk", *sys.argv[2:]], standalone_mode=False))
