"""The wall, in tmux and with a real guest: it shows what happens there, and nobody notices."""

from __future__ import annotations

import asyncio

import pytest
from quicksand.guest.shell import ShellInfo
from quicksand.sandbox import Sandbox

from tests.conftest import wait_for
from tests.e2e.test_app_tmux import (
    APP,
    left_clean,
    nothing_runs_on,
    start_sandbox,
    tags,
    take_checkpoint,
)
from tests.e2e.tmux import Terminal

__all__ = ["nothing_runs_on"]

pytestmark = pytest.mark.vm

COLUMNS, ROWS = 120, 36
SHELL = [*APP, "shell", "debian-1"]


def shells() -> list[ShellInfo]:
    async def ask() -> list[ShellInfo]:
        sandbox = Sandbox.attach("debian-1")
        try:
            return await sandbox.shells()
        finally:
            sandbox.close()

    return sorted(asyncio.run(ask()), key=lambda info: info.created)


async def go_back(tag: str) -> None:
    sandbox = Sandbox.attach("debian-1")
    try:
        await sandbox.revert(tag)
    finally:
        sandbox.close()


def test_the_wall_shows_other_clients_shells_and_they_do_not_notice() -> None:
    with Terminal(APP, columns=COLUMNS, rows=ROWS) as terminal:
        start_sandbox(terminal)
        terminal.press("s")
        terminal.sees("root@debian-1")
        terminal.prefixed("d")
        terminal.sees("━ 1 Sandboxes ")
        with Terminal(SHELL, columns=71, rows=19) as other:
            other.sees("root@debian-1")
            before = shells()
            assert [(info.columns, info.rows, info.attached) for info in before][1] == (71, 19, 1)
            terminal.press("W")
            terminal.sees("wall", "2 tiles", "bash ~")
            other.type("cd /etc && echo seen-$((6 * 7)) && exec cat")
            other.press("Enter")
            other.sees("seen-42")
            terminal.sees("seen-42", "cat /etc")
            assert [(s.columns, s.rows, s.attached) for s in shells()] == [
                (s.columns, s.rows, s.attached) for s in before
            ]
            other.press("C-c")
        wait_for(lambda: len([s for s in shells() if s.alive]) == 1, what="the other's end")
        terminal.sees("1 tile")


def test_what_wants_an_answer_is_marked_and_enter_goes_there() -> None:
    with Terminal(APP, columns=COLUMNS, rows=ROWS) as terminal:
        start_sandbox(terminal)
        terminal.press("s")
        terminal.sees("root@debian-1")
        terminal.type("read -p 'Apply this edit? [y/n] ' reply; echo got-$reply")
        terminal.press("Enter")
        terminal.until(lambda text: text.count("Apply this edit?") == 2, what="the question")
        terminal.prefixed("d")
        terminal.press("W")
        terminal.sees("! wants an answer", "1 wants you")
        terminal.press("Enter")
        terminal.sees("[Shells]", "Apply this edit?")
        terminal.type("y")
        terminal.press("Enter")
        terminal.sees("got-y")
        terminal.prefixed("d")
        terminal.press("W")
        terminal.sees("1 tile", "got-y")
        # A revert shows the terminal as it was, and watching goes on.
        asyncio.run(take_checkpoint("then", note=""))
        assert tags() == ["then"]
        terminal.press("Enter")
        terminal.sees("got-y", "[Shells]")
        terminal.type("echo after-$((6 * 7))")
        terminal.press("Enter")
        terminal.sees("after-42")
        terminal.prefixed("d")
        terminal.press("W")
        terminal.sees("1 tile", "after-42")
        asyncio.run(go_back("then"))
        terminal.until(lambda text: "after-42" not in text and "got-y" in text, what="the past")
        # A hostile guest draws all over its terminal, and over nothing else.
        terminal.press("Enter")
        terminal.sees("got-y", "[Shells]")
        terminal.type("printf '\\033[?1049h\\033[2J\\033[1;1H'; yes EVIL | head -c 100000")
        terminal.press("Enter")
        terminal.sees("EVIL")
        terminal.prefixed("d")
        terminal.press("W")
        terminal.sees("EVIL", "1 tile", "esc back")
        assert terminal.text.splitlines()[0].startswith("  wall  1 tile")
        terminal.press("q")
        terminal.press("q")
        left_clean(terminal, 0)
