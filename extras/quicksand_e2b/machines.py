"""The engine, as the API uses it: by the records of its sandboxes. `LocalMachines` has them on this
machine; `FleetMachines` (`fleet_machines.py`) on those of a fleet."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

from quicksand import (
    CheckpointNotFoundError,
    NetworkMode,
    QuicksandError,
    Sandbox,
    SandboxNotFoundError,
    Status,
    saves,
)
from quicksand.extending import (
    ImageStore,
    Paths,
    Registry,
    available_memory,
    process_usage,
    qemu_memory,
    remove_sandbox,
)

from quicksand_e2b.errors import HostAwayError
from quicksand_e2b.records import SandboxRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """A machine's present use of its host."""

    host: str = ""
    """The name of the host in the fleet; "" for this machine."""
    name: str
    memory_bytes: int
    """The machine's own memory: without pages of files."""
    cpu_seconds: float
    """Seconds of processor time since the start of its QEMU."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostFigures:
    """A host of sandboxes, in its last known state."""

    name: str
    """The name; "" for this machine without a fleet."""
    free_bytes: int
    """The space that new sandboxes may have there together."""
    is_up: bool = True
    memory_bytes: int = 0
    """The memory that all sandboxes there may have."""
    sandboxes: int = 0
    """The number of sandboxes that run there, whoever has started them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """The engine's figures for `/metrics`."""

    usage: Sequence[Usage]
    hosts: Sequence[HostFigures]


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """A sandbox that has been made and runs."""

    sandbox: Sandbox
    id: str = ""
    """Its id on its host; "" on this machine."""


Placed = Callable[[str, str], Awaitable[None]]
"""Called with a new sandbox's host, and that machine's id, before anything of it is there."""

PAUSE_TAG = "api-pause"
"""The checkpoint at which a paused sandbox goes on."""


class Machines(Protocol):
    """Sandboxes of the engine, each by its record. Methods raise QuicksandError as those of
    `Sandbox` do, and HostAwayError if its host cannot be asked now: then nothing was done. They
    leave each sandbox detached: it outlives this process."""

    async def start(self, record: SandboxRecord, image: str, placed: Placed) -> Made:
        """Starts a new sandbox from an image or a save."""

    def attach(self, record: SandboxRecord) -> Sandbox: ...

    def is_live(self, record: SandboxRecord) -> bool:
        """Whether its machine runs. Asks nobody but this machine."""

    def exists(self, record: SandboxRecord) -> bool:
        """Whether the sandbox exists. Asks nobody but this machine."""

    async def running(self, records: Collection[SandboxRecord]) -> Collection[str]:
        """Returns the ids, of the API, of running sandboxes. Those of a host that is away count:
        nothing says that they do not run."""

    async def figures(self) -> Figures: ...

    async def pause(self, record: SandboxRecord, *, memory: bool) -> None:
        """Ends the machine, with a checkpoint at which it goes on if the memory is kept."""

    async def resume(self, record: SandboxRecord, *, memory: bool) -> Sandbox:
        """Starts a paused sandbox again: at the checkpoint of its pause, or from its disk."""

    async def has_pause(self, record: SandboxRecord) -> bool:
        """Whether it has the checkpoint of a pause. Raises SandboxNotFoundError."""

    async def end(self, record: SandboxRecord) -> None:
        """Ends the machine, and keeps the sandbox."""

    async def remove(self, record: SandboxRecord) -> None:
        """Removes a sandbox in whatever state for good. Does nothing if there is none."""

    async def checkpoint(self, record: SandboxRecord, tag: str) -> None:
        """Keeps the present state of a running sandbox under a tag."""

    async def delete_checkpoint(self, record: SandboxRecord, tag: str) -> None:
        """Deletes a checkpoint. Does nothing if there is none."""

    async def clone(
        self,
        source: SandboxRecord,
        records: Sequence[SandboxRecord],
        *,
        at: str | None,
        memory: bool,
    ) -> list[Made]:
        """Makes sandboxes that go on from the present state of one, or from its checkpoint ``at``;
        without ``memory`` they boot from the disk of that time. All or none."""

    async def has_image(self, name: str) -> bool:
        """Whether a sandbox can be made from an image or a save of that name."""

    async def console(self, record: SandboxRecord) -> list[str]:
        """Returns the last lines of the guest's console."""


class LocalMachines:
    """`Machines` on this machine alone."""

    def __init__(self, paths: Paths) -> None:
        self._paths = paths
        self._registry = Registry(paths)

    async def start(self, record: SandboxRecord, image: str, placed: Placed) -> Made:
        """See `Machines.start`."""
        sandbox = Sandbox(
            image=image,
            name=record.name,
            ephemeral=False,
            build=False,
            memory=f"{record.memory_mb}M",
            cpus=record.cpus,
            network_mode=network_mode(record),
        )
        await sandbox.start()
        sandbox.detach()
        return Made(sandbox=sandbox)

    def attach(self, record: SandboxRecord) -> Sandbox:
        return Sandbox.attach(self._id(record))

    def is_live(self, record: SandboxRecord) -> bool:
        """See `Machines.is_live`."""
        entry = self._registry.named(_here(record))
        return entry is not None and entry.status in (Status.RUNNING, Status.PAUSED)

    def exists(self, record: SandboxRecord) -> bool:
        return self._registry.named(_here(record)) is not None

    async def running(self, records: Collection[SandboxRecord]) -> Collection[str]:
        """See `Machines.running`."""
        names = await asyncio.to_thread(self._live_names)
        return {one.id for one in records if one.host or one.name in names}

    def _live_names(self) -> frozenset[str]:
        return frozenset(
            entry.name
            for entry in self._registry.list_live()
            if entry.status in (Status.RUNNING, Status.PAUSED)
        )

    async def figures(self) -> Figures:
        usage = await asyncio.to_thread(self._usage)
        free = await asyncio.to_thread(available_memory)
        return Figures(usage=usage, hosts=[HostFigures(name="", free_bytes=free)])

    def _usage(self) -> list[Usage]:
        found = []
        for entry in self._registry.list_live():
            if entry.run is not None:
                seconds, _ = process_usage(entry.run.qemu_pid)
                memory, _ = qemu_memory(entry.run.qemu_pid, entry.run.qemu_command)
                found.append(Usage(name=entry.name, memory_bytes=memory, cpu_seconds=seconds))
        return found

    async def pause(self, record: SandboxRecord, *, memory: bool) -> None:
        """See `Machines.pause`."""
        sandbox = Sandbox.open(self._id(record))
        try:
            if memory:
                await sandbox.checkpoint(PAUSE_TAG, replace=True)
                await sandbox.kill()
            else:
                # A checkpoint that was left behind would be taken for this pause's, and its state
                # for the present one, if the server were killed now.
                for found in sandbox.checkpoints():
                    if found.tag == PAUSE_TAG:
                        await sandbox.delete_checkpoint(found.id)
                await sandbox.stop()
        finally:
            sandbox.close()

    async def resume(self, record: SandboxRecord, *, memory: bool) -> Sandbox:
        """See `Machines.resume`."""
        sandbox = Sandbox.open(self._id(record))
        before = {found.id for found in sandbox.checkpoints()}
        await sandbox.start(at=PAUSE_TAG if memory else None)
        sandbox.detach()
        for found in sandbox.checkpoints():
            if found.tag == PAUSE_TAG or (found.auto and found.id not in before):
                with contextlib.suppress(QuicksandError):  # the next pause replaces or deletes it
                    await sandbox.delete_checkpoint(found.id)
        return sandbox

    async def has_pause(self, record: SandboxRecord) -> bool:
        """See `Machines.has_pause`."""
        sandbox = Sandbox.open(self._id(record))
        return any(found.tag == PAUSE_TAG for found in sandbox.checkpoints())

    async def end(self, record: SandboxRecord) -> None:
        """See `Machines.end`."""
        with contextlib.suppress(SandboxNotFoundError):
            await Sandbox.open(self._id(record), to_end_it=True).kill()

    async def remove(self, record: SandboxRecord) -> None:
        """See `Machines.remove`."""
        with contextlib.suppress(SandboxNotFoundError):
            await remove_sandbox(self._registry, self._id(record), now=True, stop=True)

    async def checkpoint(self, record: SandboxRecord, tag: str) -> None:
        """See `Machines.checkpoint`."""
        sandbox = Sandbox.open(self._id(record))
        try:
            await sandbox.checkpoint(tag)
        finally:
            sandbox.close()

    async def delete_checkpoint(self, record: SandboxRecord, tag: str) -> None:
        """See `Machines.delete_checkpoint`."""
        with contextlib.suppress(SandboxNotFoundError, CheckpointNotFoundError):
            await Sandbox.open(self._id(record)).delete_checkpoint(tag)

    async def clone(
        self,
        source: SandboxRecord,
        records: Sequence[SandboxRecord],
        *,
        at: str | None,
        memory: bool,
    ) -> list[Made]:
        """See `Machines.clone`."""
        sandbox = Sandbox.open(self._id(source))
        try:
            names = [record.name for record in records]
            made = await sandbox.clone(len(names), names=names, at=at)
        finally:
            sandbox.close()
        if not memory:
            for clone in made:
                await clone.stop(grace=0)
                await clone.start()
        for clone in made:
            clone.detach()
        return [Made(sandbox=clone) for clone in made]

    async def has_image(self, name: str) -> bool:
        """See `Machines.has_image`."""
        return await asyncio.to_thread(self._has_image, name)

    def _has_image(self, name: str) -> bool:
        if ImageStore(self._paths.images).get(name) is not None:
            return True
        return any(found.name == name for found in saves.list())

    async def console(self, record: SandboxRecord) -> list[str]:
        """See `Machines.console`."""
        return await asyncio.to_thread(lambda: Sandbox.open(self._id(record)).logs().splitlines())

    def _id(self, record: SandboxRecord) -> str:
        entry = self._registry.named(_here(record))
        if entry is None:
            raise SandboxNotFoundError(f"no sandbox is called {record.name!r}")
        return entry.id


def _here(record: SandboxRecord) -> str:
    """Returns the name of a sandbox of this machine. Raises HostAwayError for another machine's."""
    if record.host:
        raise HostAwayError(
            f"the sandbox is on the fleet's host {record.host!r}, and this server was started "
            "without --fleet"
        )
    return record.name


def network_mode(record: SandboxRecord) -> NetworkMode:
    """Returns the network of a new sandbox."""
    return NetworkMode.FULL if record.internet else NetworkMode.MOUNTS_ONLY
