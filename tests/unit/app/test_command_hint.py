"""The line above the keys has the command of what is selected, or of what is under way."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from quicksand.things.status import Status

from quicksand_tui.actions.hints import CommandHint, hint_for
from quicksand_tui.model.world import Panel, Selection
from quicksand_tui.views.main_layout import Tab
from tests.each import each
from tests.unit.app.fake_saves import DEV, LOST
from tests.unit.app.fakes import (
    AGENT,
    CLEAN,
    DB,
    DEBIAN,
    KEPT,
    OLD,
    PAUSED,
    WEB,
    FakeService,
    screen_text,
    select,
    shown,
    until,
)

SPACED = replace(WEB, name="it's")
FAR = replace(WEB, id=f"{WEB.id}@box", name="web@box", host="box", has_display=True)


@each(
    ("selection", "tab", "command"),
    [
        (Selection(), None, "ps -a"),
        (Selection(panel=Panel.SAVES), None, "saves"),
        (Selection(panel=Panel.IMAGES), None, "images"),
        (Selection(panel=Panel.IMAGES, image=DEBIAN, sandbox=WEB), None, "run debian"),
        (Selection(panel=Panel.IMAGES, image=OLD), None, "images"),
        (Selection(panel=Panel.SAVES, save=DEV, sandbox=WEB), None, "run dev"),
        (Selection(panel=Panel.SAVES, save=LOST), None, "saves"),
        (Selection(sandbox=WEB), None, "shell web"),
        (Selection(sandbox=SPACED), None, """shell 'it'"'"'s'"""),
        (Selection(sandbox=DB), None, "start db"),
        (Selection(sandbox=AGENT), None, "start agent-7"),
        (Selection(sandbox=PAUSED), None, "resume builder"),
        (Selection(sandbox=replace(WEB, state=Status.STARTING)), None, "ps -a"),
        (Selection(sandbox=WEB), Tab.LOG, "logs -f web"),
        (Selection(sandbox=WEB), Tab.STATS, "stats web"),
        (Selection(sandbox=FAR), Tab.DESKTOP, "--host box view web"),
        (Selection(sandbox=FAR), Tab.LOG, "--host box logs -f web"),
        (Selection(sandbox=FAR), Tab.MOUNTS, "--host box mounts web"),
        (Selection(sandbox=FAR), Tab.STATS, "--host box stats web"),
        (Selection(sandbox=FAR, in_tree=True), None, "--host box tree web"),
        (Selection(sandbox=WEB, in_tree=True), None, "tree web"),
        (Selection(sandbox=WEB, in_tree=True, checkpoint=CLEAN), None, "revert web clean"),
        (Selection(sandbox=DB, in_tree=True, checkpoint=CLEAN), None, "start db --at clean"),
    ],
)
def test_it_is_that_of_what_is_selected(
    selection: Selection, tab: Tab | None, command: str
) -> None:
    assert hint_for(selection, tab).command == f"quicksand-tui {command}"


def test_it_says_what_the_command_is_to_the_screen() -> None:
    assert hint_for(Selection(sandbox=WEB)) == CommandHint(
        "quicksand-tui shell web", "same as enter"
    )
    assert hint_for(Selection()).about == "as a command"


async def test_what_has_ended_gives_way_when_something_else_is_selected() -> None:
    service = FakeService(KEPT)
    async with shown(service) as (app, pilot):
        await until(lambda: "$ quicksand-tui shell web  same as enter" in screen_text(app))
        await pilot.press("3")
        await until(lambda: "$ quicksand-tui run debian  same as enter" in screen_text(app))
        await pilot.press("1")
        service.hold = asyncio.Event()
        await pilot.press("P")
        await until(lambda: "$ quicksand-tui pause web  …" in screen_text(app))
        await select(pilot, DB)
        assert "$ quicksand-tui pause web  …" in screen_text(app), "it is under way"
        service.hold.set()
        await until(lambda: "$ quicksand-tui pause web  ✓" in screen_text(app))
        await select(pilot, AGENT)
        await until(lambda: "$ quicksand-tui start agent-7  same as enter" in screen_text(app))
