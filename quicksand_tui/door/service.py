"""The app's service: reads the store, and carries out verbs on the engine's own loop."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

from quicksand_tui.door import lazy_door
from quicksand_tui.door.failures import describe_failure, reading
from quicksand_tui.door.service_protocol import LogKind
from quicksand_tui.door.silence import Silences, TrafficWatch, with_silences, with_traffic
from quicksand_tui.model.jobs import Failure, OperationError
from quicksand_tui.model.remedy_words import FAULT
from quicksand_tui.model.text import error_text, sanitise

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Mapping
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    from quicksand.records.fleet_files import NodesView
    from quicksand.remote.askpass import Askpass
    from quicksand.things.sandbox_facts import TrafficRates
    from quicksand_panes.guest_terminal import GuestTerminal, Sink

    from quicksand_tui.door.engine import Engine
    from quicksand_tui.door.engine_screen import EngineRecording, EngineScreen
    from quicksand_tui.door.far_host import FarHost
    from quicksand_tui.door.far_hosts import FarHosts
    from quicksand_tui.door.look import Reader
    from quicksand_tui.door.saves_look import SavesReader
    from quicksand_tui.door.service_protocol import LogSource, ScreenSink
    from quicksand_tui.door.ssh_asking import AskUser
    from quicksand_tui.door.terminal_place import Guest
    from quicksand_tui.door.wall_feeds import EngineWall
    from quicksand_tui.model.shown_saves import SavesView
    from quicksand_tui.model.world import World
    from quicksand_tui.verbs.call import Call, Report

T = TypeVar("T")
CLOSE_WAIT_S = 10.0
"""Seconds that `close` waits for operations to undo what they began."""


class EngineService:
    """The app's way to the engine, which runs on its own event loop in a thread, so that none of
    its work delays a key press. Tests bring services of their own."""

    asked_for: Mapping[str, str] = MappingProxyType({})
    """Machines that this run was asked for, besides those of the config."""
    opens_on = ""
    """The name of the machine that the app opens on; "" is this machine."""
    _hosts: FarHosts | None = None
    """The other machines; None as long as none were met."""
    _told: Callable[[], None] = staticmethod(lambda: None)
    _saves_told: Callable[[], None] = staticmethod(lambda: None)
    _faulty: Callable[[Failure], None] = staticmethod(lambda _: None)
    _askpass: Callable[[], Askpass | None] = staticmethod(lambda: None)
    """Makes the object that asks the user; None if nobody is asked."""

    def __init__(self) -> None:
        self._reader: Reader | None = None
        self._looking = threading.Lock()
        self._meeting = threading.Lock()
        self._of_config: Mapping[str, str] = {}
        """The addresses of the machines of the config, by their names."""
        self._nodes: NodesView | None = None
        """The local nodes that are met."""
        self._nodes_seen: NodesView | None = None
        self._saves_reader: SavesReader | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._beginning = threading.Lock()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._engine: Engine | None = None
        """Created and used on the engine's loop."""
        self._silences = Silences(self._tell_there)
        self._traffic: TrafficWatch | None = None
        self._traffic_task: asyncio.Task[None] | None = None

    # Reading

    def read(
        self,
        *,
        visible: Collection[str] = (),
        network: Collection[str] = (),
        fresh: bool = False,
    ) -> World:
        """Reads sandboxes, images and the host. Blocks for milliseconds; called in a thread, never
        by two at once.

        CPU and memory are read only for running sandboxes in ``visible``; the guests of those in
        ``network`` are asked for their traffic every few seconds. ``fresh`` discards what is
        remembered. Broken items carry their error. Raises OSError and OperationError if the host
        lets it read nothing now.
        """
        # The engine is imported here, in the reading thread.
        with reading("The record of the fleet cannot be read"):
            nodes = self._follow_nodes()
        hosts = self._hosts
        own = visible if hosts is None else hosts.want(visible, fresh=fresh)
        with self._looking, reading("The store cannot be read"):
            world = self._sandboxes.read(frozenset(own), fresh=fresh)
        why = "" if nodes.error is None else error_text(nodes.error)
        world = replace(world, waiting=nodes.waiting, error=world.error or why)
        own = network if hosts is None else [id_ for id_ in network if hosts.find(id_) is None]
        world = with_traffic(world, self._traffic_of(own))
        world = world if hosts is None else hosts.joined(world, nodes.drained)
        return with_silences(world, self._silences.known())

    def _follow_nodes(self) -> NodesView:
        """Looks at the local nodes, and meets them if they have changed."""
        nodes, met = self._look_at_nodes(), self._nodes
        if (nodes.ids != met.ids) if met is not None else nodes.ids:
            with self._meeting:
                self._nodes = nodes
                self._meet_all()
        return nodes

    def _look_at_nodes(self) -> NodesView:
        self._nodes_seen = lazy_door.look_at_nodes(self._nodes_seen)
        return self._nodes_seen

    def find_node(self, name: str) -> str:
        """Returns the address of a local node that is up; "" if there is no such node, or if its
        address cannot be read. Blocks."""
        with contextlib.suppress(OSError, lazy_door.QuicksandError):
            return self._look_at_nodes().addresses.get(name, "")
        return ""

    def meet(self, hosts: Mapping[str, str]) -> None:
        """Sets the other machines of the config: their addresses by their names. They are connected
        to with the next `read`, and at once if there were others before."""
        with self._meeting:
            self._of_config = hosts
            self._meet_all()

    def _meet_all(self) -> None:
        nodes: Mapping[str, str] = {} if self._nodes is None else self._nodes.addresses
        others = {name: nodes[name] for name in nodes if name not in self._of_config}
        hosts = {**self._of_config, **others, **self.asked_for}
        if self._hosts is None:
            if not hosts:
                return
            self._hosts = lazy_door.FarHosts(
                self._tell_there,
                saves_changed=self._tell_saves,
                tasks=self._tasks,
                askpass=self._make_askpass,
            )
        ids = {} if self._nodes is None else self._nodes.ids
        of_nodes = {name: ids[name] for name in ids if hosts[name] == nodes[name]}
        self._hosts.meet(hosts, self._engine_loop(), of_nodes)

    def when_told(self, tell: Callable[[], None]) -> None:
        """Has ``tell`` called, on the engine's loop, when another machine has told something."""
        self._told = tell

    def when_faulty(self, tell: Callable[[Failure], None]) -> None:
        """``tell`` gets the faults of work that nobody waits for, on any thread."""
        self._faulty = tell

    def thread_failed(self, failed: threading.ExceptHookArgs) -> None:
        """Handles the exception that has ended a thread."""
        name = failed.thread.name if failed.thread is not None else "a thread"
        self.unhandled(None, {"message": f"{name} has failed", "exception": failed.exc_value})

    def unhandled(self, _: object, context: Mapping[str, Any]) -> None:
        """Handles what nobody has waited for in a loop, the engine's or the UI's: asyncio would
        write it across the screen."""
        if hint := lazy_door.note_unhandled(context):
            self._faulty(Failure(title="", message=FAULT, hint=sanitise(hint)))

    def when_saves_told(self, tell: Callable[[], None]) -> None:
        """Has ``tell`` called, on the engine's loop, when another machine has told of its saves."""
        self._saves_told = tell

    def when_asked(self, ask: AskUser, ui: asyncio.AbstractEventLoop) -> None:
        """Has ``ask`` called, on the loop ``ui``, when ssh has a question on the way to another
        machine. Without it, ssh gets no answers."""
        self._askpass = lambda: lazy_door.askpass_for(ask, ui)

    def _make_askpass(self) -> Askpass | None:
        return self._askpass()

    def ask_again(self) -> None:
        """Connects once more to the machines whose questions of ssh were left unanswered."""
        if self._hosts is not None:
            self._hosts.ask_again()

    def _tell_there(self) -> None:
        self._told()

    def _tell_saves(self) -> None:
        self._saves_told()

    def joined(self, world: World | None) -> World | None:
        """Returns a world that was read before, joined with those of the other machines."""
        return world if world is None or self._hosts is None else self._hosts.joined(world)

    def read_sandboxes(self) -> World:
        """Reads the sandboxes only, for the first frame: images and the host take much longer.
        Blocks and raises as `read`, which waits for it."""
        with self._looking, reading("The store cannot be read"):
            return self._sandboxes.read(frozenset(), sandboxes_only=True)

    @property
    def _sandboxes(self) -> Reader:
        if self._reader is None:
            self._reader = lazy_door.Reader()
        return self._reader

    def _traffic_of(self, sandbox_ids: Collection[str]) -> Mapping[str, TrafficRates]:
        """Returns the known rates, and has these guests asked from now on."""
        if self._traffic is None:
            if not sandbox_ids:
                return {}
            self._traffic = TrafficWatch(partial(lazy_door.ask_traffic, self._silences))
        self._traffic.want(sandbox_ids)
        if sandbox_ids:
            self._engine_loop().call_soon_threadsafe(self._watch_traffic, self._traffic)
        return self._traffic.rates

    def _watch_traffic(self, watch: TrafficWatch) -> None:
        """Starts the task, which ends by itself when nobody looks. On the engine's loop."""
        if self._traffic_task is None or self._traffic_task.done():
            self._traffic_task = asyncio.create_task(watch.run(), name="quicksand-traffic")
            self._tasks.add(self._traffic_task)
            self._traffic_task.add_done_callback(self._tasks.discard)

    def read_saves(self, *, fresh: bool = False, there: bool = False) -> SavesView:
        """Reads all saves and the trash, with those that the other machines have told. Those
        machines are asked while ``there`` is true, that is, while a screen shows saves. Blocks, for
        seconds if there are thousands; called in a thread, never by two at once. Returns the same
        object as before if no directory has changed, unless ``fresh``. Broken items carry their
        error. Raises as `read` does."""
        hosts = self._hosts
        if hosts is not None:
            hosts.want_saves(wanted=there, fresh=fresh)
        with reading("The saves cannot be read"):
            own = self._saves.read(fresh=fresh)
        return own if hosts is None else hosts.joined_saves(own)

    @property
    def _saves(self) -> SavesReader:
        if self._saves_reader is None:
            self._saves_reader = lazy_door.SavesReader()
        return self._saves_reader

    def open_log(self, sandbox_id: str, kind: LogKind) -> LogSource:
        """Opens a log, which may not exist yet."""
        if (there := self._there(sandbox_id)) is not None:
            loop, tasks = self._engine_loop(), self._tasks
            return lazy_door.FarLog(*there, kind, engine=loop, tasks=tasks)
        with reading("The log cannot be read"):
            place = lazy_door.Registry(lazy_door.paths()).place(sandbox_id)
        return lazy_door.FileLog(place.console_log if kind is LogKind.CONSOLE else place.qemu_log)

    # Operations

    async def carry_out(self, verb: Call[T], sandbox_id: str, report: Report) -> T:
        """Carries out a verb on the engine's loop, as `Call.carry_out`; a failure has the verb's
        title. When cancelled, it returns after the engine has undone what it began. Raises
        OperationError."""
        return await self._on_the_loop(
            verb.failed, lambda: self._carry_out(verb, sandbox_id, report)
        )

    async def _carry_out(self, verb: Call[T], sandbox_id: str, report: Report) -> T:
        """Does it on the machine of the sandbox, and keeps the findings for the views."""
        there = self._there(sandbox_id)
        if there is None:
            result = await verb.carry_out(sandbox_id, report)
            if isinstance(result, lazy_door.Verified):
                self._saves.learn(result.views())
            return result
        result = await lazy_door.carry_out_there(there[0], verb, there[1], report)
        if isinstance(result, lazy_door.Verified) and self._hosts is not None:
            views = {key: view for key, (_, view) in result.views().items()}
            self._hosts.note_verdicts(there[0], views)
        return result

    async def ask(self, title: str, question: Callable[[Engine], Awaitable[T]]) -> T:
        """Puts a question to the engine on its loop; ``title`` is that of a failure. Raises
        OperationError."""
        return await self._on_the_loop(title, lambda: question(self._current_engine()))

    def open_terminal(
        self,
        sandbox_id: str,
        session: str,
        size: tuple[int, int],
        sink: Sink,
        *,
        birth: str = "",
        directory: str = "",
    ) -> GuestTerminal:
        """Opens a terminal of ``size`` (columns, rows) in a guest, in a ``directory`` there if it
        has that, or the existing ``session`` of that ``birth``. Never raises: ``sink`` is told of
        failures."""
        there = self._there(sandbox_id)
        return lazy_door.EngineTerminal(
            lazy_door.PlaceHere(sandbox_id) if there is None else lazy_door.PlaceThere(*there),
            session,
            size,
            sink,
            birth=birth,
            directory=directory,
            sandbox_id=sandbox_id,
            silences=self._silences,
            engine=self._engine_loop(),
            tasks=self._tasks,
        )

    def open_wall(self) -> EngineWall:
        """Begins to watch terminals of several guests at once; `EngineWall.want` sets which."""
        return lazy_door.EngineWall(self._look_into, engine=self._engine_loop(), tasks=self._tasks)

    def _look_into(self, sandbox_id: str) -> AbstractAsyncContextManager[Guest]:
        """Reaches a guest only to look at it. On the engine's loop."""
        if self._there(sandbox_id) is not None:
            return self._current_engine().reach(sandbox_id)
        # Watching must change nothing, not even a clock that the user has set.
        return lazy_door.reach_here(sandbox_id, set_clock=False)

    def _there(self, sandbox_id: str) -> tuple[FarHost, str] | None:
        """Returns the machine of a sandbox, and its id there; None if it is this one."""
        return None if self._hosts is None else self._hosts.find(sandbox_id)

    def open_screen(self, sandbox_id: str, sink: ScreenSink) -> EngineScreen:
        """Opens the screen of a sandbox. Never raises: ``sink`` is told of failures."""
        engine, tasks = self._engine_loop(), self._tasks
        return lazy_door.EngineScreen(
            lambda: self._current_engine().screen(sandbox_id), sink, engine=engine, tasks=tasks
        )

    def record_screen(
        self, sandbox_id: str, path: Path, ended: Callable[[str], None]
    ) -> EngineRecording:
        """Records the screen of a sandbox into a new animated file. Never raises: ``ended`` is
        called once, on another thread, with words on the file, or on why there is none."""
        engine, tasks = self._engine_loop(), self._tasks
        return lazy_door.EngineRecording(
            lambda: self._current_engine().opened(sandbox_id),
            path,
            ended,
            engine=engine,
            tasks=tasks,
        )

    # The engine's thread

    def _current_engine(self) -> Engine:
        """Returns the engine, importing it the first time. On the engine's loop."""
        if self._engine is None:
            self._engine = lazy_door.Engine(self._there)
        return self._engine

    async def _on_the_loop(self, title: str, work: Callable[[], Awaitable[T]]) -> T:
        """Runs ``work`` on the engine's loop. When cancelled, it cancels the work there, and
        returns after that has undone what it began. Raises OperationError for every exception."""
        engine = self._engine_loop()
        here = asyncio.get_running_loop()
        ended: asyncio.Future[asyncio.Task[T]] = here.create_future()

        async def carry_out() -> T:
            return await work()

        def tell(task: asyncio.Task[T]) -> None:
            self._tasks.discard(task)
            if not task.cancelled():
                task.exception()  # retrieved, or asyncio logs it if nobody awaits it any more
            with contextlib.suppress(RuntimeError):  # the UI's loop is closed
                here.call_soon_threadsafe(_resolve, ended, task)

        task: asyncio.Task[T] | None = None

        def begin() -> None:
            nonlocal task
            task = engine.create_task(carry_out(), name="quicksand-operation")
            self._tasks.add(task)
            task.add_done_callback(tell)

        engine.call_soon_threadsafe(begin)
        try:
            done = await asyncio.shield(ended)
        except asyncio.CancelledError:
            engine.call_soon_threadsafe(lambda: task and task.cancel())
            await _until_done(ended)
            raise
        if done.cancelled():
            raise OperationError(Failure(title=title, message="it was cancelled"))
        error = done.exception()
        if isinstance(error, OperationError):
            raise error
        if error is not None:
            raise OperationError(describe_failure(title, error)) from error
        return done.result()

    def _engine_loop(self) -> asyncio.AbstractEventLoop:
        with self._beginning:  # the reading thread and the UI's may call at once
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._loop.set_exception_handler(self.unhandled)
                self._thread = threading.Thread(
                    target=_serve, args=(self._loop,), name="quicksand-engine", daemon=True
                )
                self._thread.start()
            return self._loop

    def _cancel_all(self) -> None:
        """Cancels each task once: cancelling twice would interrupt its clean-up."""
        for task in set(self._tasks):
            if not task.cancelling():
                task.cancel()

    def close(self) -> None:
        """Closes everything; sandboxes keep running. Blocks, for seconds at most, until running
        operations have undone what they began."""
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
    """Runs the engine's loop until it is stopped, then closes it."""
    # The screen shows the engine's warnings; Python would write them across it.
    logging.getLogger("quicksand").addHandler(logging.NullHandler())
    try:
        loop.run_forever()
        if left := asyncio.all_tasks(loop):  # they are cleaning up
            loop.run_until_complete(asyncio.wait(left, timeout=CLOSE_WAIT_S))
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.run_until_complete(loop.shutdown_default_executor())
    finally:
        loop.close()


def _resolve(ended: asyncio.Future[asyncio.Task[T]], task: asyncio.Task[T]) -> None:
    if not ended.done():
        ended.set_result(task)


async def _until_done(ended: asyncio.Future[Any]) -> None:
    """Waits until the work has ended, ignoring further cancellations."""
    while not ended.done():
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.shield(ended)
