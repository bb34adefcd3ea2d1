"""What another program wrote over the app."""

from __future__ import annotations

import re
import sys

import pytest

from tests.conftest import wait_for
from tests.pty_terminal import WHOLE, PtyTerminal

APP = [sys.executable, "-m", "quicksand_tui"]
MESSAGE = "Broadcast message from root: going down for maintenance"


def of_the_app(screen: str) -> str:
    """The screen without the figures of the host, which change by themselves."""
    text, count = re.subn(r"\d+[MGT] RAM · \d+[MGT] disk free", "RAM, disk", screen)
    assert count <= 1
    return re.sub(" +$", "", text, flags=re.MULTILINE)


@pytest.mark.parametrize(
    "key", [pytest.param(b"", id="main", marks=pytest.mark.soak), pytest.param(b"v", id="saves")]
)
def test_ctrl_l_draws_the_screen_anew(key: bytes, places: object) -> None:
    """`wall` writes to every terminal; the app does not know what it must draw over."""
    with PtyTerminal(APP, columns=100, rows=30, answers=WHOLE) as terminal:
        terminal.sees("nothing runs")
        if key == b"v":
            terminal.type(key)
            terminal.sees("No saves yet")
        terminal.rests()
        before = of_the_app(terminal.text)
        with terminal.emulated() as emulator:
            emulator.feed(f"\x1b[8;4H{MESSAGE}".encode())
        assert MESSAGE in terminal.text
        terminal.type(b"\x0c")
        wait_for(lambda: MESSAGE not in terminal.text, what="the screen as it was")
        terminal.rests()
        assert of_the_app(terminal.text) == before
