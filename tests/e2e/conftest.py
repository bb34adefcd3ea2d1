"""The command line as a person uses it, on a real VM and in a real terminal.

One VM serves all tests of a module, since a boot takes seconds: a test leaves it as it found it.
"""

from __future__ import annotations

import itertools
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest
from quicksand.host.paths import Paths

from tests.conftest import fresh_places, wait_for

IMAGE = "debian"
PROGRAM = (sys.executable, "-m", "quicksand_tui")
SLOW_S = 30.0
"""For what takes a second here and more on a busy machine."""


def quicksand(
    *arguments: str, stdin: bytes | int | None = b"", timeout: float = 120
) -> subprocess.CompletedProcess[bytes]:
    """Run one command; its streams are pipes."""
    feed = {"input": stdin} if isinstance(stdin, bytes) else {"stdin": stdin}
    return subprocess.run(  # type: ignore[call-overload,no-any-return]
        [*PROGRAM, *arguments], **feed, capture_output=True, timeout=timeout, check=False
    )


def start_quicksand(*arguments: str, stdin: int | None = None) -> subprocess.Popen[bytes]:
    """Start one command and leave it running."""
    return subprocess.Popen(
        [*PROGRAM, *arguments], stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


@pytest.fixture(scope="module", autouse=True)
def places(prepared: Paths) -> Iterator[Paths]:
    """Places shared by a module's tests."""
    with fresh_places(prepared) as found:
        yield found


@pytest.fixture(scope="module")
def vm(places: Paths) -> Iterator[str]:
    """A running sandbox, started and ended by the commands themselves."""
    started = quicksand("run", IMAGE, "--name", "shared", "--detach")
    assert started.returncode == 0, started.stderr
    assert started.stdout == b"shared\n"
    yield "shared"
    ended = quicksand("rm", "-f", "shared")
    assert ended.returncode == 0, ended.stderr


_numbers = itertools.count()


class Terminal:
    """A terminal of tmux's, on a server of its own, with a shell in it."""

    def __init__(self, *, columns: int = 100, rows: int = 30) -> None:
        assert shutil.which("tmux"), "tmux is not installed"
        self._server = f"qst-{os.getpid()}-{next(_numbers)}"
        size = ("-x", str(columns), "-y", str(rows))
        shell = "env PS1='ready> ' bash --norc --noprofile -i"
        self._tmux("new-session", "-d", *size, shell)
        self.wait("ready> ")

    def _tmux(self, *arguments: str) -> str:
        result = subprocess.run(
            ["tmux", "-L", self._server, "-f", "/dev/null", *arguments],
            capture_output=True,
            check=True,
            env={**os.environ, "LC_ALL": "C.UTF-8"},
        )
        return result.stdout.decode()

    def type(self, text: str) -> None:
        """Type text and Enter."""
        self._tmux("send-keys", "-l", text)
        self._tmux("send-keys", "Enter")

    def run(self, *arguments: str) -> None:
        """Type a command of ours."""
        self.type("clear; " + shlex.join([*PROGRAM, *arguments]))

    def press(self, *keys: str) -> None:
        """Press keys by tmux's names for them."""
        self._tmux("send-keys", *keys)

    def resize(self, columns: int, rows: int) -> None:
        self._tmux("resize-window", "-x", str(columns), "-y", str(rows))

    def screen(self) -> str:
        """What is on the screen."""
        return self._tmux("capture-pane", "-p")

    def fact(self, name: str) -> str:
        """What tmux knows of the terminal, by its format names."""
        return self._tmux("display-message", "-p", f"#{{{name}}}").strip()

    def wait(self, wanted: str | Callable[[str], object], *, timeout: float = SLOW_S) -> str:
        """Wait until a pattern is on the screen, or the condition holds for it; return it."""

        def holds() -> bool:
            nonlocal shown
            shown = self.screen()
            return bool(wanted(shown) if callable(wanted) else re.search(wanted, shown))

        shown = ""
        try:
            wait_for(holds, what=str(wanted), timeout=timeout)
        except AssertionError as error:
            raise AssertionError(f"{error}; the screen:\n{shown}") from None
        return shown

    def close(self) -> None:
        self._tmux("kill-server")


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    """A terminal of 100 x 30."""
    found = Terminal()
    yield found
    found.close()
