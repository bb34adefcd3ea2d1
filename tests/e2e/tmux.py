"""A terminal for tests: one tmux server of their own."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shlex
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Self

from tests.conftest import PATIENCE_S, wait_for
from tests.unit.terminal.tmux import FACTS

ENVIRONMENT = (
    "QUICKSAND_RUNTIME_DIR",
    "QUICKSAND_DATA_DIR",
    "QUICKSAND_STATE_DIR",
    "QUICKSAND_SPARES",
    "PATH",
    "HOME",
)

STATES = {"●": "running", "○": "stopped", "‖": "paused"}
"""By its mark, the state's word in a list of sandboxes."""

ANSWER_S = 3.0
"""After which an answer was none: it came too early."""
PERSON_S = 0.25


class Terminal:
    """A tmux session of fixed size with one program in it. Use it with ``with``."""

    def __init__(self, argv: list[str], *, columns: int = 80, rows: int = 24, **env: str) -> None:
        self._socket = f"qst-{secrets.token_hex(4)}"
        self._pressed = 0.0
        known = {name: os.environ[name] for name in ENVIRONMENT if name in os.environ}
        words = [f"{name}={value}" for name, value in {**known, **env}.items()]
        # What comes after the program shows how it left the terminal.
        script = (
            f"env {shlex.join(words)} {shlex.join(argv)}; "
            'echo "STATUS=$?"; stty -a | tr ";" "\\n" | tr " " "\\n" | grep -x -e icanon -e echo; '
            "echo DONE; sleep 600"
        )
        self._run(
            *("-f", "/dev/null", "new-session", "-d", "-x", str(columns), "-y", str(rows)),
            script,
        )
        self._run("set-option", "-g", "escape-time", "0")
        self._run("set-option", "-s", "set-clipboard", "on")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Take the terminal away, and wait for what had it: until then it may write files."""
        programs = self._programs()
        socket = Path(self._run("display-message", "-p", "#{socket_path}").strip())
        self._run("kill-server")
        wait_for(lambda: not any(map(_is_there, programs)), what="the programs to end")
        socket.unlink(missing_ok=True)  # tmux leaves it

    def _run(self, *words: str) -> str:
        done = subprocess.run(
            ["tmux", "-L", self._socket, *words],
            check=True,
            capture_output=True,
            text=True,
            timeout=120,
            env={**os.environ, "TERM": "xterm-256color", "LC_ALL": "C.UTF-8"},
        )
        return done.stdout

    @property
    def text(self) -> str:
        """What the screen shows."""
        return self._run("capture-pane", "-p")

    @property
    def coloured(self) -> str:
        """What the screen shows, with the sequences that colour it."""
        return self._run("capture-pane", "-p", "-e")

    @property
    def alternate(self) -> bool:
        """Whether a program has the alternate screen."""
        return self._run("display-message", "-p", "#{alternate_on}").strip() == "1"

    @property
    def facts(self) -> str:
        """The state that a program can leave changed, as tmux tells it."""
        return self._run("display-message", "-p", " ".join(f"{n}=#{{{n}}}" for n in FACTS))

    @property
    def is_in_order(self) -> bool:
        """Whether the cursor is shown, lines wrap, and nothing else is set."""
        flags = dict(word.split("=") for word in self.facts.split() if "_flag=" in word)
        return {name for name, value in flags.items() if value == "1"} == {
            "cursor_flag",
            "wrap_flag",
        }

    def pid_of(self, ending: str) -> int:
        """The process in the terminal whose command line ends with ``ending``: of several the
        first, since one that it has just forked has the same until it executes something else."""
        return next(pid for pid, args in self._programs().items() if args.endswith(ending))

    def child_of(self, ending: str) -> int:
        """The process that a program in the terminal has started in a session of its own, and whose
        command line ends with ``ending``."""
        listed = subprocess.run(
            ["ps", "-ww", "-eo", "pid=,ppid=,args="], check=True, capture_output=True, text=True
        )
        programs = self._programs()
        for line in listed.stdout.splitlines():
            pid, parent, args = line.split(maxsplit=2)
            if int(parent) in programs and args.endswith(ending):
                return int(pid)
        raise AssertionError(f"no {ending} below {programs}")

    def _programs(self) -> dict[int, str]:
        """The command lines of the processes in the terminal, by their ids."""
        tty = self._run("display-message", "-p", "#{pane_tty}").strip().removeprefix("/dev/")
        listing = subprocess.run(
            ["ps", "-ww", "-t", tty, "--sort", "start_time,pid", "-o", "pid=,args="],
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        found = [line.split(None, 1) for line in listing.splitlines()]
        return {int(pid): args for pid, args in found}

    def press(self, *keys: str) -> None:
        """Press keys, by tmux's names, as people do: not at once behind the keys before, which
        would be taken for a text."""
        wait_for(lambda: time.monotonic() - self._pressed > PERSON_S, what="a person's next key")
        self._run("send-keys", *keys)
        self._pressed = time.monotonic()

    def answer(self, key: str, question: str) -> None:
        """Press a key until a question is gone: it takes no answer in its first instant."""

        def is_gone() -> bool:
            return question not in self.text

        def press_and_look() -> bool:
            self.press(key)
            with contextlib.suppress(AssertionError):
                # A second one too early would be meant for what is behind the question.
                wait_for(is_gone, what="it to go", timeout=ANSWER_S)
            return is_gone()

        wait_for(press_and_look, what=f"the end of {question!r}", timeout=PATIENCE_S)

    def prefixed(self, key: str) -> None:
        """Press the panes' prefix, and a key behind it."""
        self.press("C-]")
        self.type(key)

    def type(self, *texts: str) -> None:
        """Type each text as it is, one right behind the other."""
        words = [word for text in texts for word in ("send-keys", "-l", text, ";")]
        self._run(*words[:-1])
        self._pressed = time.monotonic()

    def paste(self, text: str) -> None:
        """Paste a text as a terminal does."""
        self._run("set-buffer", "-b", "pasted", text)
        self._run("paste-buffer", "-p", "-r", "-b", "pasted")

    @property
    def clipboard(self) -> str:
        """What a program wrote there last; tmux is the terminal."""
        return self._run("show-buffer") if self._run("list-buffers") else ""

    def resize(self, columns: int, rows: int) -> None:
        self._run("resize-window", "-x", str(columns), "-y", str(rows))

    def sees(self, *words: str, timeout: float = PATIENCE_S) -> None:
        """Wait until the screen shows all ``words``, of which ``● name`` is a row: between its
        mark and its name stand the lanes of a tree, or its state where there is room for a word."""
        rows = [re.compile(_row(word)) for word in words]
        self.until(
            lambda text: all(row.search(text) for row in rows), what=f"{words}", timeout=timeout
        )

    def until(self, test: Callable[[str], bool], *, what: str, timeout: float = PATIENCE_S) -> None:
        """Wait until the screen passes ``test``."""
        try:
            wait_for(lambda: test(self.text), what=what, timeout=timeout)
        except AssertionError:
            raise AssertionError(f"no {what} on this screen:\n{self.text}") from None


def _row(word: str) -> str:
    mark, _, name = word.partition(" ")
    if mark not in STATES or not name:
        return re.escape(word)
    return rf"{mark}[ │├─╮╯┼]+(?:{STATES[mark]} +)?{re.escape(name)}"


def _is_there(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()
