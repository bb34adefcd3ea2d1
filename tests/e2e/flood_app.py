"""The app on this terminal, with guests that tell the number of keys typed, and flood after F."""

from __future__ import annotations

import asyncio
import sys

from quicksand_panes.guest_terminal import UNREAD_MAX, Sink

from quicksand_tui.door import service
from quicksand_tui.opening.opening import run_app
from tests.unit.app.fakes import FakeService, FakeTerminal

NOISE = b"".join(
    b"%06d \x1b[3%dmsome output\x1b[m of a program that never has enough\r\n" % (n * 7919, n % 8)
    for n in range(1000)
)


class Guest(FakeTerminal):
    floods = False
    keys = 0

    def write(self, data: bytes) -> None:
        if data == b"F":
            self.floods = True
            self.flood()
        else:
            self.keys += len(data)
            self.say(b"\x1b[H\x1b[2K<key %d>" % self.keys)

    def flood(self) -> None:
        while self.floods and not self.left and self.unread <= UNREAD_MAX:
            self.say(NOISE)

    def parsed(self, count: int) -> None:
        super().parsed(count)
        asyncio.get_running_loop().call_soon(self.flood)


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
        guest = Guest(session, size, sink)
        asyncio.get_running_loop().call_soon(guest.say, b"guest$ ")
        return guest


if __name__ == "__main__":
    service.EngineService = Service  # type: ignore[misc]
    sys.exit(run_app())
