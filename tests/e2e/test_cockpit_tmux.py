"""What a newcomer does with saves and clones in the app, and what a guest's end looks like there:
typed in tmux, in real guests."""

from __future__ import annotations

import pytest

from tests.e2e.test_app_tmux import APP, in_guest, left_clean, nothing_runs_on, start_sandbox
from tests.e2e.tmux import Terminal

__all__ = ["nothing_runs_on"]

pytestmark = pytest.mark.vm

COLUMNS, ROWS = 120, 36


def test_saved_cloned_resumed_deleted_and_all_there_again() -> None:
    with Terminal(APP, columns=COLUMNS, rows=ROWS) as terminal:
        start_sandbox(terminal)
        in_guest("echo precious > /root/kept; sync")
        terminal.press("S")
        terminal.sees("Save the disk of debian-1")
        terminal.type("good")
        terminal.press("Enter")
        terminal.sees("good is saved")
        terminal.press("b")
        terminal.sees("Clones of debian-1")
        terminal.press("Enter")
        terminal.sees("● debian-1-1", "2 running")
        terminal.press("2")
        terminal.sees("Frees", " good ")
        terminal.press("Enter")
        terminal.sees("◂ good ▸", "good-1")
        terminal.press("Enter")
        terminal.sees("● good-1", "3 running", timeout=60)
        assert in_guest("cat /root/kept", name="good-1") == "precious\n"
        terminal.press("2")
        terminal.sees("Frees", "children: the sandbox good-1")
        terminal.press("d")
        terminal.sees("Delete the save good?", "To the trash", "What came from it works without it")
        terminal.answer("C-y", "Delete the save good?")
        terminal.sees("good is in the trash for a week")
        terminal.press("q")
        left_clean(terminal, 0)
    with Terminal(APP, columns=COLUMNS, rows=ROWS) as again:
        again.sees("● debian-1 ", "● debian-1-1", "● good-1")
        again.press("v")
        again.sees("━ Saves ━", "1 in the trash")
        again.press("T")
        again.sees("━ Trash 1 ━", "stays 6d more for sure")
        again.press("Enter")
        again.sees("good is restored")


def test_when_a_guests_agent_dies_the_shell_says_so_and_a_start_gives_a_new_one() -> None:
    with Terminal(APP, columns=COLUMNS, rows=ROWS) as terminal:
        start_sandbox(terminal)
        terminal.press("s")
        terminal.sees("root@debian-1")
        # The agent is the first process, which only the kernel can end; it ends with the kernel.
        terminal.type("echo c > /proc/sysrq-trigger")
        terminal.press("Enter")
        panicked = "ctrl-] d, a starts it: the guest's kernel panicked"
        terminal.sees(panicked, "✗ debian-1", timeout=60)
        terminal.press("C-]")
        terminal.type("d")
        terminal.sees("━ 1 Sandboxes ")
        terminal.press("a")
        terminal.sees("● debian-1", timeout=60)
        terminal.press("s")
        terminal.sees("root@debian-1:~#", timeout=60)
