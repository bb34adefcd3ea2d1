"""Waiting for what happens on the screen."""

from __future__ import annotations

import asyncio
from enum import StrEnum

from quicksand.display.checks import check_region, check_within
from quicksand.display.framebuffer import BYTES_PER_PIXEL, Framebuffer, Rect
from quicksand.display.rfb import RfbClient
from quicksand.errors import DisplayTimeoutError

BRISK_S = 0.1
"""Seconds within which QEMU looks for changes; see `RfbClient.next_update`."""


class Until(StrEnum):
    """What is waited for."""

    CHANGE = "change"
    STABLE = "stable"


async def wait_for(
    client: RfbClient,
    until: Until,
    *,
    timeout_s: float,
    quiet_s: float,
    region: tuple[int, int, int, int] | None,
) -> None:
    """Wait until the screen changes, or until it has not changed for ``quiet_s``. Raises
    DisplayTimeoutError after ``timeout_s``, ConfigError for a region that is not on the screen,
    DisplayError."""
    await client.next_update()
    watch = _Watch(client, region)
    try:
        async with asyncio.timeout(timeout_s):
            if until is Until.CHANGE:
                await watch.change()
            else:
                await _until_quiet(watch, quiet_s)
    except TimeoutError:
        what = "did not change" if until is Until.CHANGE else "did not come to rest"
        raise DisplayTimeoutError(f"the screen {what} within {timeout_s:g} s") from None


async def _until_quiet(watch: _Watch, quiet_s: float) -> None:
    while True:
        try:
            async with asyncio.timeout(quiet_s):
                await watch.change()
        except TimeoutError:
            return


class _Watch:
    """Tells changes of pixels from updates that bring the same ones again."""

    def __init__(self, client: RfbClient, region: tuple[int, int, int, int] | None) -> None:
        self._client = client
        self._region = check_region(region) if region is not None else None
        self._seen = self._look()

    async def change(self) -> None:
        """Wait until the pixels differ from those that were seen last."""
        while True:
            await self._client.next_update(brisk_s=BRISK_S)
            found = self._look()
            if found != self._seen:
                self._seen = found
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
