"""Freezing the disk of a running machine by giving it a new top layer, to which the guest then
writes."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace

from quicksand.base.effort import best_effort
from quicksand.base.errors import HistoryError, StateError
from quicksand.base.files import map_os_errors
from quicksand.base.hypervisor import Hypervisor
from quicksand.base.regular import open_regular
from quicksand.base.remedies import Remedy, Words
from quicksand.base.threads import in_thread_to_the_end, to_the_end
from quicksand.records.nodes import Head, new_id
from quicksand.snapshots.history import History
from quicksand.snapshots.layers import add_layer


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
