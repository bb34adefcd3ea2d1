"""Runs a command in many sandboxes at once, as one job."""

from __future__ import annotations

import asyncio
import secrets
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from quicksand.things.status import Status

from quicksand_tui.model.jobs import Job, JobVerb, OperationError, Run, RunState, UnsuccessfulError
from quicksand_tui.model.text import clip, sanitise
from quicksand_tui.verbs.call import COMMAND_MAX, Progress, command_line

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from quicksand_tui.door.service import EngineService
    from quicksand_tui.jobs.operations import Operations
    from quicksand_tui.model.shown_sandboxes import SandboxView
    from quicksand_tui.verbs.call import Report


AT_ONCE = 8
"""The number of sandboxes that run the command in parallel."""
TIMEOUT_S = 60.0
"""Seconds after which a command is killed."""
COMMAND_CELLS = 40
"""Width of a command within a line."""


class RunMany:
    """Runs a command in several sandboxes, `AT_ONCE` at a time, as one job that can be cancelled.
    Lives on the UI's event loop while the command runs: the screen that began it may be left."""

    def __init__(
        self,
        service: EngineService,
        operations: Operations,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._service = service
        self._operations = operations
        self.watcher: Callable[[], None] = unwatched
        """Called after each change."""
        self._clock = clock
        self._runs: dict[str, Run] = {}
        self._job_id = ""
        """The id of the running job, or ""."""
        self.command = ""
        self.views: tuple[SandboxView, ...] = ()
        """The sandboxes of the last command."""

    @property
    def runs(self) -> tuple[Run, ...]:
        return tuple(self._runs.values())

    @property
    def is_running(self) -> bool:
        return bool(self._job_id)

    def find(self, sandbox_id: str) -> Run | None:
        return self._runs.get(sandbox_id)

    def prepare(self, views: Sequence[SandboxView]) -> None:
        """Sets the sandboxes that run the next command, unless one is running."""
        if not self.is_running:
            self._runs = {view.id: _ready(view, self._runs.get(view.id)) for view in views}

    def begin(self, views: Sequence[SandboxView], command: str) -> None:
        """Runs a shell command in the running ones of ``views``, unless one is running."""
        if self.is_running:
            return
        self.command = command
        self.views = tuple(views)
        self._runs = {view.id: _ready(view, None) for view in views}
        chosen = [run for run in self._runs.values() if run.state is RunState.READY]
        if not chosen:
            return
        for run in chosen:
            self._set(run.sandbox_id, state=RunState.WAITING)
        self._job_id = f"run:{secrets.token_hex(6)}"
        name = chosen[0].name if len(chosen) == 1 else f"{len(chosen)} sandboxes"
        names = [run.name for run in chosen]
        job = Job(
            sandbox_id=self._job_id,
            name=name,
            verb=JobVerb.RUN,
            started=self._clock(),
            command=exec_command(names, command),
            about=frozenset(run.sandbox_id for run in chosen),
        )
        self._operations.begin_work(job, lambda report: self._run_all(chosen, command, report))
        self.watcher()

    def cancel(self) -> None:
        """Cancels the job; the engine kills its processes in the guests."""
        if self._job_id:
            self._operations.cancel(self._job_id)

    async def _run_all(self, chosen: Sequence[Run], command: str, report: Report) -> str:
        """Runs the command. Raises UnsuccessfulError unless it exits with 0 in all sandboxes."""
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
            self.watcher()
        outputs = (self._runs[one.sandbox_id].output for one in chosen)
        fine = sum(output is not None and output.exit_code == 0 for output in outputs)
        told = f"{stage}: {fine} of {len(chosen)} ended with 0"
        if fine < len(chosen):
            raise UnsuccessfulError(told)
        return told

    async def _run_one(self, sandbox_id: str, command: str) -> None:
        """Records the outcome of the command; raises only CancelledError."""
        self._set(sandbox_id, state=RunState.RUNNING, begun=time.monotonic())
        self.watcher()
        try:
            output = await self._service.ask(
                "The command did not run",
                lambda engine: engine.run_command(sandbox_id, command, timeout_s=TIMEOUT_S),
            )
        except OperationError as error:
            self._set(sandbox_id, state=RunState.FAILED, note=error.failure.message)
        else:
            self._set(sandbox_id, state=RunState.ENDED, output=output)
        self.watcher()

    def _set(self, sandbox_id: str, **values: object) -> None:
        self._runs[sandbox_id] = replace(self._runs[sandbox_id], **values)  # type: ignore[arg-type]


def unwatched() -> None:
    """Stands for a watcher while there is none."""


def _ready(view: SandboxView, before: Run | None) -> Run:
    if before is not None and before.state not in (RunState.READY, RunState.SKIPPED):
        return before  # its output stays readable
    if view.state is Status.RUNNING:
        return Run(sandbox_id=view.id, name=view.name)
    note = "it is paused" if view.state is Status.PAUSED else f"it is {view.state.value}"
    return Run(sandbox_id=view.id, name=view.name, state=RunState.SKIPPED, note=note)


def exec_command(names: Sequence[str], command: str) -> str:
    """Returns the shell commands that do the same, joined by ``;``."""
    argv = ["/bin/sh", "-c", command]
    one = (command_line("exec", name=name, argv=argv) for name in names)
    return sanitise("; ".join(one), limit=COMMAND_MAX)
