"""The engine behind the `Service` protocol: reads the store, runs operations off the UI's loop."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from quicksand_tui import engine_past
from quicksand_tui.failures import OperationError, describe_failure
from quicksand_tui.text import sanitise

if TYPE_CHECKING:
    from quicksand.sandbox import Sandbox

    from quicksand_tui.all_saves import SavesView
    from quicksand_tui.guest_network import TrafficRates
    from quicksand_tui.guest_view import GuestView
    from quicksand_tui.panes.link import GuestTerminal, Sink
    from quicksand_tui.past import CheckpointView
    from quicksand_tui.reader import Reader
    from quicksand_tui.run_many import CommandOutput
    from quicksand_tui.saves_reader import SavesReader
    from quicksand_tui.saves_spec import ExportSpec, ImportSpec, SaveSpec, Told
    from quicksand_tui.services import LogKind, LogSource, Progress, Report, ShellView
    from quicksand_tui.snapshot import Snapshot
    from quicksand_tui.specs import CheckpointSpec, NewSpec
    from quicksand_tui.traffic_watch import TrafficWatch

STAGES = {
    "image": "find the image",
    "accelerator": "probe the accelerator",
    "disk": "make the disk",
    "qemu": "start QEMU",
    "guest": "boot the guest",
}
T = TypeVar("T")
CLOSE_WAIT_S = 10.0
SHELLS_WAIT_S = 2.0


class EngineService:
    """The real `Service`. The engine runs on an event loop of its own, in a thread: nothing that it
    does can hold up a key press."""

    def __init__(self) -> None:
        self._reader: Reader | None = None
        self._saves_reader: SavesReader | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._beginning = threading.Lock()
        self._tasks: set[asyncio.Task[None]] = set()
        self._stayed: dict[str, Sandbox] = {}
        """By its id, each as it was worked on last: it makes its next revert ready."""
        self._traffic: TrafficWatch | None = None
        self._traffic_task: asyncio.Task[None] | None = None

    # Reading

    def read(
        self,
        *,
        visible: Collection[str] = (),
        network: Collection[str] = (),
        fresh: bool = False,
    ) -> Snapshot:
        if self._reader is None:
            # The engine's modules are loaded here, in the reading thread, after the first paint.
            from quicksand_tui.reader import Reader

            self._reader = Reader()
        from quicksand_tui.guest_network import with_traffic

        snapshot = self._reader.read(frozenset(visible), fresh=fresh)
        return with_traffic(snapshot, self._traffic_of(network))

    def _traffic_of(self, sandbox_ids: Collection[str]) -> Mapping[str, TrafficRates]:
        """What is known of these; they are asked from now on."""
        if self._traffic is None:
            if not sandbox_ids:
                return {}
            from quicksand_tui.engine_guest import ask_traffic
            from quicksand_tui.traffic_watch import TrafficWatch

            self._traffic = TrafficWatch(ask_traffic)
        self._traffic.want(sandbox_ids)
        if sandbox_ids:
            self._engine_loop().call_soon_threadsafe(self._watch_traffic, self._traffic)
        return self._traffic.rates

    def _watch_traffic(self, watch: TrafficWatch) -> None:
        """On the engine's loop. It ends by itself when nobody looks any more."""
        if self._traffic_task is None or self._traffic_task.done():
            self._traffic_task = asyncio.create_task(watch.run(), name="quicksand-traffic")
            self._tasks.add(self._traffic_task)
            self._traffic_task.add_done_callback(self._tasks.discard)

    def read_saves(self, *, fresh: bool = False) -> SavesView:
        return self._saves.read(fresh=fresh)

    @property
    def _saves(self) -> SavesReader:
        if self._saves_reader is None:
            from quicksand_tui.saves_reader import SavesReader

            self._saves_reader = SavesReader()
        return self._saves_reader

    def open_log(self, sandbox_id: str, kind: LogKind) -> LogSource:
        from quicksand.host.paths import paths
        from quicksand.layout import sandbox_dir

        from quicksand_tui.logs import FileLog
        from quicksand_tui.services import LogKind

        place = sandbox_dir(paths(), sandbox_id)
        return FileLog(place.console_log if kind is LogKind.CONSOLE else place.qemu_log)

    # Operations

    async def create(self, spec: NewSpec, report: Report) -> None:
        async def operation() -> None:
            from quicksand.sandbox import Sandbox

            from quicksand_tui.spec import machine_options

            sandbox: Sandbox | None = None

            def progress(stage: str, step: int, steps: int) -> None:
                if sandbox is not None:
                    report(_progress(sandbox.id, stage, step + 1, steps))

            sandbox = Sandbox(
                image=spec.save or spec.image,
                name=spec.name,
                progress_callback=progress,
                **machine_options(spec),
            )
            report(_progress(sandbox.id))
            await _start(sandbox)

        await self._run(f"{spec.name} did not start", operation)

    async def start(self, sandbox_id: str, report: Report, *, at: str = "") -> None:
        async def operation() -> None:
            from quicksand.sandbox import Sandbox

            sandbox = Sandbox.open(sandbox_id)
            sandbox._progress = lambda stage, step, steps: report(
                _progress(sandbox_id, stage, step + 1, steps)
            )
            report(_progress(sandbox_id))
            await _start(sandbox, at=at)

        await self._run("The sandbox did not start", operation)

    async def stop(self, sandbox_id: str) -> None:
        await self._run("The sandbox did not stop", lambda: _end(sandbox_id, kill=False))

    async def kill(self, sandbox_id: str) -> None:
        await self._run("The sandbox was not killed", lambda: _end(sandbox_id, kill=True))

    async def pause(self, sandbox_id: str) -> None:
        await self._run("The sandbox was not paused", lambda: _pause(sandbox_id, paused=True))

    async def resume(self, sandbox_id: str) -> None:
        await self._run("The sandbox does not go on", lambda: _pause(sandbox_id, paused=False))

    async def shells(self, sandbox_id: str) -> tuple[ShellView, ...]:
        found: list[ShellView] = []

        async def operation() -> None:
            async with asyncio.timeout(SHELLS_WAIT_S):
                found.extend(await _left_shells(sandbox_id))

        with contextlib.suppress(OperationError):
            await self._run("The terminals are not known", operation)
        return tuple(sorted(found, key=lambda shell: -shell.created))

    async def delete(self, sandbox_id: str) -> None:
        await self._run("The sandbox was not deleted", lambda: _delete(sandbox_id))

    async def checkpoint(self, sandbox_id: str, spec: CheckpointSpec) -> CheckpointView:
        return await self._ask(
            "There is no new checkpoint",
            lambda: engine_past.checkpoint(sandbox_id, spec, self._let_stay),
        )

    async def revert(self, sandbox_id: str, checkpoint_id: str) -> CheckpointView:
        return await self._ask(
            "The revert failed",
            lambda: engine_past.revert(sandbox_id, checkpoint_id, self._let_stay),
        )

    async def undo(self, sandbox_id: str) -> CheckpointView:
        return await self._ask("The undo failed", lambda: engine_past.undo(sandbox_id))

    async def delete_checkpoint(self, sandbox_id: str, checkpoint_id: str) -> None:
        await self._run(
            "The checkpoint was not deleted", lambda: engine_past.delete(sandbox_id, checkpoint_id)
        )

    async def clone(self, sandbox_id: str, count: int, *, at: str = "") -> tuple[str, ...]:
        names = await self._ask(
            "There are no clones", lambda: engine_past.clone(sandbox_id, count, at=at)
        )
        return tuple(sanitise(name, limit=63) for name in names)

    async def pin_checkpoint(self, sandbox_id: str, checkpoint_id: str, *, pinned: bool) -> None:
        await self._run(
            "The checkpoint is as it was",
            lambda: engine_past.pin(sandbox_id, checkpoint_id, pinned=pinned),
        )

    async def note_checkpoint(self, sandbox_id: str, checkpoint_id: str, note: str) -> None:
        await self._run(
            "The note is as it was",
            lambda: engine_past.write_note(sandbox_id, checkpoint_id, note),
        )

    async def look_inside(self, sandbox_id: str) -> GuestView:
        from quicksand_tui.engine_guest import look_inside

        return await self._ask("The guest does not tell", lambda: look_inside(sandbox_id))

    async def run_command(
        self, sandbox_id: str, command: str, *, timeout_s: float
    ) -> CommandOutput:
        from quicksand_tui import engine_commands

        return await self._ask(
            "The command did not run",
            lambda: engine_commands.run_command(sandbox_id, command, timeout_s=timeout_s),
        )

    # Saves

    async def save(self, sandbox_id: str, spec: SaveSpec, report: Report) -> Told:
        from quicksand_tui import engine_saves

        return await self._ask(
            f"{sanitise(spec.name)} was not saved",
            lambda: engine_saves.save(sandbox_id, spec, report),
        )

    async def delete_saves(self, keys: Sequence[str], report: Report, *, now: bool) -> Told:
        from quicksand_tui import engine_saves

        return await self._ask(
            "Nothing was removed", lambda: engine_saves.delete(keys, report, now=now)
        )

    async def restore_saves(self, keys: Sequence[str], report: Report, *, name: str = "") -> Told:
        from quicksand_tui import engine_saves

        return await self._ask(
            "Nothing was brought back", lambda: engine_saves.restore(keys, report, name=name)
        )

    async def purge_saves(self, keys: Sequence[str]) -> Told:
        from quicksand_tui import engine_saves

        return await self._ask("The trash is as it was", lambda: engine_saves.purge(keys))

    async def export_save(self, key: str, spec: ExportSpec, report: Report) -> Told:
        from quicksand_tui import engine_saves

        return await self._ask(
            "There is no new file", lambda: engine_saves.export(key, spec, report)
        )

    async def import_bundle(self, spec: ImportSpec, report: Report) -> Told:
        from quicksand_tui import engine_saves

        return await self._ask(
            "Nothing was imported", lambda: engine_saves.import_bundle(spec, report)
        )

    async def verify_saves(self, keys: Sequence[str], report: Report, *, deep: bool) -> Told:
        from quicksand_tui import engine_saves

        async def verify() -> Told:
            found = await engine_saves.verify(keys, report, deep=deep)
            self._saves.learn(found.verdicts)
            return found.tell()

        return await self._ask("The saves were not verified", verify)

    def open_terminal(
        self, sandbox_id: str, session: str, size: tuple[int, int], sink: Sink
    ) -> GuestTerminal:
        from quicksand_tui.engine_terminals import EngineTerminal

        return EngineTerminal(
            sandbox_id, session, size, sink, engine=self._engine_loop(), tasks=self._tasks
        )

    # The engine's thread

    def _let_stay(self, sandbox: Sandbox) -> None:
        """Let go of it when the app ends, or when the next one stays."""
        if (before := self._stayed.pop(sandbox.id, None)) is not None:
            before.close()
        sandbox.disconnect()
        self._stayed[sandbox.id] = sandbox

    async def _ask(self, title: str, operation: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """`_run` with a result."""
        results: list[T] = []

        async def carry_out() -> None:
            results.append(await operation())

        await self._run(title, carry_out)
        return results[0]

    async def _run(self, title: str, operation: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run ``operation`` on the engine's loop. Cancelled, it cancels it there and returns when
        the engine has undone what it had begun."""
        engine = self._engine_loop()
        here = asyncio.get_running_loop()
        ended: asyncio.Future[BaseException | None] = here.create_future()

        def tell(task: asyncio.Task[None]) -> None:
            self._tasks.discard(task)
            error = asyncio.CancelledError() if task.cancelled() else task.exception()
            with contextlib.suppress(RuntimeError):  # the UI's loop is closed: nobody listens
                here.call_soon_threadsafe(_resolve, ended, error)

        task: asyncio.Task[None] | None = None

        def begin() -> None:
            nonlocal task
            task = engine.create_task(operation(), name="quicksand-operation")
            self._tasks.add(task)
            task.add_done_callback(tell)

        engine.call_soon_threadsafe(begin)
        try:
            error = await asyncio.shield(ended)
        except asyncio.CancelledError:
            engine.call_soon_threadsafe(lambda: task and task.cancel())
            await _until_done(ended)
            raise
        if isinstance(error, asyncio.CancelledError):
            raise OperationError(describe_failure(title, RuntimeError("it was cancelled")))
        if isinstance(error, OperationError):
            raise error
        if error is not None:
            raise OperationError(describe_failure(title, error)) from error

    def _engine_loop(self) -> asyncio.AbstractEventLoop:
        with self._beginning:  # the reading thread and the UI's may both want it
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(
                    target=_serve, args=(self._loop,), name="quicksand-engine", daemon=True
                )
                self._thread.start()
            return self._loop

    def _cancel_all(self) -> None:
        """Cancel each once: a second time would interrupt its undoing."""
        for sandbox in self._stayed.values():
            sandbox.close()
        self._stayed.clear()
        for task in set(self._tasks):
            if not task.cancelling():
                task.cancel()

    def close(self) -> None:
        loop, thread = self._loop, self._thread
        if loop is None or thread is None:
            return
        deadline = time.monotonic() + CLOSE_WAIT_S
        loop.call_soon_threadsafe(self._cancel_all)
        while self._tasks and time.monotonic() < deadline:
            time.sleep(0.01)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(timeout=2.0)
        self._loop = self._thread = None


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    """Run the engine's loop until it is stopped, and close it."""
    try:
        loop.run_forever()
        if left := asyncio.all_tasks(loop):  # being undone
            loop.run_until_complete(asyncio.wait(left, timeout=CLOSE_WAIT_S))
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.run_until_complete(loop.shutdown_default_executor())
    finally:
        loop.close()


def _resolve(ended: asyncio.Future[BaseException | None], error: BaseException | None) -> None:
    if not ended.done():
        ended.set_result(error)


async def _until_done(ended: asyncio.Future[BaseException | None]) -> None:
    """Wait for the engine's end, however often we are cancelled meanwhile."""
    while not ended.done():
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.shield(ended)


def _progress(sandbox_id: str, stage: str = "", step: int = 0, steps: int = 0) -> Progress:
    from quicksand_tui.services import Progress

    return Progress(sandbox_id, STAGES.get(stage, stage), step, steps)


async def _start(sandbox: Sandbox, *, at: str = "") -> None:
    """Start a machine and let it outlive us."""
    await sandbox.start(at=at or None)
    sandbox.detach()
    sandbox.close()


async def _end(sandbox_id: str, *, kill: bool) -> None:
    from quicksand.sandbox import Sandbox

    sandbox = Sandbox.attach(sandbox_id)
    await (sandbox.kill() if kill else sandbox.stop())


async def _pause(sandbox_id: str, *, paused: bool) -> None:
    from quicksand.sandbox import Sandbox

    sandbox = Sandbox.attach(sandbox_id)
    await (sandbox.pause() if paused else sandbox.resume())


async def _left_shells(sandbox_id: str) -> list[ShellView]:
    from quicksand.sandbox import Sandbox

    from quicksand_tui.services import ShellView

    sandbox = Sandbox.attach(sandbox_id)
    try:
        listed = await sandbox.shells()
    finally:
        sandbox.close()
    return [
        ShellView(
            session=shell.session,
            command=sanitise(" ".join(shell.argv), limit=60),
            created=shell.created,
        )
        for shell in listed
        if shell.alive and not shell.attached
    ]


async def _delete(sandbox_id: str) -> None:
    from quicksand.errors import SandboxNotFoundError
    from quicksand.host.paths import paths
    from quicksand.registry import Registry
    from quicksand.sandbox import Sandbox

    registry = Registry(paths())
    entry = registry.inspect(sandbox_id)
    if entry is not None and entry.is_live:
        with contextlib.suppress(SandboxNotFoundError):
            await Sandbox.attach(sandbox_id).kill()
    # A large disk takes a while to be unlinked.
    await asyncio.to_thread(registry.remove, sandbox_id)
