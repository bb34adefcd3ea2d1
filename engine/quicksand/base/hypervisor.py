"""The abilities that a hypervisor must have for checkpoints, reverts and clones of the machine that
it runs.

`quicksand.qemu` has the only implementation; code that works on a machine's state sees only this. A
machine is started by its keeper, and then used by way of a `Hypervisor`.

All methods raise MachineError (QemuDiedError if the hypervisor has ended), and StateError with its
words if it refuses. Unless it says otherwise, a method may be called while the VM runs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Features:
    """The abilities of one hypervisor that another may lack, so that callers ask first."""

    devices_alone: bool
    """Whether it saves and loads the devices' state without the memory, which it maps privately
    from a file, so that others can read and write it (`Hypervisor.save_devices`)."""
    whole_state: bool
    """Whether it saves and loads memory and devices together (`Hypervisor.save_state`)."""
    loads_again: bool
    """Whether it loads the devices' state into a machine that has run (`Hypervisor.load_state`),
    and can change the layers below the top layer of its disk (`Hypervisor.put_below`)."""


GENERATION_AT = 40
"""The generation's offset in its page, in bytes (QEMU, docs/specs/vmgenid; VMGENID_GUID_OFFSET)."""


class Translations(AbstractAsyncContextManager["Translations"]):
    """Corrects the caches of a hypervisor that emulates the processors: its translated code, and
    whether an interrupt waits. It does not notice by itself when memory is written from outside, or
    when only a part of the devices' state is loaded. The machine is paused while this is used. All
    methods raise MachineError."""

    @abstractmethod
    async def forget(self, runs: Sequence[tuple[int, int]], memory: int, filler: int) -> None:
        """Drop the translations of ``runs``, (start, size) in bytes, of the machine's memory of
        ``memory`` bytes. The runs are filled with the byte ``filler``, unless the machine has
        something other than its memory at these addresses."""

    @abstractmethod
    async def interrupt(self, vectors: Sequence[tuple[int, int]]) -> None:
        """Make processors look for interrupts: the ids of their APICs, each with a vector that is
        already pending there, or that does nothing."""


class Hypervisor(ABC):
    """A connection to the process that runs one machine. Its maker closes it."""

    features: Features

    @abstractmethod
    async def close(self) -> None:
        """Close the connection; the machine runs on. Idempotent."""

    @abstractmethod
    async def version(self) -> str:
        """The hypervisor's version: another version may not take this one's state."""

    # The processors

    @abstractmethod
    async def pause(self) -> None:
        """Let the guest run no further."""

    @abstractmethod
    async def resume(self) -> None:
        """Let the guest run."""

    @abstractmethod
    async def is_running(self) -> bool:
        """Whether the guest runs."""

    # Memory and devices

    @abstractmethod
    async def host_address(self, guest: int) -> int:
        """The address in the process's memory of the guest's physical address ``guest``."""

    @abstractmethod
    async def firmware_size(self) -> int:
        """The bytes of a PC's firmware, as the hypervisor reports them."""

    @abstractmethod
    async def save_devices(self, path: Path) -> None:
        """Write the state of all devices of the paused machine to a new file."""

    @abstractmethod
    async def load_devices(self, descriptor: int, *, name: str) -> None:
        """Load the state that `save_devices` wrote, from the open file ``descriptor``, into a
        machine that has not run yet; it is paused afterwards. Errors call the state ``name``."""

    @abstractmethod
    async def open_state(self, name: str, path: Path, *, over: Path | None = None) -> None:
        """Open the file ``path`` for `save_state` and `load_state`, which call it ``name``. With
        ``over`` that file's content is read, and writes go to ``path``."""

    @abstractmethod
    async def save_state(self, name: str, tag: str) -> None:
        """Write memory and devices of the paused machine to an open file as the state ``tag``, and
        check that they are there. The machine stays paused."""

    @abstractmethod
    async def load_state(self, name: str, tag: str) -> None:
        """Load the state written by `save_state` into a paused machine, which stays paused. Raises
        MachineError if the file has no such state."""

    @abstractmethod
    async def close_state(self, name: str) -> None:
        """Close a file, if it is open. Raises StateError if it stays open."""

    @abstractmethod
    def translations(self, socket: Path) -> Translations:
        """Return a connection that drops translated code, as a context manager, for an x86 machine.
        ``socket`` is the path of its socket, the same each time."""

    @abstractmethod
    async def generation(self) -> bytes | None:
        """The 16 bytes by which the guest distinguishes this machine from copies of it, as in its
        memory (`GENERATION_AT`); None if the machine has no device for that."""

    @abstractmethod
    async def why_unsavable(self) -> Sequence[str]:
        """The reasons why the machine's state cannot be saved, in the hypervisor's words."""

    # The disk: layers, each by its id

    @abstractmethod
    async def top_layer(self) -> str:
        """The layer to which the guest writes."""

    @abstractmethod
    async def open_layers(self) -> frozenset[str]:
        """All layers that are open."""

    @abstractmethod
    async def open_layer(self, layer: str, *, writable: bool, below: str | None = None) -> None:
        """Open a layer that lies above the open layer ``below``; with None it gets one later, by
        `pivot` or `put_below`."""

    @abstractmethod
    async def pivot(self, old: str, new: str) -> None:
        """Let the guest, which may be paused, write to the layer ``new`` that lies above ``old``,
        to which it has written."""

    @abstractmethod
    async def put_below(self, top: str, below: str) -> None:
        """Put the guest's top layer above the open layer ``below``. That has the same content as
        the layers below before, unless the machine is paused and is about to get another state."""

    @abstractmethod
    async def close_layers(self, layers: Sequence[str]) -> None:
        """Close layers below which no other lies; layers that are not open are skipped. Raises
        StateError if one stays open, which costs only memory."""

    @abstractmethod
    async def grow_disk(self, size: int) -> None:
        """Make the guest's disk larger: ``size`` bytes."""

    # The network

    @abstractmethod
    async def add_forward(self, rule: str) -> None:
        """Forward a port of the host; ``rule`` is one of `qemu.command.forward_rules`."""

    @abstractmethod
    async def remove_forward(self, rule: str) -> None:
        """End a forward that `add_forward` or the start has made."""

    @abstractmethod
    async def count_connections(self) -> int:
        """The connections in its network, including ended ones that are not forgotten yet."""
