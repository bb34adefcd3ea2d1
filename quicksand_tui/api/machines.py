"""The engine, as the API uses it: by the names that its sandboxes have there."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass

from quicksand import (
    CheckpointNotFoundError,
    NetworkMode,
    QuicksandError,
    Sandbox,
    SandboxNotFoundError,
    Status,
    saves,
)
from quicksand.base.paths import Paths
from quicksand.base.process_usage import process_usage
from quicksand.disks.images.store import ImageStore
from quicksand.life.sandbox_removal import remove_sandbox
from quicksand.qemu.host_usage import qemu_memory
from quicksand.records.registry import Registry


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What a machine takes of its host now."""

    name: str
    memory_bytes: int
    """Of its own: without what is read from files."""
    cpu_seconds: float
    """Since its QEMU has started."""


PAUSE_TAG = "api-pause"
"""The checkpoint at which a paused sandbox goes on."""


class Machines:
    """Sandboxes of the engine. Methods raise QuicksandError as those of `Sandbox` do. They leave
    each sandbox detached: it outlives this process."""

    def __init__(self, paths: Paths) -> None:
        self._paths = paths
        self._registry = Registry(paths)

    async def start(
        self, name: str, image: str, *, memory_mb: int, cpus: int, internet: bool
    ) -> Sandbox:
        """Start a new sandbox of an image or a save."""
        mode = NetworkMode.FULL if internet else NetworkMode.MOUNTS_ONLY
        sandbox = Sandbox(
            image=image,
            name=name,
            ephemeral=False,
            build=False,
            memory=f"{memory_mb}M",
            cpus=cpus,
            network_mode=mode,
        )
        await sandbox.start()
        sandbox.detach()
        return sandbox

    def attach(self, name: str) -> Sandbox:
        return Sandbox.attach(self._id(name))

    def is_live(self, name: str) -> bool:
        """Whether its machine runs."""
        entry = self._registry.named(name)
        return entry is not None and entry.status in (Status.RUNNING, Status.PAUSED)

    def exists(self, name: str) -> bool:
        return self._registry.named(name) is not None

    def live_names(self) -> frozenset[str]:
        """The names of all that run."""
        return frozenset(
            entry.name
            for entry in self._registry.list_live()
            if entry.status in (Status.RUNNING, Status.PAUSED)
        )

    def usage(self) -> list[Usage]:
        """What each machine takes that runs. Blocks for I/O."""
        found = []
        for entry in self._registry.list_live():
            if entry.run is not None:
                seconds, _ = process_usage(entry.run.qemu_pid)
                memory, _ = qemu_memory(entry.run.qemu_pid, entry.run.qemu_command)
                found.append(Usage(name=entry.name, memory_bytes=memory, cpu_seconds=seconds))
        return found

    async def pause(self, name: str, *, memory: bool) -> None:
        """End the machine, with a checkpoint at which it goes on if the memory is kept."""
        sandbox = Sandbox.open(self._id(name))
        try:
            if memory:
                await sandbox.checkpoint(PAUSE_TAG, replace=True)
                await sandbox.kill()
            else:
                # One that was left behind would be taken for this pause's, and its state for the
                # present one, if the server were killed now.
                for found in sandbox.checkpoints():
                    if found.tag == PAUSE_TAG:
                        await sandbox.delete_checkpoint(found.id)
                await sandbox.stop()
        finally:
            sandbox.close()

    async def resume(self, name: str, *, memory: bool) -> Sandbox:
        """Start a paused one again: at the checkpoint of its pause, or from its disk."""
        sandbox = Sandbox.open(self._id(name))
        before = {found.id for found in sandbox.checkpoints()}
        await sandbox.start(at=PAUSE_TAG if memory else None)
        sandbox.detach()
        for found in sandbox.checkpoints():
            if found.tag == PAUSE_TAG or (found.auto and found.id not in before):
                with contextlib.suppress(QuicksandError):  # the next pause replaces or deletes it
                    await sandbox.delete_checkpoint(found.id)
        return sandbox

    def has_pause(self, name: str) -> bool:
        """Whether it has the checkpoint of a pause. Raises SandboxNotFoundError."""
        sandbox = Sandbox.open(self._id(name))
        return any(found.tag == PAUSE_TAG for found in sandbox.checkpoints())

    async def end(self, name: str) -> None:
        """End the machine, and keep the sandbox."""
        with contextlib.suppress(SandboxNotFoundError):
            await Sandbox.open(self._id(name), to_end_it=True).kill()

    async def remove(self, name: str) -> None:
        """Remove a sandbox in whatever state for good. Does nothing if there is none."""
        with contextlib.suppress(SandboxNotFoundError):
            await remove_sandbox(self._registry, self._id(name), now=True, stop=True)

    async def checkpoint(self, name: str, tag: str) -> None:
        """Keep the present state of a running one under a tag."""
        sandbox = Sandbox.open(self._id(name))
        try:
            await sandbox.checkpoint(tag)
        finally:
            sandbox.close()

    async def delete_checkpoint(self, name: str, tag: str) -> None:
        """Does nothing if there is none."""
        with contextlib.suppress(SandboxNotFoundError, CheckpointNotFoundError):
            await Sandbox.open(self._id(name)).delete_checkpoint(tag)

    def checkpoints(self, name: str) -> frozenset[str]:
        """The tags of its checkpoints."""
        return frozenset(found.tag for found in Sandbox.open(self._id(name)).checkpoints())

    async def clone(
        self, name: str, names: Sequence[str], *, at: str | None, memory: bool
    ) -> list[Sandbox]:
        """Make sandboxes that go on from the present state of one, or from its checkpoint ``at``;
        without ``memory`` they boot from the disk as it was then. All or none."""
        source = Sandbox.open(self._id(name))
        try:
            made = await source.clone(len(names), names=list(names), at=at)
        finally:
            source.close()
        if not memory:
            for clone in made:
                await clone.stop(grace=0)
                await clone.start()
        for clone in made:
            clone.detach()
        return made

    def has_image(self, name: str) -> bool:
        """Whether a sandbox can be made of an image or a save of that name."""
        if ImageStore(self._paths.images).get(name) is not None:
            return True
        return any(found.name == name for found in saves.list())

    def console(self, name: str) -> list[str]:
        """The last lines of the guest's console."""
        sandbox = Sandbox.open(self._id(name))
        return sandbox.logs().splitlines()

    def _id(self, name: str) -> str:
        entry = self._registry.named(name)
        if entry is None:
            raise SandboxNotFoundError(f"no sandbox is called {name!r}")
        return entry.id
