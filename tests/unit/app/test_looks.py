"""Themes: legible, told apart without colours, remembered; and everything in ASCII."""

from __future__ import annotations

import itertools
import json
from collections.abc import AsyncIterator, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from quicksand.things.status import Status
from quicksand_driver.terminal_queries import TerminalAbilities
from quicksand_driver.textual_private import TerminalAnswered
from rich.segment import Segment
from rich.style import Style
from textual.pilot import Pilot
from textual.screen import ModalScreen

from quicksand_tui.home.state import StateFile, ThemeChoice, theme_wish
from quicksand_tui.model.text import plain
from quicksand_tui.ui.app import QuicksandApp
from quicksand_tui.ui.themes import ANSI_THEME, COLOUR_BLIND_THEME, THEMES, fitting_theme
from tests.each import each, trying
from tests.unit.app.fakes import (
    KEPT,
    NOW,
    FakeService,
    app_of,
    make_app,
    ready,
    screen_text,
    shown,
    toasts,
    until,
)

Rgb = tuple[int, int, int]

WALK: tuple[tuple[str, tuple[str, ...], tuple[str, ...]], ...] = (
    ("Sandboxes", (), ()),
    ("✗ broken", ("3",), ("1",)),
    ("words, !word", ("slash",), ("escape",)),
    ("New sandbox", ("n",), ("escape",)),
    ("Checkpoint of", ("c",), ("escape",)),
    ("Delete web?", ("d",), ("escape",)),
    ("Start a stopped sandbox", ("question_mark",), ("escape",)),
    ("enter reverts", ("u",), ("escape",)),
    ("Guest", ("left_square_bracket",), ("i",)),
    ("Saves", ("v",), ("escape",)),
    ("console", ("l",), ("escape",)),
)
"""A word of each screen, the keys that open it, and those that leave it."""


async def walk(pilot: Pilot[int]) -> AsyncIterator[str]:
    """Go through the screens; each is shown while its word is yielded."""
    app = app_of(pilot)
    for word, there, back in WALK:
        stack = len(app.screen_stack)
        await pilot.press(*there)
        seek = plain(word) if app.ascii else word
        await until(partial(_shows, app, seek))
        await pilot.pause()
        yield word
        await pilot.press(*back)
        await until(partial(_has_screens, app, stack))


def _shows(app: QuicksandApp, word: str) -> bool:
    return word in screen_text(app)


def _has_screens(app: QuicksandApp, count: int) -> bool:
    return len(app.screen_stack) == count


def luminance(colour: Rgb) -> float:
    """Of 1 (WCAG 2.2, "relative luminance")."""
    parts = [value / 255 for value in colour]
    red, green, blue = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: Rgb, other: Rgb) -> float:
    """From 1 to 21 (WCAG 2.2, "contrast ratio")."""
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def drawn(style: Style) -> tuple[Rgb, Rgb]:
    """Colours of text and ground."""
    assert style.color is not None and style.bgcolor is not None and not style.dim
    text, ground = style.color.get_truecolor(), style.bgcolor.get_truecolor()
    return (ground, text) if style.reverse else (text, ground)


def segments(app: QuicksandApp) -> Iterable[Segment]:
    return itertools.chain.from_iterable(app.screen._compositor.render_strips())


def themes(*usual: str) -> Iterator[Any]:
    """All with colours of their own; ``usual`` outside `make soak`, too. Each of their colours is
    looked at by `test_every_variable_for_text_is_legible_on_every_ground`."""
    for theme in THEMES:
        if not theme.ansi:
            marks = [] if theme.name in usual else [pytest.mark.soak]
            yield pytest.param(theme.name, marks=marks)


@pytest.mark.parametrize("theme", themes("quicksand-light", "quicksand-contrast"))
async def test_all_text_of_all_screens_is_legible(theme: str) -> None:
    wanted = 7.0 if "contrast" in theme else 4.5
    app = make_app(FakeService(KEPT))
    app.theme = theme
    async with app.run_test(size=(120, 50)) as pilot:
        await ready(pilot)
        async for word in walk(pilot):
            if isinstance(app.screen, ModalScreen):
                # What lies behind is dimmed on purpose.
                app.screen.styles.background = app.theme_variables["background"]
                await pilot.pause()
            pale = {
                (segment.text.strip(), round(contrast(*drawn(segment.style)), 2))
                for segment in segments(app)
                if segment.style is not None and any(c.isalnum() for c in segment.text)
                if contrast(*drawn(segment.style)) < wanted
            }
            assert not pale, f"on the screen of {word}"


def test_every_variable_for_text_is_legible_on_every_ground() -> None:
    from textual.color import Color

    for theme in THEMES:
        if theme.ansi:
            continue
        variables = theme.to_color_system().generate() | theme.variables
        texts = ["foreground", "foreground-muted"]
        texts += [f"text-{role}" for role in ("success", "warning", "error", "accent")]
        for text, ground in itertools.product(texts, ("background", "surface", "panel")):
            back = Color.parse(variables[ground])
            ratio = contrast((back + Color.parse(variables[text])).rgb, back.rgb)
            assert ratio >= (7.0 if "contrast" in theme.name else 4.5), (theme.name, text, ground)


# Colour vision without one kind of cone (Machado, Oliveira, Fernandes 2009, severity 1).
DEUTERANOPIA = ((0.367, 0.861, -0.228), (0.280, 0.673, 0.047), (-0.012, 0.043, 0.969))
PROTANOPIA = ((0.152, 1.053, -0.205), (0.115, 0.786, 0.099), (-0.004, -0.048, 1.052))


@each("matrix", [DEUTERANOPIA, PROTANOPIA])
def test_the_colour_blind_can_tell_the_roles_apart(
    matrix: tuple[tuple[float, float, float], ...],
) -> None:
    variables = COLOUR_BLIND_THEME.variables
    seen = []
    for role in ("success", "warning", "error"):
        value = variables[f"text-{role}"]
        colour = [(int(value[at : at + 2], 16) / 255) ** 2.2 for at in (1, 3, 5)]
        mixed = [sum(a * b for a, b in zip(row, colour, strict=True)) for row in matrix]
        seen.append([max(0.0, part) ** (1 / 2.2) for part in mixed])
    for one, other in itertools.combinations(seen, 2):
        assert max(abs(a - b) for a, b in zip(one, other, strict=True)) > 0.25


def test_states_differ_without_colour_and_in_ascii() -> None:
    for draw in (lambda state: state.text, lambda state: plain(state.text)):
        texts = [draw(state) for state in Status]
        assert len(set(texts)) == len(Status)
    assert len({plain(state.text)[0] for state in Status}) >= len({state.role for state in Status})


async def test_without_colours_none_is_written_in_any_theme(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    async with shown(FakeService(KEPT), size=(120, 36)) as (app, pilot):
        for theme in THEMES:
            with trying(theme.name):
                app.theme = theme.name
                await pilot.pause()
                styles = [s.style for s in segments(app) if s.style is not None]
                assert all(s.color is None or s.color.is_default for s in styles)
                assert all(s.bgcolor is None or s.bgcolor.is_default for s in styles)
                reverse = "".join(s.text for s in segments(app) if s.style and s.style.reverse)
                assert "● web" in reverse, "the line of the cursor is to be seen"
                text = screen_text(app)
                assert all(word in text for word in ("● web", "○ db", "✗ agent-7"))


@each("ascii_glyphs", [False, True])
async def test_the_focus_is_seen_without_colour(ascii_glyphs: bool) -> None:
    async with shown(ascii_glyphs=ascii_glyphs) as (app, pilot):

        def look() -> tuple[str, str]:
            reverse = [s.text for s in segments(app) if s.style and s.style.reverse]
            return screen_text(app), "".join(reverse)

        before = look()
        await pilot.press("tab")
        await until(lambda: look() != before)
        marks = look()
        if ascii_glyphs:
            assert "Tree of web" in marks[1] and "Sandboxes" not in marks[1]
        else:
            assert "━ 4 Tree of web" in marks[0] and "─ 1 Sandboxes" in marks[0]


async def test_on_every_screen_the_terminals_own_colours_and_ascii_are_kept_to_if_wanted() -> None:
    app = make_app(FakeService(KEPT), ascii_glyphs=True)
    app.theme = ANSI_THEME.name
    async with app.run_test(size=(120, 50)) as pilot:
        await ready(pilot)
        async for word in walk(pilot):
            lines = [line for line in screen_text(app).splitlines() if not line.isascii()]
            assert not lines, f"on the screen of {word}"
            for segment in segments(app):
                style = segment.style
                for colour in (style.color, style.bgcolor) if style is not None else ():
                    mixed = colour is not None and not (
                        colour.is_default or colour.is_system_defined
                    )
                    assert not mixed, (word, segment)


# Which theme


def app_with(choice: ThemeChoice) -> QuicksandApp:
    app = QuicksandApp(FakeService(), clock=lambda: NOW, theme=choice)
    app.animation_level = "none"
    return app


async def test_a_theme_that_was_chosen_is_remembered(tmp_path: Path) -> None:
    file = StateFile(tmp_path / "state" / "appearance.json")
    app = app_with(ThemeChoice(file))
    async with app.run_test() as pilot:
        await ready(pilot)
        app.theme = "quicksand-contrast"
        await until(lambda: file.read().get("theme") == "quicksand-contrast")
    assert app_with(ThemeChoice(file)).theme == "quicksand-contrast"
    assert app_with(ThemeChoice(file, wish="nord")).theme == "nord"
    assert file.read()["theme"] == "quicksand-contrast", "one run's wish is not remembered"
    assert [p.name for p in file.path.parent.iterdir()] == ["appearance.json"]


@each("content", [b"", b"{", b"[1]", b"\xff\xfe", b"[" * 100_000, b" " * 300_000])
def test_nonsense_in_a_file_is_read_as_nothing(tmp_path: Path, content: bytes) -> None:
    file = StateFile(tmp_path / "appearance.json")
    file.path.write_bytes(content)
    assert file.read() == {} and file.problem


@each("content", [b"{", b"\xff\xfe"])
async def test_a_file_that_cannot_be_read_is_ignored_and_told(
    tmp_path: Path, content: bytes
) -> None:
    path = tmp_path / "appearance.json"
    path.write_bytes(content)
    app = app_with(ThemeChoice(StateFile(path)))
    async with app.run_test() as pilot:
        await ready(pilot)
        await until(lambda: any(str(path) in text for text in toasts(app)))
        app.theme = "quicksand-light"
        await until(lambda: b"quicksand-light" in path.read_bytes())
    assert json.loads(path.read_text()) == {"theme": "quicksand-light"}


async def test_a_theme_that_cannot_be_kept_is_told(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("in the way")
    app = app_with(ThemeChoice(StateFile(tmp_path / "state" / "appearance.json")))
    async with app.run_test() as pilot:
        await ready(pilot)
        app.theme = "quicksand-light"
        await until(lambda: any("is not remembered" in text for text in toasts(app)))
        assert app.theme == "quicksand-light"


async def test_an_unknown_theme_is_told(tmp_path: Path) -> None:
    app = app_with(ThemeChoice(wish="no-such"))
    async with app.run_test() as pilot:
        await ready(pilot)
        await until(lambda: any("There is no theme 'no-such'" in text for text in toasts(app)))


LIGHT = TerminalAbilities(background=(250, 250, 240))
DARK = TerminalAbilities(background=(10, 10, 30))


def test_the_background_decides_and_not_the_environment_if_it_is_known() -> None:
    assert fitting_theme(LIGHT, {"COLORFGBG": "15;0"}) == "quicksand-light"
    assert fitting_theme(DARK, {"COLORFGBG": "0;15"}) == "quicksand"


async def test_a_late_answer_changes_the_theme_unless_one_was_chosen() -> None:
    app = app_with(ThemeChoice())
    async with app.run_test() as pilot:
        await ready(pilot)
        app.post_message(TerminalAnswered(LIGHT))
        await until(lambda: app.theme == "quicksand-light")
        assert app.looks.chosen == ""
        app.theme = "quicksand-contrast"
        await until(lambda: app.looks.chosen == "quicksand-contrast")
        app.post_message(TerminalAnswered(DARK))
        await until(lambda: app.terminal.abilities == DARK)
        assert app.theme == "quicksand-contrast"


@each(
    ("said", "environ", "wish"),
    [
        ("", {}, ""),
        ("nord", {"QUICKSAND_THEME": "dracula"}, "nord"),
        ("", {"QUICKSAND_THEME": "dracula", "TEXTUAL_THEME": "nord"}, "dracula"),
        ("", {"TEXTUAL_THEME": "nord"}, "nord"),
    ],
)
def test_the_nearest_wish_counts(said: str, environ: dict[str, str], wish: str) -> None:
    assert theme_wish(said, environ) == wish


def test_auto_lets_the_terminal_decide(tmp_path: Path) -> None:
    file = StateFile(tmp_path / "appearance.json")
    ThemeChoice(file).remember("nord")
    assert ThemeChoice(file).name == "nord"
    assert ThemeChoice(file, wish="auto").name == ""
