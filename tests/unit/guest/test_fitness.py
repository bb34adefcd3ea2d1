"""What a guest must be that others start from."""

from __future__ import annotations

import re
import time
from typing import Any, cast

import pytest
from quicksand.base.errors import UnfitGuestError
from quicksand.guest import fitness as guest_clock
from quicksand.guest.agent.session import Session
from quicksand.guest.fitness import (
    START_TOLERANCE,
    TOLERANCE,
    Facts,
    Rate,
    compare,
    put_right,
    read_clock,
    require_fit,
)
from quicksand.records.config import NetworkMode

from tests.each import each

SAID = """256
MemTotal:         490000 kB
MemFree:          300000 kB
MemAvailable:     400000 kB
HugePages_Total:       0
Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT
eth0\t00000000\t0202000A\t0003\t0\t0\t0\t00000000\t0\t0\t0
eth0\t0002000A\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0
"""


class Guest:
    """A guest whose clock runs ``rate`` times as fast as the host's, until it gets another one."""

    def __init__(self, rate: float = 1.0, *, said: str = SAID, helps: bool = True) -> None:
        self.rate, self.said, self.helps = rate, said, helps
        self.began = time.monotonic()
        self.asked: list[str] = []

    async def request(self, method: str, params: dict[str, Any], **_: object) -> dict[str, Any]:
        self.asked.append(method)
        if method == "ping":
            return {"uptime_ns": int((time.monotonic() - self.began) * self.rate * 1e9)}
        if method == "execute" and "clocksource" in params["command"] and self.helps:
            self.rate, self.began = 1.0, time.monotonic()
        return {"stdout": self.said, "exit_code": 0}

    @property
    def session(self) -> Session:
        return cast("Session", self)


@each("rate", [1.0, 0.99, 1.01])
async def test_a_guest_that_is_what_it_must_be_is_fit(rate: float) -> None:
    guest = Guest(rate)
    clock = await read_clock(guest.session)
    await require_fit(guest.session, clock, NetworkMode.FULL, window_s=0.05)


@each("rate", [2596 / 925, 0.3, 1.2, 0.92])
async def test_a_clock_that_runs_wrong_is_not_fit(rate: float) -> None:
    guest = Guest(rate)
    clock = await read_clock(guest.session)
    with pytest.raises(UnfitGuestError, match=f"its clock runs {str(rate)[:3]}"):
        await require_fit(guest.session, clock, NetworkMode.FULL, window_s=0.05)


@each(
    ("said", "why"),
    [
        (SAID.replace("256\n", "12\n"), "has been given 12 bits"),
        (SAID.replace("400000", "4000"), "has 4000 kB of memory left, of 490000"),
        (SAID.replace("0202000A", "0302000A"), "no route to 10.0.2.2"),
        (SAID.partition("Iface")[0], "no route to 10.0.2.2"),
        (SAID.replace("MemTotal", "MemSum"), "does not tell of itself"),
        (SAID.replace("256\n", "many\n"), "does not tell of itself"),
        ("", "does not tell of itself"),
    ],
)
async def test_what_it_lacks_is_named(said: str, why: str) -> None:
    guest = Guest(said=said)
    clock = await read_clock(guest.session)
    with pytest.raises(UnfitGuestError, match=why):
        await require_fit(guest.session, clock, NetworkMode.MOUNTS_ONLY, window_s=0.0)


def test_a_guest_whose_network_is_off_is_fit_without_one() -> None:
    assert Facts.parse(SAID.partition("Iface")[0]).complaint(NetworkMode.NONE) == ""


def test_a_rate_is_right_or_wrong_only_if_that_is_proven() -> None:
    assert Rate(1.01, 0.005).is_right(TOLERANCE)
    assert Rate(1.1, 0.01).is_wrong(TOLERANCE)
    for unsure in (Rate(1.01, 0.015), Rate(1.03, 0.015)):
        assert not unsure.is_right(TOLERANCE)
        assert not unsure.is_wrong(TOLERANCE)


async def test_a_comparison_goes_on_until_it_is_proven(monkeypatch: pytest.MonkeyPatch) -> None:
    guest = Guest()
    clock = await read_clock(guest.session)
    monkeypatch.setattr(guest_clock, "LIMIT_S", 60.0)
    rough = guest_clock.Reading(clock.host_s, clock.guest_s, 0.005)
    assert (await compare(guest.session, rough, TOLERANCE)).off <= TOLERANCE


async def test_a_start_leaves_a_right_clock_alone() -> None:
    guest = Guest()
    assert await put_right(guest.session, await read_clock(guest.session)) == ""
    assert set(guest.asked) == {"ping"}


async def test_a_start_gives_a_guest_whose_clock_runs_wrong_another_and_says_so() -> None:
    guest = Guest(3.0)
    told = await put_right(guest.session, await read_clock(guest.session))
    assert re.search(r"ran (2\.9|3\.0)", told)
    assert "which is right" in told
    assert (await compare(guest.session, await read_clock(guest.session), TOLERANCE)).is_right(
        START_TOLERANCE
    )
    guest = Guest(3.0, helps=False)
    told = await put_right(guest.session, await read_clock(guest.session))
    assert re.search(r"still runs (2\.9|3\.0)", told)
