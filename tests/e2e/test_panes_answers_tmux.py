"""What terminals say by themselves reaches the guest that asked for it, once, and no other one:
through reverts, a start at a checkpoint, and an app that is opened again."""

from __future__ import annotations

import contextlib
import os
import signal

import pytest
from quicksand.base.errors import RevertedError
from quicksand.base.paths import Paths
from quicksand.records.registry import Registry

from tests.conftest import wait_for
from tests.e2e.test_app_tmux import APP, in_guest, left_clean, nothing_runs_on
from tests.e2e.test_panes_tmux import terminal
from tests.e2e.tmux import Terminal

__all__ = ["nothing_runs_on", "terminal"]

pytestmark = pytest.mark.vm

QUESTIONS = (
    r"\033[c\033[>c\033[=c\033[5n\033[6n\033[?6n\033[?15n\033[?996n\033[4$p\033[?2004$p"
    r"\033[>q\033[?u\033[?4m\033[11t\033[14t\033[16t\033[18t\033[19t\033Z\005"
    r"\033]4;1;?\007\033]10;?\007\033]11;?\007\033]12;?\007\033]52;c;?\007"
    r"\033P$qm\033\134\033P+q544e\033\134\033_Gi=31,s=1,v=1,a=q,t=d,f=24;AAAA\033\134"
)
"""All that the emulator answers, and more that terminals do; and the mouse is to be told."""

ASK = (
    "cat > /root/ask <<'END'\n"
    "stty raw -echo\n"
    f"printf '{QUESTIONS}\\033[?1000h\\033[?1006h'\n"
    "printf asked; exec cat >> /root/typed\n"
    "END\n"
)


def typed() -> str:
    """What the program read; asked again if a revert takes the question with it."""
    while True:
        with contextlib.suppress(RevertedError):
            return in_guest("cat /root/typed")


def checkpoint(terminal: Terminal, name: str) -> None:
    terminal.prefixed("c")
    terminal.sees("Checkpoint of debian-1")
    terminal.type(name)
    terminal.press("Enter")
    terminal.sees(f"checkpoint {name}: paused for")


class Typed:
    """What the program was sent, as it should be: the answers, once, and then keys."""

    def __init__(self, terminal: Terminal) -> None:
        self._terminal = terminal
        wait_for(lambda: typed().endswith("\x1b_Gi=31;OK\x1b\\"), what="the last answer")
        self.answers = self.expected = typed()

    def only(self, key: str, *, on: Terminal | None = None) -> None:
        """Type a key; it comes behind whatever was on its way before it."""
        (on or self._terminal).type(key)
        self.expected += key
        wait_for(lambda: typed().endswith(key), what=f"the key {key}")
        assert typed() == self.expected


def go_back(terminal: Terminal) -> None:
    """Press enter, apart from the letters before and behind it: typed quickly, they are text."""
    terminal.press("Home")
    terminal.press("Enter")
    # A busy app would read what is typed next together with it.
    terminal.until(lambda text: "enter reverts" not in text, what="revert that has begun")


def test_answers_come_once_whatever_becomes_of_the_sandbox(
    terminal: Terminal, places: Paths
) -> None:
    in_guest(ASK)
    terminal.type("sh /root/ask")
    terminal.press("Enter")
    terminal.sees("asked")
    seen = Typed(terminal)
    assert seen.answers.count("\x1b[?64;4;6;21;22;28;52c") == 2
    checkpoint(terminal, "asked")
    seen.only("a")
    terminal.prefixed("u")
    terminal.sees("enter reverts")
    go_back(terminal)
    seen.expected = seen.answers
    seen.only("b")  # typed at once, and meant for the past
    terminal.sees("$ quicksand-tui revert debian-1 asked  ✓")
    terminal.prefixed("U")
    terminal.sees("revert undone")
    seen.expected = seen.answers + "a"
    seen.only("c")

    terminal.prefixed("d")
    terminal.sees("━ 1 Sandboxes ")
    terminal.press("q")
    left_clean(terminal, 0)
    with Terminal(APP, columns=100, rows=30) as again:
        again.sees("● debian-1")
        again.press("s")
        again.sees("asked")
        seen.only("d", on=again)
        qemu = Registry(places).list()[0].run
        assert qemu is not None
        os.kill(qemu.qemu_pid, signal.SIGKILL)
        again.sees("(lost)", "✗ debian-1")
        again.prefixed("u")
        again.sees("enter starts it there")
        again.press("Home")
        again.press("Enter")
        again.sees("● debian-1", "started at asked")
        again.press("s")
        again.sees("[Shells]", "1 cat ~")
        seen.expected = seen.answers
        seen.only("e", on=again)
        follow_with_the_command(again, seen)


def follow_with_the_command(app: Terminal, seen: Typed) -> None:
    """tmux is a terminal that answers, too."""
    with Terminal([*APP, "shell", "debian-1", "--session", "p1"], columns=90, rows=20) as other:
        other.sees("asked")
        seen.only("f", on=other)
        seen.only("g", on=app)
    app.prefixed("d")
    app.sees("━ 1 Sandboxes ")
    app.press("q")
    left_clean(app, 0)
    with Terminal([*APP, "shell", "debian-1", "--session", "p1"], columns=90, rows=20) as alone:
        alone.sees("asked")
        seen.only("h", on=alone)


def test_an_editor_is_as_it_was_and_gets_what_is_typed_behind_a_revert(terminal: Terminal) -> None:
    terminal.type("TERM=xterm-256color vim /root/poem || vi /root/poem")
    terminal.press("Enter")
    terminal.sees('"~/poem" [New')
    terminal.type("iroses are red")
    terminal.press("Escape")
    terminal.sees("roses are red")
    checkpoint(terminal, "in-vim")
    terminal.type(":q!")
    terminal.press("Enter")
    terminal.until(lambda text: "roses" not in text, what="the shell")
    terminal.prefixed("u")
    terminal.sees("● in-vim", "enter reverts")
    go_back(terminal)
    terminal.type("ohello")
    terminal.sees("roses are red", "hello", "$ quicksand-tui revert debian-1 in-vim  ✓")
    terminal.press("Escape")
    terminal.type(":wq")
    terminal.press("Enter")
    terminal.sees("root@debian-1")
    wait_for(lambda: in_guest("cat /root/poem") == "roses are red\nhello\n", what="the poem")
