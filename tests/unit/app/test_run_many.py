"""A command in many sandboxes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

from quicksand.things.status import Status
from textual.pilot import Pilot

from quicksand_tui.actions import reasons
from quicksand_tui.jobs.run_many import AT_ONCE, exec_command
from quicksand_tui.model.jobs import CommandOutput, Failure, Run, RunState
from quicksand_tui.model.shown_sandboxes import SandboxView
from quicksand_tui.model.text import sanitise_lines
from quicksand_tui.model.world import Selection
from quicksand_tui.screens.run_many_table import OutputScreen, RunManyScreen
from quicksand_tui.ui.app import QuicksandApp
from quicksand_tui.views.job_rows import (
    describe_ended,
    describe_run,
    ended_row,
    plan_run_columns,
    run_row,
)
from quicksand_tui.views.sandbox_rows import PADDING
from tests.each import each, trying
from tests.unit.app.corpus import HOSTILE
from tests.unit.app.fakes import (
    DB,
    FULL,
    NOW,
    PAUSED,
    WEB,
    FakeService,
    screen_text,
    select,
    send,
    shown,
    toasts,
    until,
)

OTHER = replace(WEB, id="ee55ff667788", name="other")
THREE = (WEB, OTHER, PAUSED)


@asynccontextmanager
async def run_shown(
    service: FakeService, views: tuple[SandboxView, ...] = THREE, *, ascii_glyphs: bool = False
) -> AsyncIterator[tuple[QuicksandApp, Pilot[int], RunManyScreen]]:
    service.world = replace(FULL, sandboxes=views)
    async with shown(service, ascii_glyphs=ascii_glyphs) as (app, pilot):
        app.dialogs.open_run_many(views)
        await until(lambda: isinstance(app.screen, RunManyScreen))
        screen = app.screen
        assert isinstance(screen, RunManyScreen)
        await until(lambda: screen._field.has_focus)
        await pilot.pause()
        yield app, pilot, screen


def states(screen: RunManyScreen) -> list[RunState]:
    assert screen._many is not None
    return [run.state for run in screen._many.runs]


def outputs(screen: RunManyScreen) -> list[CommandOutput | None]:
    return [run.output for run in screen._many.runs] if screen._many is not None else []


# Lines


def test_a_line_tells_exit_code_time_and_the_first_line_that_says_something() -> None:
    output = CommandOutput(exit_code=3, seconds=1.25, lines=("", "  first", "second"))
    run = Run(sandbox_id="x", name="web", state=RunState.ENDED, output=output)
    cells = run_row(run, 0.0).cells
    assert [cells[key].text for key in ("name", "exit", "time", "output")] == [
        "web",
        "✗ 3",
        "1.2 s",
        "first",
    ]
    late = replace(output, exit_code=124, timed_out=True)
    assert run_row(replace(run, output=late), 0.0).cells["exit"].text == "✗ timed out"
    assert (
        run_row(replace(run, output=replace(output, exit_code=0)), 0.0).cells["exit"].text == "✓ 0"
    )
    running = Run(sandbox_id="x", name="web", state=RunState.RUNNING, begun=10.0)
    assert run_row(running, 12.5).cells["time"].text == "2.5 s"


def test_all_of_it_says_when_something_is_left_out_or_nothing_was_written() -> None:
    output = CommandOutput(exit_code=0, seconds=1, lines=("a",), is_cut=True)
    run = Run(sandbox_id="x", name="web", state=RunState.ENDED, output=output)
    assert describe_run(run) == ("web · ✓ 0 · 1.0 s", ["a", "… it wrote more, which is left out"])
    nothing = replace(run, output=CommandOutput(exit_code=0, seconds=1))
    assert describe_run(nothing)[1] == ["It wrote nothing."]
    failed = Run(sandbox_id="x", name="web", state=RunState.FAILED, note="gone")
    assert describe_run(failed) == ("web · ✗ failed", ["gone"])


@each("width", [10, 30, 50, 72, 110, 200])
def test_columns_fit(width: int) -> None:
    used = sum(column.width + PADDING for column in plan_run_columns(width))
    assert used <= max(width, 27)


def test_the_commands_that_do_the_same_are_quoted() -> None:
    assert exec_command(["a", "b"], "echo 'x y'; id") == (
        """quicksand-tui exec a -- /bin/sh -c 'echo '"'"'x y'"'"'; id'; """
        """quicksand-tui exec b -- /bin/sh -c 'echo '"'"'x y'"'"'; id'"""
    )


@each(
    ("view", "says"),
    [(WEB, None), (DB, "does not run"), (PAUSED, "P resumes it"), (None, "no ")],
)
def test_it_needs_something_that_runs(view: SandboxView | None, says: str | None) -> None:
    why = reasons.run(FULL, Selection(sandbox=view))
    assert why is None if says is None else why is not None and says in why


# The screen


async def test_it_runs_in_all_that_run_and_shows_what_each_wrote() -> None:
    service = FakeService()
    service.outputs[OTHER.id] = CommandOutput(exit_code=2, seconds=0.5, lines=("no such", "end"))
    async with run_shown(service) as (app, pilot, screen):
        assert "Run in 3 sandboxes" in screen_text(app) and "it is paused" in screen_text(app)
        send(app, ["l", "s", "enter"])
        await until(lambda: states(screen) == [RunState.ENDED, RunState.ENDED, RunState.SKIPPED])
        assert service.calls == [f"run {WEB.id} ls", f"run {OTHER.id} ls"]
        await until(lambda: "✗ 2" in screen_text(app) and "no such" in screen_text(app))
        await until(lambda: app.operations.ended)
        assert app.operations.log[-1].command == exec_command(["web", "other"], "ls")
        assert app.operations.ended[-1].told == "ls: 1 of 2 ended with 0" and not toasts(app)
        assert app.operations.ended[-1].outcome == app.operations.log[-1].outcome == "failed"
        assert ended_row(app.operations.ended[-1], NOW).cells["what"].text == "✗ run"
        told = describe_ended(app.operations.ended[-1], app.operations.ended[-1].ended)
        assert told.lines[0].startswith("It has failed 0s ago")
        await pilot.press("j", "enter")
        await until(lambda: isinstance(app.screen, OutputScreen))
        await pilot.pause()
        await until(lambda: "other · ✗ 2" in screen_text(app) and "end" in screen_text(app))
        await pilot.press("q")
        await until(lambda: app.screen is screen)
        await pilot.press("r")
        await until(lambda: len(service.calls) == 4)
        await until(lambda: not screen._many or not screen._many.is_running)
        await pilot.press("escape")
        await until(lambda: app.screen is app.main)


async def test_what_runs_is_cancelled_by_its_key() -> None:
    service = FakeService()
    service.hold = asyncio.Event()
    async with run_shown(service) as (app, pilot, screen):
        send(app, ["x", "enter"])
        await until(lambda: states(screen)[:2] == [RunState.RUNNING] * 2)
        await until(lambda: "c cancels" in screen_text(app))
        await pilot.press("r")
        assert toasts(app) == ["it is running: c cancels it"]
        await pilot.press("c")
        await until(lambda: states(screen)[:2] == [RunState.CANCELLED] * 2)
        assert sorted(service.undone) == sorted([f"run {WEB.id} x", f"run {OTHER.id} x"])
        await until(lambda: app.operations.ended)
        assert app.operations.ended[-1].outcome == "cancelled"
        await pilot.press("c")
        await until(lambda: "no command is running" in toasts(app))
        await pilot.press("escape")
        await until(lambda: app.screen is app.main)


async def test_at_most_eight_run_at_a_time() -> None:
    service = FakeService()
    service.hold = asyncio.Event()
    many = tuple(replace(WEB, id=f"{n:012x}", name=f"web{n}") for n in range(20))
    async with run_shown(service, many) as (app, _, screen):
        send(app, ["x", "enter"])
        await until(lambda: service.running == AT_ONCE)
        assert states(screen).count(RunState.WAITING) == 20 - AT_ONCE
        service.hold.set()
        await until(lambda: states(screen) == [RunState.ENDED] * 20)
        assert service.most_running == AT_ONCE


async def test_one_that_fails_leaves_the_others_alone() -> None:
    service = FakeService()
    service.failure = Failure(title="x", message="the guest does not answer")
    async with run_shown(service) as (app, pilot, screen):
        send(app, ["x", "enter"])
        await until(lambda: states(screen)[:2] == [RunState.FAILED] * 2)
        await until(lambda: "the guest does not" in screen_text(app))
        await until(lambda: app.operations.ended)
        assert app.operations.ended[-1].told == "x: 0 of 2 ended with 0"
        assert app.operations.ended[-1].outcome == "failed"
        service.failure = None
        await pilot.press("r")
        await until(lambda: states(screen)[:2] == [RunState.ENDED] * 2)
        await until(lambda: len(app.operations.ended) == 2)
        assert app.operations.ended[-1].outcome == "done"


async def test_nothing_is_run_without_a_command_or_where_nothing_runs() -> None:
    service = FakeService()
    async with run_shown(service) as (app, pilot, _):
        await pilot.press("enter")
        assert toasts(app) == ["type a command first"]
        gone = replace(WEB, state=Status.STOPPED), replace(OTHER, state=Status.CRASHED), PAUSED
        service.world = replace(service.world, sandboxes=gone)
        app.refresh_now()
        await until(lambda: "it is stopped" in screen_text(app))
        await pilot.press("x", "enter")
        await until(lambda: "none of these runs" in toasts(app))
        assert service.calls == [] and not app.operations.jobs


async def test_it_opens_by_key_on_one_that_runs_and_remembers_the_command() -> None:
    service = FakeService()
    async with shown(service) as (app, pilot):
        await select(pilot, DB)
        await pilot.press("exclamation_mark")
        assert "does not run" in toasts(app)[-1] and app.screen is app.main
        await select(pilot, WEB)
        send(app, ["exclamation_mark"])
        await until(lambda: isinstance(app.screen, RunManyScreen))
        await pilot.pause()
        await until(lambda: "Run in web" in screen_text(app))
        send(app, ["i", "d", "enter"])
        await until(lambda: service.calls == [f"run {WEB.id} id"])
        await until(lambda: not app.operations.jobs)
        await pilot.press("escape")
        await until(lambda: app.screen is app.main)
        await pilot.press("exclamation_mark")
        await until(lambda: isinstance(app.screen, RunManyScreen))
        await pilot.pause()
        await until(lambda: "$  id" in screen_text(app))


async def test_what_a_guest_writes_does_no_harm() -> None:
    service = FakeService()
    async with run_shown(service, (WEB,), ascii_glyphs=True) as (app, pilot, screen):
        for text in HOSTILE:
            with trying(repr(text[:40])):
                lines = ("of a guest:", *sanitise_lines(text))
                output = CommandOutput(exit_code=0, seconds=0.1, lines=lines)
                service.outputs[WEB.id] = output
                send(app, ["r"] if service.calls else ["x", "enter"])
                await until(lambda output=output: outputs(screen) == [output])  # type: ignore[misc]
                await pilot.press("enter")
                await until(lambda: isinstance(app.screen, OutputScreen))
                await until(lambda: "of a guest:" in screen_text(app))
                assert all(len(line) == 80 for line in screen_text(app).splitlines())
                assert "\x1b" not in screen_text(app)
                await pilot.press("q")
                await until(lambda: app.screen is screen)
