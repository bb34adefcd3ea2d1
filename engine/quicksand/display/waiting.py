"""Waiting for a change or a text on the screen."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from enum import StrEnum

from quicksand_vnc.watching import Watch

from quicksand.base.errors import ConfigError, DisplayTimeoutError
from quicksand.display.place import RfbClient, vnc_errors

GUEST_POLL_S = 0.3
"""Seconds between two questions to QEMU, or to the guest."""

TEXT_MAX = 1000
"""The most characters of an awaited text."""


class Until(StrEnum):
    """The awaited change."""

    CHANGE = "change"
    STABLE = "stable"
    TEXT = "text"


def check_text(until: Until, text: str | None) -> str:
    """Return the awaited text; "" if there is none. Raises ConfigError for a text with another
    condition, for a missing one, or for one that no screen can show."""
    if until is not Until.TEXT:
        if text is not None:
            raise ConfigError(
                f"a text is not waited for with {until.value!r}", hint=f"use {Until.TEXT.value!r}"
            )
        return ""
    if not isinstance(text, str) or not 0 < len(text) <= TEXT_MAX or not text.isprintable():
        raise ConfigError(
            f"{text!r} is no text to wait for", hint=f"text= takes 1 to {TEXT_MAX} characters"
        )
    return text


@asynccontextmanager
async def bounded(timeout_s: float, what: Callable[[], Awaitable[str]]) -> AsyncIterator[None]:
    """Raise DisplayTimeoutError, which says what did not happen, after ``timeout_s``."""
    limit = asyncio.timeout(timeout_s)
    try:
        async with limit:
            yield
    except TimeoutError:
        if not limit.expired():
            raise
        raise DisplayTimeoutError(f"the screen {await what()} within {timeout_s:g} s") from None


async def wait_for(
    client: RfbClient,
    until: Until,
    *,
    timeout_s: float,
    quiet_s: float,
    region: tuple[int, int, int, int] | None,
    is_driven: Callable[[], Awaitable[bool]],
    has_driver: Callable[[], Awaitable[bool | None]],
) -> None:
    """Wait until the screen changes, or until it has not changed for ``quiet_s``. Pictures from
    before the guest drives it (``is_driven``) do not count; if the guest never does, it is asked
    whether it ``has_driver``. Raises DisplayTimeoutError after ``timeout_s``, ConfigError for a
    region that is not on the screen, DisplayError."""
    what = ""

    async def not_done() -> str:
        return what or UNDRIVEN[await has_driver()]

    async with bounded(timeout_s, not_done):
        await client.next_update()
        was_blank = await _until_driven(client, is_driven)
        what = "did not change" if until is Until.CHANGE else "did not come to rest"
        with vnc_errors():
            watch = Watch(client, region)
            if until is Until.STABLE:
                await watch.rest(quiet_s)
            elif not was_blank:
                await watch.change()


UNDRIVEN = {
    True: "was not initialised by the guest, which has the driver for it and is still starting,",
    False: "was not initialised by the guest, whose kernel needs the driver virtio_gpu for it,",
    None: "was not initialised by the guest, which does not tell why or is too busy to,",
}
"""The words for a screen that is not driven, by whether the guest has the driver for it."""


async def _until(is_so: Callable[[], Awaitable[bool]]) -> None:
    while True:
        if await is_so():
            return
        await asyncio.sleep(GUEST_POLL_S)


async def _until_driven(client: RfbClient, is_driven: Callable[[], Awaitable[bool]]) -> bool:
    """Wait until the guest shows a picture of its own; returns whether it did not before."""
    if await is_driven():
        return False
    blank = Watch(client)
    await _until(is_driven)
    await blank.change()  # the driver comes first, its picture somewhat later
    return True


async def wait_for_text(
    text: str,
    *,
    timeout_s: float,
    is_driven: Callable[[], Awaitable[bool]],
    has_driver: Callable[[], Awaitable[bool | None]],
    find_texts: Callable[[], Awaitable[Sequence[str] | None]],
) -> None:
    """Wait until ``text`` is in one of the texts that the guest shows (``find_texts``; None if it
    cannot tell). ``has_driver`` is as for `wait_for`. Raises DisplayTimeoutError after
    ``timeout_s``."""
    what = ""

    async def not_done() -> str:
        return what or UNDRIVEN[await has_driver()]

    async with bounded(timeout_s, not_done):
        await _until(is_driven)
        while True:
            found = await find_texts()
            if found is not None and any(text in shown for shown in found):
                return
            what = (
                f"did not show {text!r}, as far as the guest can tell,"
                if found is not None
                else "has neither a text console nor an X server that can be read, and showed no"
                f" {text!r}"
            )
            await asyncio.sleep(GUEST_POLL_S)
