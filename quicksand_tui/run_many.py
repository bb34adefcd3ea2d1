"""A command in many sandboxes at once: what it left in each. No widgets, and no engine."""

from __future__ import annotations

import asyncio
import secrets
import shlex
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from quicksand_tui.actions import find_action
from quicksand_tui.failures import OperationError, UnsuccessfulError
from quicksand_tui.services import Progress, Report, Service
from quicksand_tui.snapshot import Job, State, Verb
from quicksand_tui.text import clip, sanitise

if TYPE_CHECKING:
    from quicksand_tui.listed import SandboxView
    from quicksand_tui.operations import Operations

AT_ONCE = 8
TIMEOUT_S = 60.0
"""After which a command is ended."""
COMMAND_CELLS = 40
"""Of a command within a line."""
COMMAND_MAX = 4000


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandOutput:
    """How a command in a guest ended. All text is fit to be shown."""

    exit_code: int
    """As a shell shows it: 128 + n after signal n."""
    seconds: float
    """By this host's clock."""
    lines: tuple[str, ...] = ()
    """What it wrote to both streams, as it came."""
    is_cut: bool = False
    """It wrote more."""
    timed_out: bool = False


class RunState(StrEnum):
    READY = "ready"
    WAITING = "waiting"
    """Others run first."""
    RUNNING = "running"
    ENDED = "ended"
    FAILED = "failed"
    """It did not get as far as an exit code."""
    CANCELLED = "cancelled"
    SKIPPED = "skipped"
    """Its sandbox does not run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """The command in one sandbox."""

    sandbox_id: str
    name: str
    state: RunState = RunState.READY
    output: CommandOutput | None = None
    note: str = ""
    """Why it failed or was skipped."""
    begun: float = 0.0
    """Monotonic time."""


class RunMany:
    """Runs a command in some sandboxes, `AT_ONCE` at a time. Lives on the UI's event loop; all of
    it is one job, which can be cancelled as any other."""

    def __init__(
        self,
        service: Service,
        operations: Operations,
        *,
        changed: Callable[[], None],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._service = service
        self._operations = operations
        self._changed = changed
        self._clock = clock
        self._runs: dict[str, Run] = {}
        self._job_id = ""
        """Of the job that is under way."""
        self.command = ""

    @property
    def runs(self) -> tuple[Run, ...]:
        return tuple(self._runs.values())

    @property
    def is_running(self) -> bool:
        return bool(self._job_id)

    def find(self, sandbox_id: str) -> Run | None:
        return self._runs.get(sandbox_id)

    def prepare(self, views: Sequence[SandboxView]) -> None:
        """These are to run it next."""
        if not self.is_running:
            self._runs = {view.id: _ready(view, self._runs.get(view.id)) for view in views}

    def begin(self, views: Sequence[SandboxView], command: str) -> None:
        """Run a shell's command in those of ``views`` that run."""
        if self.is_running:
            return
        self.command = command
        self._runs = {view.id: _ready(view, None) for view in views}
        chosen = [run for run in self._runs.values() if run.state is RunState.READY]
        if not chosen:
            return
        for run in chosen:
            self._set(run.sandbox_id, state=RunState.WAITING)
        self._job_id = f"run:{secrets.token_hex(6)}"
        name = chosen[0].name if len(chosen) == 1 else f"{len(chosen)} sandboxes"
        job = Job(sandbox_id=self._job_id, name=name, verb=Verb.RUN, started=self._clock())
        names = [run.name for run in chosen]
        self._operations.begin(
            job, exec_command(names, command), lambda report: self._run_all(chosen, command, report)
        )
        self._changed()

    def cancel(self) -> None:
        """End what runs. Its processes in the guests are killed."""
        if self._job_id:
            self._operations.cancel(self._job_id)

    async def _run_all(self, chosen: Sequence[Run], command: str, report: Report) -> str:
        """Raises UnsuccessfulError if it has not ended with 0 in all of them."""
        turns = asyncio.Semaphore(AT_ONCE)
        stage = clip(sanitise(command), COMMAND_CELLS)
        ended = 0

        async def run(one: Run) -> None:
            nonlocal ended
            async with turns:
                await self._run_one(one.sandbox_id, command)
            ended += 1
            report(Progress("", stage, step=min(ended + 1, len(chosen)), steps=len(chosen)))

        report(Progress("", stage, step=1, steps=len(chosen)))
        try:
            async with asyncio.TaskGroup() as group:
                for one in chosen:
                    group.create_task(run(one), name=f"run in {one.sandbox_id}")
        finally:
            self._job_id = ""
            for one in chosen:
                if self._runs[one.sandbox_id].state in (RunState.WAITING, RunState.RUNNING):
                    self._set(one.sandbox_id, state=RunState.CANCELLED)
            self._changed()
        outputs = (self._runs[one.sandbox_id].output for one in chosen)
        fine = sum(output is not None and output.exit_code == 0 for output in outputs)
        told = f"{stage}: {fine} of {len(chosen)} ended with 0"
        if fine < len(chosen):
            raise UnsuccessfulError(told)
        return told

    async def _run_one(self, sandbox_id: str, command: str) -> None:
        """Never raises for how it ends, but when it is cancelled."""
        self._set(sandbox_id, state=RunState.RUNNING, begun=time.monotonic())
        self._changed()
        try:
            output = await self._service.run_command(sandbox_id, command, timeout_s=TIMEOUT_S)
        except OperationError as error:
            self._set(sandbox_id, state=RunState.FAILED, note=error.failure.message)
        else:
            self._set(sandbox_id, state=RunState.ENDED, output=output)
        self._changed()

    def _set(self, sandbox_id: str, **values: object) -> None:
        self._runs[sandbox_id] = replace(self._runs[sandbox_id], **values)  # type: ignore[arg-type]


def _ready(view: SandboxView, before: Run | None) -> Run:
    if before is not None and before.state not in (RunState.READY, RunState.SKIPPED):
        return before  # what it left is still to be read
    if view.state is State.RUNNING:
        return Run(sandbox_id=view.id, name=view.name)
    note = "it is paused" if view.state is State.PAUSED else f"it is {view.state.value}"
    return Run(sandbox_id=view.id, name=view.name, state=RunState.SKIPPED, note=note)


def exec_command(names: Sequence[str], command: str) -> str:
    """The commands that do the same, one after the other."""
    run = find_action("execute")
    one = (f"{run.command_for(name)} -- /bin/sh -c {shlex.quote(command)}" for name in names)
    return sanitise("; ".join(one), limit=COMMAND_MAX)
