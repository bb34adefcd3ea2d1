"""Copy mode, the mouse and pasting in panes: in tmux, in a real guest."""

from __future__ import annotations

import pytest

from tests.conftest import wait_for
from tests.e2e.test_app_tmux import nothing_runs_on
from tests.e2e.test_panes_tmux import terminal
from tests.e2e.tmux import Terminal

__all__ = ["nothing_runs_on", "terminal"]

pytestmark = pytest.mark.vm

# As xterm reports it (SGR): button, column, row.
PRESS, DRAG, RELEASE, WHEEL_DOWN = (
    "\x1b[<0;{};{}M",
    "\x1b[<32;{};{}M",
    "\x1b[<0;{};{}m",
    "\x1b[<65;9;9M",
)


def copied(terminal: Terminal, text: str) -> None:
    """The clipboard of the terminal, which tmux is here, has ``text``."""
    wait_for(lambda: terminal.clipboard == text, what=f"{text!r} on the clipboard")


def test_texts_are_found_copied_pasted_after_a_yes_and_selected_by_the_mouse(
    terminal: Terminal,
) -> None:
    find_and_paste(terminal)
    paste_several_lines(terminal)
    select_and_scroll(terminal)


def find_and_paste(terminal: Terminal) -> None:
    """Find a line that has scrolled off, copy it and paste it."""
    terminal.type("for n in $(seq 500); do echo line-$n; done")
    terminal.press("Enter")
    terminal.sees("line-500")
    # Keys typed at once: those behind the command are copy mode's.
    terminal.press("C-]")
    terminal.type("[?line-25\n")
    terminal.sees("copy mode", "of 11 matches", "line-259")
    terminal.type("Vky")
    copied(terminal, "line-258\nline-259")
    terminal.sees("Copied 2 lines", "line-500")
    terminal.prefixed("]")
    terminal.sees("root@debian-1:~# line-258", "line-259")
    terminal.press("C-c")


def paste_several_lines(terminal: Terminal) -> None:
    """They are no commands without a yes."""
    terminal.type("clear; PS1='dash> ' exec dash")
    terminal.press("Enter")
    # The border before it tells the prompt from the command that is echoed: a text that is pasted
    # before bash has ended its line goes to bash.
    terminal.sees("│dash>")
    terminal.paste("echo one-$((6 * 7))\necho two-$((6 * 7))\n")
    terminal.sees("Paste 2 lines?", "echo two-$((6 * 7))")
    terminal.answer("Enter", "Paste 2 lines?")
    assert "one-42" not in terminal.text
    terminal.paste("echo one-$((6 * 7))\necho two-$((6 * 7))\n")
    terminal.sees("Paste 2 lines?")
    terminal.answer("C-y", "Paste 2 lines?")
    terminal.sees("one-42", "two-42")


def select_and_scroll(terminal: Terminal) -> None:
    """By the mouse, in the shell alone."""
    terminal.prefixed("z")
    terminal.until(lambda text: "Sandboxes" not in text, what="the shell alone")
    terminal.type("clear; echo hello brave new world")
    terminal.press("Enter")
    terminal.until(lambda text: "\nhello brave new world" in text, what="the words")
    row = terminal.text.splitlines().index("hello brave new world") + 1
    for what, column in ((PRESS, 7), (DRAG, 9), (DRAG, 15), (RELEASE, 15)):
        terminal.type(what.format(column, row))
    copied(terminal, "brave new")
    clicks = (PRESS, RELEASE, PRESS, RELEASE)  # at once, so that they are a double one
    terminal.type("".join(what.format(18, row) for what in clicks))
    copied(terminal, "world")
    terminal.type("seq 1000 | less")
    terminal.press("Enter")
    terminal.sees("\n1\n")
    terminal.type(WHEEL_DOWN)
    terminal.sees("\n4\n")
    terminal.until(lambda text: "\n3\n" not in text, what="less three lines further")
    terminal.type("q")
