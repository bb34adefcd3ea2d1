"""The tiles of guests' pictures that a terminal is sent (the app with them on a terminal:
tests/unit/app/test_pane_pictures.py)."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from quicksand_pixels.decoding.places import Part, Placed, Stored
from quicksand_pixels.ways import Way

from quicksand_tui.cockpit import pane_pictures
from quicksand_tui.cockpit.pane_pictures import PanePictureScreen
from tests.unit.pixels.guest import noise

CELL = (10, 20)
FINER_MAX = 4
"""How often a tile can be sent, each time finer: its divisor is a power of two of 8 at most."""


class Driver:
    """A line that counts as slow, and a terminal that tells at once that it has drawn: as where the
    answer was one to an earlier question."""

    has_terminal = True
    line = SimpleNamespace(is_busy=False, speed=20_000)

    def __init__(self) -> None:
        self.last_images: dict[object, object] = {}
        self.sent: Counter[bytes] = Counter()
        """How often each image was sent, by its id."""

    def write_images(self, data: bytes) -> None:
        self.sent.update(re.findall(rb"a=T[^;]*,i=(\d+)", data))

    def when_drawn(self, call: Callable[[], object]) -> bool:
        call()
        return True


class Widget:
    app = None

    def call_later(self, call: Callable[[], object]) -> None:
        asyncio.get_running_loop().call_soon(call)

    def set_timer(self, _: float, call: Callable[[], object]) -> None:
        """Nothing is waited for here."""


async def test_a_tile_that_the_line_is_too_slow_for_is_not_sent_again_and_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    driver = Driver()
    monkeypatch.setattr(pane_pictures, "driver_of", lambda _: driver)
    monkeypatch.setattr(pane_pictures, "cell_size", lambda *_: CELL)
    monkeypatch.setattr(pane_pictures, "way_of", lambda *_: Way.KITTY)
    terminal: Any = SimpleNamespace(abilities=SimpleNamespace(sync_output=False))
    settings: Any = None
    widget: Any = Widget()
    screen = PanePictureScreen(widget, settings, terminal, ascii_only=False)
    screen.adapt()
    image = noise((400, 200)).convert("RGBA")
    placed = Placed(Stored(image), 1, 40, 10, CELL, (0, 0, *image.size))
    for row in range(placed.rows):
        for column in range(placed.columns):
            assert screen.text(Part(placed, column, row)) is not None
    for _ in range(500):
        await asyncio.sleep(0)
    assert len(driver.sent) >= 3, "it has several tiles"
    assert max(driver.sent.values()) <= FINER_MAX
