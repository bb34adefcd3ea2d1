"""Lends the terminal to a shell on the whole screen while the app waits, after asking which of
those that were left there is meant."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from quicksand_tui.actions.reasons import READ_ONLY
from quicksand_tui.door.shells_left import shells_of
from quicksand_tui.kit.base import Dialog, Stale, tell
from quicksand_tui.model.amounts import age_text
from quicksand_tui.model.jobs import Failure
from quicksand_tui.model.shown_sandboxes import split_host
from quicksand_tui.model.text import error_text, plain, sanitise, sanitise_lines
from quicksand_tui.verbs.call import command_about

if TYPE_CHECKING:
    from collections.abc import Iterator

    from textual.app import App, ComposeResult

    from quicksand_tui.cockpit.present_world import Present
    from quicksand_tui.door.service import EngineService
    from quicksand_tui.door.service_protocol import ShellView
    from quicksand_tui.jobs.operations import Operations
    from quicksand_tui.model.shown_sandboxes import SandboxView
    from quicksand_tui.screens.dialogs import Dialogs


NEW = ""
"""The result that stands for a new terminal."""


class ShellsScreen(Dialog[str]):
    """Returns the chosen session, `NEW` for a new terminal, or None."""

    CSS_PATH = "dialogs.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("n", "new", "new", show=False),
        Binding("j", "move(1)", show=False),
        Binding("k", "move(-1)", show=False),
        Binding("q", "leave", "back", show=False),
    ]

    def __init__(
        self, name: str, shells: tuple[ShellView, ...], *, now: float, ascii_only: bool
    ) -> None:
        super().__init__()
        self._sandbox_name = name
        self._shells = shells
        self._now = now
        self._ascii = ascii_only

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog") as box:
            box.border_title = self._text(f"Shell in {self._sandbox_name}")
            box.border_subtitle = self._text("enter opens · n a new one · esc leaves")
            options = [
                Option(
                    self._text(
                        f"Attach to {sanitise(shell.session)}: {shell.command}, "
                        f"{age_text(self._now - shell.created)} old{_shown(shell)}"
                    )
                )
                for shell in self._shells
            ]
            yield OptionList(*options, Option("Open a new one"), id="shells", markup=False)

    def _text(self, text: str) -> Content:
        return Content(plain(text) if self._ascii else text)

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        at = event.option_index
        self.dismiss(self._shells[at].session if at < len(self._shells) else NEW)

    def action_new(self) -> None:
        self.dismiss(NEW)

    def action_move(self, by: int) -> None:
        options = self.query_one(OptionList)
        if by > 0:
            options.action_cursor_down()
        else:
            options.action_cursor_up()


def _shown(shell: ShellView) -> str:
    """Says whether another client shows the terminal, as is possible in tmux."""
    return ", attached elsewhere too" if shell.clients else ""


STDERR_KEPT = 4096
"""The number of the last bytes of stderr that are kept."""
OWN_FAILURES = (1, 2, 125)
"""Exit statuses with which `quicksand-tui shell` may report its own failure, not the shell's."""


class Ended(NamedTuple):
    """The end of the program; ``failure`` holds its own error, if it reported one on stderr."""

    status: int
    failure: Failure | None = None


def shell_argv(sandbox_id: str, session: str | None = None, *, address: str = "local") -> list[str]:
    """Returns the command `quicksand-tui shell` for this Python, on the machine with that address,
    whichever the environment names. ``-P`` keeps a directory named quicksand_tui in the working
    directory from being imported."""
    program = [sys.executable, "-P", "-m", "quicksand_tui"]
    argv = [*program, f"--host={address}", "shell", sandbox_id]
    return argv if session is None else [*argv, f"--session={session}"]


class FullShell:
    """A shell on the whole terminal, one at a time."""

    def __init__(
        self,
        app: App[int],
        service: EngineService,
        operations: Operations,
        dialogs: Dialogs,
        present: Present,
        *,
        ascii_only: bool,
    ) -> None:
        self._app = app
        self._service = service
        self._operations = operations
        self._dialogs = dialogs
        self._present = present
        self._ascii = ascii_only
        self.opens = False
        """True from the key until the shell has the terminal; keys are already meant for it."""
        self._loan: Loan | None = None

    @property
    def is_open(self) -> bool:
        """Whether a shell has the terminal, or is about to get it."""
        return self.opens or self._loan is not None

    def open(self, sandbox: SandboxView) -> None:
        if self._operations.read_only:
            tell(self._app, READ_ONLY, severity="warning")
            return
        self.opens = True
        self._app.run_worker(self._lend(sandbox), name="shell", group="shell", exclusive=True)

    def terminate(self) -> None:
        """Ends the shell that has the terminal, if any."""
        if self._loan is not None:
            self._loan.terminate()

    async def _lend(self, sandbox: SandboxView) -> None:
        try:
            session = await self._choose(sandbox)
            if session is None:
                return
            command = command_about("shell", sandbox.name, session=session)
            self._operations.note_command(command, sandbox.id)
            banner = f"── {sandbox.name}: exit ends this shell, ctrl-] d leaves it running ──"
            self._loan = Loan(
                self._argv(sandbox, session),
                sandbox.name,
                banner=plain(banner) if self._ascii else banner,
                keeps_errors=not split_host(sandbox.id)[1],
            )
            ended = await self._run(self._loan)
        finally:
            self.opens = False
            self._loan = None
            self._app.post_message(Stale())
        if ended.failure is not None:
            self._dialogs.show_failure(ended.failure)

    async def _run(self, loan: Loan) -> Ended:
        """Lends the terminal until the program ends; the app's loop keeps running."""
        with self._app.batch_update(), self._app.suspend():
            return await loan.run()

    def _argv(self, sandbox: SandboxView, session: str) -> list[str]:
        own, host = split_host(sandbox.id)
        machine = self._present.world.machine(host) if host else None
        if machine is None:
            return shell_argv(own, session or None)
        # By a connection of its own: over the app's, nobody may be asked on the terminal.
        return shell_argv(own, session or None, address=machine.address)

    async def _choose(self, sandbox: SandboxView) -> str | None:
        """Asks which session to open; returns "" for a new terminal, None if the user leaves."""
        left = await shells_of(self._service, sandbox.id)
        if not left:
            return ""
        return await self._app.push_screen_wait(
            ShellsScreen(sandbox.name, left, now=self._present.world.taken, ascii_only=self._ascii)
        )


class Loan:
    """A program that runs on the app's terminal."""

    def __init__(
        self, argv: list[str], title: str, *, banner: str = "", keeps_errors: bool = True
    ) -> None:
        """``banner`` is a line written before the program starts. With ``keeps_errors``, the app
        shows the program's stderr, too, if it fails; a program that goes to another machine needs
        the terminal for stderr as well."""
        self._argv = argv
        self._title = title
        self._banner = banner
        self._stderr = asyncio.subprocess.PIPE if keeps_errors else None
        self._process: asyncio.subprocess.Process | None = None

    def terminate(self) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.terminate()

    async def run(self) -> Ended:
        """Runs the program to its end; the app must be suspended. Cancelling ends the program."""
        with _signals_ignored():
            if self._banner:
                _write(1, f"{self._banner}\n".encode("utf-8", "replace"))
            try:
                process = await asyncio.create_subprocess_exec(*self._argv, stderr=self._stderr)
            except OSError as error:  # the host has no room for another process
                title = sanitise(f"The shell in {self._title} did not begin")
                return Ended(OWN_FAILURES[-1], Failure(title=title, message=error_text(error)))
            self._process = process
            try:
                said, status = await asyncio.gather(_pass_on(process), process.wait())
            finally:
                self._process = None
                if process.returncode is None:
                    process.terminate()
                    await process.wait()
        if self._stderr is None and status == OWN_FAILURES[-1]:
            return Ended(
                status, self._failure(status, ["the other machine, or its guest, is away"])
            )
        if status not in OWN_FAILURES or not said.strip():
            return Ended(status)  # the status of the shell's last command
        lines = [line for line in sanitise_lines(said) if line.strip()]
        return Ended(status, self._failure(status, lines))

    def _failure(self, status: int, lines: list[str]) -> Failure:
        return Failure(
            title=sanitise(f"The shell in {self._title} ended with status {status}"),
            message=lines[0],
            log=tuple(lines[1:]),
        )


async def _pass_on(process: asyncio.subprocess.Process) -> str:
    """Copies the program's stderr to the app's; returns its end, which the app's screen hides."""
    kept = b""
    while process.stderr is not None and (data := await process.stderr.read(4096)):
        _write(2, data)
        kept = (kept + data)[-STDERR_KEPT:]
    return kept.decode("utf-8", "replace")


def _write(descriptor: int, data: bytes) -> None:
    with contextlib.suppress(OSError):
        os.write(descriptor, data)


@contextlib.contextmanager
def _signals_ignored() -> Iterator[None]:
    """Leaves Ctrl-C and the like to the program. Uses empty handlers, since the program would
    inherit ignored signals."""
    held = {}
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGTSTP):
        held[number] = signal.signal(number, lambda *_: None)
    try:
        yield
    finally:
        for number, handler in held.items():
            signal.signal(number, handler)
