"""Waiting for the screen to change, and for it to come to rest."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from itertools import cycle
from pathlib import Path

import pytest
from quicksand.base.errors import ConfigError, DisplayTimeoutError
from quicksand.display import waiting
from quicksand.display.place import RfbClient
from quicksand.display.waiting import Until, check_text, wait_for, wait_for_text

from tests.each import each
from tests.unit.vnc.fake_vnc import FakeVnc, Script, filled, resized, serve, update

RED, GREEN = b"\xff\0\0\0", b"\0\xff\0\0"
FIRST = update(filled(0, 0, 4, 4, RED))

Region = tuple[int, int, int, int]


@pytest.fixture
def socket(tmp_path: Path) -> Path:
    return tmp_path / "vnc.sock"


async def always() -> bool:
    return True


async def never() -> bool:
    return False


async def untold() -> None:
    return None


def shows(*messages: bytes) -> Script:
    async def script(server: FakeVnc) -> None:
        await server.greet(4, 4)
        for message in (FIRST, *messages):
            server.send(message)
            await asyncio.sleep(0)

    return script


async def wait(
    socket: Path,
    until: Until,
    script: Script,
    *,
    region: Region | None = None,
    timeout: float = 60,
    quiet: float = 0.05,
    is_driven: Callable[[], Awaitable[bool]] = always,
    has_driver: Callable[[], Awaitable[bool | None]] = never,
) -> None:
    async with serve(socket, script), RfbClient.open(socket) as client:
        await wait_for(
            client,
            until,
            timeout_s=timeout,
            quiet_s=quiet,
            region=region,
            is_driven=is_driven,
            has_driver=has_driver,
        )


async def test_a_change(socket: Path) -> None:
    go = asyncio.Event()

    async def script(server: FakeVnc) -> None:
        await shows()(server)
        await go.wait()
        server.send(update(filled(3, 3, 1, 1, GREEN)))

    async with serve(socket, script), RfbClient.open(socket) as client:
        waiting = asyncio.ensure_future(
            wait_for(
                client,
                Until.CHANGE,
                timeout_s=60,
                quiet_s=0,
                region=None,
                is_driven=always,
                has_driver=never,
            )
        )
        while not client.frame.pixels.startswith(RED):
            await asyncio.sleep(0)
        go.set()
        await waiting


async def test_the_same_again_is_no_change(socket: Path) -> None:
    with pytest.raises(DisplayTimeoutError, match=r"did not change within 1 s"):
        await wait(socket, Until.CHANGE, shows(FIRST, FIRST), timeout=1)


async def test_a_change_outside_the_region_does_not_count(socket: Path) -> None:
    elsewhere = update(filled(3, 3, 1, 1, GREEN))
    with pytest.raises(TimeoutError):
        await wait(socket, Until.CHANGE, shows(elsewhere), region=(0, 0, 3, 3), timeout=0.1)


async def test_what_comes_to_rest(socket: Path) -> None:
    await wait(socket, Until.STABLE, shows(update(filled(0, 0, 1, 1, GREEN))))


async def test_what_never_comes_to_rest(socket: Path) -> None:
    async def script(server: FakeVnc) -> None:
        await server.greet(4, 4)
        await server.expect_request(4, 4, incremental=False)
        server.send(FIRST)
        for colour in cycle((GREEN, RED)):
            await server.expect_request(4, 4, incremental=True)
            server.send(update(filled(0, 0, 1, 1, colour)))

    with pytest.raises(DisplayTimeoutError, match="did not come to rest"):
        await wait(socket, Until.STABLE, script, timeout=4, quiet=3)


async def test_a_region_that_is_not_there(socket: Path) -> None:
    with pytest.raises(ConfigError, match="not within the screen"):
        await wait(socket, Until.CHANGE, shows(), region=(0, 0, 5, 1))


async def test_a_region_that_goes_with_the_mode(socket: Path) -> None:
    smaller = update(resized(2, 2)) + update(filled(0, 0, 2, 2, RED))
    with pytest.raises(ConfigError, match="not within the screen"):
        await wait(socket, Until.CHANGE, shows(smaller), region=(0, 0, 4, 4))


@pytest.mark.parametrize("until", [Until.CHANGE, Until.STABLE])
async def test_a_screen_that_the_guest_has_not_initialised_counts_for_nothing(
    socket: Path, until: Until
) -> None:
    """It is at rest, and shows what QEMU has drawn."""
    with pytest.raises(DisplayTimeoutError, match="not initialised by the guest"):
        await wait(socket, until, shows(), timeout=0.3, is_driven=never)


@pytest.mark.parametrize(
    ("has_driver", "why"),
    [
        (always, "has the driver for it and is still starting, within 0.3 s"),
        (never, "whose kernel needs the driver virtio_gpu for it, within 0.3 s"),
        (untold, "does not tell why or is too busy to, within 0.3 s"),
    ],
)
async def test_a_guest_that_is_only_slow_is_not_said_to_lack_the_driver(
    socket: Path, has_driver: Callable[[], Awaitable[bool | None]], why: str
) -> None:
    with pytest.raises(DisplayTimeoutError, match=why):
        await wait(
            socket, Until.STABLE, shows(), timeout=0.3, is_driven=never, has_driver=has_driver
        )

    async def find_texts() -> list[str]:
        return []

    with pytest.raises(DisplayTimeoutError, match=why):
        await wait_for_text(
            "x", timeout_s=0.3, is_driven=never, has_driver=has_driver, find_texts=find_texts
        )


@pytest.mark.parametrize("until", [Until.CHANGE, Until.STABLE])
async def test_the_first_picture_of_the_guest_is_waited_for(
    socket: Path, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It comes some time after its driver."""
    monkeypatch.setattr(waiting, "GUEST_POLL_S", 0.0)
    asked = 0
    driven = asyncio.Event()

    async def is_driven() -> bool:
        nonlocal asked
        asked += 1
        if asked == 3:
            driven.set()
        return asked >= 3

    async def script(server: FakeVnc) -> None:
        await shows()(server)
        await driven.wait()
        server.send(update(filled(0, 0, 4, 4, GREEN)))

    async with serve(socket, script), RfbClient.open(socket) as client:
        await wait_for(
            client,
            until,
            timeout_s=60,
            quiet_s=0.05,
            region=None,
            is_driven=is_driven,
            has_driver=never,
        )
        assert bytes(client.frame.pixels).startswith(GREEN)


async def test_a_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "GUEST_POLL_S", 0.0)
    answers = iter((None, [], ["Terminal - sh"], ["Mozilla Firefox"]))

    async def find_texts() -> list[str] | None:
        return next(answers)

    await wait_for_text(
        "Firefox", timeout_s=60, is_driven=always, has_driver=never, find_texts=find_texts
    )
    assert list(answers) == []


@each(
    ("found", "is_driven", "why"),
    [
        (["login:"], always, "did not show 'Firefox'"),
        (None, always, "neither a text console nor an X server"),
        (["Firefox"], never, "not initialised by the guest"),
    ],
)
async def test_a_text_that_does_not_come(
    found: list[str] | None, is_driven: Callable[[], Awaitable[bool]], why: str
) -> None:
    async def find_texts() -> list[str] | None:
        return found

    with pytest.raises(DisplayTimeoutError, match=why):
        await wait_for_text(
            "Firefox", timeout_s=0.1, is_driven=is_driven, has_driver=never, find_texts=find_texts
        )


def test_texts_that_can_be_waited_for() -> None:
    assert check_text(Until.TEXT, "Wört: 漢") == "Wört: 漢"
    assert check_text(Until.STABLE, None) == ""
    for wrong in (None, "", "two\nlines", "x" * 1001):
        with pytest.raises(ConfigError, match="no text to wait for"):
            check_text(Until.TEXT, wrong)
    with pytest.raises(ConfigError, match="not waited for with 'stable'"):
        check_text(Until.STABLE, "x")
