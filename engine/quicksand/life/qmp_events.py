"""Events of a running sandbox, as QEMU reports them (QMP events, docs/interop/qmp-spec of QEMU)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from quicksand.base.errors import QemuDiedError, QuicksandError
from quicksand.qemu.qmp import Monitor
from quicksand.records.layout import MachineDir, runtime_dir
from quicksand.records.paused import why_oversized
from quicksand.records.registry import Registry
from quicksand.things.status import Status


class EventKind(StrEnum):
    """The kind of an event."""

    PAUSED = "paused"
    RESUMED = "resumed"
    DISK_FULL = "disk_full"
    """The host's disk is full. The VM is paused and loses nothing; it resumes when there is
    space."""
    OVERSIZED = "oversized"
    """QEMU has taken more of the host's memory than the sandbox may have. The VM is paused and
    loses nothing; ``detail`` says how much QEMU has taken."""
    DISK_ERROR = "disk_error"
    RESET = "reset"
    """The guest rebooted."""
    REVERTED = "reverted"
    """The sandbox was reverted; ``detail`` is the checkpoint's tag."""
    PANICKED = "panicked"
    STOPPED = "stopped"
    CRASHED = "crashed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One event. ``detail`` explains it, or is ""."""

    kind: EventKind
    time: float
    """Unix time of the host."""
    detail: str = ""


_QMP_EVENTS = {
    "STOP": EventKind.PAUSED,
    "RESUME": EventKind.RESUMED,
    "RESET": EventKind.RESET,
    "GUEST_PANICKED": EventKind.PANICKED,
}


async def watch_events(registry: Registry, sandbox_id: str) -> AsyncIterator[Event]:
    """Yield events until the sandbox ends; the last one, STOPPED or CRASHED, says how it ended. A
    sandbox that is stopped has only that one.

    Raises StateError if all its QMP monitors are in use, MachineError if QEMU does not answer.
    """
    runtime = runtime_dir(registry.paths, sandbox_id)
    machine = runtime.current()
    while True:
        connected = machine
        try:
            monitor = await Monitor.connect(machine)
        except QemuDiedError:
            break
        except QuicksandError:
            entry = registry.inspect(sandbox_id)
            if entry is not None and entry.is_live and runtime.current() == machine:
                raise
        else:
            try:
                async for message in monitor.events():
                    # A revert in the running QEMU leaves its monitors connected.
                    if (current := runtime.current()) != machine and current.root.exists():
                        machine = current
                        yield _reverted(registry, sandbox_id)
                    event = _translate(message, machine)
                    if event is not None:
                        yield event
            finally:
                await monitor.close()
        if (current := runtime.current()) == connected or not current.root.exists():
            break
        if current != machine:
            machine = current
            yield _reverted(registry, sandbox_id)
    yield await _ended(registry, sandbox_id)


def _reverted(registry: Registry, sandbox_id: str) -> Event:
    entry = registry.inspect(sandbox_id)
    origin = entry.run.origin if entry is not None and entry.run is not None else ""
    return Event(kind=EventKind.REVERTED, time=time.time(), detail=origin)


def _translate(message: dict[str, Any], machine: MachineDir) -> Event | None:
    name, data = message.get("event"), message.get("data") or {}
    if name == "STOP" and (why := why_oversized(machine)):
        return Event(kind=EventKind.OVERSIZED, time=time.time(), detail=why)
    if name == "BLOCK_IO_ERROR":
        kind = EventKind.DISK_FULL if data.get("nospace") else EventKind.DISK_ERROR
        return Event(kind=kind, time=time.time(), detail=str(data.get("reason", ""))[:200])
    if name in _QMP_EVENTS:
        return Event(kind=_QMP_EVENTS[name], time=time.time())
    return None


async def _ended(registry: Registry, sandbox_id: str) -> Event:
    """Return the last event, when keeper and QEMU are gone, which may take some seconds."""
    for _ in range(200):
        entry = registry.inspect(sandbox_id)
        if entry is None or not entry.is_live:
            break
        await asyncio.sleep(0.02)
    return _last_event(registry, sandbox_id)


def _last_event(registry: Registry, sandbox_id: str) -> Event:
    entry = registry.inspect(sandbox_id)
    if entry is not None and entry.status is Status.CRASHED:
        return Event(kind=EventKind.CRASHED, time=time.time(), detail=entry.error)
    return Event(kind=EventKind.STOPPED, time=time.time())
