"""What is typed while a terminal's guest is being replaced reaches the next one, at whatever
moment it comes."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from quicksand.base.errors import (
    AgentRefusedError,
    AgentUnreachableError,
    RevertedError,
    StateError,
)
from quicksand.records.layout import MachineDir
from quicksand_panes.guest_terminal import LinkState, LinkStatus, Sink

from quicksand_tui.door import terminal_place
from quicksand_tui.door.silence import Silences
from quicksand_tui.door.terminal_place import SandboxPlace
from quicksand_tui.door.terminals import EngineTerminal

OLD, NEW = MachineDir(Path("old")), MachineDir(Path("new"))


class Shell:
    """A connection to a terminal, which breaks when ``breaks`` has an error."""

    def __init__(self) -> None:
        self.session = "p1"
        self.written = b""
        self.breaks: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.leaving = asyncio.Event()
        self.left = asyncio.Event()

    async def pieces(self) -> AsyncIterator[Any]:
        await asyncio.shield(self.breaks)
        yield None  # never

    async def write(self, data: bytes) -> None:
        self.written += data

    async def detach(self) -> None:
        self.leaving.set()
        await self.left.wait()


class Stage:
    """A terminal in the machine ``OLD``; its connections are in `shells`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.machine = OLD
        self.shells: list[Shell] = []
        self.statuses: asyncio.Queue[LinkStatus] = asyncio.Queue()
        self.tasks: set[asyncio.Task[None]] = set()
        self.tries = 0
        """How often it was reached while it was starting."""
        self.before_opening: asyncio.Future[None] | None = None
        monkeypatch.setattr(EngineTerminal, "_come_back", self._come_back)
        monkeypatch.setattr("quicksand_tui.door.terminals.RETURN_POLL_S", 0.001)
        self.terminal = EngineTerminal(
            cast(SandboxPlace, self),
            "p1",
            (80, 24),
            Sink(lambda *_: None, self.statuses.put_nowait),
            sandbox_id="a",
            silences=Silences(lambda: None),
            engine=asyncio.get_running_loop(),
            tasks=self.tasks,
        )

    is_running = True
    """As a guest."""
    is_starting = False
    is_away = False
    again = ""
    """As a place, like the next ones."""

    @property
    def mark(self) -> object:
        return self.machine

    async def runs(self) -> bool:
        return True

    async def starts(self) -> bool:
        return self.is_starting

    @contextlib.asynccontextmanager
    async def reach(self) -> AsyncIterator[Any]:
        yield self

    def why_gone(self) -> None: ...

    def right(self, session: str, attached: int) -> Right:
        return Right()

    async def _come_back(self, guest: Any) -> Shell:
        self.terminal._right = Right()
        if self.is_starting:
            self.tries += 1
            raise StateError("the sandbox 'web' is still starting; try again")
        self.shells.append(Shell())
        if self.before_opening is not None:
            await self.before_opening
        return self.shells[-1]

    async def until_open(self) -> Shell:
        async with asyncio.timeout(60):
            while (await self.statuses.get()).state is not LinkState.OPEN:
                pass
        return self.shells[-1]

    async def until_written(self, data: bytes) -> None:
        async with asyncio.timeout(60):
            while self.shells[-1].written != data:
                await asyncio.sleep(0.001)


class Right(terminal_place.AnswerRight):
    """To answer: always."""

    def __init__(self) -> None:
        pass

    def take(self) -> bool:
        return True

    def takes_over(self) -> bool:
        return True

    def close(self) -> None:
        pass


@pytest.fixture
async def stage(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Stage]:
    stage = Stage(monkeypatch)
    yield stage
    for shell in stage.shells:
        shell.left.set()
    stage.terminal.leave()
    await asyncio.gather(*stage.tasks, return_exceptions=True)
    for shell in stage.shells:
        with contextlib.suppress(asyncio.InvalidStateError):
            shell.breaks.exception()


async def test_what_is_typed_while_the_old_connection_is_left(stage: Stage) -> None:
    old = await stage.until_open()
    stage.machine = NEW
    old.breaks.set_exception(RevertedError("it was reverted"))
    await old.leaving.wait()
    stage.terminal.write(b"new")
    await asyncio.sleep(0)
    old.left.set()
    await stage.until_open()
    await stage.until_written(b"new")
    assert old.written == b""


async def test_what_is_typed_before_a_connection_that_breaks_notices(stage: Stage) -> None:
    """By a revert, which shows only as a guest that does not answer."""
    old = await stage.until_open()
    stage.terminal.write(b"old")
    await stage.until_written(b"old")
    stage.machine = NEW
    stage.terminal.write(b"new")
    await asyncio.sleep(0)
    old.left.set()
    old.breaks.set_exception(AgentUnreachableError("no answer"))
    await stage.until_open()
    await stage.until_written(b"new")
    assert old.written == b"old"


async def test_what_is_typed_while_the_next_connection_is_made_and_the_machine_changes_again(
    stage: Stage,
) -> None:
    old = await stage.until_open()
    old.left.set()
    stage.before_opening = opening = asyncio.get_running_loop().create_future()
    old.breaks.set_exception(RevertedError("it was reverted"))
    async with asyncio.timeout(60):
        while len(stage.shells) < 2:
            await asyncio.sleep(0.001)
    stage.terminal.write(b"new")
    await asyncio.sleep(0)
    stage.shells[-1].left.set()
    stage.machine = NEW
    stage.before_opening = None
    opening.set_result(None)
    await stage.until_open()
    assert len(stage.shells) == 3
    await stage.until_written(b"new")
    assert stage.shells[1].written == b""


async def test_what_is_typed_while_the_sandbox_starts_waits_for_it(stage: Stage) -> None:
    """And no pane is lost by that: there is nobody's doing that would bring it back."""
    old = await stage.until_open()
    old.left.set()
    old.breaks.set_exception(OSError("gone"))
    async with asyncio.timeout(60):
        while (await stage.statuses.get()).state is not LinkState.LOST:
            pass
        stage.is_starting = True
        stage.machine = NEW
        while stage.tries < 1:
            await asyncio.sleep(0.001)
        stage.terminal.write(b"early")
        while stage.tries < 4:
            await asyncio.sleep(0.001)
    told = [stage.statuses.get_nowait().state for _ in range(stage.statuses.qsize())]
    assert set(told) == {LinkState.CONNECTING}
    stage.is_starting = False
    await stage.until_open()
    await stage.until_written(b"early")
    stage.shells[-1].left.set()


async def test_what_was_on_its_way_to_a_program_that_ended_reaches_no_later_one(
    stage: Stage,
) -> None:
    """As after a revert that brings it back, which may be an hour later."""
    old = await stage.until_open()
    old.left.set()
    old.breaks.set_exception(OSError("gone"))
    async with asyncio.timeout(60):
        while (await stage.statuses.get()).state is not LinkState.LOST:
            pass
    stage.terminal.write(b"y\r")  # it was read before the loss was told
    await asyncio.sleep(0)
    stage.machine = NEW
    later = await stage.until_open()
    stage.terminal.write(b"ls")
    await stage.until_written(b"ls")
    assert later.written == b"ls"
    later.left.set()


async def test_a_terminal_opens_at_home_if_the_directory_for_it_is_gone(stage: Stage) -> None:
    asked: list[str | None] = []

    async def shell(*, cwd: str | None, **_: object) -> Shell:
        asked.append(cwd)
        if cwd is not None:
            raise AgentRefusedError(f"{cwd} is no directory", code="not_found")
        return Shell()

    async def shells() -> list[Any]:
        return []

    stage.terminal._directory = "/gone"
    guest = SimpleNamespace(shell=shell, shells=shells)
    await stage.terminal._open_new(cast(Any, guest))
    assert asked == ["/gone", None]
