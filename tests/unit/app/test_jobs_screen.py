"""The drawer of jobs."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

from quicksand.things.status import Status
from rich.cells import cell_len

from quicksand_tui.jobs.operations import ENDED_MAX, usual_seconds
from quicksand_tui.model.jobs import EndedJob, Failure, Job, JobVerb
from quicksand_tui.model.specs import NewSpec
from quicksand_tui.model.text import plain
from quicksand_tui.screens.job_drawer import JobsScreen
from quicksand_tui.screens.reports import FailureScreen, ReportScreen
from quicksand_tui.screens.saves_and_trash import SavesScreen
from quicksand_tui.ui.app import QuicksandApp
from quicksand_tui.verbs.halting import pause, stop
from quicksand_tui.verbs.launching import start
from quicksand_tui.views.job_rows import (
    cancel_text,
    describe_job,
    ended_row,
    find_cancel_problem,
    job_row,
    plan_jobs_columns,
    progress_text,
    share_of,
)
from quicksand_tui.views.sandbox_rows import PADDING
from tests.each import each
from tests.unit.app.fake_saves import MIB
from tests.unit.app.fakes import (
    AGENT,
    DB,
    KEPT,
    NOW,
    PAUSED,
    WEB,
    FakeService,
    create,
    screen_text,
    select,
    shown,
    toasts,
    until,
)

FAILURE = Failure(title="db did not start", message="no space left", hint="free some")
READING = Job(
    sandbox_id="verify:1",
    name="dev",
    verb=JobVerb.VERIFY,
    stage="reading",
    started=NOW - 5,
    done=16 * MIB,
    total=64 * MIB,
    rate=8 * MIB,
)


def jobs_screen(app: QuicksandApp) -> JobsScreen:
    assert isinstance(app.screen, JobsScreen)
    return app.screen


async def open_jobs(app: QuicksandApp, pilot: Any) -> None:
    await pilot.press("J")
    await until(lambda: isinstance(app.screen, JobsScreen))
    await until(lambda: app.focused is not None)
    await pilot.pause()


# Lines


def test_a_line_tells_progress_rate_and_time_left() -> None:
    assert progress_text(READING, NOW) == "██░░░░░░ reading 25% · 8.0M/s · 6s left"
    steps = replace(READING, done=0, total=0, rate=0.0, step=5, steps=5, stage="boot the guest")
    assert progress_text(steps, NOW) == "██████░░ 5/5 boot the guest"
    assert plain(progress_text(steps, NOW)) == "######.. 5/5 boot the guest"
    assert progress_text(replace(steps, steps=0, stage=""), NOW) == "under way"
    assert "undone" in progress_text(replace(READING, cancelling=True), NOW)
    assert set(job_row(READING, NOW).cells) == {c.key for c in plan_jobs_columns(80)}


STARTING = Job(
    sandbox_id=WEB.id,
    name="web",
    verb=JobVerb.START,
    image="debian",
    kind="quicksand-tui start",
    step=5,
    steps=5,
    stage="boot the guest",
    started=NOW - 5,
)


def took(job: Job, *seconds: float, outcome: str = "done") -> list[EndedJob]:
    return [
        EndedJob(number=1, job=job, outcome=outcome, ended=NOW, seconds=each) for each in seconds
    ]


def test_a_line_estimates_the_time_left_from_earlier_jobs_until_it_is_exceeded() -> None:
    usual = replace(STARTING, usual_s=25.5)
    assert progress_text(usual, NOW) == "██████░░ about 20s left · 5/5 boot the guest"
    assert describe_job(usual, NOW).lines[0].endswith(": about 20s left · 5/5 boot the guest")
    assert progress_text(usual, NOW + 20) == "██████░░ 5/5 boot the guest"
    assert progress_text(usual, NOW + 60) == "██████░░ 5/5 boot the guest"
    assert progress_text(replace(usual, steps=0, stage=""), NOW) == "about 20s left"
    # What bytes tell is better, and is waited for.
    assert progress_text(replace(READING, rate=0.0, usual_s=30.0), NOW) == "██░░░░░░ reading 25%"


def test_a_line_tells_the_share_of_the_whole_and_when_that_ends() -> None:
    built = replace(STARTING, steps=0, stage="unpacking", share=0.25, ends=NOW + 30.5)
    assert progress_text(built, NOW) == "██░░░░░░ about 30s left · 25% unpacking"
    assert progress_text(replace(built, ends=0.0), NOW) == "██░░░░░░ 25% unpacking"
    assert progress_text(replace(built, usual_s=65.5), NOW).startswith("██░░░░░░ about 1m left")


def test_only_jobs_that_did_the_same_and_agree_tell_how_long_one_will_take() -> None:
    job = STARTING
    assert usual_seconds(job, []) == 0.0
    assert usual_seconds(job, took(job, 90.0, 20.0, 24.0, 22.0)) == 22.0
    assert usual_seconds(job, took(replace(job, sandbox_id=DB.id), 20.0)) == 20.0
    assert usual_seconds(job, took(job, 20.0, 0.4)) == 0.0
    assert usual_seconds(job, took(job, 0.4)) == 0.0
    assert usual_seconds(job, took(job, 20.0, outcome="failed")) == 0.0
    for other in (
        replace(job, image="alpine"),
        replace(job, kind="quicksand-tui start --at clean"),
        replace(job, sandbox_id=f"{WEB.id}@far"),
    ):
        assert usual_seconds(job, took(other, 20.0)) == 0.0
    stop = replace(job, verb=JobVerb.STOP)
    assert usual_seconds(stop, took(stop, 20.0)) == 20.0
    assert usual_seconds(stop, took(replace(stop, sandbox_id=DB.id), 20.0)) == 0.0
    assert usual_seconds(replace(job, kind=""), took(replace(job, kind=""), 20.0)) == 0.0
    save = replace(READING, kind="quicksand-tui verify", about=frozenset({"a"}))
    assert usual_seconds(save, took(replace(save, sandbox_id="verify:7"), 20.0)) == 20.0
    assert usual_seconds(save, took(replace(save, about=frozenset({"b"})), 20.0)) == 0.0


@each(("done", "total"), [(0, 0), (-5, 10), (20, 10), (10, 10), (0, 10)])
def test_a_bar_has_its_length_whatever_is_counted(done: int, total: int) -> None:
    job = replace(READING, done=done, total=total, stage="", rate=0.0)
    share = share_of(job)
    assert share is None if total == 0 else share is not None and 0 <= share <= 1
    if total:
        assert cell_len(progress_text(job, NOW).split(" ")[0]) == 8


@each("width", [10, 40, 44, 60, 74, 116, 200])
def test_columns_fit(width: int) -> None:
    columns = plan_jobs_columns(width)
    used = sum(column.width + PADDING for column in columns)
    assert used <= max(width, 20)
    if width >= 74:
        text = progress_text(replace(READING, rate=123 * MIB, total=10**13), NOW)
        assert columns[-1].width >= cell_len(text)


def test_what_can_be_cancelled_says_what_that_means() -> None:
    assert find_cancel_problem(READING) == ""
    assert find_cancel_problem(replace(READING, cancelling=True)) == "it is being cancelled"
    assert "half-way" in find_cancel_problem(replace(READING, verb=JobVerb.REVERT))
    assert "stops where it is" in cancel_text(replace(READING, verb=JobVerb.DISCARD))
    assert "nothing of it stays" in cancel_text(replace(READING, verb=JobVerb.EXPORT))
    assert cancel_text(READING) == "Cancelling the verification of dev"


def test_the_end_of_a_job_is_told_by_glyph_word_and_message() -> None:
    ended = EndedJob(number=1, job=READING, outcome="failed", ended=NOW, seconds=2, failure=FAILURE)
    cells = ended_row(ended, NOW + 60).cells
    assert (cells["what"].text, cells["since"].text) == ("✗ verify", "1m")
    assert cells["progress"].text == "failed, 2.0 s: no space left"
    done = ended_row(replace(ended, outcome="done", failure=None, told="whole"), NOW).cells
    assert (done["what"].text, done["progress"].text) == ("✓ verify", "done, 2.0 s: whole")


# The drawer


async def test_nothing_yet_says_what_it_is_for() -> None:
    async with shown() as (app, pilot):
        await open_jobs(app, pilot)
        await until(lambda: "No jobs yet" in screen_text(app))
        await pilot.press("enter", "c")
        assert toasts(app) == ["only a running job can be cancelled"]
        await pilot.press("J")
        await until(lambda: app.screen is app.main)


async def test_jobs_are_followed_and_the_selected_one_is_cancelled() -> None:
    service = FakeService()
    service.hold = asyncio.Event()
    async with shown(service) as (app, pilot):
        await select(pilot, DB)
        await pilot.press("a")
        await select(pilot, WEB)
        await pilot.press("x")
        await until(lambda: "◐ 2 under way (J)" in screen_text(app))
        await open_jobs(app, pilot)
        text = screen_text(app)
        assert "Jobs · 2 under way" in text and "4/5 start QEMU" in text
        table = jobs_screen(app)._table
        assert table.select(f"job:{WEB.id}")
        await pilot.press("c")
        assert toasts(app)[-1] == "a stop cannot be cancelled half-way"
        assert table.select(f"job:{DB.id}")
        await pilot.press("x")
        await until(lambda: f"start {DB.id}" in service.undone)
        await until(lambda: "○ start" in screen_text(app))
        await until(lambda: "Jobs · 1 under way" in screen_text(app))
        service.hold.set()
        await until(lambda: "✓ stop" in screen_text(app))
        await until(lambda: "Jobs · nothing under way" in screen_text(app))


async def test_a_second_job_like_one_that_has_ended_tells_the_time_left() -> None:
    service = FakeService()
    async with shown(service) as (app, pilot):
        app.operations.do(start(), DB)
        await until(lambda: len(app.operations.ended) == 1)
        app.operations.ended[0] = replace(app.operations.ended[0], seconds=600.0)
        service.hold = asyncio.Event()
        await app.look()
        app.operations.do(start(), replace(DB, state=Status.STOPPED))
        await open_jobs(app, pilot)
        await until(lambda: "about 10m left · 4/5 start QEMU" in screen_text(app))


async def test_the_command_of_one_under_way_is_its_own() -> None:
    service = FakeService()
    async with shown(service) as (app, pilot):
        await select(pilot, WEB)
        await pilot.press("x")
        await until(lambda: len(app.operations.ended) == 1)
        service.hold = asyncio.Event()
        app.operations.do(start(), WEB)
        create(app, NewSpec(image="debian", name="new1"))
        await until(lambda: any(job.name == "new1" and job.steps for job in app.operations.jobs))
        told = {job.name: describe_job(job, NOW).lines[-1] for job in app.operations.jobs}
        assert told[WEB.name] == "$ quicksand-tui start web"
        assert told["new1"].startswith("$ quicksand-tui run ") and "new1" in told["new1"]
        await open_jobs(app, pilot)
        assert jobs_screen(app)._table.select(f"job:{WEB.id}")
        await pilot.press("enter")
        await until(lambda: isinstance(app.screen, ReportScreen))
        await until(lambda: "$ quicksand-tui start web" in screen_text(app))


async def test_a_failure_can_be_read_again_and_an_outcome_is_told() -> None:
    service = FakeService()
    service.failure = FAILURE
    async with shown(service) as (app, pilot):
        await select(pilot, DB)
        await pilot.press("a")
        await until(lambda: isinstance(app.screen, FailureScreen))
        await pilot.press("escape")
        await until(lambda: app.screen is app.main)
        service.failure = None
        await select(pilot, PAUSED)
        await pilot.press("P")
        await until(lambda: len(app.operations.ended) == 2)
        await open_jobs(app, pilot)
        await pilot.press("enter")
        await until(lambda: isinstance(app.screen, ReportScreen))
        await pilot.pause()
        await until(lambda: "It was done" in screen_text(app))
        await until(lambda: "$ quicksand-tui resume builder" in screen_text(app))
        await pilot.press("escape")
        await until(lambda: isinstance(app.screen, JobsScreen))
        await pilot.press("j", "enter")
        await until(lambda: isinstance(app.screen, FailureScreen))
        await pilot.pause()
        await until(lambda: "no space left" in screen_text(app))


async def test_it_opens_among_the_saves_and_tells_what_they_told() -> None:
    service = FakeService()
    async with shown(service) as (app, pilot):
        await pilot.press("v")
        await until(lambda: isinstance(app.screen, SavesScreen) and app.present.saves.loaded)
        await pilot.press("f")
        await until(lambda: app.operations.ended)
        await open_jobs(app, pilot)
        await until(lambda: "✓ verify" in screen_text(app) and "is fine" in screen_text(app))


@each("key", ["l", "u", "v"])
async def test_the_top_of_each_screen_tells_how_many_are_under_way(key: str) -> None:
    service = FakeService(KEPT)
    async with shown(service) as (app, pilot):
        await pilot.press(key)
        await until(lambda: (app.screen is app.main) is (key != "v"))
        await pilot.pause()
        service.hold = asyncio.Event()
        app.operations.do(start(), DB)
        app.operations.do(stop(), AGENT)
        await until(lambda: "◐ 2 under way (J)" in screen_text(app))
        await open_jobs(app, pilot)
        await until(lambda: "Jobs · 2 under way" in screen_text(app))


async def test_only_the_last_ones_are_kept() -> None:
    async with shown() as (app, _):
        for number in range(ENDED_MAX + 5):
            app.operations.do(pause(), replace(WEB, id=f"{number:012x}"))
        await until(lambda: not app.operations.jobs)
        assert len(app.operations.ended) == ENDED_MAX
        numbers = [ended.number for ended in app.operations.ended]
        assert numbers == sorted(numbers) and numbers[-1] == ENDED_MAX + 5


@each("size", [(30, 9), (80, 24), (160, 45)], ids=str)
async def test_any_size_and_hostile_text_do_no_harm(size: tuple[int, int]) -> None:
    service = FakeService()
    service.failure = replace(FAILURE, message="[red]x[/] " + "y" * 500)
    async with shown(service, size=size, ascii_glyphs=True) as (app, pilot):
        app.operations.do(start(), DB)
        await until(lambda: isinstance(app.screen, FailureScreen))
        await pilot.press("escape")
        await until(lambda: app.screen is app.main)
        await open_jobs(app, pilot)
        await until(lambda: "x start" in screen_text(app))
        width, _ = size
        assert all(len(line) == width for line in screen_text(app).splitlines())
        # Textual shortens what stands in a frame by a character of its own.
        assert screen_text(app).isascii() or width < 50
