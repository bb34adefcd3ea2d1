"""What is drawn while the line to the terminal has enough to carry."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace

import pytest
from quicksand_driver import textual_compositor
from quicksand_driver.textual_compositor import tell_sizes
from textual._compositor import Compositor
from textual.app import App, ComposeResult
from textual.geometry import Region
from textual.screen import Screen
from textual.widgets import Static

from tests.unit.app.fakes import until


class Driver:
    """A line that is busy or not, as a test has it."""

    has_terminal = True

    def __init__(self) -> None:
        self.line = SimpleNamespace(is_busy=False)
        self.waiting: list[Callable[[], object]] = []

    def when_free(self, call: Callable[[], object]) -> None:
        self.waiting[:] = [call]


class Two(Screen[None]):
    def __init__(self) -> None:
        super().__init__()
        tell_sizes(self)

    def compose(self) -> ComposeResult:
        yield Static("one", id="one")
        yield Static("two", id="two")


class TwoApp(App[None]):
    def get_default_screen(self) -> Two:
        return Two()


async def test_what_changes_as_the_line_gets_free_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between what had to wait being drawn and the screen's own timer, that is."""
    driver, drawn = Driver(), list[Region]()
    render = Compositor.render_partial_update

    def noted(self: Compositor) -> object:
        drawn.extend(self._dirty_regions)
        return render(self)

    async with TwoApp().run_test() as pilot:
        await pilot.pause()
        screen = pilot.app.screen
        one, two = (screen.query_one(f"#{name}", Static) for name in ("one", "two"))
        monkeypatch.setattr(textual_compositor, "driver_of", lambda _: driver)
        monkeypatch.setattr(Compositor, "render_partial_update", noted)
        driver.line.is_busy = True
        one.refresh()
        await until(lambda: bool(driver.waiting))
        assert not drawn
        screen._update_timer.pause()
        two.refresh()
        compositor = screen._compositor
        while two not in screen._dirty_widgets and two.region not in compositor._dirty_regions:
            await asyncio.sleep(0)
        driver.line.is_busy = False
        driver.waiting.pop()()
        await until(lambda: {one.region, two.region} <= set(drawn))
