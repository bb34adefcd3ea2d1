"""What taking a checkpoint costs the client in memory."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from quicksand.snapshots.tracking import ANONYMOUS

from tests.kernel import promised_level

pytestmark = pytest.mark.vm

GROWTH_MAX_MIB = 32

CLIENT = """
import asyncio, json
from pathlib import Path
from quicksand import Sandbox

def reset():
    # From here on VmHWM is the peak since now (proc(5)).
    Path("/proc/self/clear_refs").write_text("5")

def read(name):
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name + ":"))

async def main():
    async with Sandbox(image="debian", memory="768M") as vm:
        grown = []
        for number in range(2):
            write = f"head -c 256M /dev/urandom > /dev/shm/{number % 2}"
            result = await vm.execute(f"rm -f /dev/shm/*; {write}", timeout=120)
            assert result.exit_code == 0, result.stderr
            reset()
            before = read("VmRSS")
            made = await vm.checkpoint()
            grown.append([made.bytes_written, (read("VmHWM") - before) // 1024, made.tier_note])
    print(json.dumps(grown))

asyncio.run(main())
"""


@pytest.mark.soak
@pytest.mark.skipif(
    promised_level() == ANONYMOUS, reason="without tracking, all that was written is copied first"
)
def test_a_checkpoint_takes_little_memory_whatever_the_guest_has_written() -> None:
    """The first of a run, which also makes a memory image, and one of what was written since."""
    client = subprocess.run(
        [sys.executable, "-c", CLIENT], capture_output=True, text=True, check=False
    )
    assert client.returncode == 0, client.stderr
    for written, grown_mib, note in json.loads(client.stdout):
        assert written > 256 << 20, note
        assert grown_mib <= GROWTH_MAX_MIB, note
