"""Sandboxes under filters of system calls that kill for what tracks their memory."""

from __future__ import annotations

import json
import sysconfig

import pytest
from quicksand.snapshots.tracking import WRITE_PROTECT

from tests import filters
from tests.filters import run_filtered
from tests.kernel import has_soft_dirty_bits

pytestmark = [
    pytest.mark.vm,
    pytest.mark.skipif(
        sysconfig.get_platform() != "linux-x86_64", reason="the filters are for Linux on x86_64"
    ),
]

CLIENT = """
import asyncio, json, sys
from quicksand import Sandbox
from tests.filters import install

install(int(sys.argv[1]), int(sys.argv[2]))

async def main():
    async with Sandbox(image="debian") as vm:
        await vm.execute("echo before > /root/file")
        first = await vm.checkpoint("first")
        await vm.execute("echo after > /root/file")
        second = await vm.checkpoint("second")
        await vm.revert("first")
        found = await vm.execute("cat /root/file")
    print(json.dumps([first.tier_note, second.tier_note, found.stdout]))

asyncio.run(main())
"""


@pytest.mark.parametrize("number", [filters.USERFAULTFD, filters.PTRACE])
def test_a_filter_that_kills_for_tracking_costs_only_that(number: int) -> None:
    done = run_filtered(CLIENT, number, filters.KILL_PROCESS)
    assert done.returncode == 0, done.stderr
    *notes, found = json.loads(done.stdout)
    assert found == "before\n"
    assert all(WRITE_PROTECT not in note for note in notes)
    if not has_soft_dirty_bits():  # else the second one is as good as without a filter
        assert all("QEMU has no userfaultfd" in note for note in notes)
