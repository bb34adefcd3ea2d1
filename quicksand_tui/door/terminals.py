"""Connects panes with terminals in guests.

Everything here runs on the engine's loop, in its thread.
"""

from __future__ import annotations

import asyncio
import contextlib
from functools import partial
from typing import TYPE_CHECKING

from quicksand.base.errors import (
    AgentRefusedError,
    AgentUnreachableError,
    ConfigError,
    QuicksandError,
    RevertedError,
)
from quicksand_panes.guest_terminal import UNREAD_MAX, LinkState, LinkStatus, Said, Sink

from quicksand_tui.door.typed import Foreground, Typed, TypedQueue
from quicksand_tui.model.remedy_words import text_of
from quicksand_tui.model.text import sanitise

if TYPE_CHECKING:
    from collections.abc import Callable

    from quicksand.guest.shell import Shell, ShellInfo

    from quicksand_tui.door.silence import Silences
    from quicksand_tui.door.terminal_place import Guest, Right, SandboxPlace


TERM = {"TERM": "xterm-256color", "COLORTERM": "truecolor"}

PANE_NAME = "pane"
"""The guest's name for terminals that were opened for a pane."""

LEAVE_S = 2.0
"""Seconds to wait for the guest when a terminal is left."""

RETURN_POLL_S = 0.25
"""Seconds between checks whether a sandbox with a lost terminal runs; each reads a symlink."""

NEW = "enter opens a new one"
"""Stands first in a message, since a title cuts its end."""


def birth_of(info: ShellInfo) -> str:
    """Returns a text that tells a terminal from another with the same session number after a start
    or a revert: the program's process id and time of creation."""
    return f"{info.pid}@{info.created!r}"


class EngineTerminal:
    """Implements `GuestTerminal`; the UI's thread calls the public methods."""

    def __init__(
        self,
        place: SandboxPlace,
        session: str,
        size: tuple[int, int],
        sink: Sink,
        *,
        birth: str = "",
        directory: str = "",
        sandbox_id: str,
        silences: Silences,
        engine: asyncio.AbstractEventLoop,
        tasks: set[asyncio.Task[None]],
    ) -> None:
        """``birth`` tells ``session`` from another terminal of that name, if it is known; a new one
        begins in ``directory`` if the guest has that, else in the user's home; ``silences``
        notes how long answers of the guest take; ``tasks`` are those of the engine's loop
        that are awaited when the app ends."""
        self._place = place
        self._session = session
        self._birth = birth
        self._directory = directory
        self._size = size
        self._sink = sink
        self._sandbox_id = sandbox_id
        self._silences = silences
        self._engine = engine
        self._tasks = tasks
        self._ui = asyncio.get_running_loop()
        self._queue = TypedQueue()
        self._opening = 0
        self._machine: object = None
        """The machine of the open shell."""
        self._mark: object = None
        """The machine that was tried last."""
        self._right: Right | None = None
        self._unread = 0
        self._told = ""
        self._state = LinkState.CONNECTING
        """The state last reported to the UI."""
        self._told_runs = True
        self._told_lost = ""
        self._shell: Shell | None = None
        self._ends = False
        engine.call_soon_threadsafe(self._begin)

    def write(self, data: bytes) -> None:
        self._do(lambda: self._type(data))

    def report(self, data: bytes, opening: int) -> None:
        def report() -> None:
            if opening == self._opening and self._shell is not None and self._is_present:
                self._queue.report(data)
                self._to_send.set()

        self._do(report)

    def resize(self, columns: int, rows: int) -> None:
        def resize() -> None:
            self._size = (columns, rows)
            self._resized.set()

        self._do(resize)

    def parsed(self, count: int) -> None:
        def parsed() -> None:
            self._unread -= count
            self._room.set()

        self._do(parsed)

    def leave(self) -> None:
        self._sink = Sink(lambda *_: None, lambda _: None)
        self._do(self._cancel)

    def end(self) -> None:
        self._ends = True
        self.leave()

    def _do(self, function: Callable[[], object]) -> None:
        """Runs a function on the engine's loop, in the order of calls."""
        with contextlib.suppress(RuntimeError):  # the loop is closed: the app ends
            self._engine.call_soon_threadsafe(function)

    # On the engine's loop

    def _begin(self) -> None:
        self._to_send, self._resized = asyncio.Event(), asyncio.Event()
        self._foreground = Foreground(
            lambda running: self._to_ui(lambda: self._sink.running(running))
        )
        self._typed = Typed(self._silences, self._sandbox_id)
        self._room = asyncio.Event()
        self._task = asyncio.get_running_loop().create_task(self._run(), name="quicksand-pane")
        self._tasks.add(self._task)
        self._task.add_done_callback(self._tasks.discard)

    def _cancel(self) -> None:
        self._task.cancel()

    def _type(self, data: bytes) -> None:
        if self._is_present:
            self._queue.type(data)
            self._to_send.set()
        else:
            self._queue.type_for_next(data)

    @property
    def _is_present(self) -> bool:
        """Whether the terminal's machine is still the sandbox's current one."""
        return self._machine is None or self._machine == self._place.machine

    async def _run(self) -> None:
        """Serves the terminal, again and again: when it is lost, the next machine may have it."""
        while True:
            self._mark = self._place.mark
            try:
                await self._serve()
            except AgentRefusedError as error:
                # A program that had ended before stays ended.
                if error.code != "not_found" or self._state is not LinkState.ENDED:
                    self._tell_lost(text_of(error))
            except QuicksandError as error:
                if await self._starts():
                    self._tell(LinkState.CONNECTING, "")
                    await asyncio.sleep(RETURN_POLL_S)
                    continue
                # The further lines are the log of a QEMU that died.
                self._tell_lost(text_of(error).splitlines()[0])
            except OSError as error:
                self._tell_lost(error.strerror or str(error))
            await self._await_machine(self._mark)
            # Keys still on their way to the program that is gone are for no other.
            self._queue = TypedQueue()
            self._told = self._place.again
            while not self._session:
                # The terminal was never opened, so there is nothing to come back to.
                self._tell_lost(self._told)
                await self._await_machine(self._place.mark)

    async def _starts(self) -> bool:
        """Whether the sandbox is just starting: keys typed now are for its new guest."""
        try:
            return await self._place.starts()
        except (OSError, QuicksandError):
            return False

    async def _await_machine(self, gone: object) -> None:
        """Waits until the sandbox runs in another machine than ``gone``."""
        while True:
            await asyncio.sleep(RETURN_POLL_S)
            mark = self._place.mark
            if mark is None:
                gone = None
                if self._state is LinkState.LOST and self._told_runs:
                    self._tell_lost(self._told_lost)
            elif mark != gone:
                try:
                    if await self._place.runs():
                        return
                except (OSError, QuicksandError):
                    continue  # looks again

    async def _serve(self) -> None:
        """Opens the terminal, and again after each revert, until its program ends. Raises
        QuicksandError or OSError when it is lost."""
        is_served = False
        while not is_served:
            async with self._place.reach() as guest:
                is_served = await self._serve_guest(guest)

    async def _serve_guest(self, guest: Guest) -> bool:
        """Serves the terminal over one way to its guest; returns False if another way is needed.
        Raises as `_serve`."""
        try:
            await self._silences.heed(self._sandbox_id, self._open(guest))
            await self._relay(guest)
        except RevertedError as error:
            self._told = f"{error}"
            self._queue.reverted()  # at once: keys typed from now on are for the next
            await self._let_go()
            self._tell(LinkState.CONNECTING, self._told)
            return False
        except AgentUnreachableError as error:
            if self._is_present:
                self._queue.broke()
            else:  # this may be the first sign of a revert
                self._queue.reverted()
            await self._let_go()
            # The sandbox may be changing its machine at this moment. If it died, its directory is
            # being removed, and no new lock may be made there.
            await asyncio.sleep(RETURN_POLL_S)
            if not guest.is_running:
                raise self._place.why_gone() or error from error
            return False
        finally:
            await self._let_go()
        return True

    async def _open(self, guest: Guest) -> None:
        """Opens a new terminal or the known one. Raises AgentUnreachableError if the sandbox
        changes its machine meanwhile."""
        machine, self._mark = self._place.machine, self._place.mark
        if self._session:
            shell = await self._come_back(guest)
        else:
            shell = await self._open_new(guest)
        self._shell = shell
        if machine != self._place.machine:
            raise AgentUnreachableError("the sandbox has changed its machine")
        self._machine = machine
        self._opening += 1
        self._tell(LinkState.OPEN, self._told)
        self._told = ""

    async def _open_new(self, guest: Guest) -> Shell:
        columns, rows = self._size
        self._resized.clear()
        opens = partial(guest.shell, columns=columns, rows=rows, env=TERM, name=PANE_NAME)
        try:
            shell = await opens(cwd=self._directory or None)
        except (AgentRefusedError, ConfigError):
            if not self._directory:
                raise
            shell = await opens(cwd=None)  # the directory is gone, or may not be entered
        self._session = shell.session
        self._right = self._place.right(shell.session, 0)
        self._right.take()
        if (info := await self._find(guest)) is not None:
            self._birth = birth_of(info)
        return shell

    async def _come_back(self, guest: Guest) -> Shell:
        """Opens the known terminal. Raises AgentRefusedError (code "not_found") if it is gone or if
        another terminal has its session number."""
        info = await self._find(guest)
        is_ours = info is not None and self._birth in ("", birth_of(info))
        if info is None or not is_ours or (self._state is LinkState.ENDED and not info.alive):
            told = f"{self._told}: " if self._told else ""
            raise AgentRefusedError(f"{told}this terminal is not there", code="not_found")
        self._birth = birth_of(info)
        self._right = self._place.right(self._session, info.attached)
        self._right.take()
        columns, rows = self._size
        self._resized.clear()
        return await guest.attach_shell(self._session, columns=columns, rows=rows)

    async def _find(self, guest: Guest) -> ShellInfo | None:
        """Asks the guest for its entry in the list of terminals."""
        infos = await guest.shells()
        return next((info for info in infos if info.session == self._session), None)

    async def _relay(self, guest: Guest) -> None:
        """Passes data both ways until the program ends. Raises what broke the connection."""
        assert self._shell is not None
        shell = self._shell
        others = [
            asyncio.ensure_future(work)
            for work in (
                self._send_typed(shell),
                self._send_sizes(shell),
                self._foreground.follow(lambda: self._find(guest)),
                self._typed.follow(lambda: self._find(guest)),
            )
        ]
        try:
            await self._pass_on(shell)
        finally:
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)
        self._shell = None
        await self._let_go()
        status = shell.status
        code = f"exit status {status.exit_code}" if status is not None else "it has ended"
        self._tell(LinkState.ENDED, f"{NEW}: {code}")

    async def _pass_on(self, shell: Shell) -> None:
        """Passes output to the pane until the program ends; waits while too much is unread."""
        assert self._right is not None
        async for piece in shell.pieces():
            if piece.replayed:
                said = Said.BEFORE
            else:
                said = Said.NOW if self._right.takes_over() else Said.SHARED
            self._unread += len(piece.data)
            self._foreground.spoke()
            self._typed.heard()
            self._tell_output(piece.data, said)
            while self._unread > UNREAD_MAX:
                self._room.clear()
                await self._room.wait()

    async def _send_typed(self, shell: Shell) -> None:
        self._to_send.set()
        while True:
            await self._to_send.wait()
            self._to_send.clear()
            if data := self._queue.take():
                self._typed.typed()
                await shell.write(data)

    async def _send_sizes(self, shell: Shell) -> None:
        while True:
            await self._resized.wait()
            self._resized.clear()
            await shell.resize(*self._size)

    async def _let_go(self) -> None:
        """Closes the connection; the program keeps running unless `end` was called."""
        right, self._right = self._right, None
        if right is not None:
            right.close()
        shell, self._shell = self._shell, None
        self._machine = None
        if shell is not None:
            with contextlib.suppress(QuicksandError, TimeoutError):
                async with asyncio.timeout(LEAVE_S):
                    await (shell.close() if self._ends else shell.detach())

    # To the UI

    def _tell_output(self, data: bytes, said: Said) -> None:
        self._to_ui(lambda: self._sink.output(data, said))

    def _tell_lost(self, why: str) -> None:
        """Reports the loss, and offers a new terminal if the sandbox runs."""
        self._told_lost = why
        runs = self._place.mark is not None
        self._tell(LinkState.LOST, f"{NEW}: {why}" if runs else why, runs=runs)

    def _tell(self, state: LinkState, text: str, *, runs: bool = True) -> None:
        self._state, self._told_runs = state, runs
        status = LinkStatus(
            state=state,
            session=self._session,
            birth=self._birth,
            text=sanitise(text, limit=300),
            opening=self._opening,
            runs=runs,
            comes_back=self._place.is_away,
        )
        self._to_ui(lambda: self._sink.status(status))

    def _to_ui(self, function: Callable[[], None]) -> None:
        with contextlib.suppress(RuntimeError):  # the UI's loop is closed
            self._ui.call_soon_threadsafe(function)
