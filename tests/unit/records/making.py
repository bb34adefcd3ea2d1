"""Sandboxes on disk, made by tests, and processes that change them at the same moment."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Callable
from dataclasses import replace
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

from quicksand.base.errors import QuicksandError
from quicksand.base.files import write_json
from quicksand.base.paths import Paths, make_private_dir
from quicksand.base.removal import make_marked
from quicksand.records.config import SandboxConfig
from quicksand.records.layout import MachineDir, RuntimeDir, SandboxDir, runtime_dir, sandbox_dir
from quicksand.records.port_forwards import PortForward
from quicksand.records.registry import Registry
from quicksand.records.sandboxes import LOCK_WAIT_S, Entry, Record, RunState, new_id

PROCESSES = 8


RECORD = Record(
    id="0123456789ab",
    name="box",
    config=SandboxConfig("debian", port_forwards=(PortForward(8080, 80),), extra_qemu_args=("-x",)),
    image_digest="d" * 64,
    chain=("/images/debian/disk.qcow2",),
    created=1_700_000_000.5,
    committed=True,
    discard=False,
)


RUN = RunState(
    keeper_pid=1,
    qemu_pid=2,
    token="secret",
    accel="kvm",
    accel_reason="",
    forwards=((8080, 80),),
    http_port=None,
    run="r1",
    origin="",
    started=1_700_000_001.5,
    paused=False,
    qemu_command=("qemu-system-x86_64", "-nodefaults"),
    udp_forwards=((5353, 53),),
)


def make(registry: Registry, name: str = "box", **changes: Any) -> Record:
    """A sandbox that nobody runs."""
    record = replace(RECORD, id=new_id(), name=name, **changes)
    os.close(registry.create(record))
    return record


def place_of(registry: Registry, record: Record) -> SandboxDir:
    return sandbox_dir(registry.paths, record.id)


def runtime_of(registry: Registry, record: Record) -> RuntimeDir:
    """Its runtime directory, made."""
    found = runtime_dir(registry.paths, record.id)
    if not found.root.exists():
        make_private_dir(registry.paths.runtime)
        make_marked(found.root, of=found.of)
    return found


def machine_of(registry: Registry, record: Record) -> MachineDir:
    """The directory of its QEMU, made."""
    runtime = runtime_of(registry, record)
    runtime.machine("1").root.mkdir(exist_ok=True)
    if not runtime.current_link.is_symlink():
        runtime.current_link.symlink_to("1")
    return runtime.current()


def only(registry: Registry) -> Entry:
    (entry,) = registry.list()
    return entry


def age(path: Path) -> None:
    """Let a directory be older than anybody needs between two instructions."""
    past = time.time() - 2 * LOCK_WAIT_S
    os.utime(path, (past, past))


def names(path: Path) -> list[str]:
    return sorted(p.name for p in path.iterdir()) if path.exists() else []


def create_in_process(
    paths: Paths, name: str, barrier: Barrier, results: Queue[str], end: Barrier
) -> None:
    """One of several that make a sandbox at the same moment, and keep it until all have tried."""
    barrier.wait(60)
    try:
        Registry(paths).create(replace(RECORD, id=new_id(), name=name))
        results.put("made")
    except QuicksandError as error:
        results.put(type(error).__name__)
    end.wait(60)


def remove_in_process(
    paths: Paths, id_: str, barrier: Barrier, results: Queue[str], end: Barrier
) -> None:
    barrier.wait(60)
    try:
        Registry(paths).remove(id_)
        results.put("removed")
    except (QuicksandError, OSError) as error:
        results.put(type(error).__name__)
    end.wait(60)


def reap_in_process(
    paths: Paths, _: str, barrier: Barrier, results: Queue[str], end: Barrier
) -> None:
    barrier.wait(60)
    try:
        Registry(paths).reap()
        results.put("reaped")
    except (QuicksandError, OSError) as error:
        results.put(type(error).__name__)
    end.wait(60)


def at_once(target: Callable[..., None], paths: Paths, argument: str) -> list[str]:
    """What PROCESSES processes report that run ``target`` at the same moment."""
    context = multiprocessing.get_context("fork")
    barrier, end = context.Barrier(PROCESSES), context.Barrier(PROCESSES)
    results: Queue[str] = context.Queue()
    children = [
        context.Process(target=target, args=(paths, argument, barrier, results, end))
        for _ in range(PROCESSES)
    ]
    for child in children:
        child.start()
    found = sorted(results.get(timeout=60) for _ in children)
    for child in children:
        child.join(60)
        assert child.exitcode == 0
        child.close()
    results.close()
    results.join_thread()
    return found


def write_record(registry: Registry, record: Record) -> None:
    """As `make`, without reaping those made before."""
    place = place_of(registry, record)
    place.root.mkdir(parents=True)
    place.lock.touch()
    write_json(place.record, record.to_json())
