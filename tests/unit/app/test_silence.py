"""A sandbox that runs and does not answer says so, at no cost while all answer."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace

import pytest
from quicksand.base.files import try_lock
from quicksand.base.paths import Paths
from quicksand.base.processes import is_stopped
from quicksand.records.layout import runtime_dir, sandbox_dir
from quicksand.things.sandbox_facts import GuestTraffic
from quicksand.things.status import Status

from quicksand_tui.door import look as reader
from quicksand_tui.door import silence
from quicksand_tui.door.look import Reader
from quicksand_tui.door.silence import Silences, TrafficWatch
from quicksand_tui.door.typed import Typed
from tests.each import each
from tests.unit.app.fakes import FakeService, app_of, screen_text, until
from tests.unit.app.test_reader import VISIBLE, make, only, run_state
from tests.unit.panes.test_panes_screen import opened

DISK_FULL = "the host's disk is full; the sandbox resumes when there is space"


def test_a_qemu_that_was_stopped_is_seen_by_the_look_that_reads_its_use(
    places: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "USAGE_EVERY_S", 0.0)
    record = make(places)
    runtime = runtime_dir(places, record.id)
    machine = runtime.make("1")
    runtime.current_link.symlink_to("1")
    lock = try_lock(sandbox_dir(places, record.id).lock)
    assert lock is not None
    qemu = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        machine.state.write_text(json.dumps(run_state(qemu.pid).to_json()))
        looking = Reader()
        assert only(looking.read(VISIBLE).sandboxes).silent_since is None
        qemu.send_signal(signal.SIGSTOP)
        until_is(qemu.pid, stopped=True)
        since = only(looking.read(VISIBLE).sandboxes).silent_since
        assert since
        assert only(looking.read(VISIBLE).sandboxes).silent_since == since
        qemu.send_signal(signal.SIGCONT)
        until_is(qemu.pid, stopped=False)
        assert only(looking.read(VISIBLE).sandboxes).silent_since is None
    finally:
        qemu.kill()
        qemu.communicate()
        os.close(lock)
        shutil.rmtree(runtime.root)


def until_is(pid: int, *, stopped: bool) -> None:
    deadline = time.monotonic() + 20
    while is_stopped(pid) is not stopped:
        assert time.monotonic() < deadline


class Asked:
    """A guest that answers when a test says so."""

    def __init__(self) -> None:
        self.count = 0
        self.answers = asyncio.Event()

    async def __call__(self, *_: object) -> GuestTraffic:
        self.count += 1
        await self.answers.wait()
        return GuestTraffic(received=1, sent=1)


async def test_a_guest_is_silent_from_the_question_until_it_answers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(silence, "SILENT_S", 0.01)
    changed = asyncio.Event()
    silences, guest = Silences(changed.set), Asked()
    began = time.time()
    task = asyncio.create_task(silences.heed("a", guest()))
    await asyncio.wait_for(changed.wait(), 20)
    assert silences.known()["a"] == pytest.approx(began, abs=5)
    guest.answers.set()
    await asyncio.wait_for(task, 20)
    assert silences.known() == {}


async def test_a_silence_that_nobody_hears_any_more_is_not_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(silence, "SILENT_S", 0.0)
    now = [1000.0]
    changed = asyncio.Event()
    silences = Silences(changed.set, clock=lambda: now[0])
    task = asyncio.create_task(silences.heed("a", Asked()()))
    await asyncio.wait_for(changed.wait(), 20)
    now[0] += 60
    assert silences.known() == {"a": 1000.0}, "it is still waited for"
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    now[0] += silence.ASKED_S - 1
    assert silences.known() == {"a": 1000.0}
    now[0] += 2
    assert silences.known() == {}


async def test_only_what_is_typed_without_an_echo_asks_the_guest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    slept: asyncio.Queue[asyncio.Event] = asyncio.Queue()

    async def sleep(_: float) -> None:
        over = asyncio.Event()
        slept.put_nowait(over)
        await over.wait()

    guest = Asked()
    guest.answers.set()
    looks = Typed(Silences(lambda: None), "a")
    monkeypatch.setattr("quicksand_tui.door.typed.asyncio.sleep", sleep)
    task = asyncio.create_task(looks.follow(guest))
    for echoes, asked in ((True, 0), (False, 1), (True, 1)):
        looks.typed()
        over = await asyncio.wait_for(slept.get(), 20)
        if echoes:
            looks.heard()
        looks.typed()
        over.set()
        (await asyncio.wait_for(slept.get(), 20)).set()
        looks.heard()
        assert guest.count >= asked
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_a_guest_that_does_not_answer_holds_up_no_other() -> None:
    silent, asked = Asked(), []

    async def ask(sandbox_id: str) -> GuestTraffic:
        asked.append(sandbox_id)
        return await silent() if sandbox_id == "a" else GuestTraffic(received=1, sent=1)

    watch = TrafficWatch(ask, sleep=lambda _: asyncio.sleep(0))
    watch.want(["a", "b"])
    task = asyncio.create_task(watch.run())
    deadline = asyncio.get_running_loop().time() + 20
    while asked.count("b") < 3:
        assert asyncio.get_running_loop().time() < deadline
        await asyncio.sleep(0)
    assert asked.count("a") == 1, "it is not asked again before it answers"
    watch.want([])
    await asyncio.wait_for(task, 20)


@each(
    ("change", "said"),
    [
        ({"state": Status.PAUSED, "error": DISK_FULL}, f"paused: {DISK_FULL}"),
        ({"silent_since": 0.0}, "no answer for "),
    ],
)
async def test_a_pane_says_why_it_shows_nothing_new(change: dict[str, object], said: str) -> None:
    service = FakeService()
    async with opened(service, (160, 30)) as (pilot, workspace):
        app, world = app_of(pilot), service.world
        stalled = tuple(
            replace(view, **change) if view.name == "web" else view  # type: ignore[arg-type]
            for view in world.sandboxes
        )
        service.world = replace(world, sandboxes=stalled)
        app.world_watch.refresh()
        await until(lambda: said in workspace.title_of(workspace.current))
        assert said in screen_text(app)
        service.world = world
        app.world_watch.refresh()
        await until(lambda: said not in screen_text(app))
