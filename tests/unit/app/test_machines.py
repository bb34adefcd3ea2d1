"""Sandboxes of several machines on the main screen: groups, rows of a machine that is away, and
what is done where."""

from __future__ import annotations

from dataclasses import replace

from quicksand.things.status import Status
from quicksand_panes.guest_terminal import LinkState

from quicksand_tui.actions.all_actions import Scope, find_action
from quicksand_tui.door.service_protocol import ShellView
from quicksand_tui.forms.verb_forms import form_of, mount_form
from quicksand_tui.model.shown_sandboxes import SandboxView, at_host
from quicksand_tui.model.world import HERE, HostView, MachineState, MachineView, Selection, World
from quicksand_tui.ui.app import QuicksandApp
from quicksand_tui.verbs.call import command_about
from quicksand_tui.verbs.saves import save
from quicksand_tui.views.machine_groups import arrange_listed, listed
from tests.unit.app.fakes import (
    DB,
    DEBIAN,
    FULL,
    GIB,
    NOW,
    WEB,
    WEB_PAST,
    FakeService,
    screen_text,
    select,
    shown,
    toasts,
    until,
)

WIDE = (110, 32)
ALPINE, UBUNTU = (replace(DEBIAN, name=name) for name in ("alpine", "ubuntu"))
BOX = MachineView(
    name="box",
    address="ssh://me@box",
    images=(ALPINE, UBUNTU),
    host=HostView(memory_free=2 * GIB, disk_free=9 * GIB),
)
LAB = MachineView(
    name="lab",
    address="ssh://lab",
    state=MachineState.AWAY,
    since=NOW - 12,
    why="cannot connect to lab",
    hint="`ssh lab true` must work first",
)


def far(view: SandboxView, machine: MachineView, **more: object) -> SandboxView:
    """A sandbox as it is among those of all machines."""
    found = replace(
        view,
        id=at_host(view.id, machine.name),
        name=at_host(view.name, machine.name),
        host=machine.name,
        away=machine.state is MachineState.AWAY,
    )
    return replace(found, **more)  # type: ignore[arg-type]


FAR_WEB = far(WEB_PAST, BOX, ports=())
AWAY_DB = far(replace(DB, state=Status.RUNNING), LAB)
WORLD = replace(
    FULL,
    sandboxes=(WEB, DB, FAR_WEB, AWAY_DB),
    machines=(BOX, LAB),
)


def lines(text: str, *words: str) -> list[int]:
    """The numbers of the lines that have these words, one after the other."""
    rows = text.splitlines()
    return [next(n for n, row in enumerate(rows) if word in row) for word in words]


def marked(app: QuicksandApp) -> list[SandboxView]:
    return [*app.main.lists.marked]


def test_without_other_machines_the_list_is_that_of_the_sandboxes() -> None:
    assert listed(FULL) is FULL.sandboxes
    assert arrange_listed(FULL.sandboxes, "", "state")[0] == WEB


def test_groups_begin_with_this_machine_and_a_filter_drops_those_without_a_match() -> None:
    things = listed(WORLD)
    assert arrange_listed(things, "", "state") == [HERE, WEB, DB, BOX, FAR_WEB, LAB, AWAY_DB]
    assert arrange_listed(things, "host:box", "state") == [BOX, FAR_WEB]
    assert arrange_listed(things, "host:local db", "name") == [HERE, DB]
    assert arrange_listed(things, "box", "state") == [BOX, FAR_WEB]


def test_a_command_says_on_which_machine() -> None:
    assert command_about("stop", "web@box") == "quicksand-tui --host box stop web"
    assert command_about("stop", "web") == "quicksand-tui stop web"
    assert "--host" not in command_about("saves rm", "a@b")


async def test_each_machine_is_a_group_with_its_counts() -> None:
    async with shown(FakeService(WORLD), size=WIDE) as (app, pilot):
        text = screen_text(app)
        at = lines(text, "▾ this machine  1 running · 1 stopped", "▾ box  1 running", "▾ lab")
        assert at == sorted(at)
        assert "away for 12s · 1 running" in text
        assert "Sandboxes 4" in text
        # Names stand without their machine below its header, and with it where they stand alone.
        assert "web@box" not in text
        await select(pilot, FAR_WEB)
        await until(lambda: "web@box ● running" in screen_text(app))
        # The cursor was not on a header at first.
    async with shown(FakeService(WORLD), size=WIDE) as (app, _):
        assert app.main.selection.sandbox == WEB


async def test_without_other_machines_there_is_no_header() -> None:
    async with shown(FakeService(FULL), size=WIDE) as (app, _):
        assert "▾" not in screen_text(app) and "machine" not in screen_text(app).splitlines()[3]


async def test_a_header_tells_of_its_machine_and_takes_no_mark() -> None:
    async with shown(FakeService(WORLD), size=WIDE) as (app, pilot):
        table = app.main.sandboxes.table
        table.select(LAB.key)
        await until(lambda: "cannot connect to lab" in screen_text(app))
        assert "`ssh lab true`" in screen_text(app)
        assert app.main.selection.sandbox is None and app.main.selection.machine == "lab"
        await pilot.press("space")
        assert marked(app) == []
        await select(pilot, WEB)
        await pilot.press("asterisk")
        assert marked(app) == [WEB, DB, FAR_WEB, AWAY_DB]
        await pilot.press("asterisk", "V", "G")
        assert marked(app) == [WEB, DB, FAR_WEB, AWAY_DB]


async def test_what_is_done_goes_to_the_sandboxs_machine() -> None:
    service = FakeService(WORLD)
    async with shown(service, size=WIDE) as (app, pilot):
        await select(pilot, FAR_WEB)
        await pilot.press("P")
        await until(lambda: f"pause {FAR_WEB.id}" in service.calls)
        await until(lambda: app.operations.log[-1].outcome == "done")
        assert app.operations.log[-1].command == "quicksand-tui --host box pause web"


async def test_a_shell_opens_in_the_sandbox_of_that_machine() -> None:
    service = FakeService(WORLD)
    service.left_shells = (ShellView(session="7", command="sh", created=NOW, is_pane=True),)
    async with shown(service, size=WIDE) as (_, pilot):
        await select(pilot, FAR_WEB)
        await pilot.press("s")
        await until(lambda: f"terminal {FAR_WEB.id} 7" in service.calls)
        await until(lambda: service.terminals[0].opening)
        service.terminals[0].tell(LinkState.OPEN)
        await pilot.press("l", "s")
        await until(lambda: service.terminals[0].typed == b"ls")


async def test_a_machine_that_is_away_is_grey_and_refuses_with_a_reason() -> None:
    async with shown(FakeService(WORLD), size=WIDE) as (app, pilot):
        await select(pilot, AWAY_DB)
        for key in ("s", "x", "c", "d"):
            await pilot.press(key)
        await until(lambda: "lab is away: db is shown as it was" in toasts(app))
        assert not app.operations.jobs and not app.operations.log
        row = app.main.sandboxes.table._make(AWAY_DB.id)
        assert {cell.role for cell in row.cells.values()} == {"muted"}


async def test_a_screen_there_is_shown_here_as_long_as_its_machine_is_there() -> None:
    desktop = far(replace(WEB_PAST, has_display=True), BOX)
    service = FakeService(replace(WORLD, sandboxes=(desktop,)))
    async with shown(service, size=WIDE) as (app, pilot):
        await select(pilot, desktop)
        assert "Desktop" in screen_text(app)
        await pilot.press("w")
        await until(lambda: f"screen {desktop.id}" in service.calls)
        await until(lambda: "quicksand-tui --host box view web" in screen_text(app))
        service.world = replace(service.world, sandboxes=(replace(desktop, away=True),))
        await until(lambda: "box is away: its screen cannot be seen now." in screen_text(app))
        assert service.screens[-1].closed


def test_checkpoints_there_are_compared_as_here_unless_their_machine_is_away() -> None:
    away = far(replace(WEB_PAST, has_display=True), LAB)
    for action in ("diff", "compare"):
        reason = find_action(action, Scope.TREE).disabled_reason
        first = next(one for one in FAR_WEB.tree.checkpoints if not one.error)
        assert reason(WORLD, Selection(sandbox=FAR_WEB, checkpoint=first)) is None
        told = reason(WORLD, Selection(sandbox=away, checkpoint=first))
        assert told == "lab is away: web is shown as it was"


async def test_a_new_sandbox_starts_on_the_machine_under_the_cursor() -> None:
    service = FakeService(WORLD)
    async with shown(service, size=WIDE) as (app, pilot):
        app.main.sandboxes.table.select(BOX.key)
        await pilot.pause()
        await pilot.press("n")
        await until(lambda: "New sandbox" in screen_text(app))
        text = screen_text(app)
        assert "Machine     ◂ box ▸" in text and "◂ alpine ▸" in text
        assert "2.0G free" in text
        assert "quicksand-tui --host box run alpine --name alpine-1 --detach" in text
        await pilot.press("enter")
        await until(lambda: service.made)
        (spec,) = service.made
        assert (spec.host, spec.image, spec.name) == ("box", "alpine", "alpine-1")


async def test_another_machine_can_be_chosen_in_the_form() -> None:
    service = FakeService(WORLD)
    async with shown(service, size=WIDE) as (app, pilot):
        await pilot.press("n")
        await until(lambda: "◂ this machine ▸" in screen_text(app))
        assert "◂ debian ▸" in screen_text(app)
        await pilot.press("shift+tab", "shift+tab", "right")
        await until(lambda: "Machine     ◂ box ▸" in screen_text(app))
        await until(lambda: "◂ alpine ▸" in screen_text(app))
        await pilot.press("right")
        await until(lambda: "lab cannot be reached now" in screen_text(app))
        await pilot.press("enter")
        assert service.made == []


async def test_a_machine_that_cannot_be_reached_starts_nothing() -> None:
    async with shown(FakeService(WORLD), size=WIDE) as (app, pilot):
        app.main.sandboxes.table.select(LAB.key)
        await pilot.pause()
        await pilot.press("n")
        await until(lambda: "lab cannot be reached now" in toasts(app))


async def test_what_a_machine_tells_is_shown_at_once() -> None:
    service = FakeService(WORLD)
    async with shown(service, size=WIDE) as (app, _):
        service.world = replace(WORLD, machines=(BOX, replace(LAB, state=MachineState.THERE)))
        service._told()
        await until(lambda: "away for" not in screen_text(app))


def test_a_form_knows_only_of_the_chosen_machine() -> None:
    there: World = WORLD.at("box")
    assert [view.name for view in there.sandboxes] == ["web"]
    assert there.images == (ALPINE, UBUNTU) and there.saves.loaded
    assert [view.name for view in WORLD.at("").sandboxes] == ["web", "db"]


def test_forms_of_a_sandbox_there_look_at_nothing_here() -> None:
    form = mount_form(FAR_WEB)
    (host, *_) = form.fields
    assert form.look is None and host.complete is None and host.hint == "a directory of box"
    values = {"host": "src", "guest": "/mnt/src", "mode": ""}
    assert form.problems(values, WORLD)["host"] == "write its whole path on box"
    assert not form.problems({**values, "host": "/only/there"}, WORLD)
    (name, *_) = form_of(save, FAR_WEB).fields
    assert name.suggest is not None
    assert name.suggest(WORLD, {}) == "web"
