"""What the app is doing: jobs with progress, cancel and outcome, and the command log.

No widgets: whoever shows it subscribes with ``changed`` and ``failed``.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import shlex
import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from quicksand_tui import reasons
from quicksand_tui.actions import Scope, default_keymap, find_action
from quicksand_tui.command_record import CommandRecord
from quicksand_tui.failures import Failure, OperationError, UnsuccessfulError
from quicksand_tui.meter import Meter
from quicksand_tui.snapshot import SAVE_VERBS, Job, Verb
from quicksand_tui.text import clip, pause_text, sanitise, size_text

if TYPE_CHECKING:
    from quicksand_tui.listed import SandboxView
    from quicksand_tui.past import CheckpointView
    from quicksand_tui.services import Progress, Report, Service
    from quicksand_tui.specs import CheckpointSpec, CloneSpec, NewSpec

LOG_MAX = 200
NAMES_SHOWN = 3
ENDED_MAX = 50
TAG_CELLS = 40
"""Of a tag within a sentence."""

RunWorker = Callable[[Coroutine[Any, Any, None], str], None]
"""Runs a coroutine in the background under a name, and keeps it until it ends."""

Operation = Callable[["Report"], Coroutine[Any, Any, str | None]]
"""Carries an action out, reporting its progress; gives what to tell ("": nothing), if its row does
not."""

DONE_WORDS = {
    Verb.START: "started",
    Verb.STOP: "stopped",
    Verb.KILL: "killed",
    Verb.PAUSE: "paused",
    Verb.RESUME: "running again",
    Verb.DELETE: "deleted",
}


CANCELLABLE = SAVE_VERBS | {Verb.START, Verb.SAVE, Verb.RUN}
"""What ends with nothing half done when it is cancelled; the others are over in a moment, or are
the guest's to end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedJob:
    """A job of this app that is over."""

    number: int
    job: Job
    """As it was at the end."""
    outcome: str
    """ "done", "failed" or "cancelled"."""
    ended: float
    """Unix time."""
    seconds: float
    told: str = ""
    """What it had to tell."""
    failure: Failure | None = None


class Operations:
    """The jobs of this app, one per sandbox at a time. Lives on the UI's event loop."""

    def __init__(
        self,
        service: Service,
        *,
        run_worker: RunWorker,
        changed: Callable[[], None],
        advanced: Callable[[], None],
        done: Callable[[str], None],
        failed: Callable[[Failure], None],
        tell: Callable[[str], None],
        look: Callable[[], Awaitable[None]],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._service = service
        self._run_worker = run_worker
        self._changed = changed
        self._advanced = advanced
        """A job is a bit further; nothing else has changed."""
        self._done = done
        self._failed = failed
        self._tell = tell
        self._look = look
        """Returns when what is on disk now is what is shown."""
        self._clock = clock
        self._jobs: dict[str, Job] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self.keymap = default_keymap()
        """For what names keys."""
        self.read_only = False
        """Nothing begins that changes anything."""
        self.log: deque[CommandRecord] = deque(maxlen=LOG_MAX)
        """Newest last."""
        self.ended: deque[EndedJob] = deque(maxlen=ENDED_MAX)
        """Newest last."""
        self._numbers = itertools.count(1)

    @property
    def jobs(self) -> tuple[Job, ...]:
        return tuple(self._jobs.values())

    # Beginning

    def create(self, spec: NewSpec) -> None:
        from quicksand_tui.spec import run_command

        key = f"new:{spec.name}"
        job = Job(
            sandbox_id=key,
            name=spec.name,
            verb=Verb.START,
            image=spec.image,
            started=self._clock(),
        )
        self.begin(
            job,
            run_command(spec),
            lambda report: self._service.create(spec, report),
        )

    def start(self, sandbox: SandboxView) -> None:
        self._begin_on(sandbox, Verb.START, lambda report: self._service.start(sandbox.id, report))

    def stop(self, sandbox: SandboxView) -> None:
        self._begin_on(sandbox, Verb.STOP, lambda _: self._service.stop(sandbox.id))

    def kill(self, sandbox: SandboxView) -> None:
        """Also of one that is being stopped: then this takes the place of that job."""
        self._begin_on(sandbox, Verb.KILL, lambda _: self._service.kill(sandbox.id))

    def pause(self, sandbox: SandboxView) -> None:
        self._begin_on(sandbox, Verb.PAUSE, lambda _: self._service.pause(sandbox.id))

    def resume(self, sandbox: SandboxView) -> None:
        command = f"quicksand-tui resume {shlex.quote(sandbox.name)}"
        self._begin_on(sandbox, Verb.RESUME, lambda _: self._service.resume(sandbox.id), command)

    def delete(self, sandbox: SandboxView) -> None:
        self._begin_on(sandbox, Verb.DELETE, lambda _: self._service.delete(sandbox.id))

    def checkpoint(self, sandbox: SandboxView, spec: CheckpointSpec) -> None:
        from quicksand_tui.spec import checkpoint_command

        async def take(_: object) -> str:
            made = await self._service.checkpoint(sandbox.id, spec)
            tier = f" ({made.tier}: {made.tier_note})" if made.tier != "pages" else ""
            return (
                f"{sandbox.name}: checkpoint {_short(made)}: stood still for "
                f"{pause_text(made.pause_s)}, {size_text(made.written)} written{tier}"
            )

        command = checkpoint_command(sandbox.name, spec)
        self._begin_on(sandbox, Verb.CHECKPOINT, take, command, "taking a checkpoint")

    def revert(self, sandbox: SandboxView, made: CheckpointView) -> None:
        async def go(_: object) -> str:
            reached = await self._service.revert(sandbox.id, made.id)
            return f"{sandbox.name}: reverted to {_short(reached)} ({self._undo_hint()})"

        command = find_action("revert").command_for(sandbox.name, *_as_argument(made))
        self._begin_on(sandbox, Verb.REVERT, go, command, f"going back to {_short(made)}")

    def undo(self, sandbox: SandboxView) -> None:
        async def go(_: object) -> str:
            await self._service.undo(sandbox.id)
            return f"{sandbox.name}: back where it was ({self._undo_hint()})"

        self._begin_on(sandbox, Verb.UNDO, go, stage="undoing the revert")

    def start_at(self, sandbox: SandboxView, made: CheckpointView) -> None:
        async def go(report: Callable[[Progress], None]) -> str:
            await self._service.start(sandbox.id, report, at=made.id)
            return f"{sandbox.name}: goes on from {_short(made)}"

        command = find_action("start").command_for(sandbox.name, "--at", made.name)
        self._begin_on(sandbox, Verb.START, go, command)

    def clone(self, sandbox: SandboxView, spec: CloneSpec) -> None:
        from quicksand_tui.spec import clone_command

        async def make(_: object) -> str:
            names = await self._service.clone(sandbox.id, spec.count, at=spec.at)
            shown = ", ".join(names[:NAMES_SHOWN]) + (" …" if len(names) > NAMES_SHOWN else "")
            return f"{sandbox.name}: {len(names)} more: {shown}"

        made = sandbox.past.find(spec.at)
        what = "a clone" if spec.count == 1 else f"{spec.count} clones"
        command = clone_command(sandbox.name, spec, made)
        self._begin_on(sandbox, Verb.CLONE, make, command, f"making {what}")

    def pin(self, sandbox: SandboxView, made: CheckpointView) -> None:
        async def pin(_: object) -> str:
            await self._service.pin_checkpoint(sandbox.id, made.id, pinned=not made.pinned)
            how = "can be deleted again" if made.pinned else "is pinned: it cannot be deleted"
            return f"{sandbox.name}: {_short(made)} {how}"

        command = find_action("pin", Scope.TREE).command_for(sandbox.name, *_as_argument(made))
        if made.pinned:
            command = command.replace(" pin ", " unpin ", 1)
        self._begin_on(sandbox, Verb.PIN, pin, command)

    def write_note(self, sandbox: SandboxView, made: CheckpointView, note: str) -> None:
        async def write(_: object) -> str:
            await self._service.note_checkpoint(sandbox.id, made.id, note)
            return f"{sandbox.name}: {_short(made)} has {'a' if note else 'no'} note"

        words = (*_as_argument(made), note)
        command = find_action("note", Scope.TREE).command_for(sandbox.name, *words)
        self._begin_on(sandbox, Verb.NOTE, write, command)

    def delete_checkpoint(self, sandbox: SandboxView, made: CheckpointView) -> None:
        async def remove(_: object) -> str:
            await self._service.delete_checkpoint(sandbox.id, made.id)
            return f"{sandbox.name}: checkpoint {_short(made)} is deleted"

        words = _as_argument(made)
        command = find_action("remove", Scope.TREE).command_for(sandbox.name, *words)
        self._begin_on(sandbox, Verb.REMOVE, remove, command, f"deleting {_short(made)}")

    def cancel(self, sandbox_id: str) -> None:
        """Cancel a job; it stays listed until what it had begun is undone."""
        job, task = self._jobs.get(sandbox_id), self._tasks.get(sandbox_id)
        if job is None or task is None or job.cancelling:
            return  # a second time would interrupt the undoing
        self._jobs[sandbox_id] = replace(job, cancelling=True)
        task.cancel()
        self._changed()

    def note_command(self, command: str) -> None:
        """Log an action that is no job."""
        if command:
            self.log.append(CommandRecord(command, outcome="done"))
            self._changed()

    def _undo_hint(self) -> str:
        return f"undo: {self.keymap.hint('undo')}"

    # Running

    def _begin_on(
        self,
        sandbox: SandboxView,
        verb: Verb,
        operation: Operation,
        command: str = "",
        stage: str = "",
    ) -> None:
        """Begin on a sandbox; without ``command`` it is that of the action called like the verb."""
        job = Job(
            sandbox_id=sandbox.id,
            name=sandbox.name,
            verb=verb,
            image=sandbox.image,
            stage=stage,
            started=self._clock(),
        )
        if not command:
            command = find_action(verb.value).command_for(sandbox.name, live=sandbox.is_live)
        self.begin(job, sanitise(command), operation)

    def begin(
        self,
        job: Job,
        command: str,
        operation: Operation,
    ) -> None:
        """Carry out ``operation``, logged as ``command``."""
        if self.read_only and job.verb is not Verb.VERIFY:
            self._tell(reasons.READ_ONLY)  # no action leads here: each has said so before
            return
        record = CommandRecord(command)
        self.log.append(record)
        job = self._jobs[job.sandbox_id] = replace(job, command=command)
        self._run_worker(
            self._carry_out(job, record, operation), f"{job.verb.value} {job.sandbox_id}"
        )
        self._changed()

    async def _carry_out(
        self,
        job: Job,
        record: CommandRecord,
        operation: Operation,
    ) -> None:
        """Run one job to its end. ``key`` follows a new sandbox from its name to its id."""
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
                self._advanced()
            else:
                self._changed()

        def report(progress: Progress) -> None:
            rate = meter.take(progress)
            if rate is not None:
                with contextlib.suppress(RuntimeError):  # the app has gone
                    loop.call_soon_threadsafe(take, progress, rate)

        outcome, told, failure = "cancelled", None, None
        try:
            told = await operation(report)
            outcome = "done"
        except OperationError as error:
            outcome, failure = "failed", error.failure
            self._failed(failure)
        except UnsuccessfulError as error:
            outcome, told = "failed", str(error)
        finally:
            if outcome != "cancelled":
                # Else the state from before the job would be shown for a moment after it.
                await self._look()
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
            self._tell(told)
        elif told is None:
            self._done(f"{job.name} is {DONE_WORDS[job.verb]}" if outcome == "done" else "")

    def _note_end(self, record: CommandRecord, ended: EndedJob) -> None:
        self.ended.append(ended)
        for index, found in enumerate(self.log):
            if found is record:
                self.log[index] = replace(record, outcome=ended.outcome, seconds=ended.seconds)
        self._changed()


def _as_argument(made: CheckpointView) -> tuple[str, ...]:
    """A checkpoint as a command's argument, not to be taken for an option."""
    return ("--", made.name) if made.name.startswith("-") else (made.name,)


def _short(made: CheckpointView) -> str:
    return clip(made.tag, TAG_CELLS)
