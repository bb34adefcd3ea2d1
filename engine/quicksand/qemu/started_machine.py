"""A machine that this process has started, and its end: waiting for it, explaining it, and removing
the rest."""

from __future__ import annotations

import asyncio
import contextlib
import time
from dataclasses import dataclass
from pathlib import Path

from quicksand.base.errors import GuestPanicError, QemuDiedError, QuicksandError
from quicksand.base.files import is_locked, tail
from quicksand.base.progress import BootTiming
from quicksand.base.removal import remove
from quicksand.base.threads import to_the_end
from quicksand.disks.images.resolve import ResolvedImage
from quicksand.guest.agent.link import AgentLink
from quicksand.qemu.process import OwnedProcess
from quicksand.records.inspection import find_panic
from quicksand.records.layout import SandboxDir, remove_memory
from quicksand.records.sandboxes import Record, RunState

END_POLL_S = 0.01
KILL_WAIT_S = 10.0


@dataclass(slots=True, kw_only=True)
class StartedMachine:
    """A machine that this process has started and owns until it is detached."""

    record: Record
    run: RunState
    timing: BootTiming
    process: OwnedProcess
    link: AgentLink
    image: ResolvedImage
    notices: tuple[str, ...] = ()
    """Notices of steps of the start that failed: a mount, or a desktop that did not come in
    time."""
    clock: str = ""
    """The fault of the guest's clock, in words that are also one of the notices; "" for none."""

    async def end(self) -> None:
        """End the machine as the end of this process would, and wait. A cancellation waits, too,
        but at most KILL_WAIT_S for a keeper that hangs; QEMU has ended by then."""
        self.link.close()
        self.process.cut()
        try:
            await to_the_end(self.process.wait(), patience=KILL_WAIT_S)
        finally:
            self.process.let_go()


PANIC_LOG = 6000
"""Bytes of the console that the error of a panic shows: the kernel's registers and stack take half
of them, and the reason comes before these."""


def remove_quietly(path: Path) -> None:
    """Remove an unfinished directory; files that cannot be removed are left to `Registry.reap`."""
    remove_memory(path)
    with contextlib.suppress(OSError):
        remove(path)


def why_gone(place: SandboxDir, *, doing: str) -> QuicksandError | None:
    """The error that says why a machine has ended; None while it lives."""
    if is_locked(place.lock) and not place.exit.exists():
        return None
    if (panic := why_panicked(place, doing=doing)) is not None:
        return panic
    log = tail(place.qemu_log, limit=2000) or tail(place.console_log, limit=1000)
    return QemuDiedError(f"QEMU ended while {doing}", log=log)


def why_panicked(place: SandboxDir, *, doing: str) -> GuestPanicError | None:
    """The error for a guest whose kernel has panicked; None if it has not."""
    if not find_panic(place):
        return None
    return GuestPanicError(
        f"the guest's kernel panicked while {doing}", log=tail(place.console_log, limit=PANIC_LOG)
    )


async def until_unlocked(lock: Path, *, timeout: float) -> bool:
    """Wait until a sandbox's lock is free, that is, keeper and QEMU are gone. Returns False if it
    is still held after ``timeout`` seconds."""
    deadline = time.monotonic() + timeout
    while is_locked(lock):
        if time.monotonic() >= deadline:
            return False
        await asyncio.sleep(END_POLL_S)
    return True
