"""The form of a new sandbox."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from textual.pilot import Pilot
from textual.widgets import Input

from quicksand_tui.application import QuicksandApp
from quicksand_tui.screens.new_sandbox import NewSandboxScreen
from quicksand_tui.snapshot import NewSpec
from tests.unit.app.fakes import (
    DEBIAN,
    FULL,
    SIZE,
    WEB,
    FakeService,
    make_app,
    ready,
    screen_text,
    until,
)


async def open_form(pilot: Pilot[int], app: QuicksandApp) -> NewSandboxScreen:
    await ready(pilot)
    await pilot.press("n")
    await until(lambda: isinstance(app.screen, NewSandboxScreen))
    form = app.screen
    assert isinstance(form, NewSandboxScreen)
    await until(lambda: isinstance(app.focused, Input))
    await pilot.pause()
    return form


async def test_enter_starts_what_is_suggested_and_the_cursor_goes_there() -> None:
    service = FakeService()
    service.hold = asyncio.Event()
    app = make_app(service)
    async with app.run_test(size=SIZE) as pilot:
        form = await open_form(pilot, app)
        assert form.spec == NewSpec(image="debian", name="debian-1")
        await pilot.press("enter")
        await until(lambda: "create debian-1" in service.calls)
        await until(lambda: "5/5 boot the guest" in screen_text(app))
        selected = app.main.selection.sandbox
        assert selected is not None and selected.name == "debian-1"
        service.hold.set()
        await until(lambda: "✓" in screen_text(app))
        selected = app.main.selection.sandbox
        assert selected is not None and selected.name == "debian-1"
        assert [s.name for s in app.snapshot.sandboxes].count("debian-1") == 1


async def test_problems_show_as_one_types_and_keep_enter_from_starting() -> None:
    service = FakeService()
    app = make_app(service)
    async with app.run_test(size=SIZE) as pilot:
        form = await open_form(pilot, app)
        form.query_one("#memory", Input).value = "banana"
        await until(lambda: "512M" in screen_text(app) and "like" in screen_text(app))
        await pilot.press("enter")
        await until(lambda: form.query_one("#memory").has_focus)
        assert service.calls == []
        form.query_one("#memory", Input).value = "1G"
        await pilot.pause()
        assert "--memory 1G" in screen_text(app)
        await pilot.press("enter")
        await until(lambda: "create debian-1" in service.calls)


async def test_another_image_suggests_another_name_unless_one_was_typed() -> None:
    world = replace(FULL, images=(DEBIAN, replace(DEBIAN, name="alpine")))
    app = make_app(FakeService(world))
    async with app.run_test(size=SIZE) as pilot:
        form = await open_form(pilot, app)
        form.query_one("#image").focus()
        await pilot.press("right")
        await until(lambda: form.spec.name == "alpine-1")
        form.query_one("#name", Input).value = "mine"
        await pilot.press("left")
        await until(lambda: form.spec.image == "debian")
        await pilot.pause()
        assert form.spec.name == "mine"


async def test_the_network_is_chosen_by_arrows_and_in_the_command() -> None:
    app = make_app(FakeService())
    async with app.run_test(size=SIZE) as pilot:
        form = await open_form(pilot, app)
        form.query_one("#network").focus()
        await pilot.press("right")
        await until(lambda: "--network full" in screen_text(app))
        assert form.spec.network == "full"


async def test_a_name_that_another_program_takes_meanwhile_is_refused() -> None:
    service = FakeService()
    app = make_app(service)
    async with app.run_test(size=SIZE) as pilot:
        await open_form(pilot, app)
        taken = replace(WEB, id="999999999999", name="debian-1")
        service.world = replace(service.world, sandboxes=(*service.world.sandboxes, taken))
        app.refresh_now()
        await until(lambda: "debian-1 is taken" in screen_text(app))


async def test_an_image_of_the_other_panel_is_preselected() -> None:
    world = replace(FULL, images=(replace(DEBIAN, name="alpine"), DEBIAN))
    app = make_app(FakeService(world))
    async with app.run_test(size=SIZE) as pilot:
        await ready(pilot)
        await pilot.press("3", "enter")
        await until(lambda: isinstance(app.screen, NewSandboxScreen))
        await pilot.pause()
        assert isinstance(app.screen, NewSandboxScreen)
        assert app.screen.spec.image == "alpine"


async def test_escape_and_the_cancel_button_start_nothing() -> None:
    service = FakeService()
    app = make_app(service)
    async with app.run_test(size=SIZE) as pilot:
        await open_form(pilot, app)
        await pilot.press("escape")
        await until(lambda: app.screen is app.main)
        form = await open_form(pilot, app)
        form.query_one("#cancel").focus()
        await until(lambda: form.query_one("#cancel").has_focus)
        await pilot.press("enter")
        await until(lambda: app.screen is app.main)
        assert service.calls == []
