"""What takes longer than CI allows: `make soak` (scoreboard R10, R17)."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from quicksand import Sandbox
from quicksand.base.paths import Paths

from tests.conftest import our_processes, wait_for

pytestmark = [pytest.mark.vm, pytest.mark.soak, pytest.mark.timeout(3600)]

CYCLES = 100
CROWD = 20
WARM_UP = 10
"""Cycles after which caches are full: what grows from there on is a leak."""


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory of temporary files, for this test alone: others may run beside it."""
    place = tmp_path / "temporary"
    place.mkdir()
    monkeypatch.setenv("TMPDIR", str(place))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return place


def traces(places: Paths) -> dict[str, int]:
    """How much of each kind of thing there is."""
    return {
        "descriptors": len(os.listdir("/proc/self/fd")),
        "processes": len(our_processes()),
        "temporary": len(os.listdir(tempfile.gettempdir())),
        "runtime": len(list(places.runtime.iterdir())),
        "sandboxes": len([p for p in places.sandboxes.iterdir() if p.name[0] != "."]),
        "tasks": len(asyncio.all_tasks()),
    }


async def one_life(number: int, *, boot_timeout: float = 60.0) -> None:
    async with Sandbox(image="debian", boot_timeout=boot_timeout) as sandbox:
        result = await sandbox.execute(f"echo {number} > /root/n; cat /root/n", timeout=120)
        assert result.stdout == f"{number}\n"


async def test_a_hundred_lives_one_after_the_other_leak_nothing(places: Paths) -> None:
    for number in range(WARM_UP):
        await one_life(number)
    before, memory = traces(places), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for number in range(WARM_UP, CYCLES):
        await one_life(number)
    assert traces(places) == before
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory
    assert grown < 4096, f"{grown} KiB in {CYCLES - WARM_UP} cycles"


async def test_twenty_at_once_all_live_and_leak_nothing(places: Paths) -> None:
    await one_life(0)
    before = traces(places)
    await asyncio.gather(*(one_life(number, boot_timeout=600) for number in range(CROWD)))
    assert traces(places) == before


@contextlib.contextmanager
def busy_host(processes: int) -> Iterator[None]:
    """``processes`` that spin, at the same priority as everything else."""
    spinning = [
        subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(processes)
    ]
    try:
        yield
    finally:
        for process in spinning:
            process.kill()
            process.wait()


async def test_a_host_that_is_busy_many_times_over_is_slow_and_nothing_else(places: Paths) -> None:
    """R17: everything keeps working on a tenth of the CPU."""
    with busy_host(10 * (os.cpu_count() or 1)):
        sandbox = Sandbox(image="debian", name="slow", boot_timeout=600)
        await sandbox.start()
        for number in range(10):
            assert (await sandbox.execute(f"echo {number}", timeout=120)).exit_code == 0
        await sandbox.files.write("/root/f", bytes(1024 * 1024))
        assert len(await sandbox.files.read("/root/f")) == 1024 * 1024
        await sandbox.stop(grace=60)
    wait_for(lambda: not our_processes(str(places.data)), what="its processes to end")
