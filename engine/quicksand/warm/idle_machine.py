"""Waiting until a machine in use needs the host less, before background work takes resources from
it: the first start of a desktop took five minutes beside the boot of its own template."""

from __future__ import annotations

import asyncio
import contextlib
import time
from pathlib import Path

from quicksand.base.processes import is_process, process_usage

WINDOW_S = 1.0
BUSY = 0.25
"""The share of a window above which a machine counts as busy, if it wants a processor for that."""

QUIET_S = 3.0
"""Seconds for which it must not be busy: a booting guest waits for something at times."""

PATIENCE_S = 600.0
"""Seconds after which work no longer waits for its user."""


async def until_idle(pid: int, started: str) -> None:
    """Wait until the QEMU with the process id ``pid``, which started at ``started``, has not been
    busy for `QUIET_S`, or has ended; for at most `PATIENCE_S`. Where the system does not tell how
    busy it is, it counts as idle."""
    deadline = time.monotonic() + PATIENCE_S
    quiet_since, wanted, at = time.monotonic(), _wanted(pid), time.monotonic()
    while is_process(pid, started) and time.monotonic() < deadline:
        if time.monotonic() - quiet_since >= QUIET_S:
            return
        await asyncio.sleep(WINDOW_S)
        before, since = wanted, at
        wanted, at = _wanted(pid), time.monotonic()
        if wanted - before > BUSY * (at - since):
            quiet_since = at


def _wanted(pid: int) -> float:
    """Return the seconds for which threads of a process have used a processor, or waited for one:
    on a busy host a booting guest gets little. From /proc/PID/task/TID/schedstat, in nanoseconds
    (Linux, Documentation/scheduler/sched-stats); without that, the seconds used."""
    try:
        threads = [*Path(f"/proc/{pid}/task").iterdir()]
    except OSError:
        return 0.0
    total = 0
    for thread in threads:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            try:
                used, waited, _ = (thread / "schedstat").read_text(encoding="ascii").split()
            except ValueError:
                return process_usage(pid)[0]
            total += int(used) + int(waited)
    return total / 1e9
