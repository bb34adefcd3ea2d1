"""Reads the resources of the host that a sandbox's QEMU uses."""

from __future__ import annotations

import time

from quicksand.base.footprint import Footprint
from quicksand.base.paths import paths
from quicksand.base.processes import process_usage
from quicksand.qemu.keeper_parts.bounds import bound_of, memory_of
from quicksand.records.layout import runtime_dir, sandbox_dir
from quicksand.records.paused import too_much, why_oversized
from quicksand.records.sandboxes import Entry
from quicksand.things.sandbox_facts import HostUsage


def host_usage(entry: Entry) -> HostUsage:
    """One sandbox's use of the host; all but ``disk`` is 0 if it is not running."""
    known_paths = paths()
    disk = Footprint(sandbox_dir(known_paths, entry.id).root).own
    if entry.run is None:
        return HostUsage(cpu_seconds=0.0, rss=0, disk=disk, uptime_s=0.0)
    cpu, rss = process_usage(entry.run.qemu_pid)
    uptime = max(0.0, time.time() - entry.run.started)
    memory, bound = qemu_memory(entry.run.qemu_pid, entry.run.qemu_command)
    why = why_oversized(runtime_dir(known_paths, entry.id).current())
    if not why and bound is not None and memory > bound:
        why = too_much(memory, bound)
    return HostUsage(
        cpu_seconds=cpu,
        rss=rss,
        disk=disk,
        uptime_s=uptime,
        memory=memory,
        memory_bound=bound,
        oversized=why,
    )


def qemu_memory(pid: int, arguments: tuple[str, ...]) -> tuple[int, int | None]:
    """(bytes of its own memory, in RAM or in swap; bytes beyond which its guest is paused, or None
    if unknown) of the QEMU with that process id and these arguments. Linux only; (0, None)
    elsewhere, or if it is gone."""
    found = memory_of(pid)
    bound = bound_of(arguments)
    if found is None:
        return 0, None
    return found[0], None if bound is None else bound.watched
