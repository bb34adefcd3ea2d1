"""Choosing where to go back to: what a checkpoint would lose, as the cursor moves."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from quicksand.things.status import Status

from quicksand_tui.cockpit import checkpoint_previews
from quicksand_tui.model.diffs import Losing, places_of
from quicksand_tui.model.jobs import Failure
from quicksand_tui.model.shown_sandboxes import Glance
from quicksand_tui.views.losses import losing_lines
from quicksand_tui.views.main_layout import Tab
from tests.unit.app.fakes import (
    CLEAN,
    KEPT,
    NOW,
    TRIED,
    UPGRADED,
    WEB,
    WEB_PAST,
    FakeService,
    screen_text,
    select,
    shown,
    until,
)
from tests.unit.app.test_checkpoints import go_to, open_tree
from tests.unit.app.test_diff_screen import PATHS

LARGE = (120, 36)
LOST = Losing(
    added=12,
    changed=1,
    removed=309,
    places=(("/usr/share", 309), ("/srv/app", 12)),
    ending=("pytest -q",),
    staying=("vim notes",),
    read=NOW,
)


def text_of(sandbox: Any, checkpoint: Any, losing: Losing | None) -> str:
    lines = losing_lines(sandbox, checkpoint, losing, NOW, "U")
    return "\n".join(f"{label}: {''.join(word for word, _ in words)}" for label, words in lines)


def test_it_names_what_ends_what_comes_back_and_how_to_undo_it() -> None:
    tree = replace(WEB_PAST.tree, changed=1 << 20)
    text = text_of(replace(WEB_PAST, tree=tree), UPGRADED, LOST)
    assert text.splitlines() == [
        "Lost: 1.0M written since · files: 12 added, 1 changed, 309 removed",
        ": /usr/share 309, /srv/app 12",
        "Ends: pytest -q",
        "Resumes: vim notes",
        "Restores: memory, programs and disk of 1h ago",
        "Undo: U: the present state is kept as a checkpoint",
    ]


def test_of_a_stopped_sandbox_no_program_ends() -> None:
    text = text_of(replace(WEB_PAST, state=Status.STOPPED), UPGRADED, LOST)
    assert "Ends" not in text and "Undo" not in text


def test_files_are_counted_by_directory() -> None:
    assert places_of(PATHS) == (("/usr/share", 309), ("/srv/app", 2), ("/etc", 1))


async def test_it_follows_the_cursor_and_asks_once_it_rests(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(checkpoint_previews, "PAUSE_S", 0.1)
    service = FakeService(KEPT)
    service.lost = LOST
    async with shown(service, size=LARGE) as (app, pilot):
        await select(pilot, WEB)
        assert service.asked_losing == []
        panel = await open_tree(pilot)
        await until(lambda: "309 removed" in screen_text(app))
        assert "Ends       pytest -q" in screen_text(app)
        await go_to(pilot, panel, CLEAN.id)
        await until(lambda: service.asked_losing[-1] == CLEAN.id)
        service.lost = Failure(title="x", message="a layer is damaged")
        await go_to(pilot, panel, TRIED.id)
        await until(lambda: "not known: a layer is damaged" in screen_text(app))
        asked = len(service.asked_losing)
        await pilot.press("escape")
        await until(lambda: "Lost   " not in screen_text(app))
        assert len(service.asked_losing) == asked


async def test_it_shows_what_the_shell_showed_then_also_from_another_tab() -> None:
    service = FakeService(KEPT)
    service.lost = LOST
    service.shell_at = {
        UPGRADED.id: Glance(title="vim notes", lines=("first", "-- INSERT --")),
        CLEAN.id: Glance(title="-sh", lines=("web:~# uptime",)),
    }
    async with shown(service, size=LARGE) as (app, pilot):
        await select(pilot, WEB)
        await pilot.press("l")
        await until(lambda: app.main.area.tab is Tab.LOG)
        await pilot.press("u")
        await until(lambda: "Shell at that time: vim notes" in screen_text(app))
        assert "-- INSERT --" in screen_text(app)
        await go_to(pilot, app.main.checkpoints, CLEAN.id)
        await until(lambda: "web:~# uptime" in screen_text(app))
        assert "vim notes" not in screen_text(app).split("Resumes")[0]
        await go_to(pilot, app.main.checkpoints, TRIED.id)  # which has none
        await until(lambda: "Shell at that time" not in screen_text(app))
        await pilot.press("escape")
        await until(lambda: app.main.area.tab is Tab.LOG)


async def test_a_small_terminal_keeps_its_room_for_the_facts() -> None:
    service = FakeService(KEPT)
    async with shown(service, size=(80, 24)) as (app, pilot):
        await select(pilot, WEB)
        await open_tree(pilot)
        assert "Lost   " not in screen_text(app)
        assert service.asked_losing == []


async def test_it_takes_the_place_of_another_tab_while_one_chooses() -> None:
    service = FakeService(KEPT)
    service.lost = LOST
    async with shown(service, size=LARGE) as (app, pilot):
        await select(pilot, WEB)
        await pilot.press("l")
        await until(lambda: app.main.area.tab is Tab.LOG)
        await open_tree(pilot)
        await until(lambda: "Lost   " in screen_text(app))
        await pilot.press("escape")
        await until(lambda: app.main.area.tab is Tab.LOG)
        assert "Lost   " not in screen_text(app)
