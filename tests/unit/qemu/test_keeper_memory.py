"""A QEMU that grows, played by a program: its guest is paused before the kernel refuses it more."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from unittest import mock

import pytest
from quicksand.base.paths import Paths
from quicksand.qemu.host_usage import qemu_memory
from quicksand.qemu.keeper_parts.bounds import MIB, MORE, OWN, MemoryWatch, bound_of, memory_of
from quicksand.qemu.keeper_parts.full_disk import SpaceWatch
from quicksand.qemu.keeper_parts.machines import Machine
from quicksand.qemu.process import OwnedProcess
from quicksand.records.layout import MachineDir
from quicksand.records.paused import why_oversized

from tests.conftest import wait_for
from tests.unit.qemu.test_keeper import Stage

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells of its memory")

GUEST = ("-m", "8M")

GROWING = f"""#!{sys.executable} -IS
import os, select, signal, sys
monitor = int(sys.argv[sys.argv.index("-mon") - 1].rpartition("=")[2])
runs, kept = True, []

def say(event):
    os.write(monitor, b'{{"event": "%s"}}\\n' % event)

def somebody_resumes(*_):
    global runs
    runs = True
    say(b"RESUME")

signal.signal(signal.SIGUSR1, somebody_resumes)
while True:
    if select.select([monitor], [], [], 0.04)[0]:
        said = os.read(monitor, 65536)
        if not said:
            break
        if b'"stop"' in said and runs:
            runs = False
            say(b"STOP")
            open("paused", "w").close()
    if runs and len(kept) < 100:
        kept.append(b"x" * (8 << 20))
"""
"""It takes 8 MiB in 40 ms, 800 MiB in all, as long as its guest runs."""

REACHING = f"""#!{sys.executable} -IS
import mmap, sys
mib, taken = 1 << 20, []
try:
    while True:
        taken.append(mmap.mmap(-1, 64 * mib, flags=mmap.MAP_PRIVATE))
except OSError as error:
    print(len(taken) * 64, error.errno, flush=True)
"""


@pytest.fixture
async def stage(places: Paths) -> AsyncIterator[Stage]:
    stage = Stage(places)
    yield stage
    for owned in stage.owned:
        owned.cut()
        await asyncio.wait_for(owned.wait(), 60)
    await stage.until_gone()


def program(stage: Stage, text: str) -> Path:
    stage.program.write_text(text)
    stage.program.chmod(0o700)
    return stage.program


async def until(condition: Callable[[], object], what: str) -> None:
    await asyncio.to_thread(wait_for, condition, timeout=60, what=what)


def machine(stage: Stage) -> MachineDir:
    return stage.runtime.current()


async def grown(stage: Stage) -> OwnedProcess:
    """A QEMU whose guest the keeper has paused."""
    owned = await stage.launch("", *GUEST, program=program(stage, GROWING))
    await until(machine(stage).oversized.exists, "the pause")
    # The mark comes before QEMU obeys, and a slow one is told again: resumed too early, it would
    # take that for another pause, of which nobody knows.
    await until((stage.place.layers / "paused").exists, "its obedience")
    return owned


async def test_a_qemu_that_grows_is_paused_at_its_bound_and_the_reason_is_told(
    stage: Stage,
) -> None:
    owned = await grown(stage)
    taken, bound = qemu_memory(owned.qemu_pid, GUEST)
    assert bound == 8 * MIB + OWN
    assert bound < taken < bound + 300 * MIB, "it looks often enough"
    why = why_oversized(machine(stage))
    assert why.startswith("its machine has taken ")
    assert "may have 264 MiB" in why


async def test_who_resumes_it_gives_it_more_and_no_end_of_it(stage: Stage) -> None:
    owned = await grown(stage)
    before = resource.prlimit(owned.qemu_pid, resource.RLIMIT_DATA)[0]
    first = qemu_memory(owned.qemu_pid, GUEST)[0]
    os.kill(owned.qemu_pid, signal.SIGUSR1)
    await until(lambda: not machine(stage).oversized.exists(), "the mark to go")
    await until(machine(stage).oversized.exists, "the next pause")
    second = qemu_memory(owned.qemu_pid, GUEST)[0]
    assert first + MORE - 50 * MIB < second < first + MORE + 300 * MIB
    after = resource.prlimit(owned.qemu_pid, resource.RLIMIT_DATA)[0]
    assert after >= before + MORE, "the kernel's limit is raised with it"


async def test_the_kernel_refuses_what_no_watch_has_prevented(stage: Stage) -> None:
    bound = bound_of(GUEST)
    assert bound is not None
    await stage.end("", *GUEST, program=program(stage, REACHING))
    mapped, number = map(int, stage.console().split())
    assert number == 12, "ENOMEM"
    assert bound.kernel - 256 * MIB < mapped * MIB < bound.kernel


async def test_a_qemu_of_which_nothing_is_known_is_not_watched(stage: Stage) -> None:
    owned = await stage.launch("", program=program(stage, GROWING))
    await until(
        lambda: (memory_of(owned.qemu_pid) or (0, 0))[0] > 8 * MIB + OWN + MORE, "some growth"
    )
    assert not machine(stage).oversized.exists()


@pytest.mark.parametrize("is_holding", [False, True])
def test_a_keeper_waits_for_no_space_while_a_guest_is_held_for_its_memory(
    is_holding: bool,
) -> None:
    """It would look at once, again and again, at what it may not act on."""
    memory = mock.Mock(spec=MemoryWatch, is_holding=is_holding, look_at=None)
    space = mock.Mock(spec=SpaceWatch, look_at=1.0)
    looks = Machine("1", 1, {}, space, memory, "/nowhere").looks_at
    assert looks == [None, None if is_holding else 1.0]
