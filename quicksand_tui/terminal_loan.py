"""Lending the terminal to another program, such as a shell, while the app waits."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import signal
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from quicksand_tui.actions import find_action
from quicksand_tui.failures import Failure
from quicksand_tui.text import plain, sanitise, sanitise_lines

if TYPE_CHECKING:
    from quicksand_tui.application import QuicksandApp
    from quicksand_tui.listed import SandboxView

STDERR_KEPT = 4096
OWN_FAILURES = (1, 2, 125)
"""Statuses by which `quicksand-tui shell` may mean that it failed itself, not the shell."""


class Ended(NamedTuple):
    """How the program ended. ``failure`` if it said why on stderr."""

    status: int
    failure: Failure | None = None


def shell_argv(sandbox_id: str, session: str | None = None) -> list[str]:
    """The command `quicksand-tui shell`, run as this very Python runs. ``-P``: a directory called
    quicksand_tui in the working directory is not meant."""
    argv = [sys.executable, "-P", "-m", "quicksand_tui", "shell", sandbox_id]
    return argv if session is None else [*argv, f"--session={session}"]


class FullShell:
    """A shell that has the whole terminal, one at a time."""

    def __init__(self, app: QuicksandApp) -> None:
        self._app = app
        self.opens = False
        """From the key until the terminal is the shell's: keys are meant for it already."""
        self._loan: Loan | None = None

    @property
    def is_open(self) -> bool:
        """Whether the terminal is the shell's, or is to be."""
        return self.opens or self._loan is not None

    def open(self, sandbox: SandboxView) -> None:
        if not self._app.refuses_shells():
            self.opens = True
            self._app.run_worker(self._lend(sandbox), name="shell", group="shell", exclusive=True)

    def terminate(self) -> None:
        """End the shell that has the terminal, if one has."""
        if self._loan is not None:
            self._loan.terminate()

    async def _lend(self, sandbox: SandboxView) -> None:
        app = self._app
        try:
            session = await self._choose(sandbox)
            if session is None:
                return
            command = find_action("shell").command_for(sandbox.name)
            if session:
                command += f" --session {shlex.quote(sanitise(session))}"
            app.operations.note_command(command)
            banner = f"── {sandbox.name}: exit ends this shell, ctrl-] d leaves it running ──"
            self._loan = Loan(
                shell_argv(sandbox.id, session or None),
                sandbox.name,
                banner=plain(banner) if app.ascii else banner,
            )
            ended = await app.run_in_terminal(self._loan)
        finally:
            self.opens = False
            self._loan = None
            app.refresh_now(fresh=True)
        if ended.failure is not None:
            app.dialogs.show_failure(ended.failure)

    async def _choose(self, sandbox: SandboxView) -> str | None:
        """The session to come back to, "" for a new terminal; None if it is none after all."""
        left = await self._app.service.shells(sandbox.id)
        if not left:
            return ""
        from quicksand_tui.screens.shells import ShellsScreen

        now = self._app.snapshot.taken
        return await self._app.push_screen_wait(
            ShellsScreen(sandbox.name, left, now=now, ascii_only=self._app.ascii)
        )


class Loan:
    """One program on the app's terminal."""

    def __init__(self, argv: list[str], title: str, *, banner: str = "") -> None:
        """``banner`` is a line that is shown before the program says anything."""
        self._argv = argv
        self._title = title
        self._banner = banner
        self._process: asyncio.subprocess.Process | None = None

    def terminate(self) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.terminate()

    async def run(self) -> Ended:
        """Run it to its end. The app must be suspended. Cancelled, it ends the program."""
        with _signals_ignored():
            if self._banner:
                _write(1, f"{self._banner}\n".encode("utf-8", "replace"))
            process = await asyncio.create_subprocess_exec(
                *self._argv, stderr=asyncio.subprocess.PIPE
            )
            self._process = process
            try:
                said, status = await asyncio.gather(_pass_on(process), process.wait())
            finally:
                self._process = None
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
