"""A sandbox has parts, and what they can do is what it can do: `Sandbox.screenshot` is the
desktop's, and says so wherever it is asked."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock, create_autospec

import pytest
from quicksand import Sandbox
from quicksand.base.delegation import Delegation
from quicksand.desktop import Desktop
from quicksand.errors import NoDisplayError

from tests.each import each

OF_THE_DESKTOP = sorted(name for name in vars(Desktop) if not name.startswith("_"))


class Engine:
    def __init__(self) -> None:
        self.speed = 0

    def turn(self, by: int, *, times: int = 1) -> int:
        """Turn faster."""
        self.speed += by * times
        return self.speed

    async def stop(self) -> str:
        return "stopped"


class Car:
    engine: Engine
    _engine: Delegation[Car, Engine] = Delegation(lambda car: car.engine)

    def __init__(self) -> None:
        self.engine = Engine()

    turn = _engine(Engine.turn)
    stop = _engine(Engine.stop)


class Slow(Car):
    def turn(self, by: int, *, times: int = 1) -> int:
        return super().turn(min(by, 1), times=times)


async def test_a_part_does_what_the_whole_is_asked_for() -> None:
    car = Car()
    assert car.turn(2, times=3) == 6
    car.engine = Engine()  # it is found at each call
    assert car.turn(1) == 1
    assert await car.stop() == "stopped"


def test_what_a_part_does_can_be_overridden_like_any_method() -> None:
    assert Slow().turn(5, times=2) == 2


def test_a_method_that_a_part_carries_out_tells_of_itself_as_the_part_does() -> None:
    assert Car.turn.__doc__ == "Turn faster."
    assert inspect.signature(Car.turn) == inspect.signature(Engine.turn)
    assert not inspect.iscoroutinefunction(Car.turn)
    assert inspect.iscoroutinefunction(Car.stop)


def test_a_sandbox_is_no_desktop_but_has_one() -> None:
    sandbox = Sandbox(image="debian")
    assert not isinstance(sandbox, Desktop)
    assert isinstance(sandbox.desktop, Desktop)


@each("name", OF_THE_DESKTOP)
def test_all_that_a_desktop_can_do_its_sandbox_can(name: str) -> None:
    ours, its = getattr(Sandbox, name), getattr(Desktop, name)
    assert inspect.getdoc(ours) == inspect.getdoc(its)
    assert isinstance(ours, property) == isinstance(its, property)
    if not isinstance(its, property):
        assert inspect.signature(ours) == inspect.signature(its)
        assert inspect.iscoroutinefunction(ours) == inspect.iscoroutinefunction(its)


async def test_the_sandbox_and_its_desktop_refuse_with_the_same_error() -> None:
    sandbox = Sandbox(image="debian")
    refusals = []
    for whole in (sandbox, sandbox.desktop):
        with pytest.raises(NoDisplayError) as refused:
            await whole.screenshot(Path("never.png"))
        refusals.append(str(refused.value))
    assert refusals[0] == refusals[1]


def test_a_stand_in_for_a_sandbox_has_methods_that_can_be_awaited() -> None:
    stand_in: Any = create_autospec(Sandbox, instance=True)
    for name in ("execute", "checkpoint", "save", "screenshot"):
        assert isinstance(getattr(stand_in, name), AsyncMock) or inspect.iscoroutinefunction(
            getattr(stand_in, name)
        )
