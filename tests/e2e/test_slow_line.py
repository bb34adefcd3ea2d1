"""The app on a terminal that takes 20 kB a second: on a slow pseudo-terminal, and beyond a network
whose buffers take all at once."""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import wait_for
from tests.pty_terminal import WHOLE, PtyTerminal

BYTES_PER_S = 20_000
FIRST_PAINT_MAX = 16_000
KEYS = 12


@pytest.fixture
def terminal(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[PtyTerminal]:
    is_far = request.param == "far"
    env = {"QUICKSAND_STATE_DIR": str(tmp_path), **({"SSH_TTY": "/dev/pts/0"} if is_far else {})}
    argv = [sys.executable, "-m", "tests.e2e.flood_app"]
    with PtyTerminal(
        argv,
        columns=120,
        rows=36,
        answers=WHOLE,
        delay_s=0.1 if is_far else 0.0,
        env=env,
        bytes_per_s=BYTES_PER_S,
        is_far=is_far,
    ) as terminal:
        terminal.sees("web", timeout=60)
        terminal.rests()
        yield terminal


def seconds_until(terminal: PtyTerminal, word: str) -> float:
    """By the clock, or by what the line has carried meanwhile: a busy host takes longer, but has
    no more on its way."""
    begun, before = time.monotonic(), len(terminal.output)
    terminal.sees(word)
    carried_s = (len(terminal.output) - before) / BYTES_PER_S
    return min(time.monotonic() - begun, carried_s)


def shell(terminal: PtyTerminal) -> None:
    terminal.type(b"s")
    terminal.sees("guest$")
    terminal.rests(0.5)


@pytest.mark.parametrize(
    "terminal", [pytest.param("near", marks=pytest.mark.soak), "far"], indirect=True
)
def test_the_first_paint_is_small_and_a_key_is_seen_at_once_although_its_pane_floods(
    terminal: PtyTerminal,
) -> None:
    assert len(terminal.output) < FIRST_PAINT_MAX
    shell(terminal)
    terminal.type(b"\x1dz")
    terminal.rests(0.5)
    terminal.type(b"F")
    terminal.sees("never has enough")
    before = len(terminal.output)
    wait_for(lambda: len(terminal.output) > before + BYTES_PER_S, what="a flood")
    terminal.type(b"\x1d?")
    assert seconds_until(terminal, "Open another shell") < 2.0
    terminal.type(b"\x1b")
    wait_for(lambda: "Open another shell" not in terminal.text, what="the shell")
    terminal.type(b"\x1dz")
    assert seconds_until(terminal, "Sandboxes") < 3.0


@pytest.mark.parametrize(
    "terminal", ["near", pytest.param("far", marks=pytest.mark.soak)], indirect=True
)
def test_keys_typed_beside_a_flood_are_echoed_at_once(terminal: PtyTerminal) -> None:
    shell(terminal)
    terminal.type(b"\x1d%")
    terminal.sees("2 shell")
    terminal.rests(0.5)
    terminal.type(b"F")
    terminal.sees("some output")
    terminal.type(b"\x1do")
    before = len(terminal.output)
    wait_for(lambda: len(terminal.output) > before + BYTES_PER_S / 2, what="a flood")
    took = []
    for number in range(1, KEYS + 1):
        terminal.type(b"k")
        took.append(seconds_until(terminal, f"<key {number}>"))
    assert statistics.median(took) < 0.6, took
