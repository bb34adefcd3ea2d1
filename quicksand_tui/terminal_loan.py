"""Lending the terminal to another program, such as a shell, while the app waits."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from quicksand_tui.snapshot import Failure
from quicksand_tui.text import sanitise, sanitise_lines

if TYPE_CHECKING:
    from quicksand_tui.application import QuicksandApp

STDERR_KEPT = 4096
OWN_FAILURES = (1, 2, 125)
"""Statuses by which `quicksand-tui shell` may mean that it failed itself, not the shell."""


@dataclass(frozen=True, slots=True)
class Ended:
    """How the program ended. ``failure`` if it said why on stderr."""

    status: int
    failure: Failure | None = None


def shell_argv(sandbox_id: str, session: str | None = None) -> list[str]:
    """The command `quicksand-tui shell`, run as this very Python runs. ``-P``: a directory called
    quicksand_tui in the working directory is not meant."""
    argv = [sys.executable, "-P", "-m", "quicksand_tui", "shell", sandbox_id]
    return argv if session is None else [*argv, f"--session={session}"]


class Loan:
    """One program on the app's terminal."""

    def __init__(self, argv: list[str], title: str, *, banner: str = "") -> None:
        """``banner`` is a line that is shown before the program says anything."""
        self._argv = argv
        self._title = title
        self._banner = banner

    async def run(self, app: QuicksandApp) -> Ended:
        """Run it to its end. The app must be suspended. Cancelled, it ends the program."""
        with _signals_ignored():
            if self._banner:
                _write(1, f"{self._banner}\n".encode("utf-8", "replace"))
            process = await asyncio.create_subprocess_exec(
                *self._argv, stderr=asyncio.subprocess.PIPE
            )
            app._shell = process
            try:
                said, status = await asyncio.gather(_pass_on(process), process.wait())
            finally:
                app._shell = None
                if process.returncode is None:
                    process.terminate()
                    await process.wait()
        if status not in OWN_FAILURES or not said.strip():
            return Ended(status)  # whatever the shell's last command left
        lines = [line for line in sanitise_lines(said) if line.strip()]
        return Ended(
            status,
            Failure(
                title=sanitise(f"The shell in {self._title} ended with status {status}"),
                message=lines[0],
                log=tuple(lines[1:]),
            ),
        )


async def _pass_on(process: asyncio.subprocess.Process) -> str:
    """Copy its stderr to ours as it comes; return the end of it, which would go unseen when the
    app takes its screen back."""
    assert process.stderr is not None
    kept = b""
    while data := await process.stderr.read(4096):
        _write(2, data)
        kept = (kept + data)[-STDERR_KEPT:]
    return kept.decode("utf-8", "replace")


def _write(descriptor: int, data: bytes) -> None:
    with contextlib.suppress(OSError):
        os.write(descriptor, data)


@contextlib.contextmanager
def _signals_ignored() -> Iterator[None]:
    """Keys such as Ctrl-C are the program's while it has the terminal. With handlers, not by
    ignoring: what is ignored the program would inherit."""
    held = {}
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGTSTP):
        held[number] = signal.signal(number, lambda *_: None)
    try:
        yield
    finally:
        for number, handler in held.items():
            signal.signal(number, handler)
