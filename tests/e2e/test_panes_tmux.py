"""Shells within the app, as a person uses them: typed in tmux, in a real guest."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest
from quicksand import Sandbox
from quicksand.host.paths import Paths
from quicksand.registry import Registry

from tests.e2e.test_app_tmux import APP, in_guest, left_clean, nothing_runs_on, start_sandbox
from tests.e2e.tmux import Terminal

__all__ = ["nothing_runs_on"]

pytestmark = pytest.mark.vm


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    """The app with a sandbox, its shell on the screen."""
    with Terminal(APP, columns=120, rows=36) as terminal:
        start_sandbox(terminal)
        terminal.press("s")
        terminal.sees("ctrl-] and a key", "root@debian-1")
        yield terminal


def prefixed(terminal: Terminal, key: str) -> None:
    terminal.press("C-]")
    terminal.type(key)


def split(terminal: Terminal, key: str, number: int) -> None:
    prefixed(terminal, key)
    terminal.sees(f" {number} shell")
    terminal.until(lambda text: text.count("root@debian-1") >= 1, what="a prompt")


def test_vi_is_as_it_was_after_a_checkpoint_and_a_revert_by_keys(terminal: Terminal) -> None:
    terminal.type("stty size; TERM=xterm-256color vi /root/poem")
    terminal.press("Enter")
    terminal.sees('"~/poem" [New File]')
    terminal.type("iroses are red")
    terminal.press("Escape")
    terminal.sees("roses are red")
    prefixed(terminal, "C")
    terminal.sees("Checkpoint of debian-1")
    terminal.type("in vi")
    terminal.press("Enter")
    terminal.sees("checkpoint in vi: stood still for")

    terminal.type(":q!")
    terminal.press("Enter")
    terminal.sees("33 120", "root@debian-1")
    terminal.type("rm -rf /usr/bin/vi* /home; echo wrecked")
    terminal.press("Enter")
    terminal.sees("wrecked")
    prefixed(terminal, "R")
    terminal.sees("● in vi", "enter revert")
    terminal.press("Enter")
    terminal.sees("roses are red", "reverted to 'in vi'")
    terminal.until(lambda text: "wrecked" not in text, what="the past")
    terminal.type(":wq")
    terminal.press("Enter")
    terminal.until(lambda text: "roses" not in text, what="the end of vi")
    assert in_guest("cat /root/poem") == "roses are red\n"


def test_keys_reach_the_guest_byte_for_byte(terminal: Terminal) -> None:
    terminal.type("stty raw -echo; echo go-$((6 * 7)); head -c 16 | od -An -tx1; stty sane")
    terminal.press("Enter")
    terminal.sees("go-42")
    # What Textual's events would make something else of, and what the app itself has keys for.
    terminal.press("M-b", "C-h", "BSpace", "C-q", "C-p", "C-z", "M-Enter", "F1", "S-Up", "Escape")
    terminal.sees("1b 62 08 7f 11 10 1a 1b 0d 1b 4f 50 1b 5b 31 3b")


def test_panes_are_split_left_and_found_again(terminal: Terminal, places: Paths) -> None:
    split(terminal, "%", 2)
    terminal.type("echo right-$((6 * 7))")
    terminal.press("Enter")
    terminal.sees("right-42")
    split(terminal, '"', 3)
    terminal.type("echo below-$((6 * 7)); sleep 600")
    terminal.press("Enter")
    terminal.sees("below-42")
    prefixed(terminal, "d")
    terminal.sees("━ Sandboxes ━")
    terminal.press("q")
    left_clean(terminal, 0)
    # The app is gone, the shells are not.
    with Terminal(APP, columns=120, rows=36) as again:
        again.sees("● running   debian-1")
        again.press("s")
        again.sees("right-42", "below-42", " 3 shell")
        prefixed(again, "z")
        again.until(lambda text: " 2 shell" not in text, what="one pane alone")
        prefixed(again, "z")
        again.sees(" 2 shell")
        os.kill(Registry(places).list()[0].run.qemu_pid, signal.SIGKILL)  # type: ignore[union-attr]
        again.sees("enter opens a new one")
        prefixed(again, "d")
        again.sees("✗ crashed   debian-1")


def test_a_flood_does_not_hold_up_the_app(terminal: Terminal) -> None:
    split(terminal, "%", 2)
    terminal.type("yes abcdefghijklmnopqrstuvwxyz")
    terminal.press("Enter")
    terminal.sees("abcdefghijklmnopqrstuvwxyz")
    prefixed(terminal, "o")
    terminal.type("echo still-$((6 * 7))")
    terminal.press("Enter")
    terminal.sees("still-42")
    prefixed(terminal, "o")
    terminal.press("C-c")
    terminal.until(lambda text: text.count("root@debian-1") >= 2, what="the end of the flood")
    assert Sandbox.list()[0].name == "debian-1"
