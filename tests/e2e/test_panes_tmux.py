"""Shells within the app, as a person uses them: typed in tmux, in a real guest."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest
from quicksand import Sandbox
from quicksand.base.paths import Paths
from quicksand.records.registry import Registry

from tests.e2e.test_app_tmux import (
    APP,
    BOOT_S,
    left_clean,
    nothing_runs_on,
    start_sandbox,
)
from tests.e2e.tmux import Terminal

__all__ = ["nothing_runs_on"]

pytestmark = pytest.mark.vm


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    """The app with a sandbox, its shell on the screen."""
    with Terminal(APP, columns=120, rows=36) as terminal:
        start_sandbox(terminal)
        terminal.press("s")
        terminal.sees("prefix ctrl-]", "root@debian-1")
        yield terminal


def split(terminal: Terminal, key: str, number: int) -> None:
    terminal.prefixed(key)
    terminal.sees(f" {number} bash")
    terminal.until(lambda text: text.count("root@debian-1") >= 1, what="a prompt")


def test_keys_reach_the_guest_byte_for_byte(terminal: Terminal) -> None:
    terminal.type("stty raw -echo; echo go-$((6 * 7)); head -c 16 | od -An -tx1; stty sane")
    terminal.press("Enter")
    terminal.sees("go-42")
    # What Textual's events would make something else of, and what the app itself has keys for.
    terminal.press("M-b", "C-h", "BSpace", "C-q", "C-p", "C-z", "M-Enter", "F1", "S-Up", "Escape")
    terminal.sees("1b 62 08 7f 11 10 1a 1b 0d 1b 4f 50 1b 5b 31 3b")


def places_of(text: str) -> list[tuple[int, int]]:
    """Where the titles of the panes are."""
    found = ((row, line.find(f" {n} bash")) for n in range(1, 4) for row, line in enum(text))
    return [(row, column) for row, column in found if column >= 0]


def test_panes_come_back_as_they_lay_in_two_apps_at_once_and_end_with_their_guest(
    terminal: Terminal, places: Paths
) -> None:
    split(terminal, "%", 2)
    split(terminal, '"', 3)
    terminal.type("echo third-$((6 * 7))")
    terminal.press("Enter")
    terminal.sees("third-42")
    terminal.prefixed("{")
    unmoved = places_of(terminal.text)
    terminal.press("C-]", "C-Left")
    terminal.until(lambda text: "third-42" in text.split(" 3 bash")[0], what="another place")
    before: list[tuple[int, int]] = []

    def is_moved(text: str) -> bool:
        before[:] = places_of(text)
        columns = {column for _, column in before}
        return before != unmoved and (len(before), len(columns)) == (3, 2)

    terminal.until(is_moved, what="another width")
    assert len({row for row, _ in before}) == 2, "one is below another"
    terminal.prefixed("z")
    terminal.until(lambda text: "zoomed" in text, what="one pane alone")
    with Terminal(APP, columns=120, rows=36) as second:
        second.sees("● debian-1")
        second.press("s")
        second.sees("zoomed")
        second.prefixed("z")
        second.until(lambda text: places_of(text) == before, what=f"{before}")
        second.sees("third-42")
        # Both show the same terminals: what is typed here is seen there.
        terminal.prefixed("z")
        terminal.sees("third-42")
        second.type("echo both-$((6 * 7))")
        second.press("Enter")
        second.sees("both-42")
        terminal.sees("both-42")
        second.prefixed("d")
        second.sees("━ 1 Sandboxes ")
        second.press("q")
        left_clean(second, 0)
    terminal.prefixed("d")
    terminal.sees("━ 1 Sandboxes ")
    terminal.press("q")
    left_clean(terminal, 0)
    with Terminal(APP, columns=120, rows=36) as again:
        again.sees("● debian-1")
        again.press("s")
        again.until(lambda text: places_of(text) == before, what=f"{before}")
        again.sees("both-42", "third-42")
        os.kill(Registry(places).list()[0].run.qemu_pid, signal.SIGKILL)  # type: ignore[union-attr]
        again.sees("(lost)", "ctrl-] d, a starts it")
        again.prefixed("d")
        again.sees("✗ debian-1")
        again.press("a")
        again.sees("● debian-1", timeout=BOOT_S)
        again.press("s")
        again.sees("root@debian-1:~#", timeout=BOOT_S)


def enum(text: str) -> list[tuple[int, str]]:
    return list(enumerate(text.splitlines()))


def test_a_flood_does_not_hold_up_the_app(terminal: Terminal) -> None:
    split(terminal, "%", 2)
    terminal.type("yes abcdefghijklmnopqrstuvwxyz")
    terminal.press("Enter")
    terminal.sees("abcdefghijklmnopqrstuvwxyz")
    terminal.prefixed("o")
    terminal.type("echo still-$((6 * 7))")
    terminal.press("Enter")
    terminal.sees("still-42")
    terminal.prefixed("o")
    terminal.press("C-c")
    terminal.until(lambda text: text.count("root@debian-1") >= 2, what="the end of the flood")
    assert Sandbox.list()[0].name == "debian-1"
