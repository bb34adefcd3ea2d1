"""Layers of a sandbox's disk: making one, also below a running guest, which then writes to it (a
*pivot*); sealing frozen ones, checking them, and merging them.

A seal is a layer's record of size and checksums (layers/<id>.json), written when it is frozen. QEMU
opens all layers of a disk when it starts, which takes 1.3 ms for each, and every checkpoint adds
one: so long lines of them are merged.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import replace

from quicksand.base.capacity import check_space
from quicksand.base.effort import best_effort
from quicksand.base.errors import HistoryError, HostError, ImageError, StateError
from quicksand.base.files import map_os_errors, read_json, sync_dir, write_json
from quicksand.base.footprint import BLOCK
from quicksand.base.hypervisor import Hypervisor
from quicksand.base.regular import open_regular
from quicksand.base.remedies import Remedy, Words
from quicksand.base.threads import in_thread_to_the_end, to_the_end
from quicksand.disks.images.disk_headers import check_qcow2
from quicksand.disks.images.disk_layers import create_overlay, write_merged
from quicksand.records.layout import SandboxDir, layer_name
from quicksand.records.nodes import File, Head, Node, Seal, new_id
from quicksand.snapshots.history import History
from quicksand.snapshots.image import seal_image
from quicksand.snapshots.pages import verify
from quicksand.snapshots.verified import Verified


def add_layer(place: SandboxDir, name: str, *, below: str) -> None:
    """Create an empty layer ``name`` on top of the layer ``below`` and sync it.

    Raises ImageError if ``below`` is damaged, DiskSpaceError, PathError.
    """
    lower = place.layer(below)
    size = check_qcow2(lower, allow_backing=True).virtual_size
    create_overlay(place.layer(name), backing=layer_name(below), size=size)
    sync_dir(place.layers)


def seal_layers(place: SandboxDir, names: Iterable[str]) -> None:
    """Write a seal beside each of these frozen layers that has none. Seals are not part of the
    checkpoints' records because checkpoints share most of their layers, often hundreds.

    Raises HostError.
    """
    verified = Verified.of_user()
    for name in names:
        if not place.seal(name).exists():
            file = seal_image(place.layer(name), verified)
            write_json(place.seal(name), Seal(file).to_json())


def read_seal(place: SandboxDir, name: str) -> File:
    """The seal of a frozen layer. Raises HistoryError if it is missing or damaged."""
    path = place.seal(name)
    try:
        file = Seal.from_json(read_json(path)).file
        if file.name != place.layer(name).name:
            raise ValueError(f"it tells of {file.name}")
    except (OSError, ValueError) as error:
        raise HistoryError(f"{path} is damaged: {error}") from error
    return file


def check_layers(place: SandboxDir, node: Node) -> None:
    """Compare all layers of a checkpoint's disk with their seals. Raises HistoryError naming the
    one that is missing or damaged."""
    verified = Verified.of_user()
    for name in node.layers:
        verify(place.layer(name), read_seal(place, name), verified)


AT_LEAST = 16
"""Layers that are merged into one."""

MERGED_MAX = 32 * 1024 * 1024
"""Bytes of a merged layer, at most: a client waits while they are copied."""

SMALL = 1024 * 1024
"""Bytes of a layer that is merged whatever the sizes of the others."""


def merge_layers(place: SandboxDir, names: tuple[str, ...]) -> tuple[str, ...]:
    """The same frozen disk in fewer layers: if the latest ones of ``names`` are many and small,
    they are merged into a new layer.

    A layer is merged only with newer ones that together have as much data as itself, so that no
    data is copied more than a few times. If merging fails (the disk is full, a layer is damaged),
    the line stays long, which costs only time: no checkpoint fails because of it.
    """
    count, total = _choose(place, names)
    if count < AT_LEAST:
        return names
    kept, many = names[:-count], names[-count:]
    merged = new_id()
    try:
        check_space(place.layers, total)
        files = [place.layer(name) for name in many]
        write_merged(files, place.layer(merged), backing=layer_name(kept[-1]))
    except (HostError, ImageError):
        return names
    return (*kept, merged)


def seal_disk(place: SandboxDir, layers: tuple[str, ...], *, merge: bool = True) -> tuple[str, ...]:
    """Seal the layers of a frozen disk, and return them. With ``merge`` they may be fewer than
    those of the running machine, with the same content. Raises HostError."""
    if merge:
        layers = merge_layers(place, layers)
    seal_layers(place, layers)
    return layers


def _choose(place: SandboxDir, names: tuple[str, ...]) -> tuple[int, int]:
    """Return the number of latest layers to merge, and their bytes. The lowest layer stays."""
    count = total = 0
    for name in reversed(names[1:]):
        try:
            size = place.layer(name).stat().st_blocks * BLOCK
        except OSError:  # a revert to the checkpoint reports the error
            break
        if size > max(total, SMALL) or total + size > MERGED_MAX:
            break
        count, total = count + 1, total + size
    return count, total


class Pivot:
    """The switch to one new top layer. The caller holds the history's lock.

    Call `prepare`, then `turn`; the VM may run or be paused. Call `undo` if anything fails.
    """

    def __init__(self, history: History, hypervisor: Hypervisor) -> None:
        self.layer = new_id()
        """The id of the new layer."""
        self.turned = False
        self._history = history
        self._hypervisor = hypervisor
        self._before: Head | None = None

    @property
    def before(self) -> Head:
        """The head before the switch."""
        assert self._before is not None, "find_head comes first"
        return self._before

    @property
    def frozen(self) -> tuple[str, ...]:
        """The layers of the disk at the moment of `turn`, the lowest first."""
        return (*self.before.layers, self.before.top)

    async def find_head(self) -> None:
        """Find out which layer the guest writes to. Raises HistoryError, MachineError."""
        self._before = await self._find_head()

    async def prepare(self) -> None:
        """Create the new layer and open it in QEMU; `find_head` comes first. Raises HistoryError,
        HostError, MachineError."""
        await in_thread_to_the_end(self._prepare_files)
        await self._hypervisor.open_layer(self.layer, writable=True)
        # From here on the head names the new layer, whether QEMU writes to it already or not: an
        # empty layer on top does not change the disk.
        top = replace(self.before, layers=self.frozen, top=self.layer)
        await in_thread_to_the_end(lambda: self._history.set_head(top))

    async def _find_head(self) -> Head:
        """The head, corrected to the layer that QEMU actually writes to."""
        head = self._history.head()
        active = await self._hypervisor.top_layer()
        if active == head.top:
            return head
        if head.layers and active == head.layers[-1]:
            return replace(head, layers=head.layers[:-1], top=active)
        raise HistoryError(f"QEMU writes to the layer {active}, which the head does not name")

    def _prepare_files(self) -> None:
        place = self._history.place
        add_layer(place, self.layer, below=self.before.top)
        # Data flushed now need not be flushed in the pause.
        top = place.layer(self.before.top)
        with map_os_errors(top):
            descriptor = open_regular(top)
            try:
                os.fdatasync(descriptor)
            finally:
                os.close(descriptor)

    async def turn(self) -> None:
        """Switch the guest to the new layer. A cancellation takes effect only when that is done.
        Raises MachineError."""
        await to_the_end(self._turn())

    async def _turn(self) -> None:
        await self._hypervisor.pivot(self.before.top, self.layer)
        self.turned = True

    async def follow(self, layers: tuple[str, ...]) -> None:
        """Let QEMU read ``layers`` below its top layer: the first ones of `frozen`, and one with
        the content of all the others. The VM may run. Raises MachineError; QEMU goes on with the
        layers that it has then."""
        *kept, merged = layers
        await self._hypervisor.open_layer(merged, writable=False, below=kept[-1])
        await self._hypervisor.put_below(self.layer, merged)
        await self._close(self.frozen[len(kept) :][::-1])

    async def undo(self) -> None:
        """Remove the files that a failed attempt has left. If QEMU already writes to the new layer,
        it stays, which costs only a file."""
        if self._before is None or self.turned or not await self._is_unused():
            return
        await in_thread_to_the_end(lambda: self._history.set_head(self.before))
        await self._close([self.layer])  # `prepare` may not have opened it
        self._history.place.layer(self.layer).unlink(missing_ok=True)

    async def _close(self, layers: Sequence[str]) -> None:
        with best_effort("close layers of the disk", self._history.place.engine_log):
            await self._hypervisor.close_layers(layers)

    async def _is_unused(self) -> bool:
        """Whether QEMU confirms that the guest does not write to the new layer. If it does not
        answer, this is unknown."""
        with best_effort("ask which layer is written to", self._history.place.engine_log):
            return await self._hypervisor.top_layer() != self.layer
        return False


def freeze_stopped(history: History, name: str) -> tuple[str, ...]:
    """Freeze the disk of a stopped sandbox by adding a new top layer. Returns the frozen layers,
    the lowest first. Raises StateError after an unfinished start, HistoryError, ImageError,
    HostError."""
    head = history.head()
    if head.previous is not None:
        raise StateError(
            f"the last start of {name!r} was not finished",
            hint=Words(Remedy("start", name=name), ", then stop it and try again"),
        )
    top = new_id()
    add_layer(history.place, top, below=head.top)
    layers = (*head.layers, head.top)
    history.set_head(replace(head, layers=layers, top=top))
    return layers
