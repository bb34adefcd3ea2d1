"""Measures `view`, and the app's desktop tab, on a pseudo-terminal (160x45) that answers at once:
pictures a second while the guest's screen moves, bytes of a picture, and the time from a key to
what it changes on the screen.
The screen is a VNC server in this process (1280x800), not a guest. Prints JSON.

python bench/pixels.py [SECONDS]

``window`` is a window of 400x300 that is dragged over a desktop, ``video`` is all of the screen.
``still_bytes`` is what is written while nothing changes. The figures include this process, which
draws the screen and reads the terminal.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.conftest import wait_for
from tests.pty_terminal import WHOLE, PtyTerminal
from tests.unit.pixels.fake_desktop import FakeDesktop
from tests.unit.pixels.screens import desktop

TESTS = Path(__file__).parent.parent / "tests" / "unit"
RUNNER, APP = TESTS / "pixels" / "view_runner.py", TESTS / "app" / "desktop_app.py"
WAYS = ("half", "kitty", "sixel", "tab half", "tab kitty")
COLUMNS, ROWS = 160, 45
SIZE = (1280, 800)
WINDOW = (400, 300)
KEYS = 20
FENCE = b"\x1b[c"
"""Each picture ends with it."""


class Quiet(PtyTerminal):
    """A terminal that does not interpret its input, which would be measured, too."""

    def _take(self, data: bytes) -> None:
        screen, self._screen = self._screen, _Nothing()  # type: ignore[assignment]
        try:
            super()._take(data)
        finally:
            self._screen = screen


class _Nothing:
    def feed(self, data: bytes) -> None: ...


def pictures(terminal: PtyTerminal) -> int:
    return terminal.output.count(FENCE)


def animate(screen: FakeDesktop, kind: str, ended: threading.Event) -> None:
    """Changes the screen as fast as a guest may: 60 times a second."""
    backs = [desktop(*SIZE, windows=40, seed=seed) for seed in range(2)]
    front = desktop(*WINDOW, windows=12, seed=3)
    count = 0
    while not ended.wait(1 / 60):
        count += 1
        if kind == "video":
            screen.show(backs[count % 2])
            continue
        picture = backs[0].copy()
        x, y = 10 * count % 800, 5 * count % 480
        picture.paste(front, (x, y))
        screen.show(picture, (max(0, x - 10), max(0, y - 5), x + WINDOW[0], y + WINDOW[1]))


def moving(
    screen: FakeDesktop, terminal: PtyTerminal, kind: str, seconds: float
) -> dict[str, float]:
    ended = threading.Event()
    mover = threading.Thread(target=animate, args=(screen, kind, ended))
    mover.start()
    try:
        before = pictures(terminal)
        wait_for(lambda: pictures(terminal) > before + 3, what="the first pictures")
        count, size, began = pictures(terminal), len(terminal.output), time.monotonic()
        time.sleep(seconds)
        took = time.monotonic() - began
        count, size = pictures(terminal) - count, len(terminal.output) - size
    finally:
        ended.set()
        mover.join()
    return {"per_second": round(count / took, 1), "kib_each": round(size / max(1, count) / 1024, 1)}


def still(terminal: PtyTerminal) -> int:
    size = -1
    while size != len(terminal.output):
        size = len(terminal.output)
        time.sleep(1)
    time.sleep(3)
    return len(terminal.output) - size


def key_to_paint(screen: FakeDesktop, terminal: PtyTerminal) -> dict[str, float]:
    """The screen answers each key with a changed patch, as an echo in a text field."""
    picture = desktop(*SIZE)
    found = []
    for number in range(KEYS):
        seen, size = len(screen.events), len(terminal.output)
        began = time.monotonic()
        terminal.type(b"k")
        while len(screen.events) == seen:
            time.sleep(0.0005)
        picture.paste((number * 12, 200, 90), (600, 400, 612, 420))
        screen.show(picture, (600, 400, 612, 420))
        while len(terminal.output) == size:
            time.sleep(0.0005)
        found.append((time.monotonic() - began) * 1000)
        time.sleep(0.1)
    return {"median_ms": round(statistics.median(found), 1), "worst_ms": round(max(found), 1)}


def command(way: str, path: Path) -> tuple[list[str], dict[str, str]]:
    """Return the command and its environment."""
    if not way.startswith("tab "):
        return [sys.executable, str(RUNNER), str(path), "--graphics", way], {}
    config = path.with_name("config.toml")
    config.write_text(f'graphics = "{way.removeprefix("tab ")}"\n')
    places = {"QUICKSAND_STATE_DIR": str(path.parent), "QUICKSAND_CONFIG": str(config)}
    return [sys.executable, str(APP), str(path)], {**places, "PYTHONPATH": str(TESTS.parent.parent)}


def open_tab(terminal: PtyTerminal) -> None:
    """Opens the desktop tab, on all of the terminal."""
    wait_for(lambda: b"running" in terminal.output, what="the app", timeout=20)
    time.sleep(1)
    terminal.type(b"w")
    wait_for(lambda: pictures(terminal) > 1, what="the first picture")
    terminal.type(b"\x1dz")
    time.sleep(1)


def measure(way: str, seconds: float) -> dict[str, object]:
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "vnc.sock"
        with FakeDesktop(path, desktop(*SIZE)) as screen:
            argv, env = command(way, path)
            with Quiet(argv, columns=COLUMNS, rows=ROWS, answers=WHOLE, env=env) as terminal:
                if way.startswith("tab "):
                    open_tab(terminal)
                wait_for(lambda: pictures(terminal) > 1, what="the first picture")
                result: dict[str, object] = {
                    "window": moving(screen, terminal, "window", seconds),
                    "video": moving(screen, terminal, "video", seconds),
                    "still_bytes": still(terminal),
                    "key_to_paint": key_to_paint(screen, terminal),
                }
                terminal.type(b"\x1dd")
                if way.startswith("tab "):
                    terminal.quits()
                terminal.process.wait(10)
    return result


def main() -> None:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 5.0
    found: dict[str, object] = {way: measure(way, seconds) for way in WAYS}
    print(json.dumps({**found, "load": os.getloadavg()[0]}, indent=2))


if __name__ == "__main__":
    main()
