"""The clock of the panes: what is parsed and drawn first."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from quicksand_panes.workspace import FLOOD_FRAME_S, FRAME_S, FrameClock


class FakePane:
    """Has some slices of output to parse."""

    def __init__(self, name: str, slices: int, done: list[str]) -> None:
        self.name = name
        self.slices = slices
        self.typed = self.drawn = 0.0
        self.terminal = SimpleNamespace(hold_s=0.0)
        self._done = done

    @property
    def is_behind(self) -> bool:
        return self.slices > 0

    def digest(self) -> None:
        self.slices -= 1
        self._done.append(f"parse {self.name}")

    def show_changes(self) -> None:
        self._done.append(f"draw {self.name}")


def clock_of(current: FakePane, *others: FakePane) -> FrameClock:
    workspace: Any = SimpleNamespace(panes=[*others, current], current=current)
    return FrameClock(workspace)


def test_the_current_pane_is_parsed_first_and_drawn_in_the_same_turn() -> None:
    done: list[str] = []
    echo, flood = FakePane("echo", 1, done), FakePane("flood", 10**9, done)
    assert clock_of(echo, flood)._turn() == 0
    assert done[0] == "parse echo"
    assert "draw echo" in done and "draw flood" in done


def test_a_flood_beside_it_is_drawn_less_often() -> None:
    done: list[str] = []
    echo, flood = FakePane("echo", 0, done), FakePane("flood", 10**9, done)
    clock = clock_of(echo, flood)
    while done.count("draw flood") < 3:
        begun = flood.drawn
        echo.slices = 1
        clock._turn()
        assert begun in (0.0, flood.drawn) or flood.drawn - begun >= FLOOD_FRAME_S
    assert done.count("draw echo") > done.count("draw flood")


def test_what_is_parsed_is_drawn_when_it_is_due() -> None:
    done: list[str] = []
    pane = FakePane("a", 1, done)
    clock = clock_of(pane)
    assert clock._turn() is None
    pane.slices = 1
    wait = clock._turn()
    assert wait is not None and 0 < wait <= FRAME_S
    assert done == ["parse a", "draw a", "parse a"]
    pane.drawn = 0.0
    assert clock._turn() is None
    assert done[-1] == "draw a"


def test_what_a_program_holds_back_is_drawn_later() -> None:
    done: list[str] = []
    pane = FakePane("a", 1, done)
    pane.terminal.hold_s = 0.2
    clock = clock_of(pane)
    assert clock._turn() == 0.2
    assert "draw a" not in done
    pane.terminal.hold_s = 0.0
    assert clock._turn() is None
    assert "draw a" in done


def test_a_pane_that_is_gone_is_forgotten() -> None:
    done: list[str] = []
    pane = FakePane("a", 1, done)
    panes: list[Any] = [pane]
    workspace: Any = SimpleNamespace(panes=panes, current=pane)
    clock = FrameClock(workspace)
    pane.terminal.hold_s = 1.0
    clock._turn()
    panes.clear()
    assert clock._turn() is None
    assert "draw a" not in done
