"""Images that are installed and uninstalled in the app."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from textual.widgets import Input

from quicksand_tui.forms.verb_forms import install_form, install_of
from quicksand_tui.model.jobs import CANCELLABLE, JobVerb
from quicksand_tui.screens.form import FormScreen
from tests.unit.app.fakes import (
    FULL,
    SIZE,
    FakeService,
    make_app,
    ready,
    screen_text,
    toasts,
    until,
)
from tests.unit.app.test_command_line import type_line


async def test_an_image_is_installed_by_a_form_as_a_job() -> None:
    service = FakeService()
    service.hold = asyncio.Event()
    app = make_app(service)
    async with app.run_test(size=SIZE) as pilot:
        await ready(pilot)
        await pilot.press("I")
        await until(lambda: isinstance(app.screen, FormScreen))
        await until(lambda: isinstance(app.focused, Input))
        await pilot.press("enter")
        await pilot.pause()
        assert service.calls == [], "it has no name yet"
        await pilot.press(*"alpine")
        await until(lambda: "quicksand-tui install alpine" in screen_text(app))
        await pilot.press("enter")
        await until(lambda: app.world.save_jobs)
        (job,) = app.world.save_jobs
        assert (job.verb, job.name) == (JobVerb.INSTALL, "alpine")
        assert job.verb in CANCELLABLE
        await until(lambda: "downloading 34%" in app.world.save_jobs[0].progress)
        service.hold.set()
        await until(lambda: "alpine 0.10.1 is installed" in toasts(app))
        assert service.calls == ["install alpine"]
        assert app.operations.log[-1].command == "quicksand-tui install alpine"


async def test_a_name_on_the_line_is_filled_into_the_form() -> None:
    service = FakeService()
    app = make_app(service)
    async with app.run_test(size=SIZE) as pilot:
        await ready(pilot)
        await type_line(pilot, "install alpine", enter=False)
        await pilot.press("enter")
        await until(lambda: isinstance(app.screen, FormScreen))
        await until(lambda: "quicksand-tui install alpine" in screen_text(app))
        assert app.screen.query_one("#names", Input).value == "alpine"
        assert service.calls == [], "the form asks first"


async def test_an_image_is_uninstalled_after_a_question() -> None:
    service = FakeService()
    app = make_app(service)
    async with app.run_test(size=SIZE) as pilot:
        await ready(pilot)
        await pilot.press("R")
        await until(lambda: "select an image first" in toasts(app))
        await pilot.press("3")
        await until(lambda: app.main.selection.image is not None)
        await pilot.press("R")
        await until(lambda: "Uninstall debian?" in screen_text(app))
        await pilot.press("enter")
        await until(lambda: "Uninstall debian?" not in screen_text(app))
        assert service.calls == [], "enter destroys nothing"
        await pilot.press("R")
        await until(lambda: "Uninstall debian?" in screen_text(app))
        await pilot.press("ctrl+y")
        await until(lambda: "debian is uninstalled" in toasts(app))
        assert service.calls == ["uninstall debian"]


def test_the_form_says_what_is_no_package(tmp_path: Path) -> None:
    form = install_form()
    values = {"names": "", "sources": "", "arch": ""}
    assert "names" in form.problems(values, FULL)
    assert (
        "is no name of an image package" in form.problems({**values, "names": "a b"}, FULL)["names"]
    )
    wheel = {**values, "names": str(tmp_path / "x.whl")}
    assert form.problems(wheel, FULL) == {}
    assert form.look is not None
    assert form.look(wheel) == {"names": "there is no such file"}
    (tmp_path / "x.whl").touch()
    assert form.look(wheel) == {}


def test_the_command_is_that_of_the_form() -> None:
    values = {"names": "alpine==0.10.1", "sources": "/srv/wheels", "arch": "arm64"}
    assert install_of(values).command_for() == (
        "quicksand-tui install --from /srv/wheels --arch arm64 alpine==0.10.1"
    )


def test_published_names_and_wheels_complete_what_is_typed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "alp.whl").touch()
    complete_package = install_form().fields[0].complete
    assert complete_package is not None
    assert complete_package("al") == ("alpine", "alpine-desktop", "alp.whl")
    assert complete_package("") == ("alp.whl",)
