"""`view` in tmux, which draws pictures as text."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.conftest import wait_for
from tests.e2e.tmux import Terminal
from tests.unit.pixels.fake_desktop import FakeDesktop
from tests.unit.pixels.screens import desktop

RUNNER = Path(__file__).parents[1] / "unit" / "pixels" / "view_runner.py"


def test_a_screen_is_text_in_tmux_and_the_shell_is_back_after_it(tmp_path: Path) -> None:
    with FakeDesktop(tmp_path / "vnc.sock", desktop()) as screen:
        argv = [sys.executable, str(RUNNER), str(screen.path)]
        with Terminal(argv, columns=80, rows=24, COLORTERM="truecolor") as terminal:
            terminal.sees("desk", "▀", "ctrl-] d leaves")
            terminal.press("a", "Enter")
            wait_for(lambda: ("key", 0xFF0D, 0, 0) in screen.events, what="the keys")
            terminal.press("C-]")
            terminal.sees("arrows move")
            terminal.press("d")
            terminal.sees("STATUS=0", "icanon", "echo", "DONE")
            assert "▀" not in terminal.text
            assert terminal.is_in_order, terminal.facts
