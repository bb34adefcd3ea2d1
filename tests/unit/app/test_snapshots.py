"""What the screens look like. ``pytest --snapshot-update`` after a change that is meant."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot
from textual.widgets import Input

from quicksand_tui.application import QuicksandApp
from quicksand_tui.screens.saves import SavesScreen
from quicksand_tui.snapshot import Failure, LogKind, ShellView, Snapshot
from tests.unit.app.fake_saves import DEV, LOST, NOTHING
from tests.unit.app.fakes import (
    DB,
    EMPTY,
    FULL,
    KEPT,
    NOW,
    PAUSED,
    FakeService,
    make_app,
    ready,
    screen_text,
    select,
    until,
)

SMALL, LARGE = (80, 24), (120, 36)
SIZES = pytest.mark.parametrize("size", [SMALL, LARGE], ids=["80x24", "120x36"])

Compare = Callable[..., bool]


def show(keys: str = "", *, sees: str = "") -> Callable[[Pilot[int]], Any]:
    """Press ``keys`` and wait until ``sees`` is on the screen."""

    async def run(pilot: Pilot[int]) -> None:
        app = await ready(pilot)
        await pilot.press(*keys.split())
        await until(lambda: sees in screen_text(app))
        still(app)
        await pilot.pause()

    return run


def still(app: QuicksandApp) -> None:
    """Have no cursor blink, and what is below a dialog drawn: `screen_text` draws without it."""
    app.screen.refresh()
    for field in app.screen.query(Input):
        field.cursor_blink = False
        field._cursor_visible = True


def app(world: Snapshot = FULL) -> QuicksandApp:
    return make_app(FakeService(world))


@SIZES
def test_main(snap_compare: Compare, size: tuple[int, int]) -> None:
    assert snap_compare(app(), terminal_size=size, run_before=show(sees="● running for"))


@SIZES
def test_empty(snap_compare: Compare, size: tuple[int, int]) -> None:
    assert snap_compare(app(EMPTY), terminal_size=size, run_before=show(sees="Press n"))


@SIZES
def test_images(snap_compare: Compare, size: tuple[int, int]) -> None:
    assert snap_compare(app(), terminal_size=size, run_before=show("tab down", sees="is damaged"))


def test_a_start_under_way(snap_compare: Compare) -> None:
    service = FakeService()

    async def run(pilot: Pilot[int]) -> None:
        service.hold = asyncio.Event()
        app = await ready(pilot)
        await select(pilot, DB)
        await pilot.press("S")
        await until(lambda: "4/5 start QEMU" in screen_text(app))
        await pilot.pause()

    assert snap_compare(make_app(service), terminal_size=LARGE, run_before=run)


def test_filter(snap_compare: Compare) -> None:
    assert snap_compare(
        app(), terminal_size=SMALL, run_before=show("slash d e b !", sees="Sandboxes /deb!")
    )


@SIZES
def test_new(snap_compare: Compare, size: tuple[int, int]) -> None:
    assert snap_compare(app(), terminal_size=size, run_before=show("n", sees="$ quicksand-tui run"))


def test_delete(snap_compare: Compare) -> None:
    assert snap_compare(app(), terminal_size=SMALL, run_before=show("d", sees="Delete web?"))


@SIZES
def test_help(snap_compare: Compare, size: tuple[int, int]) -> None:
    assert snap_compare(app(), terminal_size=size, run_before=show("question_mark", sees="Keys"))


def test_failure(snap_compare: Compare) -> None:
    service = FakeService()
    service.failure = Failure(
        title="web did not stop",
        message="the processes of sandbox 'web' do not end",
        hint="look at its log",
        log=tuple(f"[{n:5}.000000] kernel line {n}" for n in range(30)),
    )
    assert snap_compare(
        make_app(service), terminal_size=SMALL, run_before=show("x", sees="web did not stop")
    )


def test_log(snap_compare: Compare) -> None:
    service = FakeService()
    service.logs[LogKind.CONSOLE].pending = "".join(
        f"[ {n}.000] kernel line {n}\n" for n in range(60)
    )
    assert snap_compare(
        make_app(service),
        terminal_size=SMALL,
        run_before=show("l slash 5 enter", sees="/5 15 of 15"),
    )


def test_light_theme(snap_compare: Compare) -> None:
    light = app()
    light.theme = "quicksand-light"
    assert snap_compare(light, terminal_size=SMALL, run_before=show(sees="● running for"))


def test_narrow(snap_compare: Compare) -> None:
    assert snap_compare(app(), terminal_size=(50, 18), run_before=show(sees="● running for"))


def test_tiny(snap_compare: Compare) -> None:
    assert snap_compare(app(), terminal_size=(40, 12), run_before=show(sees="● running"))


def test_shells_that_were_left(snap_compare: Compare) -> None:
    service = FakeService()
    service.left_shells = (
        ShellView(session="p2", command="-bash", created=NOW - 60),
        ShellView(session="p1", command="vi /etc/hosts", created=NOW - 600),
    )
    assert snap_compare(
        make_app(service), terminal_size=SMALL, run_before=show("f", sees="Come back to")
    )


def test_command_line(snap_compare: Compare) -> None:
    async def run(pilot: Pilot[int]) -> None:
        app = await ready(pilot)
        app.open_command_line("revert web ")
        await until(lambda: isinstance(app.focused, Input) and app.focused.size)
        await until(lambda: "tried-something" in screen_text(app))
        await pilot.press("tab", "tab")
        await until(lambda: "▸" in screen_text(app))
        still(app)
        await pilot.pause()

    assert snap_compare(make_app(FakeService(KEPT)), terminal_size=SMALL, run_before=run)


def test_what_is_wrong_on_the_command_line(snap_compare: Compare) -> None:
    async def run(pilot: Pilot[int]) -> None:
        app = await ready(pilot)
        app.open_command_line("stop db")
        await until(lambda: isinstance(app.focused, Input) and app.focused.size)
        await until(lambda: "stop [SANDBOX]" in screen_text(app))
        await pilot.press("enter")
        await until(lambda: "db does not run" in screen_text(app))
        still(app)
        await pilot.pause()

    assert snap_compare(make_app(FakeService(KEPT)), terminal_size=SMALL, run_before=run)


def test_commands(snap_compare: Compare) -> None:
    async def run(pilot: Pilot[int]) -> None:
        app = await ready(pilot)
        for key, sees in (("x", "stop web  ✓"), ("P", "resume builder  ✓")):
            await pilot.press(key)
            await until(lambda sees=sees: sees in screen_text(app))  # type: ignore[misc]
            await select(pilot, PAUSED)
        await show("at", sees="─ Commands ─")(pilot)

    assert snap_compare(make_app(FakeService()), terminal_size=SMALL, run_before=run)


@SIZES
def test_the_details_with_checkpoints(snap_compare: Compare, size: tuple[int, int]) -> None:
    assert snap_compare(app(KEPT), terminal_size=size, run_before=show(sees="● upgraded ← here"))


@pytest.mark.parametrize("size", [SMALL, LARGE, (60, 20)], ids=["80x24", "120x36", "60x20"])
def test_tree(snap_compare: Compare, size: tuple[int, int]) -> None:
    assert snap_compare(app(KEPT), terminal_size=size, run_before=show("R", sees="Taken    1h"))


def test_tree_to_start_at(snap_compare: Compare) -> None:
    async def run(pilot: Pilot[int]) -> None:
        await ready(pilot)
        await select(pilot, DB)
        await show("A", sees="Taken    1h")(pilot)

    assert snap_compare(app(KEPT), terminal_size=SMALL, run_before=run)


def test_delete_a_checkpoint(snap_compare: Compare) -> None:
    async def run(pilot: Pilot[int]) -> None:
        await show("R", sees="Taken    1h")(pilot)
        await show("k", sees="By       a revert")(pilot)
        await show("d", sees="undo goes back to")(pilot)

    assert snap_compare(app(KEPT), terminal_size=SMALL, run_before=run)


@SIZES
def test_new_checkpoint(snap_compare: Compare, size: tuple[int, int]) -> None:
    async def run(pilot: Pilot[int]) -> None:
        await show("C", sees="Checkpoint of web")(pilot)
        await show("c l e a n down o k", sees="there is a clean already")(pilot)

    assert snap_compare(app(KEPT), terminal_size=size, run_before=run)


def open_saves(key: str = "", *keys: str, sees: str) -> Callable[[Pilot[int]], Any]:
    """Go to the saves, to the one with ``key``, and press ``keys``."""

    async def run(pilot: Pilot[int]) -> None:
        app = await ready(pilot)
        await pilot.press("v")
        await until(lambda: isinstance(app.screen, SavesScreen) and app.saves.view.loaded)
        screen = app.screen
        assert isinstance(screen, SavesScreen)
        await until(lambda: not key or screen.browser.table.select(key))
        await show(" ".join(keys), sees=sees)(pilot)

    return run


@SIZES
def test_saves(snap_compare: Compare, size: tuple[int, int]) -> None:
    run = open_saves(DEV.key, sees="led to the save dev2")
    assert snap_compare(app(), terminal_size=size, run_before=run)


def test_saves_in_the_light_theme(snap_compare: Compare) -> None:
    light = app()
    light.theme = "quicksand-light"
    run = open_saves(LOST.key, "space", sees="1 marked: 900M")
    assert snap_compare(light, terminal_size=SMALL, run_before=run)


def test_saves_that_are_verified_and_filtered(snap_compare: Compare) -> None:
    service = FakeService()

    async def run(pilot: Pilot[int]) -> None:
        await open_saves("", "slash", *"dev", "enter", "F", sees="✓ whole")(pilot)
        service.hold = asyncio.Event()
        await show("j e enter", sees="◐ exporting: writing 46%")(pilot)

    assert snap_compare(make_app(service), terminal_size=LARGE, run_before=run)


def test_no_saves(snap_compare: Compare) -> None:
    service = FakeService()
    service.kept = NOTHING
    run = open_saves(sees="No saves yet")
    assert snap_compare(make_app(service), terminal_size=SMALL, run_before=run)


def test_delete_saves(snap_compare: Compare) -> None:
    run = open_saves(DEV.key, "space", "space", "d", sees="Delete 2 saves?")
    assert snap_compare(app(), terminal_size=SMALL, run_before=run)


def test_delete_a_save_in_a_narrow_terminal(snap_compare: Compare) -> None:
    run = open_saves(DEV.key, "d", sees="For good (D)")
    assert snap_compare(app(), terminal_size=(40, 16), run_before=run)


@SIZES
def test_export(snap_compare: Compare, size: tuple[int, int]) -> None:
    run = open_saves(DEV.key, "e", sees="needs debian")
    assert snap_compare(app(), terminal_size=size, run_before=run)


@SIZES
def test_new_save(snap_compare: Compare, size: tuple[int, int]) -> None:
    run = show("V d e v down o k", sees="there is a save dev already")
    assert snap_compare(app(), terminal_size=size, run_before=run)


@SIZES
def test_trash(snap_compare: Compare, size: tuple[int, int]) -> None:
    run = open_saves("", "T", sees="stays 5d more")
    assert snap_compare(app(), terminal_size=size, run_before=run)


def test_what_an_import_brought(
    snap_compare: Compare, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = FakeService()
    service.brought = (
        "It is the save dev3: 64M were in the file.",
        "Know that its network mode is full: what runs in it reaches this host's own services",
    )
    (tmp_path / "dev3.quicksand").touch()
    monkeypatch.chdir(tmp_path)

    async def run(pilot: Pilot[int]) -> None:
        await open_saves("", "i", *"dev3.quicksand", sees="import dev3.quicksand")(pilot)
        await show("enter", sees="Know that its network mode")(pilot)

    assert snap_compare(make_app(service), terminal_size=SMALL, run_before=run)


def test_help_of_the_saves(snap_compare: Compare) -> None:
    run = open_saves("", "question_mark", sees="─ Keys ─")
    assert snap_compare(app(), terminal_size=SMALL, run_before=run)
