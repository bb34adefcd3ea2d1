"""Measures how soon a key typed into one pane shows while another pane floods, and how long 5 MB of
output take. Prints JSON.

python bench/panes.py [MEGABYTES]

The app runs on a pseudo-terminal, with guests that only echo or flood. The time from writing a key
to reading the token of its echo is what a user waits for, apart from the terminal's own drawing.
Keys are typed until MEGABYTES (100) have come from the flood.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import gc
import json
import os
import pty
import random
import select
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Collection
from pathlib import Path

from quicksand.things.status import Status
from quicksand_panes.guest_terminal import UNREAD_MAX, LinkState, LinkStatus, Said, Sink
from quicksand_vt import Terminal

from quicksand_tui.door.service import EngineService
from quicksand_tui.door.service_protocol import ShellView
from quicksand_tui.model.shown_sandboxes import SandboxView
from quicksand_tui.model.world import World
from quicksand_tui.ui.app import QuicksandApp

COLUMNS, ROWS = 160, 45
KEYS_WITHOUT_FLOOD = 100
BETWEEN_KEYS_S = 0.06
CAT_BYTES = 5_000_000
CHUNK = 64 * 1024
WAIT_S = 60.0
FLOODED = b"<flooded>"

NOISE = b"".join(
    b"%06d \x1b[3%dmsome output\x1b[m of a program that never has enough\r\n" % (n, n % 8)
    for n in range(1000)
)


class Guest:
    """Echoes the number of keys typed; the keys F and C make it flood."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._keys = 0
        self._unread = self._left = 0
        self._last = b""
        asyncio.get_running_loop().call_soon(
            sink.status, LinkStatus(state=LinkState.OPEN, session="1")
        )

    def write(self, data: bytes) -> None:
        if data == b"F":
            self._flood(int(os.environ["BENCH_FLOOD_BYTES"]), FLOODED)
        elif data == b"C":
            self._flood(CAT_BYTES, b"<cat>")
        else:
            self._keys += len(data)
            self._say(b"\x1b[H\x1b[2K<key %d>" % self._keys)

    def _flood(self, count: int, last: bytes) -> None:
        self._left, self._last = count, last
        self._send()

    def _send(self) -> None:
        while self._left > 0 and self._unread <= UNREAD_MAX:
            data = (NOISE * 2)[:CHUNK]
            self._left -= len(data)
            self._say(data)
        if self._left <= 0 and self._last:
            self._say(b"\x1b[2J\x1b[H" + self._last)
            self._last = b""

    def _say(self, data: bytes) -> None:
        self._unread += len(data)
        self._sink.output(data, Said.NOW)

    def report(self, data: bytes, opening: int) -> None:
        pass

    def resize(self, columns: int, rows: int) -> None:
        pass

    def parsed(self, count: int) -> None:
        self._unread -= count
        asyncio.get_running_loop().call_soon(self._send)

    def leave(self) -> None:
        self._left = 0

    end = leave


class Service(EngineService):
    """A service with one sandbox, whose terminals are `Guest`."""

    def read(
        self,
        *,
        visible: Collection[str] = (),
        network: Collection[str] = (),
        fresh: bool = False,
    ) -> World:
        view = SandboxView(id="0" * 12, name="bench", state=Status.RUNNING, image="debian")
        return World(taken=0.0, sandboxes=(view,))

    async def shells(self, sandbox_id: str) -> tuple[ShellView, ...]:
        return ()

    def open_terminal(
        self,
        sandbox_id: str,
        session: str,
        size: tuple[int, int],
        sink: Sink,
        *,
        birth: str = "",
        directory: str = "",
    ) -> Guest:
        return Guest(sink)


class User:
    """Types into the app and reads what it draws."""

    def __init__(self, terminal: int) -> None:
        self._terminal = terminal
        self._screen = Terminal(COLUMNS, ROWS, scrollback=0)
        self.flooded = False
        """Whether the end of the flood was drawn."""

    def _read(self, seconds: float) -> bool:
        """Read what is drawn next; return False on a timeout."""
        if seconds <= 0 or not select.select([self._terminal], [], [], seconds)[0]:
            return False
        self._screen.feed(os.read(self._terminal, 1 << 16))
        self.flooded = self.flooded or self._shows(FLOODED)
        return True

    def _shows(self, text: bytes) -> bool:
        # Only changes are written, so a text may come in parts.
        lines = range(self._screen.screen_line, self._screen.end_line)
        return any(text.decode() in self._screen.text(line) for line in lines)

    def wait(self, text: bytes) -> None:
        """Wait until ``text`` is drawn. Raises TimeoutError."""
        deadline = time.perf_counter() + WAIT_S
        while not self._shows(text):
            if not self._read(deadline - time.perf_counter()):
                raise TimeoutError(f"the app never drew {text!r}")

    def type(self, keys: bytes) -> None:
        os.write(self._terminal, keys)

    def rest(self, seconds: float) -> None:
        """Read for that many seconds."""
        deadline = time.perf_counter() + seconds
        while (left := deadline - time.perf_counter()) > 0:
            self._read(left)

    def time_key(self, number: int) -> float:
        """Type a key; return the milliseconds until its echo."""
        begun = time.perf_counter()
        self.type(b"k")
        self.wait(b"<key %d>" % number)
        return (time.perf_counter() - begun) * 1000


def told(latencies: list[float]) -> dict[str, float]:
    ordered = sorted(latencies)
    return {
        "keys": len(ordered),
        "median": round(statistics.median(ordered), 1),
        "p95": round(ordered[int(len(ordered) * 0.95)], 1),
        "most": round(ordered[-1], 1),
    }


def measure(user: User, flood: int) -> dict[str, object]:
    jitter = random.Random(7)
    user.wait(b"bench")
    user.type(b"s")
    user.wait(b"1 shell")
    user.rest(1.0)
    key = 0
    calm: list[float] = []
    busy: list[float] = []
    while len(calm) < KEYS_WITHOUT_FLOOD:
        key += 1
        calm.append(user.time_key(key))
        user.rest(BETWEEN_KEYS_S * (0.5 + jitter.random()))
    begun = time.perf_counter()
    user.type(b"C")
    user.wait(b"<cat>")
    cat_s = time.perf_counter() - begun
    user.type(b"\x1d%")
    user.wait(b"2 shell")
    user.rest(1.0)
    begun = time.perf_counter()
    user.type(b"F\x1do")
    user.rest(0.5)
    while not user.flooded:
        key += 1
        busy.append(user.time_key(key))
        user.rest(BETWEEN_KEYS_S * (0.5 + jitter.random()))
        if time.perf_counter() - begun > flood / 100_000:
            raise TimeoutError("the flood has no end")
    seconds = time.perf_counter() - begun
    return {
        "key to paint, ms": told(calm),
        "key to paint beside a flood, ms": told(busy),
        "flood, MB/s": round(flood / seconds / 1e6, 1),
        "cat of 5 MB, s": round(cat_s, 2),
    }


def run_app() -> None:
    """Run the app as the command does, with the same handling of garbage collection."""
    gc.disable()
    QuicksandApp(Service(), painted=collect_garbage).run()


def collect_garbage() -> None:
    gc.freeze()
    gc.enable()


def main() -> None:
    megabytes = int([*sys.argv[1:], "100"][0])
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("4H", ROWS, COLUMNS, 0, 0))
    with tempfile.TemporaryDirectory() as directory:
        environment = {
            **os.environ,
            **{"TERM": "xterm-256color", "COLORTERM": "truecolor", "PYTHONUTF8": "1"},
            **{"QUICKSAND_DATA_DIR": directory, "QUICKSAND_RUNTIME_DIR": f"{directory}/run"},
            "BENCH_FLOOD_BYTES": str(megabytes * 1_000_000),
        }
        app = subprocess.Popen(
            [sys.executable, str(Path(__file__).resolve()), "--app"],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env=environment,
            start_new_session=True,
        )
        os.close(slave)
        user = User(master)
        try:
            found = measure(user, megabytes * 1_000_000)
        finally:
            app.send_signal(signal.SIGTERM)
            with contextlib.suppress(OSError):
                user.rest(2.0)
            app.kill()
            app.wait()
        print(json.dumps({"size": [COLUMNS, ROWS], "flood, MB": megabytes, **found}, indent=1))


if __name__ == "__main__":
    if sys.argv[1:] == ["--app"]:
        run_app()
    else:
        main()
