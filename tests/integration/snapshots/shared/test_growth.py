"""Reverts in a row leave nothing: no descriptor, block node, file or memory, QEMU's or ours."""

from __future__ import annotations

import asyncio
import ctypes
import os
from pathlib import Path
from typing import ClassVar

import pytest
from quicksand import Sandbox
from quicksand.base.paths import Paths
from quicksand.qemu.qmp import Monitor
from quicksand.records.layout import runtime_dir, sandbox_dir
from quicksand.snapshots.history import AUTO_KEPT

from tests.conftest import PATIENCE_S, Patience, everything_below, our_processes, wait_for
from tests.integration.guests import say
from tests.integration.snapshots.files import check_litter

pytestmark = [pytest.mark.vm, pytest.mark.timeout(600)]

WARM_UP = AUTO_KEPT
"""After so many reverts that keep the present, as much is kept as ever will be."""

DESCRIPTORS = 3
"""Of what comes and goes, such as a connection that is made anew."""

CLIENT_KIB = 4096
"""Of memory in use. What the threads of a client have freed stays in their heaps, as much as the
busiest revert needed of each (mallopt(3), M_TRIM_THRESHOLD)."""
QEMU_KIB = 16 * 1024
"""Of its own memory; the guest itself takes pages as it comes to them."""

PROCESSES = 2
"""QEMU and its keeper."""


async def counts(vm: Sandbox, places: Paths) -> dict[str, int]:
    """How many there are of each kind, once what is ended in the background has ended."""
    place, runtime = sandbox_dir(places, vm.id), runtime_dir(places, vm.id)

    def is_quiet() -> bool:
        machines = [name for name in runtime.names() if name.isdigit()]
        return len(our_processes(str(places.data))) == PROCESSES and len(machines) == 1

    await asyncio.to_thread(wait_for, is_quiet, what="the end of what was before")
    monitor = await Monitor.connect(runtime.current())
    try:
        nodes = await monitor.execute("query-named-block-nodes")
        chardevs = await monitor.execute("query-chardev")
        objects = await monitor.execute("qom-list", path="/objects")
    finally:
        await monitor.close()
    directories = {path.name: path for path in (place.layers, place.memory, place.checkpoints)}
    return {
        "block nodes": len(nodes),
        "chardevs": len(chardevs),
        "objects": len(objects),
        "tasks": len(asyncio.all_tasks()),
        # The locks are of whatever socket was free.
        "runtime files": len([p for p in everything_below(runtime.root) if p.suffix != ".lock"]),
        **{name: len(os.listdir(path)) for name, path in directories.items()},
    }


async def require_no_more(vm: Sandbox, places: Paths, before: dict[str, int]) -> None:
    """Wait until there is of no kind more than before: what has just been closed may be there yet
    at the first look."""
    patience = Patience(PATIENCE_S)
    while True:
        now = await counts(vm, places)
        more = {name: (before[name], count) for name, count in now.items() if count > before[name]}
        if not more:
            return
        assert not patience.is_over(), more
        await asyncio.sleep(0.05)


def qemu_of(vm: Sandbox) -> int:
    run = next(entry.run for entry in Sandbox.list() if entry.id == vm.id)
    assert run is not None
    return run.qemu_pid


def descriptors(pid: int | str) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


def anonymous_kib(pid: int | str) -> int:
    """Memory that is its own (proc(5), RssAnon)."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon:"))


class HeapInfo(ctypes.Structure):
    """What mallinfo2(3) tells."""

    _fields_: ClassVar = [
        (name, ctypes.c_size_t)
        for name in (
            *("arena", "ordblks", "smblks", "hblks", "hblkhd"),
            *("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"),
        )
    ]


def used_kib() -> int:
    """Memory of this process that is its own, without what the C library has free."""
    library = ctypes.CDLL(None)
    library.mallinfo2.restype = HeapInfo
    free: int = library.mallinfo2().fordblks
    return anonymous_kib("self") - free // 1024


CHANGE = "echo {} > /root/f; head -c 1M /dev/urandom > /dev/shm/f; sync"
LOOK = "cat /root/f; wc -c < /dev/shm/f"


async def go_back(vm: Sandbox, times: int, *, kept_each: int) -> None:
    """Revert ``times`` times; of ``kept_each`` reverts one keeps the present."""
    for number in range(times):
        await say(vm, CHANGE.format(number))
        await vm.revert("one", keep_now=number % kept_each == 0)
        assert await say(vm, LOOK) == "first\n5"


async def revert_many_times(vm: Sandbox, places: Paths, times: int) -> None:
    # A program that the guest loads only after the checkpoint is new code after each revert, which
    # QEMU translates anew, until its buffer for that is full, as in any guest that runs on.
    for _ in range(2):
        await say(vm, f"{CHANGE.format('x')}; {LOOK}")
    await say(vm, "echo first > /root/f; echo four > /dev/shm/f; sync")
    await vm.checkpoint("one")
    await go_back(vm, WARM_UP, kept_each=1)
    before = await counts(vm, places)
    qemu = qemu_of(vm)
    memory = used_kib(), anonymous_kib(qemu)
    opened = descriptors("self"), descriptors(qemu)
    await go_back(vm, times, kept_each=3)
    await require_no_more(vm, places, before)
    assert qemu_of(vm) == qemu
    assert used_kib() - memory[0] < CLIENT_KIB
    assert anonymous_kib(qemu) - memory[1] < QEMU_KIB
    assert descriptors("self") <= opened[0] + DESCRIPTORS
    assert descriptors(qemu) <= opened[1] + DESCRIPTORS
    for made in vm.checkpoints():
        await vm.delete_checkpoint(made.id)
    check_litter(sandbox_dir(places, vm.id))


async def test_reverts_in_a_row_leave_nothing(vm: Sandbox, places: Paths) -> None:
    await revert_many_times(vm, places, 6)


@pytest.mark.soak
@pytest.mark.timeout(3600)
async def test_five_hundred_leave_nothing(vm: Sandbox, places: Paths) -> None:
    await revert_many_times(vm, places, 500)
