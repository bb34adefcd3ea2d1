"""Waiting until a screen changes, and until it is at rest."""

from __future__ import annotations

import asyncio

from quicksand_vnc.client import VncClient
from quicksand_vnc.picture import BYTES_PER_PIXEL, Framebuffer, Rect, check_region, check_within

BRISK_S = 0.1
"""Seconds within which the server looks for changes; see `VncClient.next_update`."""


class Watch:
    """Distinguishes changes of pixels from updates that bring the same ones again.

    It begins with the screen as ``client`` has it when it is made; ``region`` is the part at (x, y,
    width, height). Everything raises VncError, and AskedError for a region that is not, or no
    longer, on the screen.
    """

    def __init__(self, client: VncClient, region: tuple[int, int, int, int] | None = None) -> None:
        self._client = client
        self._region = check_region(region) if region is not None else None
        self._seen = self._look()

    async def change(self) -> None:
        """Wait until the pixels differ from the last ones seen."""
        while True:
            await self._client.next_update(brisk_s=BRISK_S)
            found = self._look()
            if found != self._seen:
                self._seen = found
                return

    async def rest(self, quiet_s: float) -> None:
        """Wait until the pixels have not changed for so long."""
        while True:
            try:
                async with asyncio.timeout(quiet_s):
                    await self.change()
            except TimeoutError:
                return

    def _look(self) -> tuple[int, int, bytes]:
        frame = self._client.frame
        return frame.width, frame.height, _pixels(frame, self._region)


def _pixels(frame: Framebuffer, region: Rect | None) -> bytes:
    if region is None:
        return bytes(frame.pixels)
    check_within(region, frame.width, frame.height)
    stride, row = frame.width * BYTES_PER_PIXEL, region.width * BYTES_PER_PIXEL
    first = region.y * stride + region.x * BYTES_PER_PIXEL
    starts = range(first, first + region.height * stride, stride)
    return b"".join(frame.pixels[start : start + row] for start in starts)
