"""Saves and the trash of several machines on their screens: groups, rows of a machine that is away,
and what is done where."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from quicksand.life.kept_things import RemovedSave, RemovedSaves, RestoredThings, Swept
from quicksand.saves.save_manifest import Save
from quicksand.saves.verifying import Verdict
from quicksand.things.save import SaveFacts, TrashFacts, freed_together
from textual.pilot import Pilot

from quicksand_tui.model.shown_saves import SavesView, all_together
from quicksand_tui.model.world import MachineState, World
from quicksand_tui.screens.confirm import ConfirmScreen
from quicksand_tui.screens.form import FormScreen
from quicksand_tui.screens.saves_and_trash import TrashScreen
from quicksand_tui.ui.app import QuicksandApp
from quicksand_tui.verbs.call import Call, Report, words_of
from quicksand_tui.verbs.index import find_verb
from quicksand_tui.verbs.verdicts import Verified
from quicksand_tui.views.save_rows import arrange_saves, listed_saves
from tests.unit.app.fake_saves import APP, DEV, DEV2, GONE, NOW, SAVES, trashed, view_of
from tests.unit.app.fakes import FakeService, screen_text, shown, toasts, until
from tests.unit.app.saves_screens import browsing, go_to, last_command, saves_shown
from tests.unit.app.test_machines import BOX, LAB, WORLD, lines

T = TypeVar("T")
WIDE = (110, 34)
Kept = TypeVar("Kept", SaveFacts, TrashFacts)


def there(view: Kept, host: str, **more: Any) -> Kept:
    """A thing as its machine tells it."""
    return replace(view, host=host, **more)


WEB_SANDBOX = trashed("web", path="/boxes/.trash/0123456789ab", id="0123456789ab", kind="sandbox")
OF_BOX = view_of(there(DEV, "box"), there(DEV2, "box"), trash=(there(WEB_SANDBOX, "box"),))
OF_LAB = view_of(there(APP, "lab", away=True), trash=(there(GONE, "lab", away=True),))
PARTS = {"": view_of(APP, DEV, trash=(GONE,)), "box": OF_BOX, "lab": OF_LAB}
BOX_DEV, BOX_DEV2 = (f"box:{save.key}" for save in (DEV, DEV2))
LAB_APP = f"lab:{APP.key}"


class FarService(FakeService):
    """A service with three machines, which notes what is asked of the others."""

    def __init__(self, parts: dict[str, SavesView] | None = None) -> None:
        super().__init__(WORLD)
        self.kept = all_together(parts or PARTS)
        self.asked: list[tuple[str, list[str]]] = []
        """The machines, and the words of commands."""
        self.wanted: list[bool] = []

    def read_saves(self, *, fresh: bool = False, there: bool = False) -> SavesView:
        self.wanted.append(there)
        return super().read_saves(fresh=fresh)

    async def carry_out(self, verb: Call[T], sandbox_id: str, report: Report) -> T:
        if not verb.host:
            return await super().carry_out(verb, sandbox_id, report)
        assert sandbox_id.endswith(f"@{verb.host}"), "the door finds the machine by this"
        self.asked.append((verb.host, words_of(find_verb(verb.name), "", verb.values)))
        result: Any = RestoredThings(names=["it"], failed=(), swept=Swept())
        if verb.name == "saves rm":
            gone = RemovedSave(name="it", own=0, removed=NOW)
            result = RemovedSaves(each=[gone], swept=Swept())
        if verb.name == "saves verify":
            bad = {"overlays/0.qcow2": "too short\x1b[31m"}
            save = Save(name="dev", root=Path(DEV.key), manifest=None)
            result = Verified([Verdict(save=save, deep=True, problems=bad)], 0, 0.0, NOW)
        if verb.name == "trash":
            result = ("web",)
        return result  # type: ignore[no-any-return]


@asynccontextmanager
async def far_saves(
    *keys: str, service: FarService | None = None
) -> AsyncIterator[tuple[FarService, QuicksandApp, Pilot[int]]]:
    found = service or FarService()
    async with saves_shown(found, *keys, size=WIDE) as (app, pilot):
        yield found, app, pilot


def chosen(app: QuicksandApp) -> Sequence[str]:
    return [save.key for save in browsing(app).selection.saves]


async def test_the_panel_tells_of_the_machine_whose_header_is_selected() -> None:
    async with shown(FarService(), size=(160, 45)) as (app, pilot):
        await pilot.press("2")
        await until(lambda: app.main.shows_saves and "▾ box  2 saves" in screen_text(app))
        saves = app.main.lists.saves.table
        for key, told in (
            ("machine:", "2 saves, "),
            ("machine:box", "2 saves, 69M"),
            ("machine:lab", "shown as it was; nothing can be done with it now"),
        ):
            assert saves.select(key)
            await until(lambda told=told: told in about(app))  # type: ignore[misc]


def about(app: QuicksandApp) -> str:
    """What the details show."""
    return "\n".join(str(line) for line in app.main.area.details._text._lines)


async def test_each_machine_is_a_group_and_only_an_open_screen_asks_them() -> None:
    async with far_saves() as (service, app, pilot):
        text = screen_text(app)
        at = lines(text, "▾ this machine  2 saves", "▾ box  2 saves, 69M", "▾ lab  away for 12s")
        assert at == sorted(at)
        assert "· 1 save, 3.0M" in text
        # Names stand without their machine below its header.
        assert "dev@box" not in text
        await go_to(pilot, BOX_DEV)
        await until(lambda: "dev@box" in screen_text(app) and "Machine" in screen_text(app))
        assert "quicksand-tui --host box run dev" in screen_text(app)
        assert service.wanted[-1]
        await pilot.press("q")
        await until(lambda: not app.saves.is_running)
        assert not service.wanted[-1]


async def test_nothing_is_asked_of_a_machine_before_a_screen_shows_saves() -> None:
    service = FarService()
    async with saves_shown(service, "q") as (app, _):
        await until(lambda: not app.saves.is_running)
        service.wanted.clear()
        app.watch_saves()  # as for their number, a second after the start
        await until(lambda: not app.saves.is_running)
        assert service.wanted and not any(service.wanted)


async def test_a_header_tells_of_its_machine_and_takes_no_mark() -> None:
    async with far_saves() as (_, app, pilot):
        await go_to(pilot, LAB.key)
        await until(lambda: "cannot connect to lab" in screen_text(app))
        assert "nothing can be done with it now" in screen_text(app)
        await pilot.press("space", "d", "y")
        assert not browsing(app).browser.marked and not isinstance(app.screen, ConfirmScreen)
        await pilot.press("asterisk")
        assert len(browsing(app).selection.marked) == 5


async def test_what_is_chosen_on_several_machines_is_deleted_on_each() -> None:
    async with far_saves() as (service, app, pilot):
        await go_to(pilot, DEV.key)
        await pilot.press("space")
        await go_to(pilot, BOX_DEV)
        await pilot.press("space", "d")
        await until(lambda: isinstance(app.screen, ConfirmScreen))
        assert "Delete 2 saves?" in screen_text(app) and "dev@box, 64M" in screen_text(app)
        # One file of this machine, and one of the other with the same number: neither is freed.
        assert "Deleting for good frees 24K" in screen_text(app)
        await pilot.press("ctrl+y")
        await until(lambda: service.asked and f"delete {DEV.key}" in service.calls)
        assert service.asked == [("box", ["saves", "rm", DEV.key])]
        commands = {record.command for record in app.operations.log}
        assert "quicksand-tui --host box saves rm dev" in commands
        assert "quicksand-tui saves rm dev" in commands


def test_files_of_two_machines_are_not_the_same_file() -> None:
    one, other = replace(DEV, own=0), there(replace(DEV, own=0), "box")
    shared = {(1, 5): (100, 2, 1)}
    pair = [replace(view, shared_files=shared) for view in (one, other)]
    assert freed_together(pair) == 0
    assert freed_together([pair[0], replace(pair[0], path="/b")]) == 100


async def test_verifying_tells_what_the_machine_has_found() -> None:
    async with far_saves() as (service, app, pilot):
        await go_to(pilot, BOX_DEV)
        await pilot.press("F")
        await until(lambda: "dev is not whole" in screen_text(app))
        assert service.asked == [
            ("box", ["saves", "verify", "--deep", DEV.key]),
        ]
        assert "\x1b" not in screen_text(app)


async def test_a_sandbox_starts_from_a_save_on_its_machine() -> None:
    service = FarService()
    async with far_saves(service=service) as (_, app, pilot):
        await go_to(pilot, BOX_DEV)
        await pilot.press("enter")
        await until(lambda: "Machine     ◂ box ▸" in screen_text(app))
        assert "◂ dev ▸" in screen_text(app)
        await until(lambda: "quicksand-tui --host box run dev --name dev-1" in screen_text(app))
        await pilot.press("enter")
        await until(lambda: service.made)
        (spec,) = service.made
        assert (spec.host, spec.image, spec.save) == ("box", "dev", BOX_DEV)


async def test_pruning_is_of_the_machine_under_the_cursor() -> None:
    async with far_saves() as (service, app, pilot):
        await go_to(pilot, BOX_DEV)
        await pilot.press("p")
        await until(lambda: "Prune old saves of box" in screen_text(app))
        await pilot.press("7")
        await until(lambda: "--host box saves prune --older-than 7" in screen_text(app))
        await until(lambda: "1 save, 12K" in screen_text(app))
        await pilot.press("enter")
        await until(lambda: isinstance(app.screen, ConfirmScreen))
        await pilot.press("ctrl+y")
        await until(lambda: service.asked)
        assert service.asked == [("box", ["saves", "rm", DEV.key])]


async def test_a_machine_that_is_away_is_grey_and_refuses_with_a_reason() -> None:
    async with far_saves() as (service, app, pilot):
        await go_to(pilot, LAB_APP)
        row = browsing(app).browser.table._make(LAB_APP)
        assert {cell.role for cell in row.cells.values()} == {"muted"}
        await until(lambda: "away for 12s: shown as it was" in screen_text(app))
        for key in ("enter", "d", "f"):
            await pilot.press(key)
        await until(lambda: len(toasts(app)) == 3)
        assert set(toasts(app)) == {"lab is away: my-app is shown as it was"}
        await pilot.press("p")
        await until(lambda: "lab cannot be reached now" in toasts(app))
        assert not service.asked and not app.operations.log
        await pilot.press("T")
        await until(lambda: isinstance(app.screen, TrashScreen))
        await go_to(pilot, f"lab:{GONE.key}")
        await pilot.press("enter", "d")
        await until(lambda: "lab is away: dev is shown as it was" in toasts(app))
        assert not service.asked and not app.operations.log


async def test_what_is_not_possible_there_says_what_does_it() -> None:
    async with far_saves() as (_, app, pilot):
        await go_to(pilot, BOX_DEV)
        await pilot.press("e", "i")
        export = "not from here: dev is on box; `quicksand-tui --host box export dev FILE`"
        await until(lambda: any(told.startswith(export) for told in toasts(app)))
        await until(lambda: any("--host box import FILE" in told for told in toasts(app)))
        assert not isinstance(app.screen, FormScreen)


async def test_things_come_back_from_the_trash_of_their_machine() -> None:
    async with far_saves("T") as (service, app, pilot):
        await until(lambda: isinstance(app.screen, TrashScreen))
        text = screen_text(app)
        at = lines(text, "▾ this machine  1 thing", "▾ box  1 thing", "▾ lab  away for 12s")
        assert at == sorted(at)
        # Its name is taken there, as it would be here.
        key = f"box:{WEB_SANDBOX.key}"
        await go_to(pilot, key)
        await pilot.press("enter")
        await until(lambda: "There is a sandbox web@box already" in screen_text(app))
        named = f"quicksand-tui --host box restore --name web-1 {WEB_SANDBOX.id}"
        await until(lambda: named in screen_text(app))
        await pilot.press("enter")
        await until(lambda: service.asked)
        assert service.asked == [("box", ["restore", "--name", "web-1", WEB_SANDBOX.id])]


async def test_things_of_several_machines_come_back_and_go_for_good_together() -> None:
    async with far_saves("T") as (service, app, pilot):
        await until(lambda: isinstance(app.screen, TrashScreen))
        for key in (GONE.key, f"box:{WEB_SANDBOX.key}"):
            await go_to(pilot, key)
            await pilot.press("space")
        await pilot.press("d")
        await until(lambda: isinstance(app.screen, ConfirmScreen))
        assert "Remove 2 things for good?" in screen_text(app)
        await pilot.press("ctrl+y")
        await until(lambda: service.asked and f"purge {GONE.key}" in service.calls)
        assert service.asked == [("box", ["trash", "--empty", WEB_SANDBOX.id])]
        service.asked.clear()
        service.kept = all_together(PARTS)
        await go_to(pilot, f"box:{WEB_SANDBOX.key}")
        await until(lambda: not app.operations.jobs)
        await pilot.press("enter")
        await until(lambda: service.asked or isinstance(app.screen, FormScreen))
        assert last_command(app)[0].startswith("quicksand-tui")


def world_of(view: SavesView) -> World:
    return replace(WORLD, saves=view)


def test_groups_are_filtered_and_forms_know_only_of_their_machine() -> None:
    world = world_of(all_together(PARTS))
    things = listed_saves(world)
    names = [getattr(thing, "name", "") for thing in arrange_saves(things, "host:box", "name")]
    assert names == ["box", "dev@box", "dev2@box"]
    names = [getattr(thing, "name", "") for thing in arrange_saves(things, "host:local", "name")]
    assert names == ["", "my-app", "dev"]
    assert [save.name for save in world.at("box").saves.saves] == ["dev", "dev2"]
    assert [save.name for save in world.at("").saves.saves] == ["my-app", "dev"]
    assert world.at("box").saves is PARTS["box"], "so that forms list their options once"
    alone = replace(WORLD, machines=(), saves=SAVES)
    assert listed_saves(alone) is SAVES.saves


async def test_a_machine_that_cannot_tell_its_saves_says_so_on_its_header() -> None:
    older = SavesView(error="the quicksand-tui there cannot tell its saves")
    parts = {"": PARTS[""], "box": older, "lab": SavesView(loaded=False)}
    service = FarService(parts)
    machines = (BOX, replace(LAB, state=MachineState.THERE))
    service.world = replace(WORLD, machines=machines)
    async with far_saves(service=service) as (_, app, pilot):
        await until(lambda: "▾ box  ✗ the quicksand-tui there cannot" in screen_text(app))
        assert "▾ lab  reading…" in screen_text(app)
        await go_to(pilot, BOX.key)
        await pilot.press("p")
        await until(lambda: "no save is on box" in toasts(app))
