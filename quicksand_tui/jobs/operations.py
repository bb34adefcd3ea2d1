"""The jobs of the app, with progress, cancellation and outcome, and the command log."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from quicksand_tui.actions import reasons
from quicksand_tui.actions.commands import command_line
from quicksand_tui.actions.registry import default_keymap, find_action
from quicksand_tui.actions.shown import (
    CommandRecord,
    checkpoint_command,
    clone_command,
    mount_command,
    unmount_command,
)
from quicksand_tui.door.protocol import Operation
from quicksand_tui.forms.checks import run_command
from quicksand_tui.model.amounts import pause_text, size_text
from quicksand_tui.model.jobs import EndedJob, Job, JobVerb, OperationError, UnsuccessfulError
from quicksand_tui.model.text import clip

if TYPE_CHECKING:
    from quicksand_tui.door.protocol import Engine, Progress, Report, Service
    from quicksand_tui.model.checkpoints import CheckpointView
    from quicksand_tui.model.jobs import Failure
    from quicksand_tui.model.sandboxes import MountView, RemovedView, SandboxView
    from quicksand_tui.model.specs import CheckpointSpec, CloneSpec, MountSpec, NewSpec
    from quicksand_tui.verbs.record import SandboxVerb


T = TypeVar("T")

TELL_EVERY_S = 0.15
"""Seconds between two updates of the progress shown: faster ones cannot be read."""
PATIENCE_S = 1.0
"""Seconds into a stage before its rate is steady enough to show."""


class Meter:
    """Limits how often progress is shown and measures its rate. Used by one thread at a time."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._stage = ""
        self._told = self._began = 0.0
        self._begin = 0
        """Bytes done when the stage began."""

    def take(self, progress: Progress) -> float | None:
        """Returns the rate in bytes per second, 0 while it is unknown; None if this progress
        follows the last one too soon to be shown."""
        now = self._clock()
        stage = f"{progress.step} {progress.stage}"
        if stage != self._stage:
            self._stage, self._began, self._begin = stage, now, progress.done
        elif now - self._told < TELL_EVERY_S:
            return None
        self._told = now
        spent = now - self._began
        return (progress.done - self._begin) / spent if spent >= PATIENCE_S else 0.0


LOG_MAX = 200
"""How many commands the log keeps."""
NAMES_SHOWN = 3
ENDED_MAX = 50
"""How many ended jobs are kept."""
TAG_CELLS = 40
"""Width of a tag within a sentence."""
STARTED = "started"

Work = Callable[["Report"], Awaitable[str | None]]
"""Carries out a job, reporting its progress. Returns the message to show ("" for none), or None
if the sandbox's row shows the outcome."""


class Host(Protocol):
    """What jobs need from the app that shows them."""

    def run_operation(self, operation: Coroutine[Any, Any, None], name: str) -> None:
        """Runs it in the background, and holds a reference until it ends."""

    def jobs_changed(self) -> None:
        """Shows the jobs and the command log, and soon reads the disk."""

    def show(self) -> None:
        """Shows the progress of a job; nothing else has changed."""

    def operation_done(self, what: str) -> None:
        """Shows that a job succeeded, in passing; with "" that it ended otherwise."""

    def tell_outcome(self, what: str) -> None: ...

    def show_failure(self, failure: Failure) -> None: ...

    async def look(self) -> None:
        """Returns when the present state of the disk is shown."""


class Operations:
    """The jobs of this app, one per sandbox at a time. Lives on the UI's event loop."""

    def __init__(
        self, service: Service, host: Host, *, clock: Callable[[], float] = time.time
    ) -> None:
        self._service = service
        self._host = host
        self._clock = clock
        self._jobs: dict[str, Job] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self.keymap = default_keymap()
        """The keys that messages name, such as "undo: U"."""
        self.read_only = False
        """Jobs that would change something do not begin."""
        self.log: deque[CommandRecord] = deque(maxlen=LOG_MAX)
        """Newest last."""
        self.ended: deque[EndedJob] = deque(maxlen=ENDED_MAX)
        """Newest last."""
        self._numbers = itertools.count(1)
        self.removed: tuple[RemovedView, ...] = ()
        """The sandboxes in the trash that an undo restores: the last job deleted them."""

    @property
    def jobs(self) -> tuple[Job, ...]:
        return tuple(self._jobs.values())

    # A sandbox's life

    def create(self, spec: NewSpec) -> None:
        operation = Operation(
            verb=JobVerb.START,
            title=f"{spec.name} did not start",
            run=lambda engine, report: engine.create(spec, report),
            tell=lambda notices: _told_of(spec.name, notices),
            done=STARTED,
            command=run_command(spec),
        )
        self.begin(operation, sandbox_id=f"new:{spec.name}", name=spec.name, image=spec.image)

    def start(self, sandbox: SandboxView) -> None:
        self._begin_on(
            sandbox,
            JobVerb.START,
            "The sandbox did not start",
            lambda engine, report: engine.start(sandbox.id, report),
            tell=lambda notices: _told_of(sandbox.name, notices),
            done=STARTED,
        )

    def do(self, verb: SandboxVerb, sandbox: SandboxView) -> None:
        """Begins a verb. To kill a sandbox replaces the job of one that is being stopped."""
        self._begin_on(
            sandbox,
            verb.job,
            verb.failed,
            lambda engine, _: engine.carry_out(verb, sandbox.id),
            done=verb.done,
            command=command_line(verb.job.value, names=[sandbox.name]),
        )

    def delete(self, sandboxes: Sequence[SandboxView]) -> None:
        """Moves sandboxes to the trash; one undo restores them all."""
        self.removed = ()
        for sandbox in sandboxes:
            self._delete(sandbox)

    def _delete(self, sandbox: SandboxView) -> None:
        def tell(removed: RemovedView) -> str:
            if not removed.in_trash:
                return f"{sandbox.name} is gone for good"
            self.removed += (removed,)
            lost = f"; only its disk is kept: {removed.not_kept}" if removed.not_kept else ""
            return f"{sandbox.name} is in the trash ({self._undo_hint()}){lost}"

        self._begin_on(
            sandbox,
            JobVerb.DELETE,
            "The sandbox was not deleted",
            lambda engine, _: engine.delete(sandbox.id),
            tell=tell,
        )

    def bring_back(self) -> None:
        """Undoes the last delete; sandboxes that ran resume where they were."""
        deleted, self.removed = self.removed, ()
        for removed in deleted:
            self._bring_back(removed)

    def _bring_back(self, removed: RemovedView) -> None:
        operation = Operation(
            verb=JobVerb.START,
            title="The sandbox was not brought back",
            run=lambda engine, report: engine.bring_back(removed.id, report),
            command=command_line("restore", start=removed.goes_on, name=removed.name),
            tell=lambda runs: (
                f"{removed.name} is back{' and goes on where it was' if runs else ''}"
            ),
        )
        self.begin(operation, sandbox_id=removed.id, name=removed.name)

    # Checkpoints

    def checkpoint(self, sandbox: SandboxView, spec: CheckpointSpec) -> None:
        def tell(taken: CheckpointView) -> str:
            tier = f" ({taken.tier}: {taken.tier_note})" if not taken.has_pages else ""
            return (
                f"{sandbox.name}: checkpoint {_short(taken)}: stood still for "
                f"{pause_text(taken.pause_s)}, {size_text(taken.written)} written{tier}"
            )

        self._begin_on(
            sandbox,
            JobVerb.CHECKPOINT,
            "There is no new checkpoint",
            lambda engine, _: engine.checkpoint(sandbox.id, spec),
            tell=tell,
            command=checkpoint_command(sandbox.name, spec),
            stage="taking a checkpoint",
        )

    def revert(self, sandbox: SandboxView, checkpoint: CheckpointView) -> None:
        self._begin_on(
            sandbox,
            JobVerb.REVERT,
            "The revert failed",
            lambda engine, _: engine.revert(sandbox.id, checkpoint.id),
            tell=lambda reached: (
                f"{sandbox.name}: reverted to {_short(reached)} ({self._undo_hint()})"
            ),
            command=command_line("revert", name=sandbox.name, tag=checkpoint.name),
            stage=f"going back to {_short(checkpoint)}",
        )

    def undo(self, sandbox: SandboxView) -> None:
        self._begin_on(
            sandbox,
            JobVerb.UNDO,
            "The undo failed",
            lambda engine, _: engine.undo(sandbox.id),
            tell=lambda _: f"{sandbox.name}: back where it was ({self._undo_hint()})",
            stage="undoing the revert",
        )

    def start_at(self, sandbox: SandboxView, checkpoint: CheckpointView) -> None:
        self._begin_on(
            sandbox,
            JobVerb.START,
            "The sandbox did not start",
            lambda engine, report: engine.start(sandbox.id, report, at=checkpoint.id),
            tell=lambda notices: (
                _told_of(sandbox.name, notices)
                or f"{sandbox.name}: goes on from {_short(checkpoint)}"
            ),
            command=command_line("start", names=[sandbox.name], at=checkpoint.name),
        )

    def clone(self, sandbox: SandboxView, spec: CloneSpec) -> None:
        def tell(names: tuple[str, ...]) -> str:
            shown = ", ".join(names[:NAMES_SHOWN]) + (" …" if len(names) > NAMES_SHOWN else "")
            return f"{sandbox.name}: {len(names)} more: {shown}"

        self._begin_on(
            sandbox,
            JobVerb.CLONE,
            "There are no clones",
            lambda engine, _: engine.clone(sandbox.id, spec.count, at=spec.at, mounts=spec.mounts),
            tell=tell,
            command=clone_command(sandbox.name, spec, sandbox.tree.find(spec.at)),
            stage=f"making {'a clone' if spec.count == 1 else f'{spec.count} clones'}",
        )

    def pin(self, sandbox: SandboxView, checkpoint: CheckpointView) -> None:
        verb = "checkpoint unpin" if checkpoint.pinned else "checkpoint pin"
        now = "can be deleted again" if checkpoint.pinned else "is pinned: it cannot be deleted"
        self._begin_on(
            sandbox,
            JobVerb.PIN,
            "The checkpoint is as it was",
            lambda engine, _: engine.pin_checkpoint(
                sandbox.id, checkpoint.id, pinned=not checkpoint.pinned
            ),
            tell=lambda _: f"{sandbox.name}: {_short(checkpoint)} {now}",
            command=command_line(verb, name=sandbox.name, tags=[checkpoint.name]),
        )

    def write_note(self, sandbox: SandboxView, checkpoint: CheckpointView, note: str) -> None:
        self._begin_on(
            sandbox,
            JobVerb.NOTE,
            "The note is as it was",
            lambda engine, _: engine.note_checkpoint(sandbox.id, checkpoint.id, note),
            tell=lambda _: f"{sandbox.name}: {_short(checkpoint)} has {'a' if note else 'no'} note",
            command=command_line(
                "checkpoint note", name=sandbox.name, tag=checkpoint.name, note=note
            ),
        )

    def delete_checkpoint(self, sandbox: SandboxView, checkpoint: CheckpointView) -> None:
        self._begin_on(
            sandbox,
            JobVerb.REMOVE,
            "The checkpoint was not deleted",
            lambda engine, _: engine.delete_checkpoint(sandbox.id, checkpoint.id),
            tell=lambda _: f"{sandbox.name}: checkpoint {_short(checkpoint)} is deleted",
            command=command_line("checkpoint rm", name=sandbox.name, tags=[checkpoint.name]),
            stage=f"deleting {_short(checkpoint)}",
        )

    # The host's directories

    def mount(self, sandbox: SandboxView, spec: MountSpec) -> None:
        self._begin_on(
            sandbox,
            JobVerb.MOUNT,
            "The directory is not mounted",
            lambda engine, _: engine.mount(sandbox.id, spec),
            tell=lambda _: f"{sandbox.name} has {spec.host} at {spec.guest}",
            command=mount_command(sandbox.name, spec),
            stage=f"mounting {clip(spec.guest, TAG_CELLS)}",
        )

    def unmount(self, sandbox: SandboxView, mount: MountView, *, force: bool = False) -> None:
        self._begin_on(
            sandbox,
            JobVerb.UNMOUNT,
            "The directory is still mounted",
            lambda engine, _: engine.unmount(sandbox.id, mount.key, force=force),
            tell=lambda _: f"{sandbox.name} has no longer {mount.host} at {mount.guest}",
            command=unmount_command(sandbox.name, mount, force=force),
            stage=f"unmounting {clip(mount.guest, TAG_CELLS)}",
        )

    def cancel(self, sandbox_id: str) -> None:
        """Cancels a job; it stays listed until it has undone what it began."""
        job, task = self._jobs.get(sandbox_id), self._tasks.get(sandbox_id)
        if job is None or task is None or job.cancelling:
            return  # cancelling twice would interrupt the clean-up
        self._jobs[sandbox_id] = replace(job, cancelling=True)
        task.cancel()
        self._host.jobs_changed()

    async def settled(self, sandbox_id: str) -> None:
        """Returns when no job of a sandbox is running, however it ended."""
        while (task := self._tasks.get(sandbox_id)) is not None:
            await asyncio.wait((task,))

    def note_command(self, command: str, sandbox_id: str) -> None:
        """Adds to the command log an action about a sandbox that is not a job."""
        if command:
            about = frozenset({sandbox_id})
            self.log.append(CommandRecord(command, outcome="done", about=about))
            self._host.jobs_changed()

    def _undo_hint(self) -> str:
        return f"undo: {self.keymap.hint('undo')}"

    # Running

    def _begin_on(
        self,
        sandbox: SandboxView,
        verb: JobVerb,
        title: str,
        run: Callable[[Engine, Report], Awaitable[T]],
        *,
        tell: Callable[[T], str | None] = lambda _: None,
        done: str = "",
        command: str = "",
        stage: str = "",
    ) -> None:
        """Begins a job of a sandbox; by default ``command`` is that of the verb's action."""
        if not command:
            command = find_action(verb.value).command_for(sandbox.name, live=sandbox.is_live)
        operation = Operation(
            verb=verb, title=title, run=run, command=command, tell=tell, done=done
        )
        self.begin(
            operation,
            sandbox_id=sandbox.id,
            name=sandbox.name,
            image=sandbox.image,
            stage=stage,
        )

    def begin(
        self,
        operation: Operation[T],
        *,
        sandbox_id: str,
        name: str,
        image: str = "",
        stage: str = "",
        about: frozenset[str] = frozenset(),
        ended: Callable[[], None] = lambda: None,
    ) -> None:
        """Carries out an operation as a job; most keywords are its fields. ``ended`` is called
        however it ends."""

        async def work(report: Report) -> str | None:
            try:
                return operation.tell(await self._service.run(operation, report))
            finally:
                ended()

        job = Job(
            sandbox_id=sandbox_id,
            name=name,
            verb=operation.verb,
            image=image,
            stage=stage,
            started=self._clock(),
            command=operation.command,
            about=about,
        )
        self.begin_work(job, work, operation.done)

    def begin_work(self, job: Job, work: Work, done: str = "") -> None:
        """Carries out a job that is more than one operation. ``done`` says what the sandbox is
        then, if ``work`` returns None."""
        if self.read_only and job.verb is not JobVerb.VERIFY:
            self._host.tell_outcome(reasons.READ_ONLY)
            return
        if job.verb is not JobVerb.DELETE:
            self.removed = ()
        record = CommandRecord(job.command, about=job.sandboxes)
        self.log.append(record)
        self._jobs[job.sandbox_id] = job
        self._host.run_operation(
            self._carry_out(job, record, work, done), f"{job.verb.value} {job.sandbox_id}"
        )
        self._host.jobs_changed()

    async def _carry_out(
        self,
        job: Job,
        record: CommandRecord,
        work: Work,
        done: str,
    ) -> None:
        """Runs one job to its end. ``key`` changes from a new sandbox's name to its id."""
        key = job.sandbox_id
        begun = self._clock()
        loop = asyncio.get_running_loop()
        task = asyncio.current_task()
        assert task is not None
        self._tasks[key] = task
        meter = Meter()

        def take(progress: Progress, rate: float) -> None:
            nonlocal key
            if task.done() or self._tasks.get(key) is not task:
                return
            held = self._jobs.pop(key)
            del self._tasks[key]
            begun = (held.sandbox_id, held.stage, held.step)
            key = progress.sandbox_id or key
            self._tasks[key] = task
            self._jobs[key] = replace(
                held,
                sandbox_id=key,
                stage=progress.stage,
                step=progress.step,
                steps=progress.steps,
                done=progress.done,
                total=progress.total,
                rate=rate,
            )
            if begun == (key, progress.stage, progress.step):
                self._host.show()
            else:
                self._host.jobs_changed()

        def report(progress: Progress) -> None:
            rate = meter.take(progress)
            if rate is not None:
                with contextlib.suppress(RuntimeError):  # the app has closed its loop
                    loop.call_soon_threadsafe(take, progress, rate)

        outcome, told, failure = "cancelled", None, None
        try:
            told = await work(report)
            outcome = "done"
        except OperationError as error:
            outcome, failure = "failed", error.failure
            self._host.show_failure(failure)
        except UnsuccessfulError as error:
            outcome, told = "failed", str(error)
        finally:
            if outcome != "cancelled":
                # Otherwise the state from before the job would show for a moment after it.
                await self._host.look()
            last = job
            if self._tasks.get(key) is task:
                last = self._jobs.pop(key, job)
                del self._tasks[key]
            now = self._clock()
            self._note_end(
                record,
                EndedJob(
                    number=next(self._numbers),
                    job=last,
                    outcome=outcome,
                    ended=now,
                    seconds=now - begun,
                    told=told or "",
                    failure=failure,
                ),
            )
        if told:
            self._host.tell_outcome(told)
        elif told is None:
            self._host.operation_done(f"{job.name} is {done}" if outcome == "done" else "")

    def _note_end(self, record: CommandRecord, ended: EndedJob) -> None:
        self.ended.append(ended)
        for index, logged in enumerate(self.log):
            if logged is record:
                self.log[index] = replace(
                    record,
                    outcome=ended.outcome,
                    seconds=ended.seconds,
                    about=ended.job.sandboxes,  # a new one has its id by now
                )
        self._host.jobs_changed()


def _told_of(name: str, notices: tuple[str, ...]) -> str | None:
    """Returns what a start could not do; None if the sandbox's row says enough."""
    return f"{name} runs, but: {'; '.join(notices)}" if notices else None


def _short(checkpoint: CheckpointView) -> str:
    return clip(checkpoint.tag, TAG_CELLS)
