"""Mounts in the app: the form with its completion, the list, taking one away, the `:` line."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from quicksand.things.status import MountState
from textual.pilot import Pilot
from textual.widgets import Button, Input

from quicksand_tui.actions.all_actions import Scope, find_action
from quicksand_tui.actions.line import complete, verbs_of
from quicksand_tui.forms.verb_forms import (
    complete_directory,
    complete_mounts,
    find_mount_problems,
    look_at_directory,
    mount_form,
    mount_spec,
    read_spec,
    suggest_guest,
)
from quicksand_tui.model.jobs import Failure
from quicksand_tui.model.specs import MountSpec
from quicksand_tui.model.text import sanitise
from quicksand_tui.model.world import Selection
from quicksand_tui.screens.command_line import CommandScreen
from quicksand_tui.screens.confirm import ConfirmScreen
from quicksand_tui.screens.form import FormScreen
from quicksand_tui.screens.reports import FailureScreen
from quicksand_tui.ui.app import QuicksandApp
from quicksand_tui.verbs.launching import start
from quicksand_tui.views.mount_rows import mount_row, plan_mount_columns
from tests.each import each, trying
from tests.unit.app.corpus import HOSTILE
from tests.unit.app.fakes import (
    DATA,
    DB,
    GONE,
    LATER,
    MOUNTED,
    PAUSED,
    SRC,
    WEB,
    WEB_MOUNTS,
    FakeService,
    app_of,
    screen_text,
    select,
    shown,
    toasts,
    until,
)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with directories in it."""
    for name in ("src", "srv/www", ".hidden"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "file").touch()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def last_command(app: QuicksandApp) -> tuple[str, str]:
    record = app.operations.log[-1]
    return record.command, record.outcome


# The form


async def open_form(pilot: Pilot[int]) -> None:
    await pilot.press("M")
    await until(lambda: isinstance(app_of(pilot).screen, FormScreen))
    await until(lambda: isinstance(app_of(pilot).focused, Input))


async def test_a_directory_is_mounted_and_its_path_completed_while_typed(here: Path) -> None:
    service = FakeService()
    async with shown(service) as (app, pilot):
        await open_form(pilot)
        await pilot.press(*"sr")
        await until(lambda: "src/  srv/" in screen_text(app))
        await pilot.press("c")
        host = app.screen.query_one("#host", Input)
        await until(lambda: host._suggestion == "src/")
        await pilot.press("tab")
        await until(lambda: host.value == "src/")
        await until(lambda: "mount web src:/mnt/src" in screen_text(app))
        # Nothing is offered any more, so Tab goes on.
        await pilot.press("tab")
        assert app.screen.query_one("#guest").has_focus
        await pilot.press("down", "right")
        await until(lambda: "mount web src:/mnt/src:ro" in screen_text(app))
        await pilot.press("enter")
        await until(lambda: toasts(app))
        assert service.calls[-1] == f"mount {WEB.id} src /mnt/src ro"
        assert toasts(app) == ["web has src at /mnt/src"]
        assert last_command(app) == ("quicksand-tui mount web src:/mnt/src:ro", "done")


async def test_what_cannot_be_mounted_is_not_and_says_why(here: Path) -> None:
    service = FakeService()
    async with shown(service) as (app, pilot):
        await open_form(pilot)
        await pilot.press(*"file")
        await until(lambda: "is no directory" in screen_text(app).replace("\n", " "))
        await pilot.press("enter")
        await pilot.pause()
        assert isinstance(app.screen, FormScreen)
        assert app.screen.query_one("#take", Button).disabled
        assert not [call for call in service.calls if call.startswith("mount")]


def test_the_checks_are_those_of_the_engine(here: Path) -> None:
    good = MountSpec(host="src", guest="/mnt/src")
    assert find_mount_problems(good, WEB) == {}
    assert "already" in find_mount_problems(good, WEB_MOUNTS)["guest"]
    assert find_mount_problems(replace(good, guest="/srv"), WEB_MOUNTS) == {}, "only at its start"
    assert "absolute" in find_mount_problems(replace(good, guest="mnt"), WEB)["guest"]
    assert "guest's system" in find_mount_problems(replace(good, guest="/proc"), WEB)["guest"]
    assert set(find_mount_problems(MountSpec(host="", guest=""), WEB)) == {"host", "guest"}
    assert look_at_directory(good) == ""
    assert "is no directory" in look_at_directory(replace(good, host="file"))
    assert "No such file" in look_at_directory(replace(good, host="nothing"))
    assert look_at_directory(replace(good, host="a\0b")) == "", "told without a look"


@each(
    ("typed", "found"),
    [
        ("", ("src/", "srv/")),
        ("sr", ("src/", "srv/")),
        ("srv/", ("srv/www/",)),
        (".h", (".hidden/",)),
        ("file", ()),
        ("nothing/", ()),
        ("~", ("~/",)),
        ("a\0", ()),
        ("~nobody-of-that-name/", ()),
    ],
)
def test_directories_are_completed(here: Path, typed: str, found: tuple[str, ...]) -> None:
    assert complete_directory(typed) == found


@pytest.mark.parametrize(
    ("typed", "found"),
    [
        ("", ()),
        ("sr", ("src/", "srv/")),
        ("src:/src:ro sr", ("src:/src:ro src/", "src:/src:ro srv/")),
        ("src:/src ", ()),
        ("src:/s", ()),
        ("'sr", ()),
        ("a", ()),
        ("~", ("~/",)),
    ],
)
def test_the_last_of_several_mounts_is_completed(
    here: Path, typed: str, found: tuple[str, ...]
) -> None:
    (here / "a b").mkdir()
    assert complete_mounts(typed) == found


def test_a_name_that_cannot_be_typed_is_not_offered(here: Path) -> None:
    (here / "bad\x1b[2J").mkdir()
    assert complete_directory("b") == ()


def test_the_path_in_the_sandbox_is_suggested(here: Path) -> None:
    assert suggest_guest("src/") == "/mnt/src"
    assert suggest_guest(".") == f"/mnt/{here.name}"
    assert suggest_guest("/") == suggest_guest("") == ""


def test_the_form_shows_a_whole_command_before_all_is_typed() -> None:
    form = mount_form(WEB)
    assert form.command({"host": "", "guest": "", "mode": ""}) == (
        "quicksand-tui mount web HOST:GUEST"
    )


# The list


async def open_list(pilot: Pilot[int]) -> None:
    await pilot.press("D")
    await until(lambda: app_of(pilot).main.area.mounts.table.has_focus)
    await pilot.pause()


async def test_the_mounts_are_listed_and_one_is_taken_away() -> None:
    service = FakeService(MOUNTED)
    async with shown(service, size=(120, 36)) as (app, pilot):
        await open_list(pilot)
        await until(lambda: "/mnt/data" in screen_text(app))
        text = screen_text(app)
        for word in ("[Mounts]", "/mnt/data", "/home/me/src", "ro", "not served", "at its st"):
            assert word in text
        assert "quicksand-tui mounts web" in text
        await until(lambda: app.main.area.mounts.table.select(SRC.key))
        await pilot.pause()
        await pilot.press("d")
        await until(lambda: toasts(app))
        assert service.calls[-1] == f"unmount {WEB.id} /mnt/src"
        assert toasts(app) == ["/mnt/src is unmounted from web"]
        assert last_command(app) == ("quicksand-tui unmount web /mnt/src", "done")
        await until(lambda: "/home/me/src" not in screen_text(app).partition("Host")[2][:900])
        await pilot.press("escape")
        await until(lambda: app.main.sandboxes.table.has_focus)


async def test_by_force_only_after_a_question() -> None:
    service = FakeService(MOUNTED)
    async with shown(service) as (app, pilot):
        await open_list(pilot)
        await pilot.press("F")
        await until(lambda: isinstance(app.screen, ConfirmScreen))
        await until(lambda: "get errors" in screen_text(app))
        await pilot.press("F", "enter")
        await until(lambda: not isinstance(app.screen, ConfirmScreen))
        assert not [call for call in service.calls if call.startswith("unmount")]
        await pilot.press("F")
        await until(lambda: isinstance(app.screen, ConfirmScreen))
        await pilot.press("ctrl+y")
        await until(lambda: toasts(app))
        assert service.calls[-1] == f"unmount {WEB.id} {DATA.key} by force"
        assert last_command(app)[0] == "quicksand-tui unmount --force web /mnt/data"


async def test_one_that_is_in_use_stays_and_its_failure_is_shown() -> None:
    service = FakeService(MOUNTED)
    service.failure = Failure(
        title="The directory is still mounted", message="/mnt/data is in use in the guest"
    )
    async with shown(service) as (app, pilot):
        await open_list(pilot)
        await pilot.press("d")
        await until(lambda: isinstance(app.screen, FailureScreen))
        await until(lambda: "is in use in the guest" in screen_text(app))


async def test_a_sandbox_without_mounts_says_how_to_get_one() -> None:
    async with shown(FakeService()) as (app, pilot):
        await open_list(pilot)
        await until(lambda: "M mounts a directory." in screen_text(app))
        await pilot.press("d")
        await until(lambda: toasts(app))
        assert toasts(app) == ["no mount is selected"]
        await pilot.press("escape")
        await select(pilot, DB)
        await until(lambda: "It has no network card" in screen_text(app))


def test_what_is_possible_with_a_mount() -> None:
    why = find_action("unmount", Scope.MOUNTS).disabled_reason
    assert why(MOUNTED, Selection(sandbox=WEB_MOUNTS, mount=SRC)) is None
    assert why(MOUNTED, Selection(sandbox=WEB_MOUNTS, mount=GONE)) is None
    assert "next start" in str(why(MOUNTED, Selection(sandbox=WEB_MOUNTS, mount=LATER)))
    paused = replace(PAUSED, mounts=(SRC,))
    assert "paused" in str(why(MOUNTED, Selection(sandbox=paused, mount=SRC)))
    mount = find_action("mount").disabled_reason
    assert "network card" in str(mount(MOUNTED, Selection(sandbox=replace(WEB, network="none"))))


@each("text", HOSTILE)
def test_a_hostile_path_fits_its_row(text: str) -> None:
    for width in (20, 40, 60, 100, 300):
        columns = plan_mount_columns(width)
        shown = {column.key for column in columns}
        assert shown - {"rates"} == {"guest", "host", "mode", "state"}
        row = mount_row(replace(SRC, host=sanitise(text), guest=sanitise(text)))
        assert shown <= set(row.cells)


# The `:` line


async def test_the_line_mounts_and_unmounts(here: Path) -> None:
    service = FakeService(MOUNTED)
    async with shown(service) as (app, pilot):
        for line, call in (
            ("mount web src:/mnt/new:ro", f"mount {WEB.id} {here}/src /mnt/new ro"),
            ("unmount web /mnt/data", f"unmount {WEB.id} /mnt/data"),
        ):
            app.clear_notifications()
            await enter(app, pilot, line)
            await until(lambda: toasts(app))
            assert service.calls[-1] == call


async def test_the_line_says_what_is_wrong(here: Path) -> None:
    async with shown(FakeService(MOUNTED), size=(120, 36)) as (app, pilot):
        for line, says in {
            "mount web src": "is not HOST:GUEST",
            "mount web src:/mnt/src": "is mounted there already",
            "mount db src:/mnt/src": "does not run",
            "unmount web /mnt/nope": "nothing is mounted at /mnt/nope",
            "unmount web /srv": "only at the next start",
            "unmount web": "no mount is selected",
        }.items():
            with trying(line):
                await enter(app, pilot, line)
                await until(lambda says=says: says in screen_text(app))  # type: ignore[misc]
                assert isinstance(app.screen, CommandScreen)
                await pilot.press("escape")
                await until(lambda: app.screen is app.main)


async def enter(app: QuicksandApp, pilot: Pilot[int], line: str) -> None:
    app.everywhere.open_line(line)
    await until(lambda: isinstance(app.focused, Input) and app.focused.size)
    await pilot.press("enter")


async def test_mount_alone_on_the_line_opens_the_form() -> None:
    async with shown(FakeService()) as (app, pilot):
        await enter(app, pilot, "mount web")
        await until(lambda: isinstance(app.screen, FormScreen))
        await until(lambda: "Mount a directory in web" in screen_text(app))


def test_mounted_paths_are_completed_on_the_line() -> None:
    found = complete("unmount web /", verbs_of(Scope.MAIN), MOUNTED, None, ())
    assert [(one.text, one.about) for one in found.candidates] == [
        ("/mnt/data", "/data"),
        ("/mnt/old", "/old"),
        ("/mnt/src", "/home/me/src"),
    ]


# Clones


async def test_clones_get_the_mounts_only_if_asked() -> None:
    service = FakeService(MOUNTED)
    async with shown(service) as (app, pilot):
        await pilot.press("b")
        await until(lambda: isinstance(app.screen, FormScreen))
        await until(lambda: "none" in screen_text(app))
        await pilot.press("down", "right")
        await until(lambda: "clone web --mounts ro" in screen_text(app))
        await pilot.press("enter")
        await until(lambda: toasts(app))
        assert f"clone {WEB.id} 1 ro" in service.calls
    async with shown(FakeService()) as (app, pilot):
        await pilot.press("b")
        await until(lambda: isinstance(app.screen, FormScreen))
        assert not app.screen.query("#mounts")


def test_the_state_of_a_mount_has_a_word_and_a_glyph_of_its_own() -> None:
    texts = {mount_row(replace(SRC, state=state)).cells["state"].text for state in MountState}
    assert len({text[0] for text in texts}) == len(texts) == len(MountState)


def test_the_form_can_protect_what_programs_here_run() -> None:
    spec = mount_spec({"host": "src", "guest": "/src", "mode": "protect"})
    assert spec == MountSpec(host="src", guest="/src", protect=True)
    assert mount_form(WEB).command({"host": "src", "guest": "/src", "mode": "protect"}) == (
        "quicksand-tui mount web src:/src:protect"
    )
    assert read_spec("src:/src:protect").protect


async def test_what_the_guest_wrote_that_programs_here_run_is_shown() -> None:
    told = replace(SRC, told=(".git/hooks/pre-commit", *(f"{n}/.envrc" for n in range(5))))
    world = replace(MOUNTED, sandboxes=(replace(WEB_MOUNTS, mounts=(told,)), DB))
    async with shown(FakeService(world), size=(160, 45)) as (app, pilot):
        await until(lambda: "it wrote .git/hooks/pre-commit, 0/.envrc" in screen_text(app))
        assert "and 3 more" in screen_text(app)
        await open_list(pilot)
        await until(lambda: "! 6 to look at" in screen_text(app))


async def test_what_a_start_could_not_mount_is_told() -> None:
    service = FakeService()
    service.notices = ("not mounted at /mnt/data: /data cannot be mounted: No such file",)
    async with shown(service) as (app, _):
        app.operations.do(start(), DB)
        await until(lambda: toasts(app))
        assert toasts(app) == [f"db is running, but: {service.notices[0]}"]
