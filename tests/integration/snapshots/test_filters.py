"""Sandboxes under filters of system calls that kill for what tracks their memory."""

from __future__ import annotations

import json
import sys

import pytest
from quicksand.snapshots import tracking

from tests import filters
from tests.filters import run_filtered

pytestmark = [
    pytest.mark.vm,
    pytest.mark.skipif(sys.platform != "linux", reason="needs Linux's seccomp"),
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
    assert "QEMU has no userfaultfd" in notes[0]
    if not tracking.tracks_soft_dirty():
        assert "QEMU has no userfaultfd" in notes[1]
