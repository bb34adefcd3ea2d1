"""The form of a new sandbox."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from quicksand.things.image_info import ImageInfo
from textual.pilot import Pilot
from textual.widgets import Input, Static

from quicksand_tui.forms import new_sandbox
from quicksand_tui.forms.presets import MORE, NAME, Last, recall_last
from quicksand_tui.forms.verb_forms import complete_file
from quicksand_tui.home.config_file import ConfigFile, Settings
from quicksand_tui.model.specs import NewSpec
from quicksand_tui.model.world import World
from quicksand_tui.screens.form import FormScreen
from quicksand_tui.ui.app import QuicksandApp
from quicksand_tui.verbs.launching import run_command
from quicksand_tui.widgets.inputs import Choice
from tests.each import each, trying
from tests.unit.app.fake_saves import DEV, saved, view_of
from tests.unit.app.fakes import (
    DEBIAN,
    EMPTY,
    FULL,
    SIZE,
    WEB,
    FakeService,
    make_app,
    ready,
    screen_text,
    send,
    until,
)
from tests.unit.saves.bundles.making import pack
from tests.unit.saves.bundles.test_images import image

USUAL = {"memory": "512M", "cpus": "1", "network_mode": "mounts_only"}
ALPINE = replace(DEBIAN, name="alpine")


async def open_form(pilot: Pilot[int], app: QuicksandApp) -> FormScreen:
    await ready(pilot)
    await pilot.press("n")
    await until(lambda: isinstance(app.screen, FormScreen))
    form = app.screen
    assert isinstance(form, FormScreen)
    await until(lambda: isinstance(app.focused, Input))
    await until(lambda: app.present.saves.loaded)
    await pilot.pause()
    return form


def put(form: FormScreen, **values: str) -> None:
    for field, value in values.items():
        form.query_one(f"#{field}", Input).value = value


async def focus(form: FormScreen, field: str) -> None:
    form.query_one(f"#{field}").focus()
    await until(lambda: form.query_one(f"#{field}").has_focus)


async def test_enter_starts_what_is_suggested_and_the_cursor_goes_there() -> None:
    service = FakeService()
    service.hold = asyncio.Event()
    app = make_app(service)
    async with app.run_test(size=SIZE) as pilot:
        await open_form(pilot, app)
        await pilot.press("enter")
        await until(lambda: service.made)
        assert service.made == [NewSpec(image="debian", name="debian-1", machine=USUAL)]
        await until(lambda: "5/5 boot the guest" in screen_text(app))
        selected = app.main.selection.sandbox
        assert selected is not None and selected.name == "debian-1"
        service.hold.set()
        await until(lambda: "✓" in screen_text(app))
        selected = app.main.selection.sandbox
        assert selected is not None and selected.name == "debian-1"
        assert [s.name for s in app.world.sandboxes].count("debian-1") == 1


async def test_the_config_says_where_the_memory_of_new_sandboxes_is_kept(tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    config.write_text('memory_dir = "/fast"\n')
    service = FakeService()
    app = make_app(service, settings=Settings(ConfigFile(config)))
    async with app.run_test(size=SIZE) as pilot:
        await open_form(pilot, app)
        await until(lambda: "--memory-dir /fast" in screen_text(app))
        await pilot.press("enter")
        await until(lambda: service.made)
        assert service.made[0].machine == {**USUAL, "memory_dir": "/fast"}
        kept = app.memory.remembered.get("new_sandbox")
        assert "memory_dir" not in str(kept)


async def test_problems_show_as_one_types_and_keep_enter_from_starting() -> None:
    """Also those that another program makes meanwhile."""
    service = FakeService(replace(FULL, host=replace(FULL.host, cpus=2)))
    app = make_app(service)
    async with app.run_test(size=SIZE) as pilot:
        form = await open_form(pilot, app)
        await until(lambda: "the host has 2" in screen_text(app))
        assert "mounts_only" in screen_text(app) and "mounts-only" not in screen_text(app)
        put(form, memory="banana")
        await until(lambda: 'write it like "512M"' in screen_text(app))
        await pilot.press("enter")
        await until(lambda: form.query_one("#memory").has_focus)
        assert service.made == []
        put(form, memory="1G", port_forwards="8080:80")
        await until(lambda: "port 8080 leads to web already" in screen_text(app))
        put(form, port_forwards="0:80, 22", name="mine")
        await until(lambda: "--name mine --memory 1G" in command_of(form))
        taken = replace(WEB, id="999999999999", name="mine")
        service.world = replace(service.world, sandboxes=(*service.world.sandboxes, taken))
        app.refresh_now()
        await until(lambda: "mine is taken" in screen_text(app))
        put(form, name="other")
        await until(lambda: "--publish 0:80" in screen_text(app))
        await pilot.press("enter")
        await until(lambda: service.made)
        made = service.made[0].machine
        assert (made["memory"], made["port_forwards"]) == ("1G", "0:80, 22")


async def test_what_is_typed_behind_enter_makes_nothing_good_that_it_took(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    service = FakeService()
    app = make_app(service)
    answered = threading.Event()

    def look(_: str) -> str:
        assert answered.wait(60)
        return ""

    async with app.run_test(size=SIZE) as pilot:
        form = await open_form(pilot, app)
        put(form, memory="banana")
        await until(lambda: 'write it like "512M"' in screen_text(app))
        monkeypatch.setattr(new_sandbox, "look_at_ports", look)
        await pilot.press("enter")
        put(form, memory="1G")
        await until(lambda: "--memory 1G" in screen_text(app))
        answered.set()
        await until(lambda: service.made or form.query_one("#memory").has_focus)
        assert service.made == []


async def test_what_is_chosen_by_arrows_suggests_the_rest_unless_that_was_typed() -> None:
    app = make_app(FakeService(replace(FULL, images=(DEBIAN, ALPINE))))
    async with app.run_test(size=SIZE) as pilot:
        form = await open_form(pilot, app)
        await focus(form, "preset")
        await pilot.press("right")
        await until(lambda: "--memory 1G --cpus 2" in screen_text(app))
        put(form, memory="1300M")
        await until(lambda: form.values["preset"] == "own")
        put(form, memory="2G", cpus="4")
        await until(lambda: form.values["preset"] == "large")
        await pilot.press("left")
        await until(lambda: (form.values["memory"], form.values["cpus"]) == ("1G", "2"))
        await focus(form, "network_mode")
        await pilot.press("right")
        await until(lambda: "--network full" in screen_text(app))
        assert form.values["network_mode"] == "full"
        await focus(form, "begin")
        await pilot.press("right")
        await until(lambda: form.values["name"] == "alpine-1")
        put(form, name="mine")
        await pilot.press("left")
        await until(lambda: form.values["begin"] == "image:debian")
        await pilot.pause()
        assert form.values["name"] == "mine"


async def test_an_image_or_a_save_is_found_by_typing_a_bit_of_its_name() -> None:
    service = FakeService(replace(FULL, images=(DEBIAN, ALPINE)))
    app = make_app(service)
    async with app.run_test(size=SIZE) as pilot:
        form = await open_form(pilot, app)
        await focus(form, "begin")
        await pilot.press("d", "e", "v", "2")
        await until(lambda: form.values["begin"] == "save:/saves/dev2")
        await until(lambda: "1 of 6" in screen_text(app))
        await pilot.press("x")
        await until(lambda: "choose an image or a save" in screen_text(app))
        await pilot.press("enter")
        await pilot.pause()
        assert service.made == []
        await pilot.press("backspace", "enter")
        await until(lambda: service.made)
        made = service.made[0]
        assert (made.save, made.image, made.name) == ("/saves/dev2", "dev2", "dev2-1")
        assert made.machine == {}


async def test_a_file_is_typed_and_its_values_are_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "web.quicksand").write_bytes(b"nothing")
    service = FakeService()
    app = make_app(service)
    async with app.run_test(size=SIZE) as pilot:
        form = await open_form(pilot, app)
        assert not form.query_one("#row-file").display
        await focus(form, "begin")
        await pilot.press(*"a file")
        await until(lambda: form.values["begin"] == "file:")
        await until(lambda: form.query_one("#row-file").display)
        await focus(form, "name")
        await pilot.press("enter")
        await pilot.pause()
        assert service.made == [], "it has no path yet"
        put(form, file="web.quicksand")
        await until(lambda: "cut off" in screen_text(app))
        put(form, file="no.quicksand")
        await until(lambda: "there is no such file" in screen_text(app))
        (tmp_path / "web.quicksand").write_bytes(pack(image()))
        put(form, file="web.quicksand")
        await until(lambda: form.values["name"] == "web-1")
        await focus(form, "name")
        await pilot.press("enter")
        await until(lambda: service.made)
        assert service.made == [NewSpec(image="./web.quicksand", name="web-1", is_file=True)]
        assert run_command(service.made[0]) == (
            "quicksand-tui run ./web.quicksand --name web-1 --detach"
        )


def test_a_path_is_completed_with_directories_and_bundles(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "w").mkdir()
    for name in ("web.quicksand", "web.txt"):
        (tmp_path / name).touch()
    assert complete_file("w", (".quicksand",)) == ("w/", "web.quicksand")
    assert complete_file(f"{tmp_path}/we", (".quicksand",)) == (f"{tmp_path}/web.quicksand",)


OFFERED = saved(
    "offered",
    place="workspace",
    address="./offered",
    is_own=False,
    network="mounts_only",
    left_out=("network full", "ports 8080->80"),
)
WIDE = saved("wide", network="full", ports="8080:80")


async def test_the_form_tells_where_a_save_comes_from_and_what_it_gets() -> None:
    service = FakeService()
    service.kept = view_of(OFFERED, WIDE)
    app = make_app(service)
    async with app.run_test(size=SIZE) as pilot:
        form = await open_form(pilot, app)
        form.query_one("#begin", Choice).value = f"save:{OFFERED.key}"
        await until(lambda: "from /saves/offered; left out unless chosen" in screen_text(app))
        text = screen_text(app)
        assert "network full; ports 8080->80" in text and "save from elsewhere" in text
        assert "mounts_only: reaches its mounts only" in text
        form.query_one("#begin", Choice).value = f"save:{WIDE.key}"
        await until(lambda: "as saved: 8080:80" in screen_text(app))
        await until(lambda: "full: reaches all the host can" in screen_text(app))
        assert "from elsewhere" not in screen_text(app)
        put(form, port_forwards="9090:90")
        await until(lambda: "as saved: 8080:80" not in screen_text(app))
        form.query_one("#begin", Choice).value = f"save:{OFFERED.key}"
        await until(lambda: "run ./offered --name offered-1" in screen_text(app))
        form.query_one("#take").focus()
        await pilot.press("enter")
        await until(lambda: service.made)
        made = service.made[0]
        assert made.save == OFFERED.key and made.machine.keys() == {"port_forwards"}


async def test_what_is_rarely_needed_stands_behind_more_and_counts_while_it_is_seen() -> None:
    service = FakeService()
    app = make_app(service)
    async with app.run_test(size=(80, 26)) as pilot:
        form = await open_form(pilot, app)
        assert not form.query_one("#row-disk_size").display
        await focus(form, "more")
        await pilot.press("right")
        await until(lambda: form.query_one("#row-disk_size").display)
        await pilot.press("tab")
        await until(lambda: form.query_one("#arch").has_focus)
        await pilot.press("tab")
        await until(lambda: form.query_one("#accel").has_focus)
        await pilot.press("right")
        put(form, disk_size="20G", extra_qemu_args="-name 'a b'")
        await until(lambda: "--disk-size" in screen_text(app))
        await until(lambda: form.values["accel"] == "kvm")
        assert form.values["preset"] == "small"
        await focus(form, "more")
        await pilot.press("left")
        await until(lambda: "--disk-size" not in screen_text(app))
        await pilot.press("right", "enter")
        await until(lambda: service.made)
        rare = {"accel": "kvm", "disk_size": "20G", "extra_qemu_args": "-name 'a b'"}
        assert service.made[0].machine == {**USUAL, **rare}


async def test_a_field_that_was_just_shown_is_the_next_one_before_it_has_a_place() -> None:
    app = make_app(FakeService())
    async with app.run_test(size=SIZE) as pilot:
        form = await open_form(pilot, app)
        more = form.query_one("#more", Choice)
        form.set_focus(more)
        more.value = "yes"
        form.on_choice_changed(Choice.Changed(more))
        form.action_move(1)
        assert form.focused is form.query_one("#arch")
        form.action_move(-1)
        assert form.focused is more
        form.set_focus(None)
        form.action_move(1)
        assert form.focused is form.query_one("#begin")


class Lingering(Static):
    """Is the last of a form's widgets to go, and has the form look at the world then."""

    async def on_unmount(self) -> None:
        form = self.screen
        assert isinstance(form, FormScreen)
        await until(lambda: not form.query("#wrong-begin"))
        form.update_world(World(taken=0.0, loaded=True))
        self.app.sub_title = "has seen it"


@each("how", ["leave", "quit"])
async def test_a_form_that_is_ending_looks_at_nothing(how: str) -> None:
    app = make_app(FakeService())
    async with app.run_test(size=SIZE) as pilot:
        form = await open_form(pilot, app)
        await form.query_one("VerticalScroll").mount(Lingering())
        if how == "leave":
            await pilot.press("escape")
            await until(lambda: app.sub_title)
    assert app.sub_title == "has seen it"


async def test_what_was_used_last_is_there_again_but_for_what_it_could_reach() -> None:
    service = FakeService()
    app = make_app(service)
    async with app.run_test(size=SIZE) as pilot:
        form = await open_form(pilot, app)
        put(form, memory="640M", cpus="3", port_forwards="0:8", boot_timeout="90")
        put(form, mounts="/tmp:/mnt/tmp")
        for field, value in {"more": "yes", "network_mode": "full", "agent_http": "yes"}.items():
            form.query_one(f"#{field}", Choice).value = value
        await until(lambda: "--agent-http" in command_of(form))
        await pilot.press("enter")
        await until(lambda: service.made)
        assert service.made[0].machine["network_mode"] == "full"
        assert recall_last(app.memory.remembered) == Last(
            begin="image:debian",
            image="debian",
            machine={"memory": "640M", "cpus": "3", "boot_timeout": "90"},
        )
        form = await open_form(pilot, app)
        assert form.values["preset"] == "last"
        assert (form.values["memory"], form.values["cpus"]) == ("640M", "3")
        assert form.values["network_mode"] == "mounts_only"
        widens = ("port_forwards", "mounts", "agent_http", "extra_qemu_args", "vnc_port")
        assert not any(form.values[keyword] for keyword in widens)
        await until(lambda: "without network and mounts" in screen_text(app))
        await pilot.press("enter")
        await until(lambda: len(service.made) == 2)
        assert dict(service.made[1].machine) == {**USUAL, "memory": "640M", "cpus": "3"} | {
            "boot_timeout": "90"
        }


async def test_a_save_of_last_time_that_is_gone_makes_room_for_an_image() -> None:
    service = FakeService()
    service.kept = view_of()
    app = make_app(service)
    app.memory.remembered.put(
        NAME, asdict(Last(begin="save:/saves/dev", image="dev", machine={"network_mode": "none"}))
    )
    async with app.run_test(size=SIZE) as pilot:
        form = await open_form(pilot, app)
        await until(lambda: form.values["begin"] == "image:debian")
        await until(lambda: form.values["memory"] == "512M")
        assert form.query_one("#preset", Choice).value in ("last", "small")
        await pilot.press("enter")
        await until(lambda: service.made)
        assert service.made[0].save == ""


async def test_a_save_of_last_time_is_known_before_the_saves_are_read() -> None:
    service = FakeService()
    service.kept = view_of(DEV)
    app = make_app(service)
    app.memory.remembered.put(
        NAME, asdict(Last(begin=f"save:{DEV.key}", image="dev", machine={"memory": "1G"}))
    )
    async with app.run_test(size=SIZE) as pilot:
        form = await open_form(pilot, app)
        assert form.values["begin"] == f"save:{DEV.key}"
        assert (form.values["memory"], form.values["cpus"]) == ("1G", "")
        await until(lambda: "run dev --name dev-1 --memory 1G --detach" in screen_text(app))


async def test_an_image_of_the_other_panel_is_preselected() -> None:
    app = make_app(FakeService(replace(FULL, images=(ALPINE, DEBIAN))))
    async with app.run_test(size=SIZE) as pilot:
        await ready(pilot)
        await pilot.press("3", "enter")
        await until(lambda: isinstance(app.screen, FormScreen))
        await pilot.pause()
        assert isinstance(app.screen, FormScreen)
        assert app.screen.values["begin"] == "image:alpine"


async def test_escape_and_the_cancel_button_start_nothing() -> None:
    service = FakeService()
    app = make_app(service)
    async with app.run_test(size=SIZE) as pilot:
        await open_form(pilot, app)
        await pilot.press("escape")
        await until(lambda: app.screen is app.main)
        form = await open_form(pilot, app)
        await focus(form, "cancel")
        await pilot.press("enter")
        await until(lambda: app.screen is app.main)
        assert service.calls == []


BURSTS = {
    "letters and enter": (["m", "i", "n", "e", "enter"], {"name": "mine"}),
    "backspace between": (["a", "b", "backspace", "c", "enter"], {"name": "ac"}),
    "on to another field": (
        ["w", "tab", "tab", "1", "G", "tab", "2", "enter"],
        {"name": "w", "memory": "1G", "cpus": "2"},
    ),
    "back again": (["w", "up", "a", "down", "x", "enter"], {"name": "x"}),
    "a choice": (
        ["w", "tab", "right", "tab", "tab", "tab", "right", "enter"],
        {"network_mode": "full"},
    ),
}


async def test_keys_that_come_in_one_burst_all_count_in_their_order() -> None:
    """As a slow line delivers them: nothing waits for one key before the next one is there, also
    not for the form."""
    world = replace(FULL, images=(DEBIAN, ALPINE))
    service = FakeService(world)
    app = make_app(service)
    async with app.run_test(size=SIZE) as pilot:
        await ready(pilot)
        send(app, ["n", "f", "i", "r", "s", "t", "enter"])
        await until(lambda: service.made)
        assert service.made[0].name == "first"
        for burst, (keys, wanted) in BURSTS.items():
            with trying(burst):
                await until(lambda: not app.operations.jobs)
                service.world = world
                service.made.clear()
                app.memory.remembered.put(NAME, {})
                await open_form(pilot, app)
                send(app, keys)
                await until(lambda: service.made)
                made = service.made[0]
                assert {"name": made.name, **made.machine}.items() >= wanted.items()


async def test_in_a_low_terminal_the_field_that_has_the_focus_can_be_seen() -> None:
    app = make_app(FakeService())
    async with app.run_test(size=(60, 11)) as pilot:
        form = await open_form(pilot, app)
        await focus(form, "port_forwards")
        await pilot.press("8", "0")
        await until(lambda: "Ports       80" in screen_text(app))


async def test_on_a_fresh_machine_n_begins_with_what_is_built_first() -> None:
    service = FakeService(replace(EMPTY, images=(ImageInfo(name="debian", source="recipe"),)))
    app = make_app(service)
    async with app.run_test(size=SIZE) as pilot:
        await open_form(pilot, app)
        await until(lambda: "not built yet" in screen_text(app))
        await pilot.press("enter")
        await until(lambda: service.made)
        assert service.made == [NewSpec(image="debian", name="debian-1", machine=USUAL)]


DESKTOP = replace(
    DEBIAN, name="desktop", machine={"memory": "2G", "cpus": "2", "enable_display": "yes"}
)


def shown(form: FormScreen) -> tuple[str, str, str, str]:
    values = form.values
    return values["memory"], values["cpus"], values["enable_display"], values["preset"]


def command_of(form: FormScreen) -> str:
    """The shown command, also where it is scrolled out of sight."""
    return str(form.query_one("#command", Static).content)


async def test_an_image_brings_its_suggestions_and_takes_them_away_again() -> None:
    service = FakeService(replace(FULL, images=(DEBIAN, DESKTOP)))
    app = make_app(service)
    async with app.run_test(size=SIZE) as pilot:
        form = await open_form(pilot, app)
        assert shown(form) == ("512M", "1", "", "small")
        await focus(form, "begin")
        await pilot.press("right")
        await until(lambda: shown(form) == ("2G", "2", "yes", "own"))
        # What it suggests need not be said.
        await until(lambda: "run desktop --name desktop-1 --detach" in command_of(form))
        put(form, cpus="1")
        await until(lambda: "--cpus 1" in command_of(form))
        await pilot.press("left")
        await until(lambda: shown(form)[:3] == ("512M", "1", ""))
        await pilot.press("right")
        await until(lambda: shown(form)[:3] == ("2G", "2", "yes"))
        # The default of other images is something to say for this one.
        put(form, memory="512M")
        await until(lambda: "--memory 512M" in command_of(form))
        await pilot.press("enter")
        await until(lambda: service.made)
    (made,) = service.made
    assert dict(made.machine) == {**USUAL, "cpus": "2", "enable_display": "yes"}


async def test_a_form_that_opens_at_an_image_has_its_suggestions_unless_it_was_used_last() -> None:
    world = replace(FULL, images=(DEBIAN, DESKTOP))
    own = Last(begin="image:desktop", image="desktop", machine={"memory": "1G", "cpus": "1"})
    other = replace(own, begin="image:debian", image="debian")
    found = []
    for last in (None, other, own):
        form, spec_of = new_sandbox.new_form(world, begin="image:desktop", last=last)
        spec = spec_of({field.id: field.value for field in form.fields})
        found.append((spec.machine["memory"], spec.machine.get("enable_display", "")))
        without = {**{field.id: field.value for field in form.fields}, MORE: "yes"}
        declined = spec_of({**without, "enable_display": ""})
        assert declined.machine["enable_display"] == "no"
        assert "--no-display" in run_command(declined)
    assert found == [("2G", "yes"), ("2G", "yes"), ("1G", "")]
