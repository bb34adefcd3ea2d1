"""Runs many commands over a fleet, each in a sandbox of its own (`Fleet.map`)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from quicksand import ExecuteResult
from quicksand.errors import (
    AgentUnreachableError,
    ConfigError,
    MachineError,
    QuicksandError,
    RemoteError,
    RemoteUnreachableError,
)
from quicksand.extending import FarParts, best_effort, describe, paths, to_the_end

from quicksand_fleet.desk import Desk
from quicksand_fleet.interface import FleetEventKind, FleetHost, HostState, Need
from quicksand_fleet.life import FleetLife, need_of
from quicksand_fleet.placing import wanted_bytes

LOST_S = 30.0
"""Seconds without an answer after which a machine counts as lost for a command that runs there. The
machine itself ends sandboxes whose client has been away for as long (`GRACE_S`)."""

PER_CPU = 2
"""Sandboxes at a time for each processor of a machine, unless the caller says otherwise."""
AT_ONCE_MAX = 1000

LOST = (RemoteError, MachineError, AgentUnreachableError)
"""Errors after which a command may be carried out elsewhere."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """The work for each command; the fields are the arguments of `Fleet.map`."""

    image: str
    retries: int
    timeout: float | None
    output_max: int
    options: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchResult:
    """The outcome of one command."""

    index: int
    """The command's position among all commands, from 0."""
    command: str | Sequence[str]
    host: str | None
    """The machine where the command ran last; None if it was never placed."""
    exit_code: int | None
    """The command's exit code; None if it did not finish: `error` says why."""
    stdout: str = ""
    stderr: str = ""
    truncated: bool = False
    """Whether the command wrote more than is kept."""
    timed_out: bool = False
    duration_s: float = 0.0
    """Seconds of the command itself, by the guest's clock."""
    took_s: float = 0.0
    """Seconds from its first attempt to its result: waiting, starting and ending included."""
    attempts: int = 1
    error: QuicksandError | None = None

    @property
    def ok(self) -> bool:
        """Whether the command exited with 0."""
        return self.exit_code == 0


class Batch:
    """One call of `Fleet.map`."""

    def __init__(self, desk: Desk, work: Work, *, at_once: int | None) -> None:
        """Raises ConfigError."""
        _require_count("at_once", 1 if at_once is None else at_once, least=1, most=AT_ONCE_MAX)
        _require_count("retries", work.retries, least=0, most=100)
        _require_count("output_max", work.output_max, least=0, most=1024**3)
        self._desk = desk
        self._work = work
        self._at_once = at_once
        own: dict[str, Any] = {
            **{"image": work.image, "name": None, "ephemeral": True, "warm": True},
            **{"build": False, "save": None, "workspace": None, "base_dir": None},
            **{"trust": False, "progress_callback": None},
        }
        options = dict(work.options)
        for name in own.keys() & options.keys():
            own[name] = options.pop(name)
        self._known, self._opening = describe(own, options)
        self._running: dict[asyncio.Task[Any], FleetLife] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._lost: set[asyncio.Task[Any]] = set()
        """Attempts that were given up because their machine was away for too long."""

    async def results(
        self, commands: Iterable[str | Sequence[str]]
    ) -> AsyncGenerator[BatchResult, None]:
        """See `Fleet.map`."""
        if isinstance(commands, str):
            raise ConfigError("commands must be several: put the one into a list")
        await self._desk.settle()
        count = self._at_once or at_once_for(self._desk.hosts(), need_of(self._known.config))
        coming: Iterator[tuple[int, str | Sequence[str]]] = iter(enumerate(commands))
        # Bounded, so that a slow reader holds up the work instead of piling up its results.
        done: asyncio.Queue[BatchResult | None] = asyncio.Queue(maxsize=count)
        workers = [
            asyncio.create_task(self._work_through(coming, done), name="quicksand-batch")
            for _ in range(count)
        ]
        watching = asyncio.create_task(self._watch(), name="quicksand-batch-hosts")
        try:
            left = count
            while left:
                if (result := await done.get()) is not None:
                    yield result
                else:
                    left -= 1
            for worker in workers:
                worker.result()
        finally:
            await to_the_end(_cancel_all([*workers, watching]))
            for timer in self._timers.values():
                timer.cancel()

    async def _work_through(
        self,
        coming: Iterator[tuple[int, str | Sequence[str]]],
        done: asyncio.Queue[BatchResult | None],
    ) -> None:
        try:
            for index, command in coming:
                await done.put(await self._carry_out(index, command))
        except Exception:
            # The caller's iterator has failed: `results` raises its error.
            await done.put(None)
            raise
        await done.put(None)

    async def _carry_out(self, index: int, command: str | Sequence[str]) -> BatchResult:
        """Carry out one command; repeat it if its machine is lost and retries are left."""
        began = time.monotonic()
        attempts = 0
        while True:
            attempts += 1
            life = FleetLife(self._desk, self._known, self._opening)
            found: ExecuteResult | None = None
            error: QuicksandError | None = None
            host = None
            attempt = asyncio.create_task(self._attempt(life, command), name="quicksand-attempt")
            self._running[attempt] = life
            try:
                found, host = await attempt
            except asyncio.CancelledError:
                if attempt not in self._lost or _is_cancelled():
                    attempt.cancel()
                    await to_the_end(_cancel_all([attempt]))
                    raise
                error = RemoteUnreachableError(
                    f"{life.last_place} is lost: it has not answered for {LOST_S:g} s; whether the "
                    "command was carried out is unknown"
                )
            except QuicksandError as raised:
                error = raised
            finally:
                self._running.pop(attempt, None)
                self._lost.discard(attempt)
            if isinstance(error, LOST) and attempts <= self._work.retries:
                continue
            return self._result(
                index=index,
                command=command,
                host=host or life.last_place,
                found=found,
                took_s=time.monotonic() - began,
                attempts=attempts,
                error=error,
            )

    async def _attempt(
        self, life: FleetLife, command: str | Sequence[str]
    ) -> tuple[ExecuteResult, str | None]:
        """Start a sandbox, run the command, end the sandbox. Raises the errors of these steps.
        Nothing is left behind; a machine that is away ends the sandbox by itself."""
        parts = FarParts(life)
        is_away = True
        try:
            await life.start(None)
            found = await parts.guest.execute(command, timeout=self._work.timeout)
            is_away = False
            return found, life.where
        except asyncio.CancelledError:
            is_away = asyncio.current_task() in self._lost
            raise
        except LOST:
            raise
        except BaseException:
            is_away = False
            raise
        finally:
            await to_the_end(self._end(parts, is_away=is_away))

    async def _end(self, parts: FarParts, *, is_away: bool) -> None:
        is_away = is_away or parts.life.where not in self._reachable()
        with best_effort("end a sandbox of a batch", paths().engine_log):
            if is_away:
                parts.life.close()  # if the machine hears of it, it ends the sandbox
            else:
                await parts.ending.stop(grace=0.0)
        await parts.leave()

    def _result(self, *, found: ExecuteResult | None, **facts: Any) -> BatchResult:
        if found is None:
            return BatchResult(exit_code=None, **facts)
        limit = self._work.output_max
        stdout, stderr = found.stdout_bytes[:limit], found.stderr_bytes[:limit]
        is_cut = len(found.stdout_bytes) > limit or len(found.stderr_bytes) > limit
        return BatchResult(
            exit_code=found.exit_code,
            stdout=stdout.decode("utf-8", "replace"),
            stderr=stderr.decode("utf-8", "replace"),
            truncated=found.truncated or is_cut,
            timed_out=found.timed_out,
            duration_s=found.duration_s,
            **facts,
        )

    # Machines that are lost

    def _reachable(self) -> set[str | None]:
        """Return the machines that answer. None stands for a command without a machine, and counts
        as one."""
        away = (HostState.UNREACHABLE, HostState.UNFIT)
        return {None, *(host.name for host in self._desk.hosts() if host.state not in away)}

    async def _watch(self) -> None:
        """Give up what runs on machines that are away for too long."""
        async for event in self._desk.watch():
            if event.kind is FleetEventKind.HOST and event.host is not None:
                self._note(event.host)

    def _note(self, host: FleetHost) -> None:
        is_away = host.state is HostState.UNREACHABLE
        timer = self._timers.get(host.name)
        if is_away and timer is None:
            loop = asyncio.get_running_loop()
            self._timers[host.name] = loop.call_later(LOST_S, self._give_up, host.name)
        elif not is_away and timer is not None:
            timer.cancel()
            del self._timers[host.name]

    def _give_up(self, name: str) -> None:
        for attempt, life in self._running.items():
            if life.where == name and not attempt.done():
                self._lost.add(attempt)
                attempt.cancel()


async def _cancel_all(tasks: Sequence[asyncio.Task[Any]]) -> None:
    """Cancel tasks, and wait until they have ended."""
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    for task in tasks:
        if not task.cancelled():
            task.exception()


def _is_cancelled() -> bool:
    """Whether the current task was cancelled, and not only the future that it awaits."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def at_once_for(hosts: Sequence[FleetHost], need: Need) -> int:
    """Return how many sandboxes the machines hold at a time."""
    fitting = (
        min(host.memory_bytes // wanted_bytes(need), PER_CPU * max(1, host.cpus))
        for host in hosts
        if host.takes_new
    )
    return min(max(1, sum(fitting)), AT_ONCE_MAX)


def _require_count(name: str, value: object, *, least: int, most: int) -> None:
    if type(value) is not int or not least <= value <= most:
        raise ConfigError(
            f"{name} must be a whole number from {least} to {most}, not {value!r:.80}"
        )
