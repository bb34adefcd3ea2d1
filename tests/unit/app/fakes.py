"""A service that tells what tests want, and waits that end."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Collection, Iterable
from dataclasses import replace
from typing import Any

from quicksand.guest_traffic import GuestTraffic
from textual.events import Key
from textual.pilot import Pilot

from quicksand_tui.actions import default_keymap
from quicksand_tui.application import QuicksandApp
from quicksand_tui.failures import Failure, OperationError
from quicksand_tui.guest_view import GuestView, ProcessView
from quicksand_tui.listed import ImageView, SandboxView
from quicksand_tui.panes.link import LinkState, LinkStatus, Sink
from quicksand_tui.past import CheckpointView, PastView
from quicksand_tui.run_many import CommandOutput
from quicksand_tui.services import LogKind, Progress, Report, ShellView
from quicksand_tui.settings import Settings
from quicksand_tui.snapshot import HostView, Snapshot, State
from quicksand_tui.specs import CheckpointSpec, NewSpec
from tests.unit.app import fake_saves
from tests.unit.app.fake_saves import FakeSaves

NOW = fake_saves.NOW
SIZE = (80, 24)
"""Of the usual terminal."""

GIB = 1 << 30
MIB = 1 << 20

WEB = SandboxView(
    id="3f2a9c0d1e2f",
    name="web",
    state=State.RUNNING,
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
    state=State.STOPPED,
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
    state=State.CRASHED,
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
    state=State.BROKEN,
    error="schema_version None is not 1",
)
PAUSED = replace(WEB, id="dd44ee55ff66", name="builder", state=State.PAUSED, ports=())


def kept(id_: str, tag: str, parent: str | None = None, **facts: Any) -> CheckpointView:
    """A checkpoint, an hour old unless ``facts`` say otherwise."""
    values: dict[str, Any] = {
        "created": NOW - 3600,
        "tier": "pages",
        "pause_s": 0.0231,
        "written": 12 * MIB,
    }
    return CheckpointView(id=id_, tag=tag, name=tag, parent=parent, **{**values, **facts})


CLEAN = kept("c1", "clean", created=NOW - 7200, note="before the upgrade", written=48 * MIB)
UPGRADED = kept("c2", "upgraded", "c1")
TRIED = kept("c3", "tried-something", "c1", created=NOW - 1800, note="it did not work")
AUTO = kept("c4", "before revert to clean 12:00:00", "c3", created=NOW - 600, auto=True)
DAMAGED = CheckpointView(id="c0ffee00", tag="c0ffee00", name="c0ffee00", error="no JSON: line 1")
PAST = PastView(checkpoints=(DAMAGED, CLEAN, UPGRADED, TRIED, AUTO), head="c2")
WEB_PAST = replace(WEB, past=PAST)
DB_PAST = replace(DB, past=PastView(checkpoints=(CLEAN, UPGRADED), head="c2"))
DEBIAN = ImageView(
    name="debian", version="13.1", arch="x86_64", size=105 * MIB, created=NOW - 2 * 86400
)
OLD = ImageView(name="old", error="manifest.json is damaged: 'disk'")
HOST = HostView(memory_free=6 * GIB, disk_free=40 * GIB)

KEYMAP = default_keymap()
EMPTY = Snapshot(taken=NOW, images=(DEBIAN,), host=HOST, keymap=KEYMAP)
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

    def __init__(self, session: str, size: tuple[int, int], sink: Sink) -> None:
        self.session = session
        self.size = size
        self.sink = sink
        self.typed = b""
        self.unread = 0
        self.left = self.ended = False
        asyncio.get_running_loop().call_soon(self.tell, LinkState.OPEN)

    def tell(self, state: LinkState, text: str = "") -> None:
        self.session = self.session or "1"
        self.sink.status(LinkStatus(state=state, session=self.session, text=text))

    def say(self, data: bytes) -> None:
        self.unread += len(data)
        self.sink.output(data)

    def write(self, data: bytes) -> None:
        self.typed += data

    def resize(self, columns: int, rows: int) -> None:
        self.size = (columns, rows)

    def parsed(self, count: int) -> None:
        self.unread -= count

    def leave(self) -> None:
        self.left = True

    def end(self) -> None:
        self.ended = True


class FakeService(FakeSaves):
    """Shows ``world``; operations change it when the test lets them (or at once)."""

    def __init__(self, world: Snapshot = FULL) -> None:
        super().__init__()
        self.world = world
        self.calls: list[str] = []
        self.made: list[NewSpec] = []
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
        self.terminals: list[FakeTerminal] = []

    def read(
        self,
        *,
        visible: Collection[str] = (),
        network: Collection[str] = (),
        fresh: bool = False,
    ) -> Snapshot:
        self.visible, self.network = frozenset(visible), frozenset(network)
        if fresh:
            self.calls.append("read fresh")
        return self.world

    def open_terminal(
        self, sandbox_id: str, session: str, size: tuple[int, int], sink: Sink
    ) -> FakeTerminal:
        self.calls.append(f"terminal {sandbox_id} {session}".rstrip())
        self.terminals.append(FakeTerminal(session, size, sink))
        return self.terminals[-1]

    async def create(self, spec: NewSpec, report: Report) -> None:
        self.made.append(spec)
        new_id = f"{len(self.calls):012x}"
        report(Progress(new_id))
        report(Progress(new_id, "boot the guest", 5, 5))
        await self._operate(f"create {spec.name}", report)
        self._put(
            replace(WEB, id=new_id, name=spec.name, image=spec.image, created=NOW, started=NOW)
        )

    async def start(self, sandbox_id: str, report: Report, *, at: str = "") -> None:
        report(Progress(sandbox_id, "start QEMU", 4, 5))
        await self._operate(f"start {sandbox_id}" + (f" at {at}" if at else ""), report)
        self._change(sandbox_id, State.RUNNING)

    async def stop(self, sandbox_id: str) -> None:
        await self._operate(f"stop {sandbox_id}")
        self._change(sandbox_id, State.STOPPED)

    async def kill(self, sandbox_id: str) -> None:
        await self._operate(f"kill {sandbox_id}")
        self._change(sandbox_id, State.STOPPED)

    async def pause(self, sandbox_id: str) -> None:
        await self._operate(f"pause {sandbox_id}")
        self._change(sandbox_id, State.PAUSED)

    async def resume(self, sandbox_id: str) -> None:
        await self._operate(f"resume {sandbox_id}")
        self._change(sandbox_id, State.RUNNING)

    async def shells(self, sandbox_id: str) -> tuple[ShellView, ...]:
        if self.hold_shells is not None:
            await self.hold_shells.wait()
        return self.left_shells

    async def delete(self, sandbox_id: str) -> None:
        await self._operate(f"delete {sandbox_id}")
        kept = tuple(s for s in self.world.sandboxes if s.id != sandbox_id)
        self.world = replace(self.world, sandboxes=kept)

    async def checkpoint(self, sandbox_id: str, spec: CheckpointSpec) -> CheckpointView:
        await self._operate(f"checkpoint {sandbox_id} {spec.tag!r} {spec.note!r}")
        past = self._past(sandbox_id)
        number = len(past.checkpoints) + 1
        made = kept(f"n{number}", spec.tag or str(number), past.head, note=spec.note, created=NOW)
        self._set_past(sandbox_id, (*past.checkpoints, made), made.id)
        return made

    async def revert(self, sandbox_id: str, checkpoint_id: str) -> CheckpointView:
        await self._operate(f"revert {sandbox_id} {checkpoint_id}")
        past = self._past(sandbox_id)
        auto = kept("auto", "before revert", past.head, auto=True, created=NOW)
        self._set_past(sandbox_id, (*past.checkpoints, auto), checkpoint_id)
        reached = past.find(checkpoint_id)
        assert reached is not None
        return reached

    async def undo(self, sandbox_id: str) -> CheckpointView:
        await self._operate(f"undo {sandbox_id}")
        past = self._past(sandbox_id)
        reached = past.undo_goes_to
        assert reached is not None
        self._set_past(sandbox_id, past.checkpoints, reached.id)
        return reached

    async def delete_checkpoint(self, sandbox_id: str, checkpoint_id: str) -> None:
        await self._operate(f"delete {sandbox_id} {checkpoint_id}")
        past = self._past(sandbox_id)
        left = tuple(made for made in past.checkpoints if made.id != checkpoint_id)
        self._set_past(sandbox_id, left, past.head)

    async def clone(self, sandbox_id: str, count: int, *, at: str = "") -> tuple[str, ...]:
        await self._operate(f"clone {sandbox_id} {count} {at}".rstrip())
        source = self.world.sandbox(sandbox_id)
        assert source is not None
        names = tuple(f"{source.name}-{number + 1}" for number in range(count))
        for name in names:
            self._put(replace(source, id=f"{abs(hash(name)):012x}"[:12], name=name))
        return names

    async def pin_checkpoint(self, sandbox_id: str, checkpoint_id: str, *, pinned: bool) -> None:
        await self._operate(f"pin {sandbox_id} {checkpoint_id} {pinned}")
        self._change_checkpoint(sandbox_id, checkpoint_id, pinned=pinned)

    async def note_checkpoint(self, sandbox_id: str, checkpoint_id: str, note: str) -> None:
        await self._operate(f"note {sandbox_id} {checkpoint_id} {note!r}")
        self._change_checkpoint(sandbox_id, checkpoint_id, note=note)

    def _change_checkpoint(self, sandbox_id: str, checkpoint_id: str, **facts: Any) -> None:
        past = self._past(sandbox_id)
        made = tuple(replace(m, **facts) if m.id == checkpoint_id else m for m in past.checkpoints)
        self._set_past(sandbox_id, made, past.head)

    async def look_inside(self, sandbox_id: str) -> GuestView:
        self.calls.append(f"look inside {sandbox_id}")
        return GUEST

    def _past(self, sandbox_id: str) -> PastView:
        found = self.world.sandbox(sandbox_id)
        assert found is not None
        return found.past

    def _set_past(
        self, sandbox_id: str, checkpoints: tuple[CheckpointView, ...], head: str | None
    ) -> None:
        past = PastView(checkpoints=checkpoints, head=head)
        views = tuple(
            replace(s, past=past) if s.id == sandbox_id else s for s in self.world.sandboxes
        )
        self.world = replace(self.world, sandboxes=views)

    async def run_command(
        self, sandbox_id: str, command: str, *, timeout_s: float
    ) -> CommandOutput:
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        try:
            await self._operate(f"run {sandbox_id} {command}")
        finally:
            self.running -= 1
        return self.outputs.get(sandbox_id, CommandOutput(exit_code=0, seconds=0.3))

    def open_log(self, sandbox_id: str, kind: LogKind) -> FakeLog:
        self.calls.append(f"log {sandbox_id} {kind.value}")
        return self.logs[kind]

    def close(self) -> None:
        self.closed = True

    async def _operate(self, what: str, report: Report | None = None) -> None:
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

    def _put(self, view: SandboxView) -> None:
        self.world = replace(self.world, sandboxes=(*self.world.sandboxes, view))

    def _change(self, sandbox_id: str, state: State) -> None:
        views = tuple(
            replace(s, state=state, error="") if s.id == sandbox_id else s
            for s in self.world.sandboxes
        )
        self.world = replace(self.world, sandboxes=views)


def make_app(
    service: FakeService,
    *,
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
    )
    app.animation_level = "none"
    return app


async def until(condition: Callable[[], object], *, timeout: float = 10.0) -> None:
    """Wait for a condition of the UI; fail when it does not come true."""
    deadline = asyncio.get_running_loop().time() + timeout
    while not condition():
        assert asyncio.get_running_loop().time() < deadline, "the condition did not come true"
        await asyncio.sleep(0.005)


def app_of(pilot: Pilot[int]) -> QuicksandApp:
    assert isinstance(pilot.app, QuicksandApp)
    return pilot.app


async def ready(pilot: Pilot[int]) -> QuicksandApp:
    """Wait until the first look at the world is shown."""
    app = app_of(pilot)
    await until(lambda: app._painted)
    await pilot.pause()
    return app


@contextlib.asynccontextmanager
async def shown(
    service: FakeService | None = None,
    *,
    size: tuple[int, int] = SIZE,
    ascii_glyphs: bool = False,
    settings: Settings | None = None,
) -> AsyncIterator[tuple[QuicksandApp, Pilot[int]]]:
    """The app on a screen of ``size``, ready for keys."""
    app = make_app(service or FakeService(), ascii_glyphs=ascii_glyphs, settings=settings)
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
