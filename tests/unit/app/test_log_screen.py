"""The log: follows, searches, wraps, and shows nothing that could harm."""

from __future__ import annotations

from dataclasses import replace

from textual.pilot import Pilot

from quicksand_tui.door.service_protocol import LogKind
from quicksand_tui.jobs.run_many import RunMany
from quicksand_tui.model.specs import NewSpec
from quicksand_tui.ui.app import QuicksandApp
from quicksand_tui.verbs.halting import pause
from quicksand_tui.verbs.launching import start
from quicksand_tui.widgets.log_view import LINES_MAX, LogView, wrapped
from tests.each import each
from tests.unit.app.corpus import HOSTILE
from tests.unit.app.fakes import (
    DB,
    FULL,
    SIZE,
    SRC,
    WEB,
    WEB_PAST,
    FakeService,
    create,
    make_app,
    ready,
    screen_text,
    select,
    until,
)

CONSOLE = LogKind.CONSOLE


async def open_log(pilot: Pilot[int], app: QuicksandApp) -> LogView:
    await ready(pilot)
    await pilot.press("l")
    view = app.main.area.logs.view
    await until(lambda: view.has_focus)
    return view


def serving(text: str) -> FakeService:
    service = FakeService()
    service.logs[CONSOLE].pending = text
    return service


async def test_the_log_starts_at_its_end_and_follows() -> None:
    service = serving("".join(f"line {n}\n" for n in range(200)))
    app = make_app(service)
    async with app.run_test(size=SIZE) as pilot:
        await open_log(pilot, app)
        await until(lambda: "line 199" in screen_text(app))
        service.logs[CONSOLE].pending = "and one more"
        await until(lambda: "and one more" in screen_text(app))
        service.logs[CONSOLE].pending = " on the same line\n"
        await until(lambda: "and one more on the same line" in screen_text(app))


async def test_moving_up_stops_following_and_G_follows_again() -> None:
    service = serving("".join(f"line {n}\n" for n in range(200)))
    app = make_app(service)
    async with app.run_test(size=SIZE) as pilot:
        view = await open_log(pilot, app)
        await until(lambda: "line 199" in screen_text(app))
        await pilot.press("g")
        await until(lambda: "line 0" in screen_text(app))
        service.logs[CONSOLE].pending = "later\n"
        await until(lambda: view.line_count > 201)
        await until(lambda: "line 0" in screen_text(app))
        await pilot.press("G")
        await until(lambda: "later" in screen_text(app))
        end = view.max_scroll_y
        await pilot.press("k")
        assert not view.following and view.scroll_y == end - 1
        await pilot.press("pageup")
        assert view.scroll_y == end - 1 - view.size.height
        await pilot.press("pagedown", "j")
        assert view.following and view.scroll_y == end
        await pilot.press("f")
        await until(lambda: not view.following)


async def test_going_to_the_top_holds_against_a_line_that_came_just_before() -> None:
    service = serving("".join(f"line {n}\n" for n in range(200)))
    app = make_app(service)
    async with app.run_test(size=SIZE) as pilot:
        view = await open_log(pilot, app)
        await until(lambda: "line 199" in screen_text(app))
        view.append(["just before", ""])
        view.action_top()
        await pilot.pause()
        await pilot.pause()
        assert view.scroll_y == 0


async def test_search_goes_to_the_last_match_and_n_round_all() -> None:
    app = make_app(
        serving("".join(f"{'ERROR' if n % 50 == 7 else 'ok'} {n}\n" for n in range(200)))
    )
    async with app.run_test(size=SIZE) as pilot:
        view = await open_log(pilot, app)
        await until(lambda: view.line_count > 200)
        await pilot.press("slash", *"error", "enter")
        await until(lambda: "/error 4 of 4" in screen_text(app))
        await until(lambda: "ERROR 157" in screen_text(app))
        await pilot.press("N")
        await until(lambda: "/error 3 of 4" in screen_text(app))
        await pilot.press("n", "n")
        await until(lambda: "/error 1 of 4" in screen_text(app))
        await pilot.press("escape")
        await until(lambda: "/error" not in screen_text(app))
        await pilot.press("escape")
        await until(lambda: app.main.sandboxes.table.has_focus)
        assert not service_closed(app), "it is still shown"
        await pilot.press("i")
        await until(lambda: service_closed(app))


def service_closed(app: QuicksandApp) -> bool:
    assert isinstance(app.service, FakeService)
    return app.service.logs[CONSOLE].closed


async def test_long_lines_are_wrapped_or_cut() -> None:
    app = make_app(serving("x" * 100 + "END\n"))
    async with app.run_test(size=SIZE) as pilot:
        view = await open_log(pilot, app)
        await until(lambda: "END" in screen_text(app))
        await pilot.press("w")
        await until(lambda: not view.wrapped)
        await pilot.pause()
        assert "END" not in screen_text(app)


async def test_t_shows_qemus_messages() -> None:
    service = serving("console\n")
    service.logs[LogKind.QEMU].pending = "qemu: warning\n"
    app = make_app(service)
    async with app.run_test(size=SIZE) as pilot:
        await open_log(pilot, app)
        await until(lambda: "console" in screen_text(app))
        await pilot.press("t")
        await until(lambda: "qemu: warning" in screen_text(app))


async def test_hostile_output_is_text() -> None:
    app = make_app(serving("\n".join(HOSTILE)))
    async with app.run_test(size=(120, 120)) as pilot:
        await open_log(pilot, app)
        await until(lambda: "red" in screen_text(app))
        await pilot.press("g")
        await pilot.pause()
        text = screen_text(app)
        assert "[bold red]markup[/]" in text
        assert not set(text) & {"\x1b", "\u202e", "\u200b", "\r"}


async def test_a_flood_is_bounded() -> None:
    service = serving("".join(f"line {n}\n" for n in range(LINES_MAX)))
    app = make_app(service)
    async with app.run_test(size=SIZE) as pilot:
        view = await open_log(pilot, app)
        await until(lambda: view.line_count)
        for part in range(3):
            service.logs[CONSOLE].pending = "y\n" * 5000 + f"part {part}\n"
            await until(lambda part=part: f"part {part}" in screen_text(app))  # type: ignore[misc]
            assert view.line_count <= LINES_MAX


async def test_the_commands_of_a_sandbox_are_its_own() -> None:
    service = serving("console\n")
    service.world = FULL
    app = make_app(service)
    async with app.run_test(size=(120, 36)) as pilot:
        await ready(pilot)
        app.operations.do(pause(), WEB)
        app.operations.do(start(), DB)
        await until(lambda: not app.operations.jobs)
        many = RunMany(service, app.operations)
        other = replace(WEB, id="ee55ff667788", name="other")
        for views, command in (((WEB, other), "uname"), ((other,), "id -u")):
            many.begin(views, command)
            await until(lambda: not many.is_running)
        create(app, NewSpec(image="debian", name="fresh"))
        await until(lambda: not app.operations.jobs)
        commands = [record.command for record in app.operations.log]
        await select(pilot, WEB)
        await pilot.press("l", "t", "t", "t")
        await until(lambda: "pause web" in screen_text(app))
        text = screen_text(app)
        assert "uname" in text and "start db" not in text and "id -u" not in text
        (made,) = [view for view in app.world.sandboxes if view.name == "fresh"]
        about = [r.command for r in app.operations.log if made.id in r.about]
        assert about == commands[-1:]


@each("kind", ["revert", "mount"])
async def test_the_events_of_a_sandbox_have_its_reverts_and_mounts(kind: str) -> None:
    service = serving("console\n")
    one = replace(WEB_PAST, run="r1")
    service.world = replace(FULL, sandboxes=(one,))
    app = make_app(service)
    async with app.run_test(size=(120, 36)) as pilot:
        await ready(pilot)
        await select(pilot, WEB)
        await pilot.press("l", "t", "t")
        # As another program makes it.
        now = replace(one, run="r2", origin="upgraded")
        if kind == "mount":
            now = replace(one, mounts=(SRC,))
        service.world = replace(FULL, sandboxes=(now,))
        app.refresh_now()
        says = {"revert": "reverted to upgraded", "mount": "/home/me/src is mounted at /mnt/src"}
        await until(lambda: says[kind] in screen_text(app))


async def test_an_empty_log_says_so_and_which_key_shows_another() -> None:
    app = make_app(serving("console\n"))
    async with app.run_test(size=(120, 36)) as pilot:
        await ready(pilot)
        await pilot.press("l", "t")
        await until(lambda: "QEMU has written no messages. t shows another" in screen_text(app))


async def test_what_happened_before_the_app_began_is_among_the_events() -> None:
    service = serving("console\n")
    service.world = replace(FULL, sandboxes=(WEB_PAST,))
    app = make_app(service)
    async with app.run_test(size=(120, 36)) as pilot:
        await ready(pilot)
        await pilot.press("l", "t", "t")
        await until(lambda: "created, from debian" in screen_text(app))
        text = screen_text(app)
        assert text.index("created, from debian") < text.index("checkpoint upgraded")
        assert "automatic checkpoint" in text


def test_a_long_line_is_cut_between_words_where_it_has_some() -> None:
    assert wrapped("network at 5326 ms", 12) == ["network at", "5326 ms"]
    assert wrapped("network at 5326 ms", 10) == ["network at", "5326 ms"]
    assert wrapped("a" * 7, 3) == ["aaa", "aaa", "a"]
    assert wrapped("漢字漢字", 5) == ["漢字", "漢字"]
