"""A machine that has started is ended if its start is cancelled behind that."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
from quicksand.base.errors import AgentError, GuestPanicError
from quicksand.base.paths import Paths
from quicksand.base.progress import COLD, Stopwatch
from quicksand.qemu.planning import Found
from quicksand.records.config import Accelerator, SandboxConfig
from quicksand.records.layout import sandbox_dir
from quicksand.records.registry import Registry
from quicksand.warm import starting

from tests.conftest import blank_record


class Running:
    """A machine that runs."""

    run = SimpleNamespace(qemu_pid=1)
    ended = False

    async def end(self) -> None:
        await asyncio.sleep(0)
        self.ended = True


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Running:
    """What a start returns that finds no template."""
    running = Running()

    async def start(*_: object, **__: object) -> Any:
        return running

    monkeypatch.setattr(starting, "_start", start)
    monkeypatch.setattr(
        starting, "Templates", lambda *_: SimpleNamespace(find=lambda: None, refusal="")
    )
    return running


def begin(places: Paths) -> asyncio.Task[Any]:
    record = blank_record(SandboxConfig.parse({"image": "debian"}))
    found = Found(watch=Stopwatch(None), parts=None)  # type: ignore[arg-type]
    return asyncio.create_task(starting.boot(Registry(places), record, -1, warm=True, found=found))


async def test_a_cancellation_while_a_template_is_ordered_ends_the_machine(
    places: Paths, machine: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    ordered = asyncio.Event()

    async def order(*_: object, **__: object) -> None:
        ordered.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(starting, "make_in_background", order)
    boot = begin(places)
    await ordered.wait()
    boot.cancel()
    with pytest.raises(asyncio.CancelledError):
        await boot
    assert machine.ended


async def test_a_template_that_cannot_be_ordered_does_not_keep_a_machine_from_its_start(
    places: Paths, machine: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def order(*_: object, **__: object) -> None:
        raise BlockingIOError

    monkeypatch.setattr(starting, "make_in_background", order)
    assert await begin(places) is machine
    assert not machine.ended


@dataclass
class Booted:
    notices: tuple[str, ...] = ("its memory is not shared",)


@pytest.mark.parametrize(
    ("panics", "accelerator", "starts"),
    [
        (["Fatal exception in interrupt"], Accelerator.TCG, 2),
        (["Fatal exception", "Fatal exception"], Accelerator.TCG, 2),
        (["__kmem_cache_create_args: Failed to create slab 'sigqueue'"], Accelerator.TCG, 2),
        (["Attempted to kill init! exitcode=0x00000100"], Accelerator.TCG, 1),
        (["VFS: Unable to mount root fs on unknown-block(0,0)"], Accelerator.TCG, 1),
        (["System is deadlocked on memory"], Accelerator.TCG, 1),
        (["Fatal exception in interrupt"], Accelerator.KVM, 1),
    ],
    ids=["once", "always", "slab", "no-init", "no-root", "no-memory", "real-processor"],
)
async def test_an_emulated_guest_whose_kernel_faults_as_it_boots_is_started_once_more(
    places: Paths,
    monkeypatch: pytest.MonkeyPatch,
    panics: list[str],
    accelerator: Accelerator,
    starts: int,
) -> None:
    record = blank_record(SandboxConfig.parse({"image": "debian"}))
    console = sandbox_dir(places, record.id).console_log
    console.parent.mkdir(parents=True)
    left, started = list(panics), []

    async def start(*_: object, **how: object) -> Any:
        started.append(how)
        if not left:
            return Booted()
        console.write_text(f"[    0.3] Kernel panic - not syncing: {left.pop(0)}\n")
        raise GuestPanicError("the guest's kernel panicked while the guest booted")

    monkeypatch.setattr(starting, "_start", start)
    parts: Any = SimpleNamespace(status=SimpleNamespace(accelerator=accelerator))
    found = Found(watch=Stopwatch(None), parts=parts)
    boot = starting.boot(Registry(places), record, -1, at="a", found=found)
    if len(panics) < starts:
        notices = (await boot).notices
        assert notices[0] == "its memory is not shared"
        assert panics[0] in notices[1]
    else:
        with pytest.raises(GuestPanicError):
            await boot
    assert started == [{"at": "a"}] * starts


async def test_after_a_template_that_failed_late_the_timing_says_that_it_booted(
    places: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def start(*given: Any, origin: object = None, **_: object) -> Any:
        watch = given[3]
        if origin is not None:
            watch.mode = "template"  # its guest went on, and could not be used then
            raise AgentError("the guest does not answer")
        return SimpleNamespace(timing=watch.timing(), run=Running.run)

    async def order(*_: object, **__: object) -> None:
        pass

    discarded: list[bool] = []
    templates = SimpleNamespace(find=object, discard=lambda: discarded.append(True))
    monkeypatch.setattr(starting, "_start", start)
    monkeypatch.setattr(starting, "Templates", lambda *_: templates)
    monkeypatch.setattr(starting, "make_in_background", order)
    machine = await begin(places)
    assert discarded
    assert machine.timing.mode == COLD
    assert machine.timing.note == "the template did not work: the guest does not answer"
