"""What the screens look like. ``pytest --snapshot-update`` after a change that is meant."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from quicksand.things.sandbox_facts import TrafficRates
from quicksand_panes.widgets import Pane
from textual.notifications import Notification
from textual.pilot import Pilot
from textual.widgets import Input

from quicksand_tui.door.service_protocol import LogKind, ShellView
from quicksand_tui.model.diffs import DiffView
from quicksand_tui.model.jobs import CommandOutput, Failure
from quicksand_tui.model.shown_sandboxes import ChangedPlace, Changes, UseHistory
from quicksand_tui.model.world import World
from quicksand_tui.screens.job_drawer import JobsScreen
from quicksand_tui.screens.saves_and_trash import SavesScreen
from quicksand_tui.ui.app import QuicksandApp
from quicksand_tui.verbs.halting import pause, resume
from quicksand_tui.verbs.launching import start
from tests.unit.app.busy_day import RICH
from tests.unit.app.fake_saves import DEV
from tests.unit.app.fakes import (
    DB,
    EMPTY,
    FULL,
    KEPT,
    MOUNTED,
    NOW,
    PAST,
    PAUSED,
    WEB,
    WEB_PAST,
    FakeService,
    app_of,
    make_app,
    ready,
    screen_text,
    select,
    until,
)
from tests.unit.app.test_choice import LOST as LOST_FILES
from tests.unit.app.test_diff_screen import PATHS, DiffService
from tests.unit.quick_apps import usual_wait

SMALL, LARGE, WIDE = (80, 24), (120, 36), (200, 50)
Compare = Callable[..., bool]


@pytest.fixture(autouse=True)
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """A picture has everything, also what Textual draws a frame later behind a dialog, and what
    is told for some seconds."""
    monkeypatch.setattr("textual.app.wait_for_idle", usual_wait)
    monkeypatch.setattr("textual.pilot.wait_for_idle", usual_wait)
    monkeypatch.setattr(Notification, "time_left", 3600.0)
    monkeypatch.setattr("quicksand_tui.cockpit.checkpoint_previews.PAUSE_S", 0.0)


def show(keys: str = "", *, sees: str = "") -> Callable[[Pilot[int]], Any]:
    """Press ``keys`` and wait until ``sees`` is on the screen."""

    async def run(pilot: Pilot[int]) -> None:
        app = await ready(pilot)
        await pilot.press(*keys.split())
        await until(lambda: sees in screen_text(app))
        for under_way in ("reading the files", "looking at the disk"):
            await until(lambda word=under_way: word not in screen_text(app))  # type: ignore[misc]
        still(app)
        await pilot.pause()

    return run


def still(app: QuicksandApp) -> None:
    """Have no cursor blink, and what is below a dialog drawn: `screen_text` draws without it."""
    app.screen.refresh()
    for field in app.screen.query(Input):
        field.cursor_blink = False
        field._cursor_visible = True


def app(world: World = FULL) -> QuicksandApp:
    return make_app(FakeService(world))


def test_main(snap_compare: Compare) -> None:
    assert snap_compare(app(), terminal_size=LARGE, run_before=show(sees="● running for"))


@pytest.mark.parametrize("size", [SMALL, LARGE, WIDE], ids=["80x24", "120x36", "200x50"])
def test_a_busy_day(snap_compare: Compare, size: tuple[int, int]) -> None:
    service = FakeService(RICH)
    service.changed = Changes(
        places=(
            ChangedPlace(letter="M", path="/etc/hosts", size=158),
            ChangedPlace(letter="A", path="/srv/app/", files=12, size=48 << 10),
            ChangedPlace(letter="D", path="/usr/share/doc/", files=309),
        )
    )

    async def run(pilot: Pilot[int]) -> None:
        tui = await ready(pilot)
        await select(pilot, RICH.sandboxes[[view.name for view in RICH.sandboxes].index("web")])
        tree = tui.main.checkpoints.table
        await until(lambda: tree.selected_key == "k23")
        if size[1] > 30:
            await until(lambda: "/usr/share/doc/" in screen_text(tui))
        await until(lambda: "looking at the disk" not in screen_text(tui))
        await pilot.pause()

    assert snap_compare(make_app(service), terminal_size=size, run_before=run)


def test_empty(snap_compare: Compare) -> None:
    assert snap_compare(app(EMPTY), terminal_size=SMALL, run_before=show(sees="n starts"))


def test_images(snap_compare: Compare) -> None:
    assert snap_compare(app(), terminal_size=SMALL, run_before=show("3 down", sees="is damaged"))


def test_a_start_under_way(snap_compare: Compare) -> None:
    service = FakeService()

    async def run(pilot: Pilot[int]) -> None:
        service.hold = asyncio.Event()
        app = await ready(pilot)
        await select(pilot, DB)
        await pilot.press("a")
        await until(lambda: "4/5 start QEMU" in screen_text(app))
        await pilot.pause()

    assert snap_compare(make_app(service), terminal_size=LARGE, run_before=run)


def test_filter(snap_compare: Compare) -> None:
    assert snap_compare(app(), terminal_size=SMALL, run_before=show("slash d e b !", sees=" /deb!"))


def test_new(snap_compare: Compare) -> None:
    assert snap_compare(
        app(), terminal_size=SMALL, run_before=show("n", sees="$ quicksand-tui run")
    )


def test_new_with_more(snap_compare: Compare) -> None:
    async def run(pilot: Pilot[int]) -> None:
        await show("n", sees="Start from")(pilot)
        pilot.app.screen.query_one("#more").focus()
        await pilot.press("right")
        pilot.app.screen.query_one("#disk_size", Input).value = "20G"
        pilot.app.screen.query_one("#boot_timeout", Input).value = "soon"
        await until(lambda: "--disk-size 20G" in screen_text(app_of(pilot)))
        await pilot.pause()

    assert snap_compare(app(), terminal_size=LARGE, run_before=run)


def test_new_from_a_save(snap_compare: Compare) -> None:
    async def run(pilot: Pilot[int]) -> None:
        await show("n", sees="Start from")(pilot)
        pilot.app.screen.query_one("#begin").focus()
        await until(lambda: app_of(pilot).present.saves.loaded)
        await pilot.press("d", "e", "v")
        # What is wrong is said below: that port is WEB's.
        pilot.app.screen.query_one("#port_forwards", Input).value = "8080:80"
        await until(lambda: "leads to web" in screen_text(app_of(pilot)))
        await until(lambda: "“dev” 2 of 5" in screen_text(app_of(pilot)))
        await pilot.pause()

    assert snap_compare(app(), terminal_size=LARGE, run_before=run)


def test_jobs(snap_compare: Compare) -> None:
    service = FakeService()

    async def run(pilot: Pilot[int]) -> None:
        tui = await ready(pilot)
        tui.operations.do(pause(), WEB)
        await until(lambda: tui.operations.ended)
        service.failure = Failure(title="x", message="no space left on the disk")
        tui.operations.do(resume(), PAUSED)
        await until(lambda: len(tui.operations.ended) == 2)
        await pilot.press("escape")
        service.hold = asyncio.Event()
        await select(pilot, DB)
        tui.operations.do(start(), DB)
        await until(lambda: "4/5 start QEMU" in screen_text(tui))
        await pilot.press("J")
        await until(lambda: isinstance(tui.screen, JobsScreen))
        await pilot.pause()
        await until(lambda: "✗ resume" in screen_text(tui))
        await pilot.pause()

    assert snap_compare(make_app(service), terminal_size=SMALL, run_before=run)


def test_run_many(snap_compare: Compare) -> None:
    service = FakeService()
    other = replace(WEB, id="ee55ff667788", name="other")
    lines = ("Linux web 6.12 x86_64", "more")
    service.outputs[WEB.id] = CommandOutput(exit_code=0, seconds=0.3, lines=lines)
    service.outputs[other.id] = CommandOutput(exit_code=1, seconds=1.2, lines=("uname: no",))

    async def run(pilot: Pilot[int]) -> None:
        tui = await ready(pilot)
        tui.dialogs.open_run_many((WEB, other, PAUSED))
        await until(lambda: isinstance(tui.focused, Input))
        await pilot.press(*"uname", "enter")
        await until(lambda: tui.operations.ended)
        await pilot.pause()
        await until(lambda: "r again" in screen_text(tui))

    service.world = replace(FULL, sandboxes=(WEB, other, PAUSED))
    assert snap_compare(make_app(service), terminal_size=SMALL, run_before=run)


def test_delete(snap_compare: Compare) -> None:
    assert snap_compare(app(), terminal_size=SMALL, run_before=show("d", sees="Delete web?"))


def test_help(snap_compare: Compare) -> None:
    assert snap_compare(app(), terminal_size=SMALL, run_before=show("question_mark", sees="Keys"))


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
    assert snap_compare(app(), terminal_size=(40, 12), run_before=show(sees="● web"))


def test_shells_that_were_left(snap_compare: Compare) -> None:
    service = FakeService()
    service.left_shells = (
        ShellView(session="p2", command="-bash", created=NOW - 60),
        ShellView(session="p1", command="vi /etc/hosts", created=NOW - 600),
    )
    assert snap_compare(
        make_app(service), terminal_size=SMALL, run_before=show("f", sees="Attach to")
    )


def test_command_line(snap_compare: Compare) -> None:
    async def run(pilot: Pilot[int]) -> None:
        app = await ready(pilot)
        app.everywhere.open_line("revert web ")
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
        app.everywhere.open_line("stop db")
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


MEASURED = replace(
    KEPT,
    sandboxes=(
        replace(
            WEB_PAST,
            tree=replace(
                PAST,
                own=12 << 20,
                checkpoints=tuple(
                    replace(
                        made,
                        size=3 << 20,
                        shared=44 << 20,
                        is_measured=True,
                        pinned=made.id == "c1",
                    )
                    if not made.error
                    else made
                    for made in PAST.checkpoints
                ),
            ),
            history=UseHistory(
                cpu=tuple(50 + 50 * math.sin(n / 5) for n in range(120)),
                memory=tuple((60 + n) << 20 for n in range(120)),
                disk=tuple((20 + n // 20) << 20 for n in range(120)),
            ),
            traffic=TrafficRates(
                received=1.2 * 2**20,
                sent=30 * 2**10,
                history=tuple(50 + 50 * math.cos(n / 5) for n in range(120)),
            ),
        ),
        *KEPT.sandboxes[1:],
    ),
)
"""As `KEPT`, with sizes and what was used."""


def test_tree(snap_compare: Compare) -> None:
    assert snap_compare(
        app(MEASURED), terminal_size=LARGE, run_before=show("u", sees="enter reverts")
    )


def test_tree_in_a_narrow_terminal(snap_compare: Compare) -> None:
    assert snap_compare(
        app(MEASURED), terminal_size=(60, 20), run_before=show("u", sees="enter reverts")
    )


def test_what_differs(snap_compare: Compare) -> None:
    service = DiffService()
    service.view = DiffView(paths=PATHS)

    async def run(pilot: Pilot[int]) -> None:
        await show("u", sees="enter reverts")(pilot)
        await show("f", sees="M hosts")(pilot)
        await show("j enter", sees="10.0.2.2")(pilot)

    assert snap_compare(make_app(service), terminal_size=LARGE, run_before=run)


def test_choosing_where_to_revert_to(snap_compare: Compare) -> None:
    service = FakeService(MEASURED)
    service.lost = LOST_FILES
    keys = show("u", sees="309 removed")
    assert snap_compare(make_app(service), terminal_size=LARGE, run_before=keys)


def test_details_of_a_checkpoint(snap_compare: Compare) -> None:
    assert snap_compare(app(MEASURED), terminal_size=LARGE, run_before=show("u g j", sees="Taken"))


def test_mounts(snap_compare: Compare) -> None:
    assert snap_compare(
        app(replace(FULL, sandboxes=MOUNTED.sandboxes)),
        terminal_size=LARGE,
        run_before=show("D down", sees="not served"),
    )


def test_new_mount(
    snap_compare: Compare,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("data", "docs", "dist"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path)

    async def run(pilot: Pilot[int]) -> None:
        await show("M d", sees="data/  dist/  docs/")(pilot)
        host = pilot.app.screen.query_one("#host", Input)
        await until(lambda: host._suggestion)
        await pilot.pause()

    assert snap_compare(app(), terminal_size=SMALL, run_before=run)


def test_stats(snap_compare: Compare) -> None:
    run = show("left_square_bracket", sees="Guest")
    assert snap_compare(app(MEASURED), terminal_size=LARGE, run_before=run)


def in_a_shell(*more: str) -> Callable[[Pilot[int]], Any]:
    async def run(pilot: Pilot[int]) -> None:
        app = await ready(pilot)
        service = app.service
        assert isinstance(service, FakeService)
        await pilot.press("s")
        await until(lambda: isinstance(app.focused, Pane) and service.terminals)
        guest = service.terminals[0]
        guest.say(b"\x1b[1;32mroot@web\x1b[m:\x1b[34m~\x1b[m# ls --color\r\n")
        guest.say(b"\x1b[1;34mbin\x1b[m  \x1b[1;36mlib\x1b[m  notes.txt\r\nroot@web:~# ")
        await until(lambda: "notes.txt" in screen_text(app))
        await pilot.press(*more)
        await pilot.pause()

    return run


def test_shells(snap_compare: Compare) -> None:
    keys = ("ctrl+right_square_bracket", "percent_sign")
    assert snap_compare(app(MEASURED), terminal_size=WIDE, run_before=in_a_shell(*keys))


def test_zoomed_lists(snap_compare: Compare) -> None:
    assert snap_compare(
        app(MEASURED), terminal_size=WIDE, run_before=show("z space j space", sees="2 marked")
    )


def test_without_colours(snap_compare: Compare, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    assert snap_compare(app(MEASURED), terminal_size=LARGE, run_before=show("u", sees="enter"))


def test_new_checkpoint(snap_compare: Compare) -> None:
    async def run(pilot: Pilot[int]) -> None:
        await show("c", sees="Checkpoint of web")(pilot)
        await show("c l e a n down o k", sees="the tag clean is taken")(pilot)

    assert snap_compare(app(KEPT), terminal_size=SMALL, run_before=run)


def open_saves(key: str = "", *keys: str, sees: str) -> Callable[[Pilot[int]], Any]:
    """Go to the saves, to the one with ``key``, and press ``keys``."""

    async def run(pilot: Pilot[int]) -> None:
        app = await ready(pilot)
        await pilot.press("v")
        await until(lambda: isinstance(app.screen, SavesScreen) and app.present.saves.loaded)
        screen = app.screen
        assert isinstance(screen, SavesScreen)
        await until(lambda: not key or screen.browser.table.select(key))
        await show(" ".join(keys), sees=sees)(pilot)

    return run


def test_saves(snap_compare: Compare) -> None:
    run = open_saves(DEV.key, sees="children: the save dev2")
    assert snap_compare(app(), terminal_size=LARGE, run_before=run)


def test_saves_that_are_verified_and_filtered(snap_compare: Compare) -> None:
    service = FakeService()

    async def run(pilot: Pilot[int]) -> None:
        await open_saves("", "slash", *"dev", "enter", "F", sees="✓ whole")(pilot)
        service.hold = asyncio.Event()
        await show("j e enter", sees="◐ exporting: writing 46%")(pilot)

    assert snap_compare(make_app(service), terminal_size=LARGE, run_before=run)


def test_delete_a_save_in_a_narrow_terminal(snap_compare: Compare) -> None:
    run = open_saves(DEV.key, "d", sees="For good ^G")
    assert snap_compare(app(), terminal_size=(40, 16), run_before=run)


def test_export(snap_compare: Compare) -> None:
    run = open_saves(DEV.key, "e", sees="needs debian")
    assert snap_compare(app(), terminal_size=SMALL, run_before=run)


def test_new_save(snap_compare: Compare) -> None:
    run = show("S d e v down o k", sees="there is a save dev already")
    assert snap_compare(app(), terminal_size=SMALL, run_before=run)


def test_trash(snap_compare: Compare) -> None:
    run = open_saves("", "T", sees="stays 5d more")
    assert snap_compare(app(), terminal_size=SMALL, run_before=run)


def test_what_an_import_brought(
    snap_compare: Compare, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = FakeService()
    note = "its network mode is full: what runs in it reaches this host's own services"
    service.imported.notes = (note,)
    (tmp_path / "dev3.quicksand").touch()
    monkeypatch.chdir(tmp_path)

    async def run(pilot: Pilot[int]) -> None:
        await open_saves("", "i", *"dev3.quicksand", sees="import dev3.quicksand")(pilot)
        await show("enter", sees="Know that its network mode")(pilot)

    assert snap_compare(make_app(service), terminal_size=SMALL, run_before=run)
