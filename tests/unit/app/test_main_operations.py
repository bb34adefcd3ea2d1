"""What is done from the main screen: its progress, its command, its questions and its failures."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from quicksand.things.status import Status
from textual.widgets import Button

from quicksand_tui.model.jobs import Failure, OperationError
from quicksand_tui.opening.opening import farewell
from quicksand_tui.screens.confirm import ConfirmScreen
from quicksand_tui.screens.reports import CommandsScreen, FailureScreen
from quicksand_tui.ui.app import QuicksandApp
from quicksand_tui.verbs.call import Report
from quicksand_tui.widgets.bars import CommandLine
from tests.each import each, trying
from tests.unit.app.fakes import (
    BROKEN,
    DB,
    FULL,
    MIB,
    PAUSED,
    WEB,
    FakeService,
    screen_text,
    select,
    shown,
    toasts,
    until,
)


def command_line(app: QuicksandApp) -> str:
    return str(app.main.query_one(CommandLine).content)


async def test_stop_shows_its_progress_and_its_command() -> None:
    service = FakeService()
    service.hold = asyncio.Event()
    async with shown(service) as (app, pilot):
        await pilot.press("x")
        await until(lambda: "◐ stopping" in screen_text(app))
        assert service.calls[-1] == f"stop {WEB.id}"
        assert "$ quicksand-tui stop web" in command_line(app)
        service.hold.set()
        await until(lambda: app.world.sandbox(WEB.id).state is Status.STOPPED)  # type: ignore[union-attr]
        await until(lambda: "✓" in command_line(app))
        assert toasts(app) == []


@each("told", ["", "web is stopped"])
async def test_what_is_done_while_the_app_ends_needs_no_screen(told: str) -> None:
    """Its screens go before its workers."""
    async with shown(FakeService()) as (app, _):
        pass
    assert not app.screen_stack
    app.operation_done(told)
    app.tell_outcome(told)
    app.jobs_changed()
    assert app.stack.front is None and not app.stack.own


async def test_enter_starts_a_stopped_sandbox_and_X_cancels_it() -> None:
    service = FakeService()
    service.hold = asyncio.Event()
    async with shown(service) as (app, pilot):
        await select(pilot, DB)
        await pilot.press("enter")
        await until(lambda: "4/5 start QEMU" in screen_text(app))
        await pilot.press("X")
        await until(lambda: service.undone == [f"start {DB.id}"])
        await until(lambda: not app.operations.jobs)
        assert "cancelled" in command_line(app)
        assert app.world.sandbox(DB.id) == DB


async def test_no_other_key_than_y_deletes() -> None:
    service = FakeService()
    async with shown(service) as (app, pilot):
        for key in ("enter", "d", "escape", "n", "q", "space", "tab"):
            with trying(key):
                service.world = FULL
                await app.look()
                await select(pilot, DB)
                await pilot.press("d")
                await until(lambda: isinstance(app.screen, ConfirmScreen))
                await until(lambda: app.screen.query_one("#cancel", Button).has_focus)
                await pilot.press(key, "enter")
                await pilot.pause()
                assert not [call for call in service.calls if call.startswith("delete")]
                await pilot.press("escape")
                await until(lambda: app.screen is app.main and not app.operations.jobs)


async def test_delete_names_where_it_goes_and_the_chord_does_it() -> None:
    service = FakeService()
    async with shown(service) as (app, pilot):
        await pilot.press("d")
        await until(lambda: isinstance(app.screen, ConfirmScreen))
        await pilot.pause()
        text = screen_text(app)
        assert "It is stopped at once, and its last state is kept." in text
        assert "It goes to the trash for a week: 42M of disk, made 3h ago." in text
        assert "U restores it, T shows the trash." in text
        assert "Delete ^Y" in text
        await pilot.press("ctrl+y")
        await until(lambda: service.calls[-1] == f"delete {WEB.id}")
        await until(lambda: app.world.sandbox(WEB.id) is None)


async def test_the_delete_button_works_by_the_mouse_only() -> None:
    service = FakeService()
    async with shown(service) as (app, pilot):
        await pilot.press("d")
        await until(lambda: isinstance(app.screen, ConfirmScreen))
        await pilot.pause()
        assert await pilot.click("#yes")
        await until(lambda: f"delete {WEB.id}" in service.calls)


async def test_kill_asks_and_may_overtake_a_stop() -> None:
    service = FakeService()
    service.hold = asyncio.Event()
    async with shown(service) as (app, pilot):
        await pilot.press("x")
        await until(lambda: f"stop {WEB.id}" in service.calls)
        await pilot.press("K")
        await until(lambda: isinstance(app.screen, ConfirmScreen))
        await pilot.press("ctrl+y")
        await until(lambda: f"kill {WEB.id}" in service.calls)
        service.hold.set()
        await until(lambda: not app.operations.jobs)


async def test_a_key_that_is_not_possible_says_why() -> None:
    service = FakeService()
    async with shown(service) as (app, pilot):
        for view, key, says in (
            (DB, "x", "db does not run"),
            (DB, "s", "db does not run: a starts it"),
            (WEB, "a", "web is already running"),
            (PAUSED, "s", "builder is paused: P resumes it"),
            (PAUSED, "a", "builder is paused: P resumes it"),
            (DB, "P", "db does not run: a starts it"),
            (BROKEN, "enter", "cc33dd44ee55 is broken"),
            (WEB, "X", "nothing is under way for web"),
        ):
            with trying((view.name, key)):
                app.clear_notifications()
                await select(pilot, view)
                await pilot.press(key)
                await until(lambda says=says: says in toasts(app))  # type: ignore[misc]
                assert service.calls == []


async def test_a_failure_shows_message_hint_and_log_as_plain_text() -> None:
    service = FakeService()
    service.failure = Failure(
        title="web did not stop",
        message="[bold]QEMU[/bold] hangs",
        hint="kill it",
        log=("[red]last line[/red]",),
    )
    async with shown(service) as (app, pilot):
        await pilot.press("x")
        await until(lambda: isinstance(app.screen, FailureScreen))
        await pilot.pause()
        text = screen_text(app)
        for part in ("[bold]QEMU[/bold] hangs", "kill it", "[red]last line[/red]"):
            assert part in text
        await pilot.press("enter")
        await until(lambda: app.screen is app.main)
        assert "failed" in command_line(app)


async def test_P_pauses_and_enter_lets_it_go_on() -> None:
    service = FakeService()
    async with shown(service) as (app, pilot):
        await select(pilot, WEB)
        await pilot.press("P")
        await until(lambda: "‖ paused    web" in screen_text(app))
        await until(lambda: "quicksand-tui pause web  ✓" in screen_text(app))
        await until(lambda: "P resumes it" in screen_text(app))
        await pilot.press("enter")
        await until(lambda: "● running   web" in screen_text(app))
        await until(lambda: "quicksand-tui resume web  ✓" in screen_text(app))
        assert service.calls == [f"pause {WEB.id}", f"resume {WEB.id}"]


async def test_the_commands_of_what_was_done_are_kept() -> None:
    async with shown() as (app, pilot):
        await pilot.press("at")
        await until(lambda: "You have done nothing yet" in screen_text(app))
        await pilot.press("escape", "x")
        await until(lambda: "stop web  ✓" in screen_text(app))
        await select(pilot, DB)
        await pilot.press("a")
        await until(lambda: "start db  ✓" in screen_text(app))
        await pilot.press("at")
        await until(lambda: isinstance(app.screen, CommandsScreen))
        await until(lambda: screen_text(app).count("$ quicksand-tui") >= 2)
        await pilot.press("y")
        await until(lambda: app.clipboard == "quicksand-tui stop web\nquicksand-tui start db")
        await pilot.press("at")
        await until(lambda: app.screen is app.main)


async def test_q_leaves_and_names_what_goes_on() -> None:
    async with shown() as (app, pilot):
        await pilot.press("q")
        await until(lambda: app.return_value == 0)
    assert app.present.read.running_names == ("web", "builder")


def test_the_farewell() -> None:
    assert farewell(()) == ""
    assert farewell(("web",)) == "still running: web (`quicksand-tui` opens the app again)\n"
    assert "still running: a, b, c, d, e and 2 more" in farewell(tuple("abcdefg"))


async def test_leaving_with_work_under_way_asks_first() -> None:
    service = FakeService()
    service.hold = asyncio.Event()
    async with shown(service) as (app, pilot):
        await select(pilot, DB)
        await pilot.press("a")
        await until(lambda: app.operations.jobs)
        await pilot.press("q")
        await until(lambda: isinstance(app.screen, ConfirmScreen))
        await pilot.press("escape")
        await until(lambda: app.screen is app.main)
        await pilot.press("q")
        await until(lambda: isinstance(app.screen, ConfirmScreen))
        await pilot.press("ctrl+y")
        await until(lambda: app.return_value == 0)


async def test_the_question_of_leaving_closes_when_the_work_is_done() -> None:
    service = FakeService()
    service.hold = asyncio.Event()
    async with shown(service) as (app, pilot):
        await select(pilot, DB)
        await pilot.press("a")
        await until(lambda: app.operations.jobs)
        await pilot.press("q")
        await until(lambda: isinstance(app.screen, ConfirmScreen))
        service.hold.set()
        await until(lambda: app.screen is app.main)
        await until(lambda: "Nothing is under way any more: q leaves" in toasts(app))
        assert app.return_value is None


async def test_nothing_moves_when_the_first_command_is_shown() -> None:
    async with shown() as (app, pilot):
        before = app.main.sandboxes.region
        await until(lambda: "$ quicksand-tui shell web" in screen_text(app))
        await pilot.press("x")
        await until(lambda: "stop web  ✓" in screen_text(app))
        assert app.main.sandboxes.region == before


MANY = tuple(replace(WEB, id=f"{n:012x}", name=f"box-{n}", disk=n * MIB) for n in range(1, 21))


async def test_what_is_done_with_many_is_told_once_with_what_failed() -> None:
    service = FakeService(replace(FULL, sandboxes=MANY))
    operate = service.operate

    async def operate_or_fail(what: str, report: Report | None = None) -> None:
        await operate(what, report)
        if what in (f"pause {MANY[3].id}", f"pause {MANY[8].id}"):
            raise OperationError(Failure(title="It was not paused", message=f"QEMU: {what[-2:]}"))

    service.operate = operate_or_fail  # type: ignore[method-assign]
    async with shown(service, size=(120, 40)) as (app, pilot):
        await pilot.press("asterisk", "P")
        await until(lambda: not app.operations.jobs and toasts(app))
        await until(lambda: isinstance(app.screen, FailureScreen))
        assert toasts(app) == ["pause: done with 18 of 20 sandboxes, 2 failed"]
        text = screen_text(app)
        assert "pause: failed with 2 of 20 sandboxes" in text
        assert "box-4: QEMU: 04" in text and "box-9: QEMU: 09" in text
        await pilot.press("escape")
        await until(lambda: app.screen is app.main)
        assert not isinstance(app.screen, FailureScreen), "one question for all of them"


async def test_deleting_many_asks_with_a_sum_and_tells_once_how_to_undo_it() -> None:
    service = FakeService(replace(FULL, sandboxes=MANY))
    async with shown(service, size=(120, 40)) as (app, pilot):
        await pilot.press("asterisk", "d")
        await until(lambda: isinstance(app.screen, ConfirmScreen))
        await pilot.pause()
        assert "Together 210M of disk." in screen_text(app)
        await pilot.press("ctrl+y")
        await until(lambda: app.screen is app.main and not app.operations.jobs and toasts(app))
        assert toasts(app) == ["delete: done with all 20 sandboxes · undo: U"]
