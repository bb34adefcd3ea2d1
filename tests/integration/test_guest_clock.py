"""The clocks of real guests: as fast as the host's, and right after the guest has stood still."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from quicksand import Sandbox
from quicksand.base.arch import Architecture
from quicksand.base.errors import UnfitGuestError
from quicksand.base.paths import Paths, paths
from quicksand.base.tick_rate import tick_rate_khz
from quicksand.guest.fitness import TOLERANCE, Rate, Reading, compare, read_clock
from quicksand.qemu import planning
from quicksand.qemu.qmp import Monitor
from quicksand.records.config import SandboxConfig
from quicksand.records.layout import runtime_dir
from quicksand.records.registry import Registry
from quicksand.warm.template_maker import warm
from quicksand.warm.templates import CHECKED, list_templates, prune

from tests.conftest import in_time, share_findings
from tests.integration.guests import is_on_time, say

pytestmark = [pytest.mark.vm, pytest.mark.usefixtures("patient")]

BUSY = 12
"""Programs that make the load of a busy host."""

WRONG_KHZ = 925_000
"""A rate that a guest has found on a busy host; its clock ran three times too fast."""

on_x86 = pytest.mark.skipif(
    Architecture.host() is not Architecture.X86_64, reason="other guests measure no rate"
)


@pytest.fixture
def own_cache(
    prepared: Paths, places: Paths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Path:
    share_findings(prepared, tmp_path / "cache")
    monkeypatch.setenv("QUICKSAND_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


def tell(monkeypatch: pytest.MonkeyPatch, *rates: int | None) -> None:
    """Have machines be told these rates, each the next one; the last one from then on. None: the
    right one."""
    left = list(rates)

    def rate() -> int | None:
        told = left.pop(0) if len(left) > 1 else left[0]
        return told if told is not None else tick_rate_khz()

    monkeypatch.setattr(planning, "tick_rate_khz", rate)


async def uptime(vm: Sandbox) -> float:
    return float(await say(vm, "cut -d' ' -f1 /proc/uptime"))


async def measure(vm: Sandbox, since: Reading | None = None) -> Rate:
    session = await vm._parts.life.session()
    return await compare(session, since or await read_clock(session), TOLERANCE, window_s=1.0)


@on_x86
async def test_a_guest_whose_clock_runs_wrong_gets_another_at_its_start(
    own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tell(monkeypatch, WRONG_KHZ)
    async with Sandbox(image="debian", warm=False, accel=None) as vm:
        (notice,) = vm.notices
        assert "the guest's clock ran 2." in notice
        assert (await measure(vm)).is_right(TOLERANCE)
        assert await is_on_time(vm)


@on_x86
async def test_a_start_at_a_checkpoint_goes_on_with_a_right_clock(places: Paths) -> None:
    vm = Sandbox(image="debian", name="box")
    async with vm:
        began = time.monotonic()
        before = await uptime(vm)
        await vm.checkpoint("one")
        ran_s = time.monotonic() - began
        await vm.stop()
        began = time.monotonic()
        await vm.start(at="one")
        later = await uptime(vm)
        ran_s += time.monotonic() - began
        # Until the checkpoint, and since the start: on a busy host either may take long.
        assert before <= later < before + ran_s + 1, "its uptime is not that of the checkpoint"
        assert (await measure(vm)).is_right(TOLERANCE)
        assert await is_on_time(vm)


@on_x86
@pytest.mark.soak
async def test_a_template_is_made_of_another_guest_if_the_clock_of_the_first_runs_wrong(
    own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry = Registry(paths())
    config = SandboxConfig.parse({"image": "debian", "accel": None})
    # The parts are gathered for the key, twice, and for each boot.
    tell(monkeypatch, None, None, WRONG_KHZ, None)
    template, is_new = await warm(registry, config)
    assert is_new
    async with Sandbox(image="debian", accel=None) as vm:
        assert vm.boot_timing is not None
        assert vm.boot_timing.mode == "template", vm.notices
        assert (await measure(vm)).is_right(TOLERANCE)
    # One that an earlier version has made, unchecked, is not used, and removed.
    (template.place.root / CHECKED).unlink()
    async with Sandbox(image="debian", accel=None) as vm:
        assert vm.boot_timing is not None
        assert vm.boot_timing.mode == "cold boot"
    prune(template.place.root.parent, template.place.engine_log)
    assert not template.place.root.exists()


@on_x86
async def test_a_guest_that_stays_wrong_is_no_template_and_leaves_nothing(
    own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tell(monkeypatch, None, None, WRONG_KHZ)
    monkeypatch.setattr("quicksand.warm.template_maker.ATTEMPTS", 1)
    registry = Registry(paths())
    with pytest.raises(UnfitGuestError, match="clock"):
        await warm(registry, SandboxConfig.parse({"image": "debian", "accel": None}))
    assert list_templates(registry.paths) == []
    assert [path.suffix for path in (own_cache / "templates").iterdir()] == [".lock"]


async def test_a_guest_that_nobody_talks_to_has_the_right_time_soon_after_a_pause(
    places: Paths,
) -> None:
    # It has known its RTC for a few seconds only, which says so many tenths of one.
    assert await in_time(_wrong_by_after_a_pause, 0.6)


async def _wrong_by_after_a_pause() -> float:
    """By how many seconds the clock of a guest is wrong, three seconds after a pause of which
    nobody has told it."""
    async with Sandbox(image="debian") as vm:
        # So long that the guest knows by how much its RTC lags.
        lines = "while :; do date +%s.%N >> /root/log; sleep 0.1; done"
        await vm.execute(f"({lines}) < /dev/null > /dev/null 2>&1 &")
        session = await vm._parts.life.session()
        began = await read_clock(session)
        assert (await compare(session, began, TOLERANCE, window_s=5.0)).is_right(TOLERANCE)
        vm.disconnect()
        monitor = await Monitor.connect(runtime_dir(paths(), vm.id).current())
        try:
            await monitor.execute("stop")
            await asyncio.sleep(4)  # that time goes by is what this is about
            await monitor.execute("cont")
        finally:
            await monitor.close()
        await asyncio.sleep(3)  # and that nobody asks meanwhile
        watcher = Sandbox.attach(vm.id, set_clock=False)
        try:
            before = time.time()
            guest = float(await say(watcher, "date +%s.%N"))
            wrong_by = max(before - guest, guest - time.time())
            times = [float(line) for line in (await say(watcher, "cat /root/log")).split()]
        finally:
            watcher.close()
    steps = [b - a for a, b in itertools.pairwise(times) if b - a > 0.6]
    assert len(steps) <= 1 or max(steps) > 3, f"it was not set in one step: {steps}"
    return wrong_by


async def test_a_resume_sets_the_clock_at_once(places: Paths) -> None:
    async with Sandbox(image="debian", name="resumed") as vm:
        await vm.pause()
        await asyncio.sleep(3)  # that time goes by is what this is about
        await vm.resume()
        vm.disconnect()
        watcher = Sandbox.attach("resumed", set_clock=False)
        try:
            assert await is_on_time(watcher)
        finally:
            watcher.close()


@contextlib.contextmanager
def busy(count: int) -> Iterator[None]:
    """So many programs that never rest."""
    words = (sys.executable, "-c", "while True: pass")
    running = [subprocess.Popen(words, start_new_session=True) for _ in range(count)]
    try:
        yield
    finally:
        for program in running:
            os.kill(program.pid, signal.SIGKILL)
            program.wait()


@pytest.mark.soak
@pytest.mark.timeout(3600)
async def test_thirty_boots_on_a_busy_host_have_a_right_clock(own_cache: Path) -> None:
    rates = []
    with busy(BUSY):
        for _ in range(30):
            async with Sandbox(image="debian", warm=False, accel=None, boot_timeout=600) as vm:
                assert vm.notices == ()
                rates.append((await measure(vm)).value)
    print(f"a second of the guest: {min(rates):.5f} to {max(rates):.5f} s")
    assert max(abs(rate - 1) for rate in rates) <= TOLERANCE


@pytest.mark.soak
@pytest.mark.timeout(3600)
async def test_templates_that_are_made_on_a_busy_host_have_a_right_clock(own_cache: Path) -> None:
    rates = []
    with busy(BUSY):
        for number in range(5):
            config = {"image": "debian", "accel": None, "memory": f"{400 + number}M"}
            await warm(Registry(paths()), SandboxConfig.parse({**config, "boot_timeout": 600}))
            async with Sandbox(**config, boot_timeout=600) as vm:  # type: ignore[arg-type]
                assert vm.boot_timing is not None
                assert vm.boot_timing.mode == "template"
                rates.append((await measure(vm)).value)
    print(f"a second of the guest: {min(rates):.5f} to {max(rates):.5f} s")
    assert max(abs(rate - 1) for rate in rates) <= TOLERANCE
