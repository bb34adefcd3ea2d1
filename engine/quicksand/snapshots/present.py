"""The present of a sandbox that is about to be reverted: it is paused, and on request kept as an
automatic checkpoint."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quicksand.base.effort import best_effort
from quicksand.base.errors import HistoryError, MachineError, QuicksandError
from quicksand.base.files import map_os_errors
from quicksand.base.regular import read_file
from quicksand.base.threads import in_thread_to_the_end, to_the_end
from quicksand.records.nodes import Node
from quicksand.snapshots.capture import Capture
from quicksand.snapshots.history import automatic_tag
from quicksand.snapshots.memory_copying import Fate, Taken
from quicksand.snapshots.paged import PagesCapture
from quicksand.snapshots.recognition import keep_thumbnail, look_at_screen
from quicksand.snapshots.taking import RunningSandbox, start_capture

if TYPE_CHECKING:
    from quicksand_vnc import Picture


class Present:
    """The present of one revert. Call `prepare` and `look` while the guest runs, `freeze`, and
    `store` once the revert is certain; then `kept` tells the result, and `settle` waits for it. If
    the guest goes on instead, call `discard`; then it may be prepared again. Preparing and freezing
    it again once it is frozen does nothing."""

    def __init__(
        self, live: RunningSandbox, node: Node, shape: dict[str, Any], *, keep: bool
    ) -> None:
        """``node``: the checkpoint to which the sandbox is reverted; ``shape``: the present one
        (`find_shape`)."""
        self._live = live
        self._node = node
        self._shape = shape
        self._keep = keep
        self._capture: Capture | None = None
        self._screen: Picture | None = None
        self._is_frozen = False
        self.frozen_at = 0.0
        """The moment when the pause began, by `time.perf_counter`."""
        self._keeping: asyncio.Task[Node] | None = None
        self._tag = ""
        self._announced: PagesCapture | None = None
        """The capture, if its guest will be overwritten."""

    async def prepare(self, fate: Fate) -> None:
        """Do everything possible before the pause. Raises HistoryError, HostError, MachineError."""
        if self._keep and not self._is_frozen:
            if self._live.is_unfinished:
                raise MachineError("what the guest has in memory is no state of the sandbox")
            capture = self._capture = start_capture(self._live)
            await capture.prepare(fate=fate)
            if fate is Fate.OVERWRITTEN:
                # Only this tier can be reverted in place.
                assert isinstance(capture, PagesCapture)
                self._tag = await asyncio.to_thread(self._find_tag)
                await in_thread_to_the_end(lambda: capture.announce(self._tag, self._shape))
                self._announced = capture

    def _find_tag(self) -> str:
        what = "before undo" if self._node.auto else f"before revert to {self._node.tag}"
        return automatic_tag(self._live.history, what)

    async def look(self) -> None:
        """Take the picture of its screen."""
        if self._is_frozen:
            return
        has_display = self._live.record.config.enable_display and self._capture is not None
        self._screen = await look_at_screen(self._live.machine, has_display=has_display)

    async def freeze(self) -> None:
        """Pause the guest, and capture its state if that will be kept. Raises StateError,
        HostError, MachineError."""
        if self._is_frozen:
            return
        self.frozen_at = time.perf_counter()
        if self._capture is None:
            await self._live.hypervisor.pause()
        else:
            await self._capture.freeze(resume=False)
        self._is_frozen = True

    async def secure(self) -> None:
        """Have the frozen state where it no longer depends on this process. Raises HistoryError,
        HostError."""
        if self._announced is not None:
            await in_thread_to_the_end(self._announced.secure)

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
        """The captured pages once it is frozen, if it is kept."""
        return self._capture.taken if self._capture is not None else None

    async def top_layer(self) -> str:
        """The layer to which the guest writes now. Raises MachineError."""
        if self._capture is not None:
            return self._capture.layer
        return await self._live.hypervisor.top_layer()

    def store(self) -> None:
        """Begin to write the state to disk, in the background."""
        if self._capture is not None and self._keeping is None:
            self._keeping = asyncio.create_task(
                self._store(self._capture), name="quicksand-keep-present"
            )

    async def _store(self, capture: Capture) -> Node:
        live, node = self._live, self._node
        try:
            tag = self._tag or await asyncio.to_thread(self._find_tag)
            await keep_thumbnail(self._screen, live.place, capture.id)
            return await capture.store(tag=tag, note="", auto=True, tier_note="", shape=self._shape)
        except BaseException as error:
            hint = ""
            if self._announced is not None:
                await to_the_end(self._announced.leave())
                hint = (
                    "it is held until the host's next boot: the next checkpoint or revert stores it"
                )
            else:
                await to_the_end(capture.forget())
            if isinstance(error, QuicksandError):
                raise HistoryError(
                    f"the state before the revert to {node.tag!r} could not be stored: {error}",
                    hint=hint,
                ) from error
            raise

    async def kept(self) -> Node | HistoryError | None:
        """The automatic checkpoint, once it is on disk; the error for which it could not be kept;
        or None if it was not requested. A cancellation ends the waiting, but not the storing."""
        if self._keeping is None:
            return None
        await asyncio.wait((self._keeping,))
        try:
            return self._keeping.result()
        except HistoryError as error:
            return error

    async def settle(self) -> None:
        """Wait until nothing is being stored any more. Raises nothing of its own."""
        if self._keeping is not None:
            await asyncio.wait((self._keeping,))
            if not self._keeping.cancelled():
                self._keeping.exception()

    async def leave(self) -> None:
        """Leave it: the sandbox has ended, and it is unknown here as which of two machines. The
        next start keeps the present, or finds that the guest ended in it."""
        await self.settle()
        if self._announced is not None and self._keeping is None:
            await self._announced.leave()

    async def discard(self) -> None:
        """Forget the state, since the guest goes on; also if it is already on disk."""
        await self.settle()
        self._keeping = None
        self._is_frozen = False
        if self._capture is not None:
            with best_effort("remove the unfinished checkpoint", self._live.log):
                await self._capture.discard()
            self._capture = self._announced = None
            self._tag = ""


def _read(path: Path) -> bytes:
    with map_os_errors(path):
        return read_file(path)
