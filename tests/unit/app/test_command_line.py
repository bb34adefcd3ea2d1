"""The `:` line as one types into it."""

from __future__ import annotations

import contextlib
from dataclasses import replace

from quicksand.things.status import Status
from textual import events
from textual.pilot import Pilot
from textual.widgets import Input

from quicksand_tui.actions.all_actions import Scope
from quicksand_tui.actions.line import verbs_of
from quicksand_tui.home.state import CommandHistory, StateFile, state_dir
from quicksand_tui.screens.command_line import CommandScreen
from quicksand_tui.screens.confirm import ConfirmScreen
from quicksand_tui.screens.form import FormScreen
from quicksand_tui.screens.help import HelpScreen
from quicksand_tui.screens.saves_and_trash import SavesScreen
from quicksand_tui.ui.app import QuicksandApp
from quicksand_tui.verbs.index import find_verb as find_record
from quicksand_tui.verbs.verb import Kind
from quicksand_tui.views.main_layout import Part, Tab
from tests.each import each, trying
from tests.unit.app.fakes import DB, KEPT, WEB, FakeService, screen_text, select, shown, until

KEYS = {
    " ": "space",
    ":": "colon",
    "-": "minus",
    ".": "full_stop",
    "'": "apostrophe",
    "!": "exclamation_mark",
}


def kept_service() -> FakeService:
    return FakeService(KEPT)


async def type_line(pilot: Pilot[int], line: str, *, enter: bool = True) -> None:
    """Open the command line and type into it."""
    app = pilot.app
    await pilot.press("colon")
    await until(lambda: isinstance(app.screen, CommandScreen) and isinstance(app.focused, Input))
    await pilot.press(*(KEYS.get(char, char) for char in line))
    await until(lambda: line_of(app) == line)
    if enter:
        await pilot.press("enter")
        await pilot.pause()


def line_of(app: object) -> str:
    assert isinstance(app, QuicksandApp)
    return app.screen.query_one("#line", Input).value


async def shut(app: QuicksandApp) -> None:
    await until(lambda: not isinstance(app.screen, CommandScreen))


DONE = {
    "stop web": f"stop {WEB.id}",
    "revert web clean": f"revert {WEB.id} c1",
    "start db": f"start {DB.id}",
    "start db --at clean": f"start {DB.id} at c1",
    "checkpoint web t1 -m 'a note'": f"checkpoint {WEB.id} 't1' 'a note'",
    "checkpoint web": f"checkpoint {WEB.id} '' ''",
    "clone web 3": f"clone {WEB.id} 3",
    "clone db --at clean": f"clone {DB.id} 1 c1",
    "undo web": f"undo {WEB.id}",
    "new debian box": "create box",
}
"""What lines have the service do."""


async def test_a_command_does_what_its_key_does() -> None:
    service = kept_service()
    async with shown(service) as (app, pilot):
        await select(pilot, DB)
        for line, call in DONE.items():
            with trying(line):
                service.world = KEPT
                await app.look()
                service.calls.clear()
                await type_line(pilot, line)
                await until(lambda call=call: call in service.calls)  # type: ignore[misc]
                await shut(app)
                assert app.screen is app.main
                await until(lambda: not app.operations.jobs)


async def test_without_a_name_it_is_about_the_selected_one() -> None:
    service = kept_service()
    async with shown(service) as (app, pilot):
        await select(pilot, DB)
        await type_line(pilot, "start")
        await until(lambda: f"start {DB.id}" in service.calls)
        await type_line(pilot, "checkpoint . t1")
        await until(lambda: f"checkpoint {DB.id} 't1' ''" in service.calls)
        await until(lambda: not app.operations.jobs)


async def test_what_is_lost_is_asked_for_as_by_the_key() -> None:
    service = kept_service()
    async with shown(service) as (app, pilot):
        await select(pilot, WEB)
        await type_line(pilot, "rm db")
        await until(lambda: isinstance(app.screen, ConfirmScreen))
        await until(lambda: "Delete db?" in screen_text(app))
        await pilot.press("ctrl+y")
        await until(lambda: f"delete {DB.id}" in service.calls)
        await until(lambda: not app.operations.jobs)


WRONG = {
    "stop db": "✗ db does not run",
    "stopp web": "there is no command 'stopp'; did you mean stop",
    "stop wbe": "there is no sandbox 'wbe'; did you mean web?",
    "checkpoint web clean": "tag: the tag clean is taken",
    "save web dev": "save: there is a save dev already",
    "new debian web": "name: web is taken",
    "theme nrod": "there is no theme 'nrod'",
    "revert web 'cle": "a quote is not closed",
}
"""Lines, and what is said of them."""


async def test_what_is_wrong_is_said_in_place_and_the_line_stays() -> None:
    service = kept_service()
    async with shown(service, size=(120, 30)) as (app, pilot):
        for line, says in WRONG.items():
            with trying(line):
                await type_line(pilot, line, enter=False)
                if line.startswith("save"):
                    await until(lambda: app.world.saves.loaded)
                await pilot.press("enter")
                await until(lambda says=says: says in screen_text(app))  # type: ignore[misc]
                assert line_of(app) == line
                await pilot.press("escape")
                await shut(app)
                assert not [call for call in service.calls if not call.startswith("read")]


OPENED = {
    "saves": SavesScreen,
    "new debian": FormScreen,
    "new dev": FormScreen,
    "save web": FormScreen,
    "help": HelpScreen,
}
PARTS = {
    "tree web": (Part.TREE, Tab.DETAILS),
    "revert web": (Part.TREE, Tab.DETAILS),
    "log web": (Part.AREA, Tab.LOG),
    "shell web": (Part.AREA, Tab.SHELLS),
}
"""Where lines lead to."""


async def test_a_command_opens_a_screen_and_goes_to_a_part() -> None:
    async with shown(kept_service()) as (app, pilot):
        for line, screen in OPENED.items():
            with trying(line):
                await type_line(pilot, line, enter=False)
                if line == "new dev":
                    await until(lambda: app.world.saves.loaded)
                await pilot.press("enter")
                await until(lambda screen=screen: isinstance(app.screen, screen))  # type: ignore[misc]
                await pilot.press("escape")
                await until(lambda: app.screen is app.main)
        for line, place in PARTS.items():
            with trying(line):
                await pilot.press("1")
                await select(pilot, DB)
                await type_line(pilot, line)
                await until(
                    lambda place=place: (  # type: ignore[misc]
                        (app.main.places.part, app.main.area.tab) == place
                    )
                )
                assert app.main.sandboxes.table.selected_key == WEB.id


async def test_views_are_changed() -> None:
    async with shown(kept_service()) as (app, pilot):
        await type_line(pilot, "theme quicksand-light")
        await until(lambda: app.theme == "quicksand-light")
        await type_line(pilot, "filter !web a")
        await until(lambda: " /!web a" in screen_text(app))
        await type_line(pilot, "quit")
        await until(lambda: app.return_value == 0)


async def test_on_another_screen_a_command_is_about_that_or_goes_to_the_sandboxes() -> None:
    service = kept_service()
    async with shown(service) as (app, pilot):
        await type_line(pilot, "saves")
        await until(lambda: isinstance(app.screen, SavesScreen) and app.world.saves.loaded)
        await type_line(pilot, "filter dev")
        await until(lambda: " /dev" in screen_text(app))
        await type_line(pilot, "stop", enter=True)
        await until(lambda: "no sandbox is selected" in screen_text(app))
        await pilot.press("escape")
        await type_line(pilot, "stop web")
        await until(lambda: f"stop {WEB.id}" in service.calls)
        assert app.screen is app.main
        await until(lambda: not app.operations.jobs)


async def test_tab_completes_as_far_as_it_goes_and_then_goes_round() -> None:
    async with shown(kept_service()) as (app, pilot):
        await type_line(pilot, "rev", enter=False)
        for expected in ("revert ", "revert web"):
            await pilot.press("tab")
            await until(lambda want=expected: line_of(app) == want)  # type: ignore[misc]
        first = line_of(app)
        await pilot.press("tab")
        await until(lambda: line_of(app) != first)
        await pilot.press("shift+tab")
        await until(lambda: line_of(app) == first)


async def test_what_can_be_typed_is_shown() -> None:
    async with shown(kept_service()) as (app, pilot):
        await type_line(pilot, "revert db ", enter=False)
        await until(lambda: "revert [SANDBOX] [CHECKPOINT]" in screen_text(app))
        await until(lambda: "upgraded" in screen_text(app))
        await until(lambda: "before the upgrade" in screen_text(app))


@each("height", [6, 12])
async def test_what_is_typed_can_be_seen_in_a_low_terminal(height: int) -> None:
    async with shown(size=(40, height)) as (app, pilot):
        await pilot.press("colon")
        await until(lambda: "in all" in screen_text(app))
        await pilot.press("tab", "tab", "shift+tab", "tab")
        await until(lambda: screen_text(app).splitlines()[-1].startswith(" :"))
        lines = screen_text(app).splitlines()
        typed = lines[-1].strip(" :")
        assert typed and any(line.split()[:2] == ["▸", typed] for line in lines)
        counted = next(n for n, line in enumerate(lines) if "in all" in line)
        assert counted == height - 3


async def test_up_and_down_go_through_what_was_typed_also_in_the_next_run() -> None:
    history = CommandHistory(StateFile(state_dir() / "commands.json"))
    async with shown(kept_service()) as (app, pilot):
        for theme in ("nord", "quicksand") * 2:
            await type_line(pilot, f"theme {theme}")
            await until(lambda want=theme: app.theme == want)  # type: ignore[misc]
            await until(lambda want=theme: history.read()[-1:] == [f"theme {want}"])  # type: ignore[misc]
    async with shown(kept_service()) as (app, pilot):
        await type_line(pilot, "sto", enter=False)
        screen = app.screen
        assert isinstance(screen, CommandScreen)
        await until(lambda: screen._lines)
        for key, expected in (
            ("up", "theme quicksand"),
            ("up", "theme nord"),
            ("up", "theme nord"),
            ("down", "theme quicksand"),
            ("down", "sto"),
            ("down", "sto"),
        ):
            await pilot.press(key)
            await until(lambda want=expected: line_of(app) == want)  # type: ignore[misc]


async def test_keys_that_are_typed_before_the_line_is_there_are_not_lost() -> None:
    service = kept_service()
    async with shown(service) as (app, _):
        for char in ":stop web":
            app.post_message(events.Key(KEYS.get(char, char), char))
        app.post_message(events.Key("enter", "\r"))
        await until(lambda: f"stop {WEB.id}" in service.calls)
        await until(lambda: not app.operations.jobs)


async def test_the_world_may_change_below_the_line() -> None:
    service = kept_service()
    async with shown(service) as (app, pilot):
        await type_line(pilot, "stop ", enter=False)
        await until(lambda: "web" in screen_text(app).splitlines()[-3])
        views = tuple(replace(v, state=Status.RUNNING) for v in KEPT.sandboxes)
        service.world = replace(service.world, sandboxes=views)
        app.refresh_now()
        await until(lambda: "agent-7" in "".join(screen_text(app).splitlines()[-5:]))
        service.world = replace(service.world, sandboxes=())
        app.refresh_now()
        await until(lambda: not app.world.sandboxes)
        await pilot.press(*"web", "enter")
        await until(lambda: "there is no sandbox yet" in screen_text(app))


async def test_without_a_utf8_locale_the_line_is_ascii() -> None:
    async with shown(kept_service(), ascii_glyphs=True) as (app, pilot):
        await type_line(pilot, "stop db", enter=False)
        assert screen_text(app).isascii()
        await pilot.press("enter")
        await until(lambda: "x db does not run" in screen_text(app))
        assert screen_text(app).isascii()


def test_every_command_of_the_line_takes_a_sandbox_where_the_command_of_a_shell_does() -> None:
    """What a person types in a shell, they type behind `:` as well."""
    elsewhere = []
    for name, verb in verbs_of(Scope.MAIN).items():
        with contextlib.suppress(LookupError):
            record = find_record(name) if verb.action is None else verb.action.verb
            subject = record.subject if record is not None else None
            if subject is not None and subject.kind is Kind.SANDBOX:
                elsewhere += [verb.usage] * (verb.arguments[:1] != (subject,))
    assert not elsewhere
