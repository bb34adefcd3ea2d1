"""What is typed while a terminal's guest is being replaced reaches the next one, at whatever
moment it comes."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import pytest
from quicksand.base.errors import AgentUnreachableError, RevertedError
from quicksand.records.layout import MachineDir

from quicksand_tui.door import answering
from quicksand_tui.door.places import SandboxPlace
from quicksand_tui.door.terminals import EngineTerminal
from quicksand_tui.panes.content import LinkState, LinkStatus, Sink

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
        self.before_opening: asyncio.Future[None] | None = None
        monkeypatch.setattr(EngineTerminal, "_come_back", self._come_back)
        monkeypatch.setattr("quicksand_tui.door.terminals.RETURN_POLL_S", 0.001)
        self.terminal = EngineTerminal(
            cast(SandboxPlace, self),
            "p1",
            (80, 24),
            Sink(lambda *_: None, self.statuses.put_nowait),
            engine=asyncio.get_running_loop(),
            tasks=self.tasks,
        )

    is_running = True
    """As a guest."""
    is_away = False
    again = ""
    """As a place, like the next ones."""

    @property
    def mark(self) -> object:
        return self.machine

    async def runs(self) -> bool:
        return True

    @contextlib.asynccontextmanager
    async def reach(self) -> AsyncIterator[Any]:
        yield self

    def why_gone(self) -> None: ...

    async def _come_back(self, guest: Any) -> Shell:
        self.terminal._right = Right()
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


class Right(answering.AnswerRight):
    """To answer: always."""

    def __init__(self) -> None:
        pass

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
