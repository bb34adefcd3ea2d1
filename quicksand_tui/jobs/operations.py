"""The jobs of the app, with progress, cancellation and outcome, those told as one, and the command
log."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import replace
from statistics import median
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from quicksand_tui.actions import reasons
from quicksand_tui.actions.all_actions import default_keymap
from quicksand_tui.model.jobs import (
    SAVE_VERBS,
    CommandRecord,
    EndedJob,
    Failure,
    Job,
    JobVerb,
    OperationError,
    UnsuccessfulError,
)
from quicksand_tui.model.pace import Pace
from quicksand_tui.model.shown_sandboxes import at_host, split_host
from quicksand_tui.model.specs import Told
from quicksand_tui.model.text import clip, sanitise
from quicksand_tui.verbs import trashing

if TYPE_CHECKING:
    from quicksand.things.save import SaveFacts, TrashFacts

    from quicksand_tui.door.service import EngineService
    from quicksand_tui.model.keymap import Keymap
    from quicksand_tui.model.shown_sandboxes import RemovedView, SandboxView
    from quicksand_tui.verbs.call import Call, Progress, Report


class Together:
    """Collects the outcomes of jobs that one key began in several sandboxes, to be told as one."""

    def __init__(self, verb: JobVerb, count: int) -> None:
        self.verb = verb
        self._count = count
        self._ended: list[EndedJob] = []

    def take(self, ended: EndedJob) -> bool:
        """Notes the end of one job; returns whether it was the last one."""
        self._ended.append(ended)
        return len(self._ended) == self._count

    @property
    def done(self) -> int:
        """The number of jobs that succeeded."""
        return sum(one.outcome == "done" for one in self._ended)

    @property
    def text(self) -> str:
        """The numbers of outcomes, in words."""
        cancelled = sum(one.outcome == "cancelled" for one in self._ended)
        text = f"{self.verb.value}: done with {_of(self.done, self._count)}"
        text += f", {cancelled} cancelled" if cancelled else ""
        return text + (f", {len(self._failed)} failed" if self._failed else "")

    @property
    def _failed(self) -> list[EndedJob]:
        return [one for one in self._ended if one.outcome == "failed"]

    @property
    def failure(self) -> Failure | None:
        """The reason of each failed job, the first in full; None if none failed."""
        failed = self._failed
        if not failed:
            return None
        reasons = [
            (one.job.name, one.failure or Failure(title="", message=one.told)) for one in failed
        ]
        name, first = reasons[0]
        return Failure(
            title=f"{self.verb.value}: failed with {_of(len(failed), self._count)}",
            message=f"{name}: {first.message}",
            hint=first.hint,
            log=first.log
            if len(failed) == 1
            else tuple(f"{name}: {why.message}" for name, why in reasons[1:]),
        )


def _of(count: int, all_: int) -> str:
    return f"all {all_} sandboxes" if count == all_ else f"{count} of {all_} sandboxes"


LAST: Final = 3
"""The number of the last such jobs that count."""

SPREAD_MAX: Final = 2.0
"""The greatest ratio of the longest of them to the shortest: a start from a template tells nothing
about a start without one."""

LEAST_S: Final = 3.0
"""Seconds below which a job is over before anybody has read how long it will take."""


def usual_seconds(job: Job, ended: Sequence[EndedJob]) -> float:
    """Returns the seconds that jobs like this one took in this run of the app; 0 if none has
    succeeded, or if the last ones differ too much. ``ended`` has the newest last."""
    took = [
        other.seconds
        for other in reversed(ended)
        if other.outcome == "done" and job.kind and _is_like(job, other.job)
    ][:LAST]
    if not took or max(took) > SPREAD_MAX * min(took) or (usual := median(took)) < LEAST_S:
        return 0.0
    return usual


def _is_like(one: Job, other: Job) -> bool:
    """Whether both do the same to like things. Sandboxes of an image on a machine start alike."""
    if (one.kind, one.verb, one.image) != (other.kind, other.verb, other.image):
        return False
    if one.verb in SAVE_VERBS:
        return one.about == other.about
    if one.verb is JobVerb.START:
        return split_host(one.sandbox_id)[1] == split_host(other.sandbox_id)[1]
    return one.sandbox_id == other.sandbox_id


T = TypeVar("T")

TELL_EVERY_S = 0.15
"""Seconds between two updates of the progress shown: faster ones cannot be read."""
PATIENCE_S = 1.0
"""Seconds into a stage before its rate is steady enough to be shown."""


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


CHANGE_SAVES = SAVE_VERBS | {JobVerb.SAVE}
COMMAND_MAX = 2000
"""The most characters of a command that is shown."""

LOG_MAX = 200
"""The most commands that the log keeps."""
ENDED_MAX = 50
"""The most ended jobs that are kept."""
STAGE_CELLS = 60
"""Width of a stage, which may name a path or a tag."""

Work = Callable[["Report"], Awaitable[str | None]]
"""Carries out a job, reporting its progress. Returns the message to show ("" for none), or None
if the sandbox's row shows the outcome."""


class Host(Protocol):
    """The interface that jobs need of the app that shows them."""

    def run_operation(self, operation: Coroutine[Any, Any, None], name: str) -> None:
        """Runs the operation in the background, and holds a reference until it ends."""

    def jobs_changed(self) -> None:
        """Shows the jobs and the command log, and soon reads the disk."""

    def show(self) -> None:
        """Shows the progress of a job; nothing else has changed."""

    def operation_done(self, what: str) -> None:
        """Shows in passing that a job succeeded; with "" that it ended otherwise."""

    def tell_outcome(self, what: str) -> None: ...

    def show_failure(self, failure: Failure) -> None: ...

    async def look(self) -> None:
        """Returns when the present state of the disk is shown."""


class _Place:
    """The place of the current task's job among the others: under a new sandbox's name first, and
    under its id as soon as it has one."""

    def __init__(
        self,
        key: str,
        jobs: dict[str, Job],
        tasks: dict[str, asyncio.Task[None]],
        host: Host,
        clock: Callable[[], float],
    ) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._key = key
        self._jobs = jobs
        self._tasks = tasks
        self._host = host
        self._clock = clock
        self._task = task
        self._loop = asyncio.get_running_loop()
        self._meter = Meter()
        self._pace = Pace(jobs[key].started)
        tasks[key] = task

    def report(self, progress: Progress) -> None:
        """Shows the job's progress, unless it was shown just now. May be called by any thread."""
        rate = self._meter.take(progress)
        if rate is not None:
            with contextlib.suppress(RuntimeError):  # the app has closed its loop
                self._loop.call_soon_threadsafe(self._take, progress, rate)

    def _take(self, progress: Progress, rate: float) -> None:
        if self._task.done() or self._tasks.get(self._key) is not self._task:
            return
        held = self._jobs.pop(self._key)
        del self._tasks[self._key]
        before = (held.sandbox_id, held.stage, held.step)
        self._key = progress.sandbox_id or self._key
        self._tasks[self._key] = self._task
        self._jobs[self._key] = replace(
            held,
            sandbox_id=self._key,
            stage=progress.stage,
            step=progress.step,
            steps=progress.steps,
            done=progress.done,
            total=progress.total,
            rate=rate,
            share=progress.share,
            ends=0.0 if progress.share is None else self._pace.take(progress.share, self._clock()),
        )
        if before == (self._key, progress.stage, progress.step):
            self._host.show()
        else:
            self._host.jobs_changed()

    def leave(self) -> Job | None:
        """Gives the place up; returns the last state of the job, None if another job has it."""
        if self._tasks.get(self._key) is not self._task:
            return None
        del self._tasks[self._key]
        return self._jobs.pop(self._key, None)


class Operations:
    """The jobs of this app, one per sandbox at a time. Lives on the UI's event loop."""

    def __init__(
        self, service: EngineService, host: Host, *, clock: Callable[[], float] = time.time
    ) -> None:
        self._service = service
        self._host = host
        self._clock = clock
        self._jobs: dict[str, Job] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self.hints: Callable[[], Keymap] = default_keymap
        """Returns the present keys that messages name, such as "undo: U"."""
        self.read_only = False
        """Jobs that change something do not begin."""
        self.log: deque[CommandRecord] = deque(maxlen=LOG_MAX)
        """The commands, newest last."""
        self.ended: deque[EndedJob] = deque(maxlen=ENDED_MAX)
        """The jobs that have ended, newest last."""
        self._numbers = itertools.count(1)
        self._ids = itertools.count(1)
        self.show_report: Callable[[Told], None] = lambda _: None
        """Shows results that are longer than a line."""
        self.saves_changed: Callable[[], None] = lambda: None
        """Called when a job may have changed the saves, whatever its outcome."""
        self.removed: tuple[RemovedView, ...] = ()
        """The sandboxes in the trash that an undo restores: the last job deleted them."""

    @property
    def jobs(self) -> tuple[Job, ...]:
        return tuple(self._jobs.values())

    def do(
        self,
        verb: Call[T],
        sandbox: SandboxView,
        *,
        got: Callable[[T], None] = lambda _: None,
        together: Together | None = None,
    ) -> None:
        """Begins a verb as a job of a sandbox. A kill replaces the job that stops the sandbox.
        ``got`` receives the result; ``together`` is told of the end instead of the user."""
        self.begin(
            verb,
            sandbox_id=sandbox.id,
            name=sandbox.name,
            image=sandbox.image,
            got=got,
            together=together,
        )

    def do_with_saves(
        self,
        verb: Call[Any],
        about: Sequence[SaveFacts | TrashFacts] = (),
        *,
        name: str = "",
        command: str = "",
    ) -> None:
        """Begins a verb that belongs to no sandbox. Without ``name`` the job is named after the
        saves it is ``about``; ``command`` is by default that of the verb."""
        names = [view.name for view in about]
        self.begin(
            verb,
            sandbox_id=at_host(f"{verb.job.name.lower()}:{next(self._ids)}", verb.host),
            name=sanitise(name) or (names[0] if len(names) == 1 else f"{len(names)} saves"),
            command=sanitise(command or verb.command_for(), limit=COMMAND_MAX),
            about=frozenset(view.key for view in about),
        )

    def do_all(
        self, verb: Callable[[SandboxView], Call[Any]], sandboxes: Sequence[SandboxView]
    ) -> None:
        """Begins a verb in each of the sandboxes; the end of several is told once."""
        verbs = [(verb(sandbox), sandbox) for sandbox in sandboxes]
        together = self._together(verbs[0][0].job, len(verbs)) if verbs else None
        for one, sandbox in verbs if together is not None else verbs[:1]:
            self.do(one, sandbox, together=together)

    def _together(self, verb: JobVerb, count: int) -> Together | None:
        """Returns the object that collects the ends of several jobs; None for one, or if none may
        begin."""
        if count < 2 or self.read_only:
            return None
        return Together(verb, count)

    def delete(self, sandboxes: Sequence[SandboxView]) -> None:
        """Moves sandboxes to the trash; one undo restores them all."""
        self.removed = ()
        together = self._together(JobVerb.DELETE, len(sandboxes))
        for sandbox in sandboxes if together is not None else sandboxes[:1]:
            verb = trashing.remove(stop=True, forced=sandbox.is_live, why="deleted in the app")
            self.do(
                verb,
                sandbox,
                got=lambda gone, host=sandbox.host: self._note_removed(  # type: ignore[misc]
                    trashing.removed_view(gone, host)
                ),
                together=together,
            )

    def _tell_together(self, together: Together) -> None:
        """Tells the ends of several jobs, and how to undo what they deleted."""
        is_undone = together.verb is JobVerb.DELETE and self.removed and together.done
        way = f" · undo: {self.hints().hint('undo')}" if is_undone else ""
        self._host.tell_outcome(together.text + way)
        if together.failure is not None:
            self._host.show_failure(together.failure)

    def _note_removed(self, removed: RemovedView) -> None:
        if removed.in_trash:
            self.removed += (removed,)

    def bring_back(self) -> None:
        """Undoes the last delete; sandboxes that ran resume where they were."""
        deleted, self.removed = self.removed, ()
        together = self._together(JobVerb.RESTORE, len(deleted))
        for removed in deleted if together is not None else deleted[:1]:
            verb = trashing.bring_back(start=removed.goes_on)
            self.begin(verb, sandbox_id=removed.id, name=removed.name, together=together)

    def cancel(self, sandbox_id: str) -> None:
        """Cancels a job; it stays listed until it has undone what it began."""
        job, task = self._jobs.get(sandbox_id), self._tasks.get(sandbox_id)
        if job is None or task is None or job.cancelling:
            return  # cancelling twice would interrupt the clean-up
        self._jobs[sandbox_id] = replace(job, cancelling=True)
        task.cancel()
        self._host.jobs_changed()

    async def settled(self, sandbox_id: str) -> None:
        """Returns when no job of a sandbox is running, whatever the outcome."""
        while (task := self._tasks.get(sandbox_id)) is not None:
            await asyncio.wait((task,))

    def note_command(self, command: str, sandbox_id: str) -> None:
        """Adds to the command log an action about a sandbox that is not a job."""
        if command:
            about = frozenset({sandbox_id})
            self.log.append(CommandRecord(command, outcome="done", about=about))
            self._host.jobs_changed()

    # Running

    def begin(
        self,
        verb: Call[T],
        *,
        sandbox_id: str,
        name: str,
        image: str = "",
        command: str = "",
        about: frozenset[str] = frozenset(),
        got: Callable[[T], None] = lambda _: None,
        together: Together | None = None,
    ) -> None:
        """Carries out a verb as a job; most keywords are fields of the job. ``command`` is by
        default the verb's for the sandbox of that name. ``got`` receives the result; ``together``
        as in `do`."""

        async def work(report: Report) -> str | None:
            try:
                result = await self._service.carry_out(verb, sandbox_id, report)
            finally:
                if verb.job in CHANGE_SAVES:
                    self.saves_changed()
            got(result)
            told = verb.tell(name, result, self.hints())
            if not isinstance(told, Told):
                return told
            if not told.lines:
                return told.summary
            self.show_report(told)
            return ""

        job = Job(
            sandbox_id=sandbox_id,
            name=name,
            verb=verb.job,
            image=image,
            stage=clip(verb.stage, STAGE_CELLS),
            started=self._clock(),
            command=command or verb.command_for(name),
            about=about,
            kind=verb.command_for(),
        )
        self.begin_work(job, work, verb.done, together)

    def begin_work(
        self, job: Job, work: Work, done: str = "", together: Together | None = None
    ) -> None:
        """Carries out a job of several operations. ``done`` is the sandbox's state then, if
        ``work`` returns None."""
        if self.read_only and job.verb is not JobVerb.VERIFY:
            self._host.tell_outcome(reasons.READ_ONLY)
            return
        if job.verb is not JobVerb.DELETE:
            self.removed = ()
        job = replace(job, usual_s=usual_seconds(job, self.ended))
        record = CommandRecord(job.command, about=job.sandboxes)
        self.log.append(record)
        self._jobs[job.sandbox_id] = job
        self._host.run_operation(
            self._carry_out(job, record, work, done, together), f"{job.verb.value} {job.sandbox_id}"
        )
        self._host.jobs_changed()

    async def _carry_out(
        self,
        job: Job,
        record: CommandRecord,
        work: Work,
        done: str,
        together: Together | None,
    ) -> None:
        """Runs one job to its end."""
        begun = self._clock()
        place = _Place(job.sandbox_id, self._jobs, self._tasks, self._host, self._clock)
        outcome, told, failure = "cancelled", None, None
        try:
            told = await work(place.report)
            outcome = "done"
        except OperationError as error:
            outcome, failure = "failed", error.failure
            if together is None:
                self._host.show_failure(failure)
        except UnsuccessfulError as error:
            outcome, told = "failed", str(error)
        finally:
            if outcome != "cancelled":
                # Otherwise the state from before the job would show for a moment after it.
                await self._host.look()
            last = place.leave() or job
            now = self._clock()
            ended = EndedJob(
                number=next(self._numbers),
                job=last,
                outcome=outcome,
                ended=now,
                seconds=now - begun,
                told=told or "",
                failure=failure,
            )
            self._note_end(record, ended)
            if together is not None and together.take(ended):
                self._tell_together(together)
        if together is not None:
            return
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
                    about=ended.job.sandboxes,  # a new sandbox has its id by now
                )
        self._host.jobs_changed()
