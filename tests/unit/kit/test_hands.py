"""Text that is typed, or comes as one burst, where letters are keys: nothing is lost by it that
cannot be brought back."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from textual.events import Key, MouseDown, MouseUp
from textual.pilot import Pilot

from quicksand_tui.kit.key_handling import ANSWER_AFTER_S, GAP_S, LETTERS, Clock, Hands
from quicksand_tui.panes.pending_shell import WaitingShell
from quicksand_tui.screens.command_line import CommandScreen
from quicksand_tui.screens.confirm import ConfirmScreen
from quicksand_tui.screens.job_drawer import JobsScreen
from quicksand_tui.screens.saves_and_trash import TrashScreen
from quicksand_tui.ui.app import QuicksandApp
from quicksand_tui.widgets.inputs import LineInput
from tests.unit.app.fakes import (
    KEPT,
    PAUSED,
    WEB,
    WEB_PAST,
    FakeService,
    screen_text,
    shown,
    toasts,
    until,
)

WORDS = tuple(
    """
    ready to delete yes quit now dog undo the revert kill it stop exit done drop discard destroy
    sudo daddy dry days dusty doubly ydyd remove existing files and directories under the old
    system before you deploy again xylophone unix undo upload useful quick quiz query xerox
    kernel kind keep kudos Undo Unix Use Kill Kernel Delete Discard Discover exclude examine box
    fix mix tax six next text yes dynamic dynasty dyed dying day delay display deny duty destiny
    density daily ready steady body study buy by my why dry sky try yet yard year yellow
    yesterday you young your zoom zero wide write answer
    """.split()  # noqa: SIM905 - a list of strings would be a page
)
assert len(WORDS) > 100

TYPED_S = 0.12
"""Between two keys of somebody who types fast."""

LOSES = ("stop", "kill", "delete", "purge", "undo", "revert")
"""Calls of the service that end something or go back: those to the trash, too, for none was
meant."""


class FakeHands(Clock):
    """A clock that a test sets, and what is to be done when it has come further."""

    def __init__(self) -> None:
        self.time = 100.0
        self.gap = TYPED_S
        self.gaps: dict[Key, float] = {}
        """Those before some keys, if they differ."""
        self._due: list[tuple[float, Callable[[], None]]] = []
        self._seen: Key | None = None
        self.hands = Hands(self._later, self)

    def _later(self, seconds: float, act: Callable[[], None]) -> None:
        self._due.append((self.time + seconds, act))

    def now(self) -> float:
        return self.time

    def of(self, key: Key) -> float:
        if key is not self._seen:
            self._seen = key
            self.step(self.gaps.get(key, self.gap))
        return self.time

    def step(self, seconds: float) -> None:
        until_ = self.time + seconds
        while due := sorted((d for d in self._due if d[0] <= until_), key=lambda d: d[0]):
            self._due.remove(due[0])
            self.time = due[0][0]
            due[0][1]()
        self.time = until_


@contextlib.asynccontextmanager
async def fast(
    service: FakeService, *keys: str, gap: float = TYPED_S
) -> AsyncIterator[tuple[QuicksandApp, Pilot[int], FakeHands]]:
    """The app, with ``keys`` pressed at leisure; what follows comes every ``gap`` seconds."""
    fake = FakeHands()
    fake.gap = 10.0
    async with shown(service, hands=fake.hands) as (app, pilot):
        for key in keys:
            await pilot.press(key)
            fake.step(10.0)
            await pilot.pause()
        fake.step(10.0)
        fake.gap = gap
        service.calls.clear()
        yield app, pilot, fake


def as_key(character: str) -> str:
    return {" ": "space", "\n": "enter"}.get(character, character)


def lost(service: FakeService) -> list[str]:
    return [call for call in service.calls if call.startswith(LOSES)]


# How keys have come


def key_of(name: str) -> Key:
    return Key(name, name if len(name) == 1 else None)


def press(fake: FakeHands, text: str, gap: float) -> None:
    fake.gap = gap
    for character in text:
        fake.hands.note(key_of(as_key(character)))


@pytest.mark.parametrize(
    ("text", "gap", "is_text"),
    [
        ("ready", TYPED_S, True),
        ("ready", 0.0, True),
        ("rea", TYPED_S, True),
        ("re", TYPED_S, False),
        ("ready", GAP_S * 1.1, False),
        ("jjjjx", 0.03, False),
        ("jkjk jk x", 0.03, False),
        ("xxxxxx", 0.03, False),
    ],
)
def test_letters_that_follow_each_other_fast_are_text(text: str, gap: float, is_text: bool) -> None:
    fake = FakeHands()
    press(fake, text, gap)
    assert fake.hands.burst.is_text == is_text


def test_what_is_no_letter_ends_a_text() -> None:
    fake = FakeHands()
    for name in ("escape", "ctrl+y", "down", "tab", "f1"):
        press(fake, "rea", 0.0)
        assert fake.hands.burst.is_text
        fake.hands.note(Key(name, None))
        assert not fake.hands.burst.is_text
    press(fake, "rea\n", 0.0)
    assert fake.hands.burst.is_text, "lines of a text"


def test_what_a_shell_took_goes_on_where_the_shell_is_gone() -> None:
    fake = FakeHands()
    fake.hands.note_typed(LETTERS - 1)
    press(fake, "d", TYPED_S)
    assert fake.hands.burst.is_text


@pytest.mark.parametrize(
    ("text", "acts"), [("x", True), ("jx", True), ("xe", False), ("ex", False)]
)
def test_a_careful_key_acts_if_it_stands_alone(text: str, acts: bool) -> None:
    fake = FakeHands()
    done: list[str] = []
    for character in text:
        press(fake, character, TYPED_S)
        if character == "x":
            fake.hands.carefully(lambda: done.append("x"), lambda _: done.append("refused"))
    assert done == []
    fake.step(1.0)
    assert done == (["x"] if acts else ["refused"])


def test_what_is_no_letter_acts_at_once() -> None:
    fake = FakeHands()
    done: list[str] = []
    fake.hands.note(Key("enter", None))
    fake.hands.carefully(lambda: done.append("it"), lambda _: None)
    assert done == ["it"]


# The app


SCREENS = {
    "sandboxes": (),
    "tree": ("4",),
    "images": ("3",),
    "saves": ("2",),
    "log": ("l",),
    "all saves": ("v",),
    "trash": ("T",),
    "jobs": ("J",),
    "help": ("question_mark",),
    "commands": ("at",),
    "delete": ("d",),
    "kill": ("K",),
    "delete a save": ("v", "d"),
    "empty the trash": ("T", "d"),
    "delete a checkpoint": ("4", "d"),
    "marked": ("asterisk", "x"),
}
TEXTS = (" ".join(WORDS), "\n".join(reversed(WORDS)) + "\n")


BURST = ("sandboxes", "tree", "trash", "delete", "marked")
TYPED = ("sandboxes", "delete")
"""Those that have words at once, and one at a time, outside `make soak`, too: where most keys do
something, and where one is asked. The app deals with each word that is typed before the next one
comes, which takes three times as long."""


def on_each_screen() -> Iterator[Any]:
    for name, keys in SCREENS.items():
        for gap, how, known in ((0.0, "burst", BURST), (TYPED_S, "typed", TYPED)):
            marks = [] if name in known else [pytest.mark.soak]
            yield pytest.param(keys, gap, id=f"{name}-{how}", marks=marks)


@pytest.mark.parametrize(("keys", "gap"), on_each_screen())
async def test_a_hundred_words_lose_nothing(keys: tuple[str, ...], gap: float) -> None:
    service = FakeService(replace(KEPT, sandboxes=(WEB_PAST, PAUSED)))
    before = service.kept
    async with fast(service, *keys, gap=gap) as (app, pilot, fake):
        for text in TEXTS:
            for character in text:
                app.post_message(Key(as_key(character), character))
                if character.isspace() and gap:
                    await pilot.pause()  # what was typed has been dealt with
            await pilot.pause()
            fake.step(10.0)
            await pilot.pause()
        assert lost(service) == []
        assert service.kept.saves == before.saves and service.kept.trash == before.trash
        assert app.is_running and app.return_value is None, "it was not left"


def one_for_each_beginning() -> Iterator[Any]:
    """The words that begin alike are pressed by `make soak`, since the first letter is a key of the
    app: what is pressed behind it is known to be text as soon as there are enough letters."""
    seen = set()
    for word in dict.fromkeys(WORDS):
        if word.startswith("f"):
            continue  # it lends the terminal to a shell, and a test has none to lend
        marks = [pytest.mark.soak] if word[0] in seen else []
        seen.add(word[0])
        yield pytest.param(word, marks=marks)


@pytest.mark.parametrize("word", one_for_each_beginning())
async def test_each_word_alone_as_the_first_of_all_keys(word: str) -> None:
    service = FakeService(replace(KEPT, sandboxes=(WEB_PAST, PAUSED)))
    async with fast(service) as (app, pilot, fake):
        for name in word:
            app.post_message(Key(name, name))
        await pilot.pause()
        fake.step(10.0)
        await pilot.pause()
        assert lost(service) == []
        assert app.return_value is None


async def test_a_key_that_stands_alone_does_what_it_is_for() -> None:
    service = FakeService(replace(KEPT, sandboxes=(WEB_PAST, PAUSED)))
    async with fast(service) as (app, pilot, fake):
        await pilot.press("x")
        fake.step(1.0)
        await until(lambda: service.calls == [f"stop {WEB.id}"])
        fake.step(1.0)
        await pilot.press("q")
        fake.step(1.0)
        await until(lambda: app.return_value == 0 or isinstance(app.screen, ConfirmScreen))


async def test_a_key_is_about_what_the_cursor_was_on() -> None:
    service = FakeService(replace(KEPT, sandboxes=(WEB_PAST, PAUSED)))
    async with fast(service, gap=0.05) as (_, pilot, fake):
        await pilot.press("x", "j")
        fake.step(1.0)
        await until(lambda: service.calls == [f"stop {WEB.id}"])


async def test_text_is_told_once() -> None:
    async with fast(FakeService(), gap=0.0) as (app, pilot, fake):
        for name in "certainly":
            app.post_message(Key(name, name))
        await pilot.pause()
        fake.step(1.0)
        await pilot.pause()
        (told,) = [toast for toast in toasts(app) if "typed text" in toast]
        assert "s opens a shell" in told


@pytest.mark.parametrize("late", [False, True], ids=["idle", "busy"])
async def test_a_busy_host_takes_keys_as_an_idle_one_does(late: bool) -> None:
    """However late the app gets to them, by then knowing what was typed behind them."""
    service = FakeService(KEPT)
    async with fast(service, gap=0.1) as (app, pilot, fake):
        for name in ("s", *"ls -l"):
            app.post_message(Key(as_key(name), name))
            if not late:
                await pilot.pause()
        fake.step(10.0)
        await until(lambda: service.terminals and service.terminals[0].typed == b"ls -l")
        assert not toasts(app) and lost(service) == []


async def test_a_line_that_is_typed_after_a_pause_goes_to_the_line_on_a_busy_host_too() -> None:
    async with fast(FakeService(KEPT), gap=0.0) as (app, _, fake):
        keys = [Key("colon", ":"), *(Key(name, name) for name in "rev")]
        fake.gaps[keys[1]] = GAP_S * 2
        for key in keys:
            app.post_message(key)
        await until(lambda: isinstance(app.screen, CommandScreen))
        await until(lambda: "".join(line.value for line in app.screen.query(LineInput)) == "rev")
        assert not toasts(app)


async def test_what_comes_with_the_key_of_a_shell_in_one_read_is_typed_there() -> None:
    service = FakeService(KEPT)
    async with fast(service, gap=0.0) as (app, _, _):
        for name in ("s", *"ls -l", "\n"):
            app.post_message(Key(as_key(name), name))
        await until(lambda: service.terminals and service.terminals[0].typed == b"ls -l\r")
        assert not toasts(app)


async def test_several_lines_in_one_read_open_no_shell_to_type_them_into() -> None:
    service = FakeService(KEPT)
    async with fast(service, gap=0.0) as (app, pilot, fake):
        for name in "see\nrm -r x\n":
            app.post_message(Key(as_key(name), name))
        await pilot.pause()
        fake.step(10.0)
        await until(lambda: any("typed text" in toast for toast in toasts(app)))
        assert service.terminals == [] and lost(service) == []


async def test_a_question_is_not_answered_by_what_comes_with_the_key_that_asked() -> None:
    service = FakeService()
    async with fast(service) as (app, pilot, fake):
        await pilot.press("d")
        await until(lambda: isinstance(app.screen, ConfirmScreen))
        await pilot.press("n", "enter", "ctrl+y")
        await pilot.pause()
        assert isinstance(app.screen, ConfirmScreen) and service.calls == []
        fake.step(ANSWER_AFTER_S)
        await pilot.press("ctrl+y")
        await until(lambda: service.calls == [f"delete {WEB.id}"])


async def test_a_question_is_left_at_once() -> None:
    async with fast(FakeService()) as (app, pilot, _):
        await pilot.press("d")
        await until(lambda: isinstance(app.screen, ConfirmScreen))
        await pilot.press("escape")
        await until(lambda: app.screen is app.main)


async def test_text_cancels_no_job() -> None:
    service = FakeService()
    async with fast(service, "J") as (app, pilot, fake):
        await until(lambda: isinstance(app.screen, JobsScreen))
        for name in "exact":
            app.post_message(Key(name, name))
        await pilot.pause()
        fake.step(1.0)
        assert service.undone == []


# Taking a delete back


async def test_what_was_deleted_is_brought_back_by_undo() -> None:
    service = FakeService(KEPT)
    async with shown(service) as (app, pilot):
        await pilot.press("d")
        await until(lambda: isinstance(app.screen, ConfirmScreen))
        await pilot.press("ctrl+y")
        await until(lambda: app.world.sandbox(WEB.id) is None)
        await until(lambda: "web is in the trash (undo: U)" in toasts(app))
        await pilot.press("U")
        await until(lambda: app.world.sandbox(WEB.id) == WEB_PAST)
        await until(lambda: "web is restored and running" in toasts(app))
        assert app.operations.log[-1].command == "quicksand-tui restore --start web"
        assert "bring back" in service.calls[-1]


async def test_marked_ones_that_were_deleted_come_back_together() -> None:
    service = FakeService(KEPT)
    async with shown(service) as (app, pilot):
        await pilot.press("asterisk", "d")
        await until(lambda: isinstance(app.screen, ConfirmScreen))
        await pilot.press("ctrl+y")
        await until(lambda: not app.world.sandboxes and not app.operations.jobs)
        await until(lambda: len(app.operations.removed) == 3)
        await pilot.press("U")
        await until(lambda: len(app.world.sandboxes) == 3 and not app.operations.jobs)


async def test_once_something_else_is_done_undo_is_about_reverts_again() -> None:
    service = FakeService(KEPT)
    async with shown(service) as (app, pilot):
        await pilot.press("j", "j", "d")
        await until(lambda: isinstance(app.screen, ConfirmScreen))
        await pilot.press("ctrl+y")
        await until(lambda: app.operations.removed)
        await pilot.press("g", "P")
        await until(lambda: not app.operations.jobs and not app.operations.removed)
        await pilot.press("U")
        await until(lambda: any(call.startswith("undo") for call in service.calls))


async def test_the_trash_is_one_key_away() -> None:
    async with shown(FakeService()) as (app, pilot):
        await pilot.press("T")
        await until(lambda: isinstance(app.screen, TrashScreen))
        await until(lambda: "spoilt" in screen_text(app))


# A shell that has to wait


async def test_a_shell_waits_for_what_is_under_way_and_gets_what_was_typed() -> None:
    service = FakeService(KEPT)
    async with shown(service) as (app, pilot):
        service.hold = asyncio.Event()
        await pilot.press("P")
        await until(lambda: app.operations.jobs)
        service.calls.clear()
        await pilot.press("s", *"dxq", "d", "y", "enter")
        await pilot.pause()
        await until(lambda: "dxqdy" in screen_text(app))
        assert "The shell of web opens in a moment (pause" in screen_text(app)
        assert not toasts(app)
        assert app.screen is app.main and service.terminals == []
        service.world = KEPT
        operations, service.hold = service.hold, None
        # The world is as it was: nothing is paused.
        service.change = lambda *_: None  # type: ignore[method-assign]
        operations.set()
        await until(lambda: service.terminals and service.terminals[0].typed == b"dxqdy\r")
        assert lost(service) == []


async def test_who_leaves_a_shell_that_is_awaited_loses_nothing_that_was_typed() -> None:
    service = FakeService(KEPT)
    async with shown(service) as (app, pilot):
        service.hold = asyncio.Event()
        await pilot.press("P")
        await until(lambda: app.operations.jobs)
        await pilot.press("s", "l", "escape", "q")
        assert isinstance(app.focused, WaitingShell)
        await pilot.press("ctrl+right_square_bracket", "d")
        await until(lambda: app.main.sandboxes.table.has_focus)
        await pilot.press("j")
        service.world = KEPT
        held, service.hold = service.hold, None
        service.change = lambda *_: None  # type: ignore[method-assign]
        held.set()
        await until(lambda: not app.operations.jobs)
        assert app.main.sandboxes.table.has_focus and lost(service) == []
        await pilot.press("k", "s")
        await until(lambda: service.terminals and service.terminals[0].typed == b"l\x1bq")


async def test_a_shell_that_cannot_be_had_in_the_end_says_so() -> None:
    service = FakeService(KEPT)
    async with shown(service) as (app, pilot):
        service.hold = asyncio.Event()
        await pilot.press("P")
        await until(lambda: app.operations.jobs)
        await pilot.press("s", "l")
        service.hold.set()
        await until(lambda: "There is no shell: web is paused" in toasts(app))
        await until(lambda: app.main.sandboxes.table.has_focus)
        assert service.terminals == []


async def test_in_a_stop_there_is_no_shell_to_wait_for() -> None:
    service = FakeService(KEPT)
    async with shown(service) as (app, pilot):
        service.hold = asyncio.Event()
        await pilot.press("x")
        await until(lambda: app.operations.jobs)
        await pilot.press("s")
        await until(lambda: "web is being stopped" in toasts(app))
        service.hold.set()


async def test_a_chord_that_is_held_is_an_answer_in_the_end() -> None:
    service = FakeService()
    async with fast(service, gap=0.03) as (app, pilot, _):
        await pilot.press("d")
        await until(lambda: isinstance(app.screen, ConfirmScreen))
        await pilot.press(*["ctrl+y"] * 9)
        assert service.calls == []
        await pilot.press("ctrl+y", "ctrl+y")
        await until(lambda: service.calls == [f"delete {WEB.id}"])


async def test_a_command_that_is_typed_fast_is_meant() -> None:
    service = FakeService(KEPT)
    async with fast(service, gap=0.03) as (app, pilot, fake):
        await pilot.press("colon", *"trash", "enter")
        await until(lambda: isinstance(app.screen, TrashScreen))
        fake.step(1.0)
        await pilot.press("escape")
        await until(lambda: app.screen is app.main)
        await pilot.press("colon", *"stop", "enter")
        await until(lambda: service.calls == [f"stop {WEB.id}"])


async def test_the_mouse_is_meant_whatever_was_typed_before() -> None:
    service = FakeService(KEPT)
    async with fast(service, gap=0.03) as (app, pilot, fake):
        await pilot.press(*"ready")
        fake.step(1.0)
        bar = app.main.query_one("#actions")
        text = screen_text(app).splitlines()[-1]
        x, y = text.index("x stop"), bar.region.y
        # As the driver does it.
        for kind in (MouseDown, MouseUp):
            app.post_message(kind(None, x, y, 0, 0, 1, False, False, False, x, y))
        await until(lambda: f"stop {WEB.id}" in service.calls)
