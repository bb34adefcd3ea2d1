"""QEMU's jobs: commands that go on after their reply (QMP, "Background jobs")."""

from __future__ import annotations

import asyncio
import secrets
from typing import Any

from quicksand.errors import MachineError
from quicksand.qemu.qmp import Monitor

POLL_S = 0.005
"""While it saves or loads a snapshot QEMU answers nobody: the first look finds most jobs ended."""


async def run_job(monitor: Monitor, command: str, **arguments: Any) -> None:
    """Start a job and follow it to its end; nothing is left of it then.

    Raises MachineError with QEMU's words if the job failed, StateError if QEMU did not start it,
    QemuDiedError. A cancellation leaves the job to itself: it ends, but is not dismissed.
    """
    name = f"quicksand-{secrets.token_hex(4)}"
    await monitor.execute(command, **{"job-id": name}, **arguments)
    while (job := await _find(monitor, name))["status"] != "concluded":  # noqa: ASYNC110
        await asyncio.sleep(POLL_S)
    await monitor.execute("job-dismiss", id=name)
    if job.get("error") is not None:
        raise MachineError(f"QEMU failed at {command}: {job['error']}")


async def _find(monitor: Monitor, name: str) -> dict[str, Any]:
    for job in await monitor.execute("query-jobs"):
        if job["id"] == name:
            return dict(job)
    raise MachineError(f"QEMU has forgotten its job {name}: nobody knows how it ended")
