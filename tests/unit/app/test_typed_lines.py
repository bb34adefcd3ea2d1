"""A line that is typed at once, as scripts, pastes without brackets and slow lines send it: it goes
where its first key leads, in its order."""

from __future__ import annotations

from textual.events import Key

from quicksand_tui.actions.all_actions import default_keymap, line_keys
from quicksand_tui.kit.key_handling import Hands
from quicksand_tui.screens.command_line import CommandScreen
from quicksand_tui.screens.saves_and_trash import SavesScreen, TrashScreen
from quicksand_tui.ui.app import QuicksandApp
from quicksand_tui.views.main_layout import Part
from tests.each import each, trying
from tests.unit.app.fakes import (
    DB,
    KEPT,
    WEB,
    FakeService,
    screen_text,
    select,
    shown,
    toasts,
    until,
)
from tests.unit.app.test_command_line import KEYS, line_of
from tests.unit.kit.test_hands import FakeHands, as_key, fast, lost

LINE = ":stop web\n"
NAMES = {**KEYS, "/": "slash", "\t": "tab", "\n": "enter", "\x1b": "escape", "\x7f": "backspace"}


def send_text(app: QuicksandApp, text: str) -> None:
    """Have the driver hand out the keys of a text as it reads them: all at once."""
    for character in text:
        app.post_message(Key(NAMES.get(character, character), character))


async def shows_no_line(app: QuicksandApp) -> None:
    await until(lambda: not isinstance(app.screen, CommandScreen))


async def test_a_command_keeps_its_order_wherever_a_slow_line_cuts_it() -> None:
    service = FakeService(KEPT)
    fake = FakeHands()
    fake.gap = 0.0
    async with shown(service, hands=fake.hands) as (app, pilot):
        for cut in range(len(LINE)):
            with trying(cut):
                service.world = KEPT
                await app.look()
                service.calls.clear()
                await select(pilot, DB)
                fake.step(10.0)
                send_text(app, LINE[:cut])
                await pilot.pause()
                if cut > 0:
                    await until(
                        lambda cut=cut: (  # type: ignore[misc]
                            isinstance(app.screen, CommandScreen) and line_of(app) == LINE[1:cut]
                        )
                    )
                send_text(app, LINE[cut:])
                await until(lambda: f"stop {WEB.id}" in service.calls)
                await until(lambda: app.screen is app.main and not app.operations.jobs)
                assert not toasts(app)


async def test_what_is_typed_behind_tab_follows_what_it_completed() -> None:
    service = FakeService(KEPT)
    fake = FakeHands()
    fake.gap = 0.0
    async with shown(service, hands=fake.hands) as (app, pilot):
        await select(pilot, DB)
        send_text(app, ":")
        await until(lambda: isinstance(app.screen, CommandScreen) and app.focused is not None)
        send_text(app, "sto\tx\x7fwe\t\n")
        await until(lambda: f"stop {WEB.id}" in service.calls)
        await until(lambda: not app.operations.jobs)


async def test_several_commands_at_once_are_carried_out_one_after_the_other() -> None:
    service = FakeService(KEPT)
    async with fast(service, gap=0.0) as (app, _, _):
        send_text(app, ":stop web\n:start db\n/we\n")
        await until(lambda: f"start {DB.id}" in service.calls)
        assert service.calls == [f"stop {WEB.id}", f"start {DB.id}"]
        await until(lambda: app.main.sandboxes.query_text == "we")
        await until(lambda: not app.operations.jobs)


@each("keys", [(), ("v",), ("T",), ("l",)], ids=["main", "saves", "trash", "log"])
async def test_a_filter_takes_the_text_behind_its_key(keys: tuple[str, ...]) -> None:
    service = FakeService(KEPT)
    async with fast(service, *keys, gap=0.0) as (app, pilot, fake):

        def query() -> str:
            screen = app.screen
            if isinstance(screen, SavesScreen | TrashScreen):
                return screen.browser.query_text
            return app.main.area.logs.view.query_text if keys else app.main.sandboxes.query_text

        send_text(app, "/delete xu\n")
        await until(lambda: query() == "delete xu")
        fake.step(10.0)
        await pilot.pause()
        assert lost(service) == [] and not toasts(app)


async def test_a_line_key_within_a_text_opens_nothing() -> None:
    service = FakeService(KEPT)
    async with fast(service, gap=0.0) as (app, pilot, fake):
        for text in ("note:stop web\n", "x/y/z", "dx :stop web\n", "rm x\n:stop web\n"):
            with trying(repr(text)):
                app.clear_notifications()
                send_text(app, text)
                await pilot.pause()
                fake.step(10.0)
                await pilot.pause()
                assert app.screen is app.main and app.main.places.part is Part.LISTS
                assert service.calls == [] and app.main.sandboxes.query_text == ""
                assert any("typed text" in toast for toast in toasts(app))


async def test_what_is_wrong_with_a_line_that_came_at_once_is_said() -> None:
    async with fast(FakeService(KEPT), gap=0.0) as (app, pilot, _):
        send_text(app, ":stop nobody\n")
        await until(lambda: isinstance(app.screen, CommandScreen))
        await pilot.pause()
        await until(lambda: "there is no sandbox 'nobody'" in screen_text(app))
        assert line_of(app) == "stop nobody"


async def test_letters_behind_a_line_are_no_keys() -> None:
    service = FakeService(KEPT)
    async with fast(service, gap=0.0) as (app, pilot, fake):
        send_text(app, ":filter web\ndxqu")
        await until(lambda: app.main.sandboxes.query_text == "web")
        await pilot.pause()
        fake.step(10.0)
        await pilot.pause()
        assert lost(service) == [] and app.screen is app.main and app.return_value is None


def test_no_letter_opens_a_line_for_a_text() -> None:
    keys = line_keys(default_keymap())
    assert keys == {"colon", "slash"}
    assert not any(len(key) == 1 for key in keys)


@each(
    ("text", "opened"),
    [
        (":ps", {"colon"}),
        ("jj:ps", {"colon"}),
        ("/a:b", {"slash"}),
        ("a:b", set()),
        (":a\n/b\n", {"colon", "slash"}),
        (":a\nb\n/c", {"colon"}),
        ("a\n:b", set()),
    ],
)
def test_a_line_begins_a_text_or_follows_another_line(text: str, opened: set[str]) -> None:
    fake = FakeHands()
    fake.gap = 0.0
    hands: Hands = fake.hands
    hands.line_keys = frozenset({"colon", "slash"})
    for character in text:
        name = NAMES.get(character, as_key(character))
        hands.note(Key(name, character if character != "\n" else None))
    assert hands.burst.opened == opened


async def test_a_line_feed_ends_a_line_as_enter_does() -> None:
    """Programs that type a text (`tmux send-keys -l`) send line feeds."""
    service = FakeService(KEPT)
    async with fast(service, gap=0.0) as (app, _, _):
        for character in ":stop web":
            app.post_message(Key(NAMES.get(character, character), character))
        app.post_message(Key("ctrl+j", "\n"))
        await until(lambda: f"stop {WEB.id}" in service.calls)
        await until(lambda: not app.operations.jobs)
        assert not toasts(app)
