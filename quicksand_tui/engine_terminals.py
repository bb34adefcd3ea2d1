"""Terminals of guests for the app's panes. They live on the engine's loop, in its thread; a pane on
the UI's."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING

from quicksand_tui.panes.link import TYPED_MAX, UNREAD_MAX, LinkState, LinkStatus, Sink
from quicksand_tui.text import sanitise

if TYPE_CHECKING:
    from quicksand.sandbox import Sandbox
    from quicksand.shell import Shell

TERM = {"TERM": "xterm-256color", "COLORTERM": "truecolor"}

LEAVE_S = 2.0

NEW = "enter opens a new one"
"""First: panes may be narrow."""


class EngineTerminal:
    """One terminal. Its public methods are for the UI's thread, as in `GuestTerminal`."""

    def __init__(
        self,
        sandbox_id: str,
        session: str,
        size: tuple[int, int],
        sink: Sink,
        *,
        engine: asyncio.AbstractEventLoop,
        tasks: set[asyncio.Task[None]],
    ) -> None:
        """``tasks``: of the engine's loop, which are waited for at the end."""
        self._sandbox_id = sandbox_id
        self._session = session
        self._size = size
        self._sink = sink
        self._engine = engine
        self._tasks = tasks
        self._ui = asyncio.get_running_loop()
        self._typed = bytearray()
        self._unread = 0
        self._told = ""
        self._shell: Shell | None = None
        self._ends = False
        engine.call_soon_threadsafe(self._begin)

    def write(self, data: bytes) -> None:
        self._do(lambda: self._type(data))

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
        self._sink = Sink(lambda _: None, lambda _: None)
        self._do(self._cancel)

    def end(self) -> None:
        self._ends = True
        self.leave()

    def _do(self, function: Callable[[], object]) -> None:
        """On the engine's loop, in the order of calls."""
        with contextlib.suppress(RuntimeError):  # it is closed: the app ends
            self._engine.call_soon_threadsafe(function)

    # On the engine's loop

    def _begin(self) -> None:
        self._typed_more, self._resized = asyncio.Event(), asyncio.Event()
        self._room = asyncio.Event()
        self._task = asyncio.get_running_loop().create_task(self._run(), name="quicksand-pane")
        self._tasks.add(self._task)
        self._task.add_done_callback(self._tasks.discard)

    def _cancel(self) -> None:
        self._task.cancel()

    def _type(self, data: bytes) -> None:
        self._typed += data[: max(0, TYPED_MAX - len(self._typed))]
        self._typed_more.set()

    async def _run(self) -> None:
        from quicksand.errors import QuicksandError

        try:
            await self._serve()
        except QuicksandError as error:
            # The log of a QEMU that died follows in its lines.
            self._tell(LinkState.LOST, f"{NEW}: {str(error).splitlines()[0]}")
        except OSError as error:
            self._tell(LinkState.LOST, f"{NEW}: {error.strerror}")

    async def _serve(self) -> None:
        """Open it, and come back to it after each revert, until its program ends."""
        from quicksand.errors import AgentUnreachableError, RevertedError
        from quicksand.sandbox import Sandbox

        sandbox = await asyncio.to_thread(Sandbox.attach, self._sandbox_id)
        try:
            while True:
                try:
                    await self._open(sandbox)
                    await self._relay()
                    return
                except RevertedError as error:
                    self._told = f"{error}"
                    self._tell(LinkState.CONNECTING, self._told)
                    sandbox.close()
                    sandbox = await asyncio.to_thread(Sandbox.attach, self._sandbox_id)
                except AgentUnreachableError:
                    # The sandbox may be changing its machine at this moment.
                    if not sandbox.is_running:
                        raise
        finally:
            await self._let_go()
            sandbox.close()

    async def _open(self, sandbox: Sandbox) -> None:
        from quicksand.errors import AgentRefusedError

        columns, rows = self._size
        self._resized.clear()
        if not self._session:
            self._shell = await sandbox.shell(columns=columns, rows=rows, env=TERM)
        else:
            try:
                self._shell = await sandbox.attach_shell(self._session, columns=columns, rows=rows)
            except AgentRefusedError as error:
                if error.code != "not_found":
                    raise
                told = f"{self._told}: " if self._told else ""
                self._session = ""
                why = f"{told}this terminal is not there"
                raise AgentRefusedError(why, code="not_found") from error
        self._session = self._shell.session
        self._tell(LinkState.OPEN, self._told)

    async def _relay(self) -> None:
        """Both ways, until the program ends. Raises what broke the connection."""
        assert self._shell is not None
        shell = self._shell
        others = [
            asyncio.ensure_future(work)
            for work in (self._send_typed(shell), self._send_sizes(shell))
        ]
        try:
            async for data in shell.output():
                self._unread += len(data)
                self._tell_output(data)
                while self._unread > UNREAD_MAX:
                    self._room.clear()
                    await self._room.wait()
        finally:
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)
        self._shell = None
        status = shell.status
        code = f"exit status {status.exit_code}" if status is not None else "it has ended"
        self._session = ""
        self._tell(LinkState.ENDED, f"{NEW}: {code}")

    async def _send_typed(self, shell: Shell) -> None:
        while True:
            await self._typed_more.wait()
            self._typed_more.clear()
            data = bytes(self._typed)
            self._typed.clear()
            if data:
                await shell.write(data)

    async def _send_sizes(self, shell: Shell) -> None:
        while True:
            await self._resized.wait()
            self._resized.clear()
            await shell.resize(*self._size)

    async def _let_go(self) -> None:
        """Leave the program running, or end it."""
        from quicksand.errors import QuicksandError

        shell, self._shell = self._shell, None
        if shell is not None:
            with contextlib.suppress(QuicksandError, TimeoutError):
                async with asyncio.timeout(LEAVE_S):
                    await (shell.close() if self._ends else shell.detach())

    # To the UI

    def _tell_output(self, data: bytes) -> None:
        self._to_ui(lambda: self._sink.output(data))

    def _tell(self, state: LinkState, text: str) -> None:
        status = LinkStatus(state=state, session=self._session, text=sanitise(text, limit=300))
        self._to_ui(lambda: self._sink.status(status))

    def _to_ui(self, function: Callable[[], None]) -> None:
        with contextlib.suppress(RuntimeError):  # it is closed: nobody looks
            self._ui.call_soon_threadsafe(function)
