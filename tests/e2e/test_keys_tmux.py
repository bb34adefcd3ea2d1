"""No key is lost and none does harm, as a person and a script type them: in tmux, in a real
guest."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e.test_app_tmux import APP, BOOT_S, left_clean, nothing_runs_on
from tests.e2e.tmux import Terminal

__all__ = ["nothing_runs_on"]

pytestmark = pytest.mark.vm


def title(log: str) -> Callable[[str], bool]:
    """The line of tabs says which log of debian-2 it is."""
    line = re.compile(rf"\[Log\].* {log} .* debian-2 ")
    return lambda text: line.search(text) is not None


def test_what_is_typed_from_the_start_on_reaches_the_shell_and_esc_cancels_nothing() -> None:
    with Terminal(APP) as terminal:
        terminal.sees("n starts your first sandbox, from debian")
        terminal.press("n")
        terminal.sees("New sandbox")
        terminal.press("Enter")
        terminal.press("Escape")
        terminal.sees("debian-1")
        # In one read, as a slow line or a busy host delivers it; the guest is still to come.
        tell = r"printf '\033]7;file://x/srv/x\a'"
        terminal.type("s", f"cd /srv; {tell}; echo typed-$((6 * 7))\r")
        terminal.sees("typed-42", " 1 bash /srv/x", timeout=BOOT_S)

        terminal.prefixed("c")
        terminal.sees("Checkpoint of debian-1")
        terminal.press("F9")
        terminal.sees("f9 does nothing here")
        terminal.type("one")
        terminal.press("Enter")
        terminal.sees("checkpoint one: ")
        terminal.prefixed("u")
        terminal.sees("● one")
        terminal.press("u")
        terminal.sees("Revert to one?", "ctrl+y: revert, esc: cancel")
        terminal.answer("C-y", "Revert to one?")
        terminal.sees("reverted to one (undo:", "ctrl-] U)", " 1 bash /srv/x")

        terminal.prefixed("d")
        terminal.sees("━ 1 Sandboxes ")
        terminal.type(":rev")
        terminal.sees(":rev", "Choose a checkpoint")
        terminal.press("Escape")
        terminal.until(lambda text: ":rev" not in text, what="the end of the line")
        terminal.press("q")
        left_clean(terminal, 0)


def test_log_and_mounts_tell_what_is_true_of_the_sandbox_that_is_shown(tmp_path: Path) -> None:
    with Terminal(APP, columns=120, rows=36) as terminal:
        terminal.sees("n starts your first sandbox, from debian")
        for name in ("debian-1", "debian-2"):
            terminal.press("n")
            terminal.sees("New sandbox", name)
            terminal.press("Enter")
            terminal.sees(f"● {name}", timeout=BOOT_S)
        terminal.press("c")
        terminal.sees("Checkpoint of debian-2")
        terminal.type("two")
        terminal.press("Enter")
        terminal.sees("checkpoint two: ")
        terminal.type(f":mount . {tmp_path}:/mnt/host\r")
        terminal.press("D")
        terminal.sees("● mounted", "/mnt/host")
        terminal.press("Escape")
        terminal.type(":revert . two\r")
        terminal.sees("reverted to two")
        terminal.press("l", "t", "t")
        terminal.sees("checkpoint two", "reverted to")
        # A mount that was there when it was first looked at has its directory before.
        mounted = re.compile("/mnt/host is mounted|is mounted at /mnt/host")
        terminal.until(lambda text: mounted.search(text) is not None, what="the mount")
        terminal.until(title("events"), what="the title of the events of debian-2")
        terminal.press("t")
        terminal.sees("$ quicksand-tui checkpoint debian-2 two")
        terminal.until(title("commands"), what="the title of the commands of debian-2")
        assert "run debian --name debian-1" not in terminal.text
        terminal.press("Escape", "q")
        left_clean(terminal, 0)
