"""What tests ask of guests, and see of sandboxes."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

from quicksand import EventKind, Sandbox
from quicksand.base.processes import running_modules
from quicksand.warm.publishing import FORWARDER

CLOCK_S = 0.3
"""Seconds; a busy host may let a guest wait while it sets its clock. Checkpoints are older."""

IDENTITY = (
    "cat /etc/machine-id /proc/sys/kernel/random/boot_id /proc/sys/kernel/random/uuid; hostname"
    "; cat /sys/class/net/eth0/address; head -c 16 /dev/urandom | od -An -tx1"
)
"""Prints a line for each thing that no two guests have in common; the fourth is the name."""


async def say(vm: Sandbox, command: str | list[str]) -> str:
    """What a command that succeeds prints."""
    result = await vm.execute(command, timeout=60)
    assert result.exit_code == 0, result.stderr
    return result.stdout.strip()


async def is_on_time(vm: Sandbox) -> bool:
    """Whether the guest's clock is the host's."""
    before = time.time()
    guest = float(await say(vm, "date +%s.%N"))
    return before - CLOCK_S <= guest <= time.time() + CLOCK_S


async def watch(vm: Sandbox, seen: list[EventKind]) -> None:
    """Note what happens to a sandbox, until it has ended."""
    async for event in vm.events():
        seen.append(event.kind)


def forwarders() -> list[int]:
    """The processes that carry ports of this test's sandboxes: other tests may run beside it."""
    own, found = f"QUICKSAND_RUNTIME_DIR={os.environ['QUICKSAND_RUNTIME_DIR']}".encode(), []
    for pid, _ in running_modules({FORWARDER}):
        with contextlib.suppress(OSError):  # it has ended
            if own in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                found.append(pid)
    return found
