"""A service that tells what tests want, and waits that end."""

from __future__ import annotations

import asyncio
import contextlib
import re
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable
from dataclasses import fields, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar

from PIL import Image
from quicksand.records.port_forwards import PortForward
from quicksand.things.checkpoint import Checkpoint, CheckpointFacts
from quicksand.things.image_info import ImageInfo
from quicksand.things.mount_facts import MountFacts
from quicksand.things.sandbox_facts import GuestTraffic, TrafficRates
from quicksand.things.status import MountState, Status
from quicksand_panes.guest_terminal import LinkState, LinkStatus, Said, Sink
from quicksand_pixels.encoding.half_cells import fit
from quicksand_pixels.text_cells import Cells
from quicksand_pixels.user_input import Chord, strokes
from textual.events import Key
from textual.pilot import Pilot

from quicksand_tui.actions.all_actions import default_keymap
from quicksand_tui.door.screen_messages import Order
from quicksand_tui.door.service import EngineService
from quicksand_tui.door.service_protocol import LogKind, ScreenSink, ShellView
from quicksand_tui.home.config_file import Settings
from quicksand_tui.kit.key_handling import Clock, Hands
from quicksand_tui.model.diffs import DiffSpec, DiffView, Losing, TextDiff
from quicksand_tui.model.jobs import CommandOutput, Failure, JobVerb, OperationError
from quicksand_tui.model.shown_sandboxes import (
    Changes,
    CheckpointTree,
    CheckpointView,
    Glance,
    GuestView,
    ProcessView,
    SandboxView,
)
from quicksand_tui.model.specs import NewSpec
from quicksand_tui.model.world import HostView, World
from quicksand_tui.ui.app import QuicksandApp
from quicksand_tui.verbs import launching
from quicksand_tui.verbs.call import Call, Progress, Report
from quicksand_tui.verbs.launching import Started
from quicksand_tui.verbs.trashing import Back
from tests.conftest import PATIENCE_S, Patience
from tests.unit.app import fake_saves
from tests.unit.app.fake_saves import FakeSaves
from tests.unit.app.fake_wall import FakeWall

T = TypeVar("T")

NOW = fake_saves.NOW
SIZE = (80, 24)
"""Of the usual terminal."""

GIB = 1 << 30
MIB = 1 << 20

WEB = SandboxView(
    id="3f2a9c0d1e2f",
    name="web",
    state=Status.RUNNING,
    image="debian",
    created=NOW - 3 * 3600,
    started=NOW - 9000,
    memory_limit=512 * MIB,
    memory_used=183 * MIB,
    cpus=2,
    cpu_percent=2.3,
    disk=42 * MIB,
    network="full",
    accel="tcg",
    accel_reason="kvm: a guest on it did not run its first instructions within 4 s",
    ports=((8080, 80),),
)
DB = SandboxView(
    id="aa11bb22cc33",
    name="db",
    state=Status.STOPPED,
    image="debian",
    created=NOW - 3 * 86400,
    memory_limit=GIB,
    cpus=1,
    disk=420 * MIB,
    network="none",
)
AGENT = SandboxView(
    id="bb22cc33dd44",
    name="agent-7",
    state=Status.CRASHED,
    image="debian",
    created=NOW - 300,
    memory_limit=GIB,
    cpus=4,
    disk=20 * MIB,
    network="mounts_only",
    error="QEMU was ended by SIGKILL",
)
BROKEN = SandboxView(
    id="cc33dd44ee55",
    name="cc33dd44ee55",
    state=Status.BROKEN,
    error="schema_version None is not 1",
)
PAUSED = replace(WEB, id="dd44ee55ff66", name="builder", state=Status.PAUSED, ports=())


def kept(id_: str, tag: str, parent: str | None = None, **facts: Any) -> CheckpointView:
    """A checkpoint, an hour old unless ``facts`` say otherwise."""
    values: dict[str, Any] = {
        "created": NOW - 3600,
        "tier": "pages",
        "pause_s": 0.0231,
        "bytes_written": 12 * MIB,
    }
    return CheckpointView(id=id_, tag=tag, name=tag, parent=parent, **{**values, **facts})


CLEAN = kept("c1", "clean", created=NOW - 7200, note="before the upgrade", bytes_written=48 * MIB)
UPGRADED = kept("c2", "upgraded", "c1")
TRIED = kept("c3", "tried-something", "c1", created=NOW - 1800, note="it did not work")
AUTO = kept("c4", "before revert to clean 12:00:00", "c3", created=NOW - 600, auto=True)
DAMAGED = CheckpointView(id="c0ffee00", tag="c0ffee00", name="c0ffee00", error="no JSON: line 1")
PAST = CheckpointTree(checkpoints=(DAMAGED, CLEAN, UPGRADED, TRIED, AUTO), head="c2")
WEB_PAST = replace(WEB, tree=PAST)
DB_PAST = replace(DB, tree=CheckpointTree(checkpoints=(CLEAN, UPGRADED), head="c2"))
SRC = MountFacts(
    key="/mnt/src",
    host="/home/me/src",
    guest="/mnt/src",
    traffic=TrafficRates(received=12_400_000, sent=30_000),
)
DATA = MountFacts(key="/mnt/data", host="/data", guest="/mnt/data", readonly=True)
GONE = MountFacts(key="/mnt/old", host="/old", guest="/mnt/old", state=MountState.NOT_SERVED)
LATER = MountFacts(key="/srv", host="/srv/www", guest="/srv", state=MountState.AT_START)
WEB_MOUNTS = replace(WEB, mounts=(DATA, GONE, SRC, LATER))
MOUNTED = World(
    taken=NOW,
    images=(),
    sandboxes=(WEB_MOUNTS, DB),
    keymap=default_keymap(),
)
"""A sandbox with mounts."""
DEBIAN = ImageInfo(
    name="debian", version="13.1", arch="x86_64", size=105 * MIB, built=NOW - 2 * 86400
)
OLD = ImageInfo(name="old", error="manifest.json is damaged: 'disk'")
HOST = HostView(memory_free=6 * GIB, disk_free=40 * GIB)

KEYMAP = default_keymap()
EMPTY = World(taken=NOW, images=(DEBIAN,), host=HOST, keymap=KEYMAP)
FULL = replace(EMPTY, sandboxes=(WEB, DB, AGENT, PAUSED, BROKEN), images=(DEBIAN, OLD))
KEPT = replace(FULL, sandboxes=(WEB_PAST, DB_PAST, AGENT))
"""Sandboxes with checkpoints."""


GUEST = GuestView(
    memory_total=485 * MIB,
    memory_used=61 * MIB,
    disk_total=4 * GIB,
    disk_used=700 * MIB,
    load=0.42,
    processes=61,
    uptime_s=9000.0,
    traffic=GuestTraffic(received=48 * MIB, sent=3 * MIB),
    busiest=(
        ProcessView(
            pid=412, user="root", rss=14 * MIB, cpu_s=73.4, command="python3 -m http.server"
        ),
        ProcessView(pid=1, user="root", rss=9 * MIB, cpu_s=2.1, command="/sbin/init"),
    ),
)


class FakeLog:
    """A log that grows when a test says so."""

    def __init__(self, text: str) -> None:
        self.pending = text
        self.closed = False

    def read(self) -> str:
        text, self.pending = self.pending, ""
        return text

    def close(self) -> None:
        self.closed = True


class FakeTerminal:
    """A terminal in a guest: what is typed comes back, and the test says more."""

    def __init__(
        self, session: str, size: tuple[int, int], sink: Sink, directory: str = ""
    ) -> None:
        self.session = session
        self.directory = directory
        """Where it was asked to begin."""
        self.size = size
        self.sink = sink
        self.typed = b""
        self.unread = 0
        self.left = self.ended = False
        self.opening = 0
        self.reports: list[tuple[bytes, int]] = []
        """What the terminal said by itself, and by which opening."""
        asyncio.get_running_loop().call_soon(self.tell, LinkState.OPEN)

    def tell(self, state: LinkState, text: str = "", *, runs: bool = True) -> None:
        self.session = self.session or "1"
        if state is LinkState.OPEN:
            self.opening += 1
        self.sink.status(
            LinkStatus(
                state=state,
                session=self.session,
                birth=f"born-{self.session}",
                text=text,
                opening=self.opening,
                runs=runs,
            )
        )
        if state is LinkState.OPEN:
            self.sink.output(b"", Said.NOW)

    def say(self, data: bytes, said: Said = Said.NOW) -> None:
        self.unread += len(data)
        self.sink.output(data, said)

    def write(self, data: bytes) -> None:
        self.typed += data

    def report(self, data: bytes, opening: int) -> None:
        self.reports.append((data, opening))
        if opening == self.opening:
            self.typed += data

    def resize(self, columns: int, rows: int) -> None:
        self.size = (columns, rows)

    def parsed(self, count: int) -> None:
        self.unread -= count

    def leave(self) -> None:
        self.left = True

    def end(self) -> None:
        self.ended = True


class FakeScreen:
    """A screen in a guest: notes what is asked, and the test shows pictures."""

    def __init__(self, sink: ScreenSink) -> None:
        self.sink = sink
        self.ordered = Order()
        self.events: list[tuple[int, ...]] = []
        """Keysym and down, or x, y and buttons."""
        self.typed: list[str] = []
        self.saved: list[Path] = []
        self.closed = False

    def order(self, **changes: Any) -> None:
        self.ordered = replace(self.ordered, **changes)

    def press(self, chord: Chord) -> None:
        self.events += strokes(chord)

    def type(self, text: str) -> None:
        self.typed.append(text)

    def point(self, x: int, y: int, buttons: int) -> None:
        self.events.append((x, y, buttons))

    def save(self, path: Path, told: Callable[[str], None]) -> None:
        self.saved.append(path)
        threading.Thread(target=told, args=("",)).start()

    def close(self) -> None:
        self.closed = True


class FakeRecording:
    """A recording that is told as written when it is stopped."""

    def __init__(self, path: Path, ended: Callable[[str], None]) -> None:
        self.path = path
        self._ended = ended

    def stop(self) -> None:
        text = f"Recorded as {self.path}"
        threading.Thread(target=self._ended, args=(text,)).start()


class FakeService(FakeSaves, EngineService):
    """A service and its engine in one. Shows ``world``; operations change it when the test lets
    them (or at once)."""

    def __init__(self, world: World = FULL) -> None:
        super().__init__()
        self.world = world
        self.calls: list[str] = []
        self.screens: list[FakeScreen] = []
        self.recordings: list[FakeRecording] = []
        self.made: list[NewSpec] = []
        self.notices: tuple[str, ...] = ()
        """What a start could not do."""
        """What `create` was asked for."""
        self.hold: asyncio.Event | None = None
        """Operations wait for it."""
        self.left_shells: tuple[ShellView, ...] = ()
        self.hold_shells: asyncio.Event | None = None
        self.failure: Failure | None = None
        """Operations end with it."""
        self.undone: list[str] = []
        """Operations that were cancelled."""
        self.logs = {kind: FakeLog("") for kind in LogKind}
        self.visible: frozenset[str] = frozenset()
        self.network: frozenset[str] = frozenset()
        self.closed = False
        self.outputs: dict[str, CommandOutput] = {}
        """What commands leave, by sandbox."""
        self.running = self.most_running = 0
        """Commands."""
        self.reports: list[Report] = []
        self.changed = Changes()
        self.pictures: dict[str, Image.Image] = {}
        """Screens by checkpoint; "" is the present one."""
        self.terminals: list[FakeTerminal] = []
        self.lost: Losing | Failure = Losing(read=NOW)
        """What going back loses."""
        self.asked_losing: list[str] = []
        self.shell_at: dict[str, Glance] = {}
        """By checkpoint: what a shell showed then."""
        self.deleted: dict[str, SandboxView] = {}
        """What is in the trash."""

    def read(
        self,
        *,
        visible: Collection[str] = (),
        network: Collection[str] = (),
        fresh: bool = False,
    ) -> World:
        self.visible, self.network = frozenset(visible), frozenset(network)
        if fresh:
            self.calls.append("read fresh")
        return self.world

    async def ask(self, title: str, question: Callable[[Any], Awaitable[T]]) -> T:
        return await question(self)

    def open_terminal(
        self,
        sandbox_id: str,
        session: str,
        size: tuple[int, int],
        sink: Sink,
        *,
        birth: str = "",
        directory: str = "",
    ) -> FakeTerminal:
        self.calls.append(f"terminal {sandbox_id} {session}".rstrip())
        self.terminals.append(FakeTerminal(session, size, sink, directory))
        return self.terminals[-1]

    def open_wall(self) -> Any:
        return FakeWall()

    def open_screen(self, sandbox_id: str, sink: ScreenSink) -> Any:
        self.calls.append(f"screen {sandbox_id}")
        self.screens.append(FakeScreen(sink))
        return self.screens[-1]

    def record_screen(self, sandbox_id: str, path: Path, ended: Callable[[str], None]) -> Any:
        self.recordings.append(FakeRecording(path, ended))
        return self.recordings[-1]

    async def carry_out(self, verb: Call[T], sandbox_id: str, report: Report) -> T:
        """Lets a verb work on a `FakeSandbox`; what opens no sandbox is done here."""
        result: Any
        if verb.run is None and verb.anywhere is None:
            if verb.job is JobVerb.SAVE:
                result = await self.save(sandbox_id, verb.values, report)
            else:
                fake: Any = FakeSandbox(self, sandbox_id, report)
                result = await verb.act(fake, report)
        elif verb.job is JobVerb.DELETE:
            result = await self.delete(sandbox_id)
        elif verb.name == "restore" and verb.job is JobVerb.START:
            result = await self.bring_back(sandbox_id, report)
        elif verb.job is JobVerb.START:
            result = await self.create(verb.spec, report)
        else:
            result = await self.do_to_saves(verb, report)
        found: T = result
        return found

    async def create(self, spec: Any, report: Report) -> Started:
        self.made.append(spec)
        new_id = f"{len(self.calls):012x}"
        report(Progress(new_id))
        report(Progress(new_id, "boot the guest", 5, 5))
        await self.operate(f"create {spec.name}", report)
        self.put(
            replace(WEB, id=new_id, name=spec.name, image=spec.image, created=NOW, started=NOW)
        )
        return Started(self.notices)

    async def shells(self, sandbox_id: str) -> tuple[ShellView, ...]:
        if self.hold_shells is not None:
            await self.hold_shells.wait()
        return self.left_shells

    async def delete(self, sandbox_id: str) -> Any:
        await self.operate(f"delete {sandbox_id}")
        view = self.world.sandbox(sandbox_id)
        assert view is not None
        kept = tuple(s for s in self.world.sandboxes if s.id != sandbox_id)
        self.world = replace(self.world, sandboxes=kept)
        if not view.discard:
            self.deleted[sandbox_id] = view
        runs = view.is_live and not view.discard
        trashed = None if view.discard else SimpleNamespace(instant="last" if runs else "")
        return SimpleNamespace(id=sandbox_id, name=view.name, trashed=trashed, not_kept="")

    async def bring_back(self, sandbox_id: str, report: Report) -> Back:
        report(Progress(sandbox_id, "restoring"))
        await self.operate(f"bring back {sandbox_id}", report)
        view = self.deleted.pop(sandbox_id)
        self.put(view)
        return Back(view.id, view.name, "", view.is_live)

    def mounts(self, sandbox_id: str) -> tuple[MountFacts, ...]:
        found = self.world.sandbox(sandbox_id)
        assert found is not None
        return found.mounts

    def set_mounts(self, sandbox_id: str, mounts: tuple[MountFacts, ...]) -> None:
        views = tuple(
            replace(s, mounts=mounts) if s.id == sandbox_id else s for s in self.world.sandboxes
        )
        self.world = replace(self.world, sandboxes=views)

    def set_forwards(self, sandbox_id: str, made: tuple[tuple[int, int], ...]) -> None:
        """Has a sandbox other forwards of TCP that were made while it runs."""
        views = tuple(
            replace(
                s,
                ports=tuple(sorted({*s.ports} - {*s.forwards} | {*made})),
                forwards=tuple(sorted(made)),
            )
            if s.id == sandbox_id
            else s
            for s in self.world.sandboxes
        )
        self.world = replace(self.world, sandboxes=views)

    def forwards(self, sandbox_id: str) -> tuple[tuple[int, int], ...]:
        found = self.world.sandbox(sandbox_id)
        assert found is not None
        return found.forwards

    def change_checkpoint(self, sandbox_id: str, checkpoint_id: str, **facts: Any) -> None:
        tree = self.tree(sandbox_id)
        made = tuple(replace(m, **facts) if m.id == checkpoint_id else m for m in tree.checkpoints)
        self.set_tree(sandbox_id, made, tree.head)

    async def look_inside(self, sandbox_id: str) -> GuestView:
        self.calls.append(f"look inside {sandbox_id}")
        return GUEST

    def tree(self, sandbox_id: str) -> CheckpointTree:
        found = self.world.sandbox(sandbox_id)
        assert found is not None
        return found.tree

    def set_tree(
        self, sandbox_id: str, checkpoints: tuple[CheckpointView, ...], head: str | None
    ) -> None:
        tree = CheckpointTree(checkpoints=checkpoints, head=head)
        views = tuple(
            replace(s, tree=tree) if s.id == sandbox_id else s for s in self.world.sandboxes
        )
        self.world = replace(self.world, sandboxes=views)

    async def look_at_screen(
        self, sandbox_id: str, room: tuple[int, int], *, at: str = ""
    ) -> Cells:
        self.calls.append(f"look {sandbox_id} {at}".rstrip())
        if self.failure is not None:
            raise OperationError(self.failure)
        image = self.pictures.get(at)
        return () if image is None else fit(image, *room)

    async def compare(self, spec: DiffSpec, report: Callable[[int], None]) -> DiffView:
        await self.operate(f"compare {spec.title}")
        return DiffView(read=NOW)

    async def compare_file(self, spec: DiffSpec, path: str) -> TextDiff:
        return TextDiff(why=f"{path} is as it was")

    async def shell_then(self, sandbox_id: str, checkpoint: str) -> Glance | None:
        return self.shell_at.get(checkpoint)

    async def losing(self, sandbox_id: str, checkpoint: str) -> Losing:
        self.asked_losing.append(checkpoint)
        if isinstance(self.lost, Failure):
            raise OperationError(self.lost)
        return self.lost

    async def write_patch(self, spec: DiffSpec, below: str, file: Path) -> int:
        await self.operate(f"patch {below}")
        return 0

    async def changes(self, sandbox_id: str, before: str, after: str = "") -> Changes:
        return self.changed

    async def run_command(
        self, sandbox_id: str, command: str, *, timeout_s: float
    ) -> CommandOutput:
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        try:
            await self.operate(f"run {sandbox_id} {command}")
        finally:
            self.running -= 1
        return self.outputs.get(sandbox_id, CommandOutput(exit_code=0, seconds=0.3))

    def open_log(self, sandbox_id: str, kind: LogKind) -> FakeLog:
        self.calls.append(f"log {sandbox_id} {kind.value}")
        return self.logs[kind]

    def close(self) -> None:
        self.closed = True

    async def operate(self, what: str, report: Report | None = None) -> None:
        self.calls.append(what)
        if report is not None:
            self.reports.append(report)
        try:
            if self.hold is not None:
                await self.hold.wait()
        except asyncio.CancelledError:
            self.undone.append(what)
            raise
        if self.failure is not None:
            raise OperationError(self.failure)

    def put(self, view: SandboxView) -> None:
        self.world = replace(self.world, sandboxes=(*self.world.sandboxes, view))

    def change(self, sandbox_id: str, state: Status) -> None:
        views = tuple(
            replace(s, state=state, error="") if s.id == sandbox_id else s
            for s in self.world.sandboxes
        )
        self.world = replace(self.world, sandboxes=views)


class FakeSandbox:
    """A sandbox of the engine, as verbs use it: what is done to it changes the service's world."""

    def __init__(self, service: FakeService, sandbox_id: str, report: Report) -> None:
        self._service = service
        self._id = sandbox_id
        self._report = report
        self.notices = service.notices

    async def _operate(self, what: str, *, cancellable: bool = False) -> None:
        await self._service.operate(what, self._report if cancellable else None)

    async def start(self, *, at: str | None = None) -> None:
        self._report(Progress(self._id, "start QEMU", 4, 5))
        await self._operate(f"start {self._id}" + (f" at {at}" if at else ""), cancellable=True)
        self._service.change(self._id, Status.RUNNING)

    def detach(self) -> None: ...

    async def stop(self, *, grace: float) -> None:
        await self._end("stop", Status.STOPPED)

    async def kill(self) -> None:
        await self._end("kill", Status.STOPPED)

    async def pause(self) -> None:
        await self._end("pause", Status.PAUSED)

    async def resume(self) -> None:
        await self._end("resume", Status.RUNNING)

    async def _end(self, what: str, state: Status) -> None:
        await self._operate(f"{what} {self._id}")
        self._service.change(self._id, state)

    @property
    def _tree(self) -> CheckpointTree:
        return self._service.tree(self._id)

    def checkpoints(self) -> list[CheckpointView]:
        return [*self._tree.checkpoints]

    async def checkpoint(
        self, tag: str | None, *, note: str, replace: bool, tier: str | None, unmount_9p: bool
    ) -> Checkpoint:
        await self._operate(f"checkpoint {self._id} {tag or ''!r} {note!r}")
        tree = self._tree
        number = len(tree.checkpoints) + 1
        made = kept(f"n{number}", tag or str(number), tree.head, note=note, created=NOW)
        self._service.set_tree(self._id, (*tree.checkpoints, made), made.id)
        return engines(made)

    async def revert(self, to: str, *, keep_now: bool, unmount_9p: bool) -> Checkpoint:
        await self._operate(f"revert {self._id} {to}")
        tree = self._tree
        auto = kept("auto", "before revert", tree.head, auto=True, created=NOW)
        self._service.set_tree(self._id, (*tree.checkpoints, auto), to)
        reached = tree.find(to)
        assert reached is not None
        return engines(reached)

    async def undo(self, *, unmount_9p: bool) -> Checkpoint:
        await self._operate(f"undo {self._id}")
        tree = self._tree
        reached = tree.undo_goes_to
        assert reached is not None
        self._service.set_tree(self._id, tree.checkpoints, reached.id)
        return engines(reached)

    async def delete_checkpoint(self, checkpoint: str) -> None:
        await self._operate(f"delete {self._id} {checkpoint}")
        left = tuple(made for made in self._tree.checkpoints if made.id != checkpoint)
        self._service.set_tree(self._id, left, self._tree.head)

    async def pin_checkpoint(self, checkpoint: str, pinned: bool) -> None:
        await self._operate(f"pin {self._id} {checkpoint} {pinned}")
        self._service.change_checkpoint(self._id, checkpoint, pinned=pinned)

    async def note_checkpoint(self, checkpoint: str, note: str) -> None:
        await self._operate(f"note {self._id} {checkpoint} {note!r}")
        self._service.change_checkpoint(self._id, checkpoint, note=note)

    async def clone(
        self,
        count: int,
        *,
        concurrency: int | None,
        at: str | None,
        names: list[str] | None,
        mounts: str | None,
    ) -> list[Any]:
        words = ("clone", self._id, str(count), at, mounts)
        await self._operate(" ".join(word for word in words if word))
        source = self._service.world.sandbox(self._id)
        assert source is not None
        made = [f"{source.name}-{number + 1}" for number in range(count)]
        for name in made:
            self._service.put(replace(source, id=f"{abs(hash(name)):012x}"[:12], name=name))
        return [FakeClone(name) for name in made]

    async def mount(self, host: str, guest: str, readonly: bool, **how: object) -> None:
        await self._operate(f"mount {self._id} {host} {guest} {'ro' if readonly else 'rw'}")
        made = MountFacts(key=guest, host=host, guest=guest, readonly=readonly)
        self._service.set_mounts(self._id, (*self._service.mounts(self._id), made))

    async def unmount(self, guest: str, *, force: bool) -> None:
        await self._operate(f"unmount {self._id} {guest}{' by force' if force else ''}")
        left = tuple(mount for mount in self._service.mounts(self._id) if mount.key != guest)
        self._service.set_mounts(self._id, left)

    async def forward(self, guest: int, host: int = 0, *, protocol: str = "tcp") -> PortForward:
        await self._operate(f"forward {self._id} {host}:{guest} {protocol}")
        made = PortForward(host=host or 40_000, guest=guest)
        before = self._service.forwards(self._id)
        self._service.set_forwards(self._id, (*before, (made.host, guest)))
        return made

    async def unforward(self, host: int, *, protocol: str = "tcp") -> None:
        await self._operate(f"unforward {self._id} {host} {protocol}")
        left = tuple(pair for pair in self._service.forwards(self._id) if pair[0] != host)
        self._service.set_forwards(self._id, left)


class FakeClone(SimpleNamespace):
    """A clone that was just made."""

    def __init__(self, name: str) -> None:
        config = SimpleNamespace(network_mode=SimpleNamespace(value="full"))
        super().__init__(
            name=name,
            id="",
            accelerator="tcg",
            config=config,
            port_forwards={},
            udp_port_forwards={},
            agent_url="",
            boot_timing=None,
            notices=(),
        )

    def detach(self) -> None: ...

    def close(self) -> None: ...


def engines(view: CheckpointView) -> Checkpoint:
    """Returns a checkpoint as the engine has it."""
    return Checkpoint(**{one.name: getattr(view, one.name) for one in fields(CheckpointFacts)})


class SlowHands(Clock):
    """A clock by which each key comes long after the one before, however fast a test presses."""

    def __init__(self) -> None:
        self.time = 0.0

    def now(self) -> float:
        return self.time

    def of(self, key: Key) -> float:
        if self.last is not key:
            self.time += 1.0
            self.last = key
        return self.time

    last: Key | None = None


def make_app(
    service: FakeService,
    *,
    hands: Hands | None = None,
    ascii_glyphs: bool = False,
    settings: Settings | None = None,
    count_saves_after_s: float | None = None,
) -> QuicksandApp:
    app = QuicksandApp(
        service,
        clock=lambda: NOW,
        ascii_glyphs=ascii_glyphs,
        settings=settings,
        count_saves_after_s=count_saves_after_s,
        hands=hands or Hands(lambda _, act: act(), SlowHands()),
    )
    app.animation_level = "none"
    return app


def create(app: QuicksandApp, spec: NewSpec) -> None:
    """Starts a new sandbox, without moving the cursor."""
    app.operations.begin(launching.create(spec), sandbox_id=f"new:{spec.name}", name=spec.name)


async def until(condition: Callable[[], object], *, timeout: float = PATIENCE_S) -> None:
    """Wait for a condition of the UI; fail when it does not come true."""
    patience = Patience(timeout)
    while not condition():
        assert not patience.is_over(), "the condition did not come true"
        await asyncio.sleep(0.005)


def app_of(pilot: Pilot[int]) -> QuicksandApp:
    assert isinstance(pilot.app, QuicksandApp)
    return pilot.app


async def ready(pilot: Pilot[int]) -> QuicksandApp:
    """Wait until the first look at the world is shown."""
    app = app_of(pilot)
    await until(lambda: app.world_watch.shown)
    await pilot.pause()
    return app


@contextlib.asynccontextmanager
async def shown(
    service: FakeService | None = None,
    *,
    size: tuple[int, int] = SIZE,
    ascii_glyphs: bool = False,
    settings: Settings | None = None,
    hands: Hands | None = None,
) -> AsyncIterator[tuple[QuicksandApp, Pilot[int]]]:
    """The app on a screen of ``size``, ready for keys."""
    app = make_app(
        service or FakeService(), ascii_glyphs=ascii_glyphs, settings=settings, hands=hands
    )
    async with app.run_test(size=size) as pilot:
        await ready(pilot)
        yield app, pilot


async def select(pilot: Pilot[int], view: SandboxView) -> None:
    """Put the cursor on a sandbox."""
    table = app_of(pilot).main.sandboxes.table
    await until(lambda: table.select(view.id))
    await until(lambda: table.selected_key == view.id)
    await pilot.pause()


def send(app: QuicksandApp, keys: Iterable[str]) -> None:
    """Have the driver hand out keys in one burst, as a slow line delivers them."""
    for key in keys:
        app.post_message(Key(key, key if len(key) == 1 else None))


def screen_text(app: QuicksandApp) -> str:
    """What the screen shows, without colours."""
    width, height = app.size
    strips = app.screen._compositor.render_strips()
    assert len(strips) == height and width
    return "\n".join(strip.text for strip in strips)


def toasts(app: QuicksandApp) -> list[str]:
    return [note.message for note in app._notifications]


def drawn(app: QuicksandApp, mark: str, tag: str) -> bool:
    """Whether a checkpoint is in the tree, with that mark."""
    return re.search(f"{mark}[ │]+{re.escape(tag)}", screen_text(app)) is not None
