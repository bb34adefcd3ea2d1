"""The present of a sandbox that is about to be reverted: it is paused, and kept as an automatic
checkpoint if that is wished."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quicksand.base.effort import best_effort
from quicksand.base.errors import HistoryError, MachineError, QuicksandError
from quicksand.base.files import map_os_errors
from quicksand.base.regular import read_file
from quicksand.base.threads import to_the_end
from quicksand.records.nodes import Node
from quicksand.snapshots.capture import Capture
from quicksand.snapshots.copying import Fate, Taken
from quicksand.snapshots.tags import automatic_tag
from quicksand.snapshots.taking import RunningSandbox, start_capture
from quicksand.snapshots.thumbnails import keep_thumbnail, look_at_screen

if TYPE_CHECKING:
    from quicksand.display.picture import Picture


class Present:
    """Call `prepare` and `look` while the guest runs, `freeze`, and `store` once the revert is
    certain; then `kept` tells what became of it, and `settle` waits for that. If the guest goes on
    instead, `discard` it; then it may be prepared again. Once it is frozen, preparing and freezing
    it again does nothing."""

    def __init__(
        self, live: RunningSandbox, node: Node, shape: dict[str, Any], *, keep: bool
    ) -> None:
        """``node``: the checkpoint to which the sandbox is reverted; ``shape``: that of the present
        (`find_shape`)."""
        self._live = live
        self._node = node
        self._shape = shape
        self._keep = keep
        self._capture: Capture | None = None
        self._screen: Picture | None = None
        self._is_frozen = False
        self.frozen_at = 0.0
        """When the pause began, by `time.perf_counter`."""
        self._keeping: asyncio.Task[Node] | None = None

    async def prepare(self, fate: Fate) -> None:
        """Do what is possible before the pause. Raises HistoryError, HostError, MachineError."""
        if self._keep and not self._is_frozen:
            if self._live.is_unfinished:
                raise MachineError("what the guest has in memory is no state of the sandbox")
            self._capture = start_capture(self._live)
            await self._capture.prepare(fate=fate)

    async def look(self) -> None:
        """Look at its screen."""
        if self._is_frozen:
            return
        has_display = self._live.record.config.enable_display and self._capture is not None
        self._screen = await look_at_screen(self._live.machine, has_display=has_display)

    async def freeze(self) -> None:
        """Pause the guest, and capture its state if that is to be kept. Raises StateError,
        HostError, MachineError."""
        if self._is_frozen:
            return
        self.frozen_at = time.perf_counter()
        if self._capture is None:
            await self._live.hypervisor.pause()
        else:
            await self._capture.freeze(resume=False)
        self._is_frozen = True

    async def devices(self) -> bytes:
        """The state of the devices of the paused guest. Raises HostError, MachineError."""
        if self._capture is not None:
            return await asyncio.to_thread(_read, self._capture.devices)
        path = self._live.machine.devices_now
        try:
            await self._live.hypervisor.save_devices(path)
            return await asyncio.to_thread(_read, path)
        finally:
            path.unlink(missing_ok=True)

    @property
    def taken(self) -> Taken | None:
        """The pages that were captured, if it is kept, once it is frozen."""
        return self._capture.taken if self._capture is not None else None

    async def top_layer(self) -> str:
        """The layer to which the guest writes now. Raises MachineError."""
        if self._capture is not None:
            return self._capture.layer
        return await self._live.hypervisor.top_layer()

    def store(self) -> None:
        """Begin to write it to disk, in the background."""
        if self._capture is not None and self._keeping is None:
            self._keeping = asyncio.create_task(
                self._store(self._capture), name="quicksand-keep-present"
            )

    async def _store(self, capture: Capture) -> Node:
        live, node = self._live, self._node
        what = "before undo" if node.auto else f"before revert to {node.tag}"
        try:
            tag = automatic_tag(live.history, what)
            await keep_thumbnail(self._screen, live.place, capture.id)
            return await capture.store(tag=tag, note="", auto=True, tier_note="", shape=self._shape)
        except BaseException as error:
            await to_the_end(capture.forget())
            if isinstance(error, QuicksandError):
                raise HistoryError(
                    f"the sandbox is reverted to {node.tag!r}, but its state before could not be "
                    f"kept: {error}"
                ) from error
            raise

    async def kept(self) -> Node | HistoryError | None:
        """The automatic checkpoint, once it is on disk; or why it could not be kept; or None if it
        was not to be. A cancellation ends the waiting, but not the storing."""
        if self._keeping is None:
            return None
        await asyncio.wait((self._keeping,))
        try:
            return self._keeping.result()
        except HistoryError as error:
            return error

    async def settle(self) -> None:
        """Wait until nothing is being stored any more. Raises nothing: what failed otherwise is
        raised."""
        if self._keeping is not None:
            await asyncio.wait((self._keeping,))
            if not self._keeping.cancelled():
                self._keeping.exception()

    async def discard(self) -> None:
        """Forget it, since the guest goes on; also if it is on disk already."""
        await self.settle()
        self._keeping = None
        self._is_frozen = False
        if self._capture is not None:
            with best_effort("remove the unfinished checkpoint", self._live.log):
                await self._capture.discard()
            self._capture = None


def _read(path: Path) -> bytes:
    with map_os_errors(path):
        return read_file(path)
