"""A terminal for tests: one tmux server of their own."""

from __future__ import annotations

import os
import secrets
import shlex
import subprocess
from collections.abc import Callable
from typing import Self

from tests.conftest import wait_for

ENVIRONMENT = (
    "QUICKSAND_RUNTIME_DIR",
    "QUICKSAND_DATA_DIR",
    "QUICKSAND_STATE_DIR",
    "PATH",
    "HOME",
)


class Terminal:
    """A tmux session of fixed size with one program in it. Use it with ``with``."""

    def __init__(self, argv: list[str], *, columns: int = 80, rows: int = 24, **env: str) -> None:
        self._socket = f"qst-{secrets.token_hex(4)}"
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

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._run("kill-server")

    def _run(self, *words: str) -> str:
        done = subprocess.run(
            ["tmux", "-L", self._socket, *words],
            check=True,
            capture_output=True,
            text=True,
            timeout=20,
            env={**os.environ, "TERM": "xterm-256color", "LC_ALL": "C.UTF-8"},
        )
        return done.stdout

    @property
    def text(self) -> str:
        """What the screen shows."""
        return self._run("capture-pane", "-p")

    @property
    def alternate(self) -> bool:
        """Whether a program has the alternate screen."""
        return self._run("display-message", "-p", "#{alternate_on}").strip() == "1"

    def pid_of(self, ending: str) -> int:
        """The process in the terminal whose command line ends with ``ending``."""
        tty = self._run("display-message", "-p", "#{pane_tty}").strip().removeprefix("/dev/")
        listing = subprocess.run(
            ["ps", "-t", tty, "-o", "pid=,args="], check=True, capture_output=True, text=True
        ).stdout
        found = [line.split(None, 1) for line in listing.splitlines()]
        (pid,) = [int(pid) for pid, args in found if args.endswith(ending)]
        return pid

    def press(self, *keys: str) -> None:
        """Press keys, by tmux's names."""
        self._run("send-keys", *keys)

    def type(self, text: str) -> None:
        """Type text as it is."""
        self._run("send-keys", "-l", text)

    def resize(self, columns: int, rows: int) -> None:
        self._run("resize-window", "-x", str(columns), "-y", str(rows))

    def sees(self, *words: str, timeout: float = 20.0) -> None:
        """Wait until the screen shows all ``words``."""
        self.until(
            lambda text: all(word in text for word in words), what=f"{words}", timeout=timeout
        )

    def until(self, test: Callable[[str], bool], *, what: str, timeout: float = 20.0) -> None:
        """Wait until the screen passes ``test``."""
        try:
            wait_for(lambda: test(self.text), what=what, timeout=timeout)
        except AssertionError:
            raise AssertionError(f"no {what} on this screen:\n{self.text}") from None
