"""What a start has made in the background, and what the program that does it makes."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import pytest
from quicksand.base.errors import StateError
from quicksand.base.paths import Paths
from quicksand.base.progress import BootTiming
from quicksand.base.settings import SPARES
from quicksand.records.config import SandboxConfig
from quicksand.records.registry import Registry
from quicksand.records.sandboxes import Record
from quicksand.warm.spares import orders, stock
from quicksand.warm.spares.orders import (
    Orders,
    SpareOrder,
    digest_of,
    expect_next,
    plain,
    restock_later,
)
from quicksand.warm.spares.stock import record_for
from quicksand.warm.templates import Templates

DEBIAN = SandboxConfig(image="debian")
LARGE = SandboxConfig(image="debian", memory="1G")
COLD, WARM = (BootTiming(mode=mode) for mode in ("cold boot", "template"))


@pytest.fixture
def started(places: Paths, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What the makers that were started got: a record, or None for what is ordered."""
    monkeypatch.delenv(SPARES.variable)
    places.sandboxes.mkdir(parents=True, exist_ok=True)
    values: list[Any] = []

    async def run_later(
        module: str, value: Any, *, seconds: int, descriptors: Sequence[int]
    ) -> None:
        assert all(os.fstat(descriptor) for descriptor in descriptors)
        values.append(value)

    monkeypatch.setattr(orders, "run_later", run_later)
    return values


async def test_a_cold_start_has_made_what_is_ordered(places: Paths, started: list[Any]) -> None:
    """There is no template of its own machine yet, but others are ordered."""
    record = record_for(DEBIAN)
    await expect_next(Registry(places), record, COLD)
    assert started == []
    Orders(places).set(LARGE, 1)
    await expect_next(Registry(places), record, COLD)
    assert started == [None]
    await expect_next(Registry(places), record, WARM)
    assert started == [None, record.to_json()]


@pytest.mark.parametrize("value", ["off", "use"])
async def test_none_is_made_where_that_is_turned_off(
    places: Paths, started: list[Any], monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    monkeypatch.setenv(SPARES.variable, value)
    Orders(places).set(LARGE, 1)
    for timing in (COLD, WARM):
        await expect_next(Registry(places), record_for(DEBIAN), timing)
    await restock_later(places)
    assert started == []


async def test_one_process_at_a_time_makes_what_is_ordered(
    places: Paths, started: list[Any]
) -> None:
    lock = orders._lock(places, orders.ORDERS)
    assert lock is not None
    await restock_later(places)
    assert started == []
    os.close(lock)
    await restock_later(places)
    assert started == [None]


async def test_an_order_without_a_template_is_left_to_another_process(
    places: Paths, started: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next start must not wait for it, nor for another one that fails."""
    made: list[str] = []

    async def make_spare(registry: Registry, record: Record, *, seconds: float | None) -> None:
        if record.config.memory == "1G":
            raise StateError("there is no template of this machine")
        made.append(digest_of(record.config))

    monkeypatch.setattr(stock, "make_spare", make_spare)
    Orders(places).set(LARGE, 1)
    await stock.expect(Registry(places), record_for(DEBIAN))
    assert started == [None]
    assert made == [digest_of(DEBIAN)]


async def test_an_order_that_ends_while_its_template_is_made_gets_no_spare(
    places: Paths, started: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one, which is as it was, gets its template and its spare."""
    templates: list[str] = []
    made: list[str] = []

    async def make_apart(wanted: Templates) -> None:
        templates.append(wanted.record.config.memory)
        Orders(places).set(LARGE, 0)

    async def make_spare(registry: Registry, record: Record, *, seconds: float | None) -> None:
        made.append(record.config.memory)

    monkeypatch.setattr(stock, "make_apart", make_apart)
    monkeypatch.setattr(stock, "make_spare", make_spare)
    monkeypatch.setattr(Templates, "find", lambda _: None)
    other = SandboxConfig(image="debian", memory="256M")
    Orders(places).set(LARGE, 1)
    Orders(places).set(SandboxConfig(image="gone"), 1)
    Orders(places).set(other, 1)
    await stock.restock(Registry(places))
    assert (templates, made) == (["1G", "256M"], ["256M"])
    assert SpareOrder(plain(other), 1) in Orders(places).list()
