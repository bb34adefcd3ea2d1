"""The screen of a sandbox of another machine, whose VNC server's bytes are relayed from there."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from quicksand.display.place import open_screen
from quicksand.display.sought import not_running
from quicksand.hosted.relayed_screen import ScreenRelay

from quicksand_tui.door.engine_screen import OpenScreen
from quicksand_tui.door.far_guest import PlaceThere
from quicksand_tui.door.far_sandbox import FarSharing, open_there
from quicksand_tui.model.shown_sandboxes import at_host

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from quicksand_tui.door.far_host import FarHost


class ScreenThere:
    """Implements `door.engine_screen.ScreenPlace`. The far end tells which machine it has now."""

    def __init__(self, host: FarHost, sandbox_id: str) -> None:
        self._host = host
        self._id = sandbox_id
        self._machine = PlaceThere(host, sandbox_id)

    @property
    def mark(self) -> object:
        return self._machine.mark

    @contextlib.asynccontextmanager
    async def open(self) -> AsyncIterator[OpenScreen]:
        with contextlib.closing(open_there(self._host, self._id)) as sandbox:
            async with ScreenRelay.open(FarSharing(self._host), self._id) as relay:
                if relay.place is None:
                    raise not_running(at_host(self._id, self._host.name))
                async with open_screen(relay.place) as client:
                    yield OpenScreen(relay.place, client, sandbox)
