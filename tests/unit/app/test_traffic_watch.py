"""Who is asked for the network of its guest, when, and how long."""

from __future__ import annotations

import asyncio
import itertools

import pytest
from quicksand.things.sandbox_facts import GuestTraffic

from quicksand_tui.door.silence import EVERY_S, LOOKER_S, SPACING_S, TrafficWatch

A, B, C = "a", "b", "c"


class Guests:
    """Guests that move 10 bytes a second in and 20 out, on a clock that goes on in sleep only."""

    def __init__(self, *looks: tuple[float, list[str]]) -> None:
        """``looks``: when somebody looks, and at which sandboxes."""
        self.now = 0.0
        self.asked: list[tuple[float, str]] = []
        self.silent: set[str] = set()
        self.rates: dict[float, set[str]] = {}
        """Who had rates, whenever there was a sleep."""
        self.watch = TrafficWatch(self.ask, clock=lambda: self.now, sleep=self.sleep)
        self.looks = sorted(looks)
        self.look()

    def look(self) -> None:
        while self.looks and self.looks[0][0] <= self.now:
            self.watch.want(self.looks.pop(0)[1])

    async def ask(self, sandbox_id: str) -> GuestTraffic | None:
        self.asked.append((self.now, sandbox_id))
        if sandbox_id in self.silent:
            return None
        return GuestTraffic(received=int(self.now * 10), sent=int(self.now * 20))

    async def sleep(self, seconds: float) -> None:
        self.rates[self.now] = set(self.watch.rates)
        end = self.now + seconds
        while self.looks and self.looks[0][0] <= end:
            self.now = self.looks[0][0]
            self.look()
        self.now = end
        await asyncio.sleep(0)

    async def run(self) -> None:
        await asyncio.wait_for(self.watch.run(), 60)


async def test_those_that_are_seen_are_asked_in_turn_every_few_seconds() -> None:
    guests = Guests((0, [B, A]), (2.5 * EVERY_S, []))
    await guests.run()
    rounds = [(n * EVERY_S + at, who) for n in range(3) for at, who in ((0, A), (SPACING_S, B))]
    assert guests.asked == rounds
    rates = guests.watch.rates[A]
    assert (rates.received, rates.sent) == pytest.approx((10, 20))
    assert rates.history == pytest.approx((30, 30))


async def test_many_are_asked_no_closer_to_each_other() -> None:
    many = [f"{n:03}" for n in range(40)]
    guests = Guests((0, many), (30, []))
    await guests.run()
    times = [at for at, _ in guests.asked]
    assert all(b - a >= SPACING_S - 1e-9 for a, b in itertools.pairwise(times))
    assert guests.asked[40][1] == "000" and times[40] == pytest.approx(40 * SPACING_S)


async def test_one_that_is_seen_no_more_is_not_asked() -> None:
    guests = Guests((0, [A, B]), (EVERY_S + 0.1, [A, C]), (4.5 * EVERY_S, []))
    await guests.run()
    assert [who for _, who in guests.asked].count(B) == 1, "not even in the round that had begun"
    assert guests.asked[-2][1:] + guests.asked[-1][1:] == (A, C)
    assert set(guests.watch.rates) == {A, C}


async def test_an_end_in_the_midst_of_a_round_counts_at_once() -> None:
    guests = Guests((0, [A, B, C]), (0.1, []))
    await guests.run()
    assert guests.asked == [(0, A)]


async def test_one_that_does_not_answer_has_no_rates_until_it_does_again() -> None:
    guests = Guests((0, [A, B]), (100, []))
    task = asyncio.create_task(guests.run())
    while guests.now < 20:
        await asyncio.sleep(0)
    before = guests.watch.rates[A].history
    guests.silent.add(A)
    while guests.now < 40:
        await asyncio.sleep(0)
    assert set(guests.watch.rates) == {B}
    guests.silent.clear()
    await task
    after = guests.watch.rates[A].history
    assert after[: len(before)] == before and len(after) > len(before)


async def test_what_is_known_stays_while_nobody_looks() -> None:
    guests = Guests((0, [A]), (20, []))
    await guests.run()
    known = guests.watch.rates[A]
    guests.now = 500.0
    guests.looks = [(500.0, [A]), (510.0, [])]
    guests.look()
    await guests.run()
    assert guests.watch.rates[A].history[: len(known.history)] == known.history
    assert guests.rates[500.0] == set(), "the time between was no one moment"


async def test_it_ends_when_nobody_has_looked_for_long() -> None:
    guests = Guests((0, [A]))
    await guests.run()
    assert LOOKER_S <= guests.now <= LOOKER_S + EVERY_S
    assert guests.asked[-1][0] < LOOKER_S
