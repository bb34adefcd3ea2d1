"""Clones: sandboxes that continue from a state of another sandbox, independently of it.

Nothing is copied: layers and files of memory pages are hard links, and each clone writes to files
of its own. So clones outlive their source and do not affect it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from quicksand.base.effort import best_effort
from quicksand.base.errors import (
    ConfigError,
    HostError,
    QuicksandError,
    SandboxNotFoundError,
    StateError,
)
from quicksand.base.files import map_os_errors
from quicksand.base.limits import CLONES_AT_ONCE, CLONES_MAX
from quicksand.base.remedies import Words
from quicksand.base.sharing import share_file
from quicksand.base.threads import in_thread_to_the_end, to_the_end
from quicksand.mounts import devices as machine_devices
from quicksand.mounts.shares import list_shares
from quicksand.qemu.process import StartedMachine, remove_quietly
from quicksand.records.layout import runtime_dir, sandbox_dir
from quicksand.records.mount import READ_ONLY, READ_WRITE, Mount
from quicksand.records.nodes import BLANK, Head
from quicksand.records.nodes import new_id as new_layer
from quicksand.records.port_forwards import PortForward
from quicksand.records.registry import Registry
from quicksand.records.sandboxes import Record, new_id
from quicksand.snapshots.history import History, Origin, history_of, import_node
from quicksand.snapshots.keeping import locked_history
from quicksand.snapshots.layers import add_layer, freeze_stopped
from quicksand.snapshots.taking import checkpoint_live, working_on
from quicksand.warm.starting import boot
from quicksand.warm.template_maker import with_desktop


@dataclass(slots=True, kw_only=True)
class Embryo:
    """A clone that has its files but has not started yet."""

    record: Record
    lock: int | None
    """The descriptor of the lock on its directory, until `release`."""
    at: str | None
    """The id of the checkpoint from which it continues; None to boot from its disk."""

    def release(self) -> None:
        """Release the lock. Idempotent."""
        if self.lock is not None:
            os.close(self.lock)
            self.lock = None


async def make_clones(
    registry: Registry,
    record: Record,
    count: int,
    *,
    names: Sequence[str | None] | None = None,
    concurrency: int | None = None,
    at: str | None = None,
    mounts: str | None = None,
) -> list[StartedMachine | Exception]:
    """Make and start clones of the sandbox of ``record`` from its present state, or from its
    checkpoint ``at``, with its ``mounts`` "ro", "rw" or without them (None). Returns for each its
    machine, which this process owns, or the error that kept it from starting.

    Raises errors that concern all of them, as `prepare_clones`. After that or a cancellation no
    clone is left.
    """
    if names is None:
        named = record.name != record.id
        names = free_names(registry, record.name, count) if named else [None] * count
    if concurrency is None:
        concurrency = min(CLONES_AT_ONCE, os.cpu_count() or 1)
    if len(names) != count or concurrency < 1:
        raise ConfigError("as many names as clones are needed, and a concurrency above 0")
    embryos = await prepare_clones(registry, record, names, at=at, mounts=mounts)
    slots = asyncio.Semaphore(concurrency)
    started: list[StartedMachine] = []

    async def start(embryo: Embryo) -> StartedMachine | Exception:
        async with slots:
            try:
                started.append(machine := await start_clone(registry, embryo))
            except (QuicksandError, OSError) as error:
                return error
            return machine

    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(start(embryo)) for embryo in embryos]
    except BaseException:
        await to_the_end(_undo(registry, embryos, started))
        raise
    return [task.result() for task in tasks]


async def _undo(
    registry: Registry, embryos: Sequence[Embryo], started: list[StartedMachine]
) -> None:
    for machine in started:
        await machine.end()
        with (
            # A clone that cannot be removed must not keep the next from being ended.
            best_effort(f"remove the clone {machine.record.name}", registry.paths.engine_log),
            # The keeper of an ephemeral clone has removed it already.
            contextlib.suppress(SandboxNotFoundError),
        ):
            await in_thread_to_the_end(lambda id_=machine.record.id: registry.remove(id_))  # type: ignore[misc]
    await in_thread_to_the_end(lambda: _forget_all(registry, embryos))


async def prepare_clones(
    registry: Registry,
    record: Record,
    names: Sequence[str | None],
    *,
    at: str | None = None,
    mounts: str | None = None,
) -> list[Embryo]:
    """Make clones, with their files but not started, of the sandbox of ``record`` from its present
    state, or from its checkpoint ``at``, with its ``mounts`` "ro", "rw" or without them (None).

    The caller releases their locks. Raises NameTakenError, ConfigError, StateError,
    CheckpointNotFoundError, HistoryError, HostError, MachineError; no clone is left then.
    """
    if not 1 <= len(names) <= CLONES_MAX:
        raise ConfigError(f"{len(names)} clones are not possible: ask for 1 to {CLONES_MAX}")
    kept = await in_thread_to_the_end(lambda: mounts_of_clones(registry, record, mounts))
    made: list[Embryo] = []
    try:
        await _prepare(registry, record, names, at, kept, made)
    except BaseException:
        # A cancellation may also come when some or all clones are made.
        await in_thread_to_the_end(lambda: _forget_all(registry, made))
        raise
    return made


async def _prepare(
    registry: Registry,
    record: Record,
    names: Sequence[str | None],
    at: str | None,
    mounts: tuple[Mount, ...],
    made: list[Embryo],
) -> None:
    """Make the clones and append each to ``made``."""

    async def make_all(origin: Origin | None) -> None:
        await in_thread_to_the_end(lambda: _make_all(registry, record, names, origin, mounts, made))

    entry = registry.inspect(record.id)
    if at is None and entry is not None and entry.run is not None:
        async with working_on(registry, record) as live:
            _check_devices(len(await asyncio.to_thread(machine_devices.read, live.machine)), mounts)
            node = await checkpoint_live(live, f"clone of {record.name}"[:128], hidden=True)
            await make_all(Origin(place=live.place, node=node))
        return
    place = sandbox_dir(registry.paths, record.id)
    history = history_of(registry, record.id)
    if at is not None:
        async with locked_history(history):
            node = history.find(at)
            if node.tier.has_memory:
                _check_devices(int(node.shape.get("directories", 0)), mounts)
            await make_all(Origin(place=place, node=node))
        return
    lock = registry.lock(record.id)
    try:
        async with locked_history(history):
            await make_all(None)
    finally:
        os.close(lock)


def _check_devices(count: int, mounts: Sequence[Mount]) -> None:
    """Raise StateError unless a clone with these mounts has the ``count`` 9p devices that its
    memory knows of."""
    if count != len(machine_devices.ninep_of(mounts)):
        raise StateError(
            f"QEMU serves {count} directories by 9p there, and a clone that resumes from its "
            "memory must have them, too",
            hint=Words(
                "clone with ",
                Words("`--mounts ro` or `--mounts rw`", python="mounts='ro' or mounts='rw'"),
                ", or stop the sandbox first",
            ),
        )


def _make_all(
    registry: Registry,
    record: Record,
    names: Sequence[str | None],
    origin: Origin | None,
    mounts: tuple[Mount, ...],
    made: list[Embryo],
) -> None:
    history = history_of(registry, record.id)
    before = history.head() if origin is None else None
    try:
        layers = () if before is None else freeze_stopped(history, record.name)
        for name in names:
            made.append(_make(registry, record, name, origin, layers, mounts))
    except BaseException:
        _forget_all(registry, made)
        if before is not None:
            # No clone shares the frozen layer, so the sandbox can write to it again.
            with best_effort("take the disk back", history.place.engine_log, HostError):
                history.set_head(before)
                history.sweep()
        raise


def mounts_of_clones(registry: Registry, record: Record, mode: str | None) -> tuple[Mount, ...]:
    """The mounts of the clones of a sandbox: its present ones or, if it is stopped, those that it
    would have after a start. Mode "ro" makes them read-only, "rw" leaves them as they are, and None
    leaves them out. Blocks for I/O. Raises ConfigError for another mode."""
    if mode is None:
        return ()
    if mode not in (READ_ONLY, READ_WRITE):
        raise ConfigError(
            f"clones cannot have mounts {mode!r}",
            hint=f"{READ_ONLY!r} for read-only, {READ_WRITE!r} for as they are in the source",
        )
    entry = registry.inspect(record.id)
    mounts = record.config.mounts
    if entry is not None and entry.run is not None:
        machine = runtime_dir(registry.paths, record.id).current()
        mounts = tuple(share.mount for share in list_shares(machine))
        mounts += tuple(device.mount for device in machine_devices.read(machine))
    if mode == READ_ONLY:
        mounts = tuple(replace(mount, readonly=True) for mount in mounts)
    return mounts


def _forget_all(registry: Registry, embryos: Sequence[Embryo]) -> None:
    for embryo in embryos:
        forget(registry, embryo)


def _make(
    registry: Registry,
    source: Record,
    name: str | None,
    origin: Origin | None,
    layers: tuple[str, ...],
    mounts: tuple[Mount, ...],
) -> Embryo:
    id_ = new_id()
    config = source.config
    # Two processes cannot listen on the same host port, so each clone gets a free one.
    forwards = tuple(PortForward(0, one.guest, one.protocol) for one in config.port_forwards)
    vnc_port = None if config.vnc_port is None else 0
    record = replace(
        source,
        id=id_,
        name=name or id_,
        config=replace(config, port_forwards=forwards, vnc_port=vnc_port, mounts=mounts),
        created=time.time(),
        committed=False,
        discard=source.discard if name is None else False,
    )
    embryo = Embryo(
        record=record, lock=registry.create(record), at=None if origin is None else origin.node.id
    )
    try:
        place = sandbox_dir(registry.paths, id_)
        if origin is not None:
            import_node(origin, place, auto=False, hidden=False, pinned=False)
        else:
            _share_disk(registry, source, record, layers)
    except BaseException:
        forget(registry, embryo)
        raise
    return embryo


def _share_disk(
    registry: Registry, source: Record, record: Record, layers: tuple[str, ...]
) -> None:
    old = sandbox_dir(registry.paths, source.id)
    place = sandbox_dir(registry.paths, record.id)
    with map_os_errors(place.root):
        place.layers.mkdir(mode=0o700)
    for name in layers:
        share_file(old.layer(name), place.layer(name))
    head = Head(layers=layers, top=new_layer(), memory=BLANK)
    add_layer(place, head.top, below=layers[-1])
    History(place).set_head(head)


async def start_clone(registry: Registry, embryo: Embryo) -> StartedMachine:
    """Start a clone. Raises as `boot`; the clone is removed then."""
    assert embryo.lock is not None, "it was given up"
    machine = None
    try:
        machine = await boot(registry, embryo.record, embryo.lock, at=embryo.at)
        committed = replace(embryo.record, committed=True)
        await in_thread_to_the_end(lambda: registry.save(committed))
        machine = await with_desktop(machine)
    except BaseException:
        try:
            if machine is not None:
                await machine.end()
        finally:
            await in_thread_to_the_end(lambda: forget(registry, embryo))
        raise
    embryo.release()
    return replace(machine, record=committed)


def forget(registry: Registry, embryo: Embryo) -> None:
    """Remove a clone that has not started, and release its lock. Idempotent."""
    if embryo.lock is not None:
        remove_quietly(sandbox_dir(registry.paths, embryo.record.id).root)
        embryo.release()


def free_names(registry: Registry, base: str, count: int) -> list[str]:
    """``count`` names that no sandbox has: base-1, base-2, and so on."""
    taken = registry.names()
    names: list[str] = []
    number = 1
    while len(names) < count:
        name = f"{base}-{number}"
        if name not in taken:
            names.append(name)
        number += 1
    return names
