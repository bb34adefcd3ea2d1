"""The main screen in terminals of every size, with other glyphs and colours, and foreign text."""

from __future__ import annotations

from dataclasses import replace

import pytest

from quicksand_tui.model.text import sanitise
from quicksand_tui.ui.themes import fitting_theme
from tests.each import each, trying
from tests.unit.app.corpus import HOSTILE
from tests.unit.app.fakes import (
    AGENT,
    FULL,
    SIZE,
    FakeService,
    make_app,
    ready,
    screen_text,
    shown,
    until,
)


async def test_every_size_can_be_drawn_and_resized() -> None:
    async with shown(size=(80, 24)) as (app, pilot):
        for size in ((80, 24), (60, 18), (40, 12), (200, 50), (20, 6), (120, 36)):
            with trying(size):
                await pilot.resize_terminal(*size)
                await until(lambda size=size: app.size == size)  # type: ignore[misc]
                await pilot.press("1", "tab", "tab")
                await pilot.pause()
                assert len(screen_text(app).splitlines()) == size[1]


async def test_hostile_names_and_errors_stay_within_their_cells() -> None:
    """The service sanitises; even if it did not, markup would be text and controls not sent."""
    views = tuple(
        replace(AGENT, id=f"{n:012x}", name=sanitise(text, limit=63), error=sanitise(text))
        for n, text in enumerate(HOSTILE)
    )
    async with shown(FakeService(replace(FULL, sandboxes=views)), size=(99, 120)) as (app, pilot):
        for _ in views:
            await pilot.press("j")
        text = screen_text(app)
        assert "[bold red]markup[/]" in text
        assert not set(text) & {"\x1b", "\u202e", "\u200b", "\r"}


async def test_without_a_utf8_locale_everything_is_ascii() -> None:
    async with shown(ascii_glyphs=True) as (app, pilot):
        for key in ("n", "escape", "question_mark", "escape", "d", "escape", "l", "escape"):
            await pilot.press(key)
            await pilot.pause()
            lines = [line for line in screen_text(app).splitlines() if not line.isascii()]
            assert not lines


@pytest.mark.soak
async def test_every_theme_can_be_chosen() -> None:
    async with shown() as (app, pilot):
        for theme in app.available_themes:
            app.theme = theme
            await pilot.pause()
            await until(lambda: "● running" in screen_text(app))


@each(
    ("says", "theme"),
    [
        ("", "quicksand"),
        ("15;0", "quicksand"),
        ("0;15", "quicksand-light"),
        ("0;default;7", "quicksand-light"),
    ],
)
def test_the_theme_fits_the_terminal(
    monkeypatch: pytest.MonkeyPatch, says: str, theme: str
) -> None:
    monkeypatch.setenv("COLORFGBG", says)
    assert fitting_theme() == theme


async def test_an_unknown_theme_is_no_reason_to_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEXTUAL_THEME", "no-such-theme")
    monkeypatch.setenv("COLORFGBG", "")
    assert make_app(FakeService()).theme == "quicksand"


async def test_states_are_legible_in_the_light_theme() -> None:
    app = make_app(FakeService())
    app.theme = "quicksand-light"
    async with app.run_test(size=SIZE) as pilot:
        await ready(pilot)
        paused = app.theme_variables["text-warning"]
        table = app.main.sandboxes.table
        at = next(n for n in range(10) if "paused" in table.render_line(n).text)
        found = next(part for part in table.render_line(at) if "paused" in part.text)
        assert found.style is not None and found.style.color is not None
        assert found.style.color.name == paused.lower() != app.theme_variables["warning"]


@each("size", [(40, 12), (24, 6)])
async def test_a_tiny_terminal_shows_the_list_and_the_keys(size: tuple[int, int]) -> None:
    async with shown(size=size) as (app, pilot):
        lines = screen_text(app).splitlines()
        assert "quicksand" in lines[0]
        assert any("● web" in line for line in lines)
        assert "quit" in lines[-1] and "help" in lines[-1]
        await pilot.press("3")
        await until(lambda: "broken" in screen_text(app))
        assert "quit" in screen_text(app).splitlines()[-1]
        await pilot.press("1")
        await until(lambda: "● web" in screen_text(app))
