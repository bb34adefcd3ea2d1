"""Shells in panes, driven by keys; their guests say what the tests want."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from quicksand.things.status import Status
from quicksand_driver.textual_private import RawInput
from quicksand_panes.guest_terminal import LinkState, Running
from quicksand_panes.widgets import Pane, Workspace
from textual.events import Key, Paste
from textual.geometry import Region
from textual.pilot import Pilot
from textual.screen import Screen

from quicksand_tui.door.service_protocol import ShellView
from quicksand_tui.home.state import PaneMemory, StateFile
from quicksand_tui.screens.confirm import ConfirmScreen
from quicksand_tui.screens.form import FormScreen
from quicksand_tui.screens.help import HelpScreen
from quicksand_tui.ui.app import QuicksandApp
from tests.each import trying
from tests.unit.app.fakes import (
    NOW,
    SIZE,
    WEB,
    FakeService,
    FakeTerminal,
    app_of,
    ready,
    screen_text,
    shown,
    toasts,
    until,
)

PREFIX = "ctrl+right_square_bracket"


@contextlib.asynccontextmanager
async def opened(
    service: FakeService, size: tuple[int, int] = SIZE
) -> AsyncIterator[tuple[Pilot[int], Workspace]]:
    """The shells of "web"."""
    async with shown(service, size=size) as (_, pilot):
        await pilot.press("s")
        await until(lambda: pilot.app.screen.query(Workspace))
        workspace = pilot.app.screen.query_one(Workspace)
        await until(lambda: opens(workspace, 1) and in_shells(pilot))
        yield pilot, workspace


def in_shells(pilot: Pilot[int]) -> bool:
    return isinstance(pilot.app.focused, Pane)


def opens(workspace: Workspace, count: int) -> bool:
    panes = workspace.panes
    return len(panes) == count and all(p.status.state is LinkState.OPEN for p in panes)


async def says(pilot: Pilot[int], guest: FakeTerminal, data: bytes) -> None:
    guest.say(data)
    await until(lambda: guest.unread == 0)
    await pilot.pause()


async def command(pilot: Pilot[int], key: str) -> None:
    await pilot.press(PREFIX, key)
    await pilot.pause()


async def test_what_the_guest_says_is_shown_and_keys_are_typed() -> None:
    service = FakeService()
    async with opened(service) as (pilot, _):
        (guest,) = service.terminals
        assert guest.size == (80, 21)
        await says(pilot, guest, b"root@web:~# \x1b[1;31mred\x1b[m")
        await until(lambda: "root@web:~# red" in screen_text(app_of(pilot)))
        await pilot.press("l", "s", "enter", "ctrl+c", "up", "q", "question_mark")
        assert guest.typed == b"ls\r\x03\x1b[Aq?"
        assert in_shells(pilot), "q is the guest's"
        guest.typed = b""
        await command(pilot, PREFIX)
        assert guest.typed == b"\x1d"
        await command(pilot, "j")
        assert "ctrl-] j does nothing" in " ".join(toasts(app_of(pilot)))
        guest.typed = b""
        await says(pilot, guest, b"\x1b[?1h\x1b[?2004h")
        await pilot.press("up")
        assert guest.typed == b"\x1bOA", "as the program wants it"


async def test_keys_that_come_raw_do_not_overtake_those_that_came_before() -> None:
    """The driver hands out keys as events until it knows that a pane has the focus."""
    service = FakeService()
    async with opened(service) as (pilot, _):
        app = app_of(pilot)
        for key in "echo":
            app.post_message(Key(key, key))
        app.post_message(RawInput(b" raw"))
        app.post_message(Paste(" pasted"))
        app.post_message(RawInput(b"\r"))
        (guest,) = service.terminals
        await until(lambda: len(guest.typed) == len(b"echo raw pasted\r"))
        assert guest.typed == b"echo raw pasted\r"


async def test_enter_opens_them_too() -> None:
    service = FakeService()
    async with shown(service) as (_, pilot):
        await pilot.press("enter")
        await until(lambda: service.terminals and in_shells(pilot))


async def test_shells_that_were_left_are_come_back_to() -> None:
    service = FakeService()
    service.left_shells = tuple(
        ShellView(session=name, command="bash", created=NOW) for name in ("7", "9")
    )
    async with shown(service, size=(120, 30)) as (_, pilot):
        await pilot.press("s")
        await until(lambda: len(service.terminals) == 2)
        workspace = app_of(pilot).main.query_one(Workspace)
        await until(lambda: opens(workspace, 2))
        assert [pane.status.session for pane in workspace.panes] == ["7", "9"]
        assert sum(guest.size[0] for guest in service.terminals) == workspace.size.width - 1


async def test_panes_are_split_and_gone_through() -> None:
    service = FakeService()
    async with opened(service, (99, 30)) as (pilot, workspace):
        await command(pilot, "percent_sign")
        await until(lambda: opens(workspace, 2))
        await command(pilot, "quotation_mark")
        await until(lambda: opens(workspace, 3))
        sizes = [(49, 27), (49, 13), (49, 12)]
        await until(lambda: [guest.size for guest in service.terminals] == sizes)
        await pilot.press("a")
        await command(pilot, "left")
        await pilot.press("b")
        await command(pilot, "o")
        await pilot.press("c")
        assert [guest.typed for guest in service.terminals] == [b"b", b"c", b"a"]
        await command(pilot, "z")
        await until(lambda: service.terminals[1].size == (99, 27))
        await command(pilot, "z")
        await until(lambda: service.terminals[1].size == (49, 13))
        await command(pilot, "ctrl+left")
        await until(lambda: service.terminals[0].size == (44, 27))
        await command(pilot, "space")
        await command(pilot, "left_curly_bracket")
        assert [pane.id for pane in workspace.panes] == ["pane-2", "pane-1", "pane-3"]


async def test_a_place_that_is_asked_for_before_it_is_laid_out_costs_no_pane_its_size(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Textual sends no Resize for a size that it worked out to answer somebody's question."""
    lay_out = Screen._refresh_layout
    asked: list[Region] = []

    def ask_first(screen: Screen[Any], *args: Any, **options: Any) -> None:
        # As when panes are to be drawn, and the one with the focus scrolled to, before the layout.
        screen._compositor.update_widgets({*screen.query(Pane)})
        asked.extend(pane.region for pane in screen.query(Pane))
        lay_out(screen, *args, **options)

    service = FakeService()
    async with opened(service, (99, 30)) as (pilot, workspace):
        monkeypatch.setattr(Screen, "_refresh_layout", ask_first)
        await command(pilot, "percent_sign")
        await until(lambda: opens(workspace, 2))
        await until(lambda: [g.size for g in service.terminals] == [(49, 27), (49, 27)])
        assert asked


async def test_a_new_pane_begins_in_the_directory_of_the_one_it_comes_from() -> None:
    service = FakeService()
    async with opened(service, (160, 30)) as (pilot, workspace):
        (first,) = service.terminals
        first.sink.running(Running(command="bash", directory="/srv"))
        await command(pilot, "%")
        await until(lambda: opens(workspace, 2))
        assert service.terminals[1].directory == "/srv", "as the guest says"
        await says(pilot, service.terminals[1], b"\x1b]7;file://web/var/log\x1b\\")
        await command(pilot, '"')
        await until(lambda: opens(workspace, 3))
        assert service.terminals[2].directory == "/var/log", "as its shell has told"


async def test_without_room_there_is_no_other_pane() -> None:
    service = FakeService()
    async with opened(service, (40, 12)) as (pilot, workspace):
        for _ in range(3):
            await command(pilot, "quotation_mark")
        assert len(workspace.panes) == 2
        assert "no room" in " ".join(toasts(app_of(pilot)))


async def test_what_is_typed_can_go_to_all_but_those_whose_program_has_ended() -> None:
    """It would run in the shell that is opened there later."""
    service = FakeService()
    async with opened(service, (100, 30)) as (pilot, workspace):
        await command(pilot, "percent_sign")
        await until(lambda: opens(workspace, 2))
        await command(pilot, "b")
        await pilot.press("x")
        assert [guest.typed for guest in service.terminals] == [b"x", b"x"]
        assert "broadcast" in screen_text(app_of(pilot))
        await command(pilot, "b")
        await pilot.press("y")
        assert sorted(guest.typed for guest in service.terminals) == [b"x", b"xy"]
        await command(pilot, "b")
        ended, other = service.terminals
        ended.typed = other.typed = b""
        ended.tell(LinkState.ENDED, "enter opens a new one: exit status 0")
        await until(lambda: workspace.panes[0].status.is_over)
        await pilot.press("l", "s")
        await until(lambda: other.typed == b"ls")
        workspace.panes[0].link.reopen()
        await until(lambda: opens(workspace, 2))
        assert (ended.typed, service.terminals[2].typed) == (b"", b"")


async def test_a_shell_ends_after_a_question_and_the_last_one_leads_back() -> None:
    service = FakeService()
    async with opened(service) as (pilot, _):
        await command(pilot, "x")
        await until(lambda: isinstance(pilot.app.screen, ConfirmScreen))
        await pilot.press("escape")
        await until(lambda: in_shells(pilot))
        assert not service.terminals[0].ended
        await command(pilot, "x")
        await until(lambda: isinstance(pilot.app.screen, ConfirmScreen))
        await pilot.press("ctrl+y")
        await until(lambda: app_of(pilot).main.sandboxes.table.has_focus)
        assert service.terminals[0].ended
        await pilot.press("s")
        await until(lambda: len(service.terminals) == 2)


async def test_left_panes_run_on_and_are_there_again() -> None:
    service = FakeService()
    async with opened(service) as (pilot, workspace):
        (guest,) = service.terminals
        await command(pilot, "d")
        await until(lambda: app_of(pilot).main.sandboxes.table.has_focus)
        guest.say(b"meanwhile")
        await until(lambda: guest.unread == 0)
        await pilot.press("s")
        await until(lambda: "meanwhile" in screen_text(app_of(pilot)))
        assert service.terminals == [guest]
        assert pilot.app.focused in workspace.panes
    assert guest.left
    assert not guest.ended


async def test_a_shell_that_ended_says_so_and_enter_opens_a_new_one() -> None:
    service = FakeService()
    async with opened(service) as (pilot, workspace):
        (guest,) = service.terminals
        guest.tell(LinkState.ENDED, "exit status 3; enter opens a new one")
        await until(lambda: "exit status 3" in screen_text(app_of(pilot)))
        await pilot.press("a", "enter", "r", "m", "enter")
        assert len(service.terminals) == 1, "a line typed as the program ended runs nowhere"
        workspace.panes[0].typed = 0.0  # as after a pause
        await pilot.press("enter")
        await until(lambda: len(service.terminals) == 2)
        await until(lambda: opens(workspace, 1))
        await pilot.press("b")
        assert (guest.typed, service.terminals[1].typed) == (b"", b"b")


async def test_keys_that_were_on_their_way_stay_with_their_pane() -> None:
    """Whatever has the focus when they are let go."""
    service = FakeService()
    async with opened(service, (120, 30)) as (pilot, workspace):
        await command(pilot, "%")
        await until(lambda: opens(workspace, 2))
        app = app_of(pilot)
        first, second = workspace.panes
        found = app.screen.get_focusable_widget_at(first.region.x + 2, first.region.y - 1)
        assert found is first, "a click on a title focuses its pane at once"
        app.keys.panes.type(b"y\r")
        app.screen.set_focus(first)
        await until(lambda: any(guest.typed for guest in service.terminals))
        assert [guest.typed for guest in service.terminals] == [b"", b"y\r"]
        # Behind a command they are for the pane to which it has led.
        app.keys.panes.await_command()
        app.keys.panes.type(b"ls")
        app.screen.set_focus(second)
        app.keys.panes.command_done()
        app.screen.set_focus(first)
        await until(lambda: service.terminals[1].typed == b"y\rls")
        assert service.terminals[0].typed == b""


async def test_a_start_and_a_key_open_all_panes_anew_and_keep_what_is_typed_meanwhile() -> None:
    service = FakeService()
    async with opened(service, (120, 30)) as (pilot, workspace):
        app = app_of(pilot)
        await command(pilot, "%")
        await until(lambda: opens(workspace, 2))
        before = list(service.terminals)
        await command(pilot, "d")
        for guest in before:
            guest.tell(LinkState.LOST, "it was stopped", runs=False)
        service.change(WEB.id, Status.STOPPED)
        await app.look()
        service.hold = asyncio.Event()
        await pilot.press("a")
        await until(lambda: app.operations.jobs)
        await pilot.press("s")
        await until(lambda: app.focused is workspace.current)
        await pilot.press("l", "s")
        assert service.terminals == before, "there is no guest yet"
        assert "(connecting)" in screen_text(app)
        service.hold.set()
        await until(lambda: opens(workspace, 2))
        assert [guest.typed for guest in service.terminals[2:]] == [b"", b"ls"]
        assert all(guest.left for guest in before)


async def test_a_revert_is_told_by_one_title_and_for_some_seconds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("quicksand_panes.pane.TOLD_S", 1000)
    service = FakeService()
    async with opened(service, (160, 30)) as (pilot, workspace):
        app = app_of(pilot)
        await command(pilot, "%")
        await until(lambda: opens(workspace, 2))
        for guest in service.terminals:
            guest.tell(LinkState.OPEN, "reverted to 'clean'")
        await until(lambda: "reverted to 'clean'" in screen_text(app))
        assert screen_text(app).count("reverted to 'clean'") == 1
        monkeypatch.setattr("quicksand_panes.pane.TOLD_S", 0.01)
        for guest in service.terminals:
            guest.tell(LinkState.OPEN, "reverted to 'clean'")
        await until(lambda: "reverted" not in screen_text(app))


async def test_a_key_opens_all_panes_anew_that_are_dead_and_leaves_the_others() -> None:
    service = FakeService()
    async with opened(service, (160, 40)) as (pilot, workspace):
        await command(pilot, "%")
        await until(lambda: opens(workspace, 2))
        await command(pilot, '"')
        await until(lambda: opens(workspace, 3))
        first, second, third = service.terminals
        first.tell(LinkState.ENDED, "enter opens a new one: exit status 0")
        third.tell(LinkState.LOST, "enter opens a new one: this terminal is not there")
        await until(lambda: not opens(workspace, 3))
        await command(pilot, "R")
        await until(lambda: len(service.terminals) == 5 and opens(workspace, 3))
        assert (first.left, second.left, third.left) == (True, False, True)
        assert {call.split()[-1] for call in service.calls[-2:]} == {WEB.id}, "both are new ones"


async def test_a_start_that_fails_leaves_nothing_typed_for_a_later_one() -> None:
    service = FakeService()
    async with opened(service) as (pilot, workspace):
        app = app_of(pilot)
        (pane,) = workspace.panes
        service.terminals[0].tell(LinkState.LOST, "it was stopped", runs=False)
        await until(lambda: pane.status.is_over)
        pane.link.renew()
        await pilot.press("l", "s")
        pane.link.go_on(None)
        await until(lambda: len(service.terminals) == 2)
        await until(lambda: opens(workspace, 1))
        await pilot.press("y")
        assert service.terminals[1].typed == b"y"
        assert app.focused is pane


async def test_after_a_revert_it_says_so_and_shows_what_the_guest_remembers() -> None:
    service = FakeService()
    async with opened(service) as (pilot, _):
        (guest,) = service.terminals
        await says(pilot, guest, b"after the checkpoint")
        await until(lambda: "after the checkpoint" in screen_text(app_of(pilot)))
        guest.tell(LinkState.CONNECTING, "reverted to 'clean'")
        guest.tell(LinkState.OPEN, "reverted to 'clean'")
        await says(pilot, guest, b"before it")
        await until(lambda: "before it" in screen_text(app_of(pilot)))
        assert "after the checkpoint" not in screen_text(app_of(pilot))
        assert "reverted to 'clean'" in screen_text(app_of(pilot))
        await pilot.press("a")
        await until(lambda: "reverted" not in screen_text(app_of(pilot)))


async def test_checkpoints_are_behind_the_prefix_too() -> None:
    service = FakeService()
    async with opened(service) as (pilot, _):
        await command(pilot, "c")
        await until(lambda: isinstance(pilot.app.screen, FormScreen))
        await pilot.press("x", "enter")
        await until(lambda: any(call.startswith("checkpoint") for call in service.calls))
        await until(lambda: isinstance(pilot.app.focused, Pane))


async def test_help_shows_the_keys_behind_the_prefix() -> None:
    service = FakeService()
    async with opened(service) as (pilot, _):
        await command(pilot, "question_mark")
        await until(lambda: isinstance(pilot.app.screen, HelpScreen))
        text = screen_text(app_of(pilot))
        assert "ctrl-] and then" in text
        assert "Open another shell beside this one" in text


HOSTILE = [
    b"\x1b]0;" + b"A" * 100_000 + b"\x07",
    b"\x1b]0;[red]not markup[/red]\x1b\\",
    b"\x1b[?1049h\x1b[2J\x1b[999999;999999H\x1b[999999b",
    bytes(range(256)) * 64,
]


async def test_whatever_a_guest_says_the_app_stands() -> None:
    service = FakeService()
    async with opened(service) as (pilot, _):
        (guest,) = service.terminals
        for number, data in enumerate(HOSTILE):
            with trying(data[:12]):
                await says(pilot, guest, data)
                await says(pilot, guest, b"\x1bc fine after %d" % number)
                fine = f"fine after {number}"
                await until(lambda fine=fine: fine in screen_text(app_of(pilot)))  # type: ignore[misc]
                assert WEB.name in screen_text(app_of(pilot))


async def test_a_flood_in_one_pane_does_not_hold_up_keys() -> None:
    service = FakeService()
    async with opened(service) as (pilot, _):
        (guest,) = service.terminals
        for _ in range(8):
            guest.say(b"flood \x1b[32mof\x1b[m output\r\n" * 1000)
        await pilot.press("q")
        assert guest.typed == b"q"
        await until(lambda: guest.unread == 0)


async def test_a_clipboard_is_only_written_by_the_one_in_use() -> None:
    service = FakeService()
    async with opened(service, (100, 30)) as (pilot, workspace):
        await command(pilot, "percent_sign")
        await until(lambda: opens(workspace, 2))
        first, second = service.terminals
        await says(pilot, first, b"\x1b]52;c;c3RvbGVu\x07")
        assert pilot.app.clipboard != "stolen"
        await says(pilot, second, b"\x1b]52;c;bWluZQ==\x07")
        assert pilot.app.clipboard == "mine"


def shell_view(session: str, *, clients: int = 0, is_pane: bool = True) -> ShellView:
    return ShellView(
        session=session,
        command="bash",
        created=NOW,
        birth=f"born-{session}",
        clients=clients,
        is_pane=is_pane,
    )


async def test_another_app_shows_the_same_panes_but_not_the_terminal_of_a_command() -> None:
    service = FakeService()
    service.left_shells = (
        shell_view("p1", clients=1),
        shell_view("p2", clients=1, is_pane=False),
        shell_view("p3", is_pane=False),
    )
    async with shown(service, size=(120, 30)) as (_, pilot):
        await pilot.press("s")
        await until(lambda: len(service.terminals) == 2)
        assert {guest.session for guest in service.terminals} == {"p1", "p3"}


async def test_panes_are_kept_and_lie_as_they_did(tmp_path: Path) -> None:
    def new_app(service: FakeService) -> QuicksandApp:
        memory = PaneMemory(StateFile(tmp_path / "panes.json"))
        return QuicksandApp(service, clock=lambda: NOW, pane_memory=memory)

    kept = tmp_path / "panes.json"
    service = FakeService()
    service.left_shells = (shell_view("p1"), shell_view("p2"), shell_view("p3"))
    app = new_app(service)
    async with app.run_test(size=(120, 30)) as pilot:
        await ready(pilot)
        await pilot.press("s")
        await until(lambda: len(service.terminals) == 3)
        workspace = app.main.query_one(Workspace)
        await until(lambda: opens(workspace, 3))
        workspace.close(workspace.panes[1])
        await command(pilot, "quotation_mark")
        await until(lambda: opens(workspace, 3))
        service.terminals[-1].session = "p4"
        service.terminals[-1].tell(LinkState.OPEN)
        await command(pilot, "left_curly_bracket")
        await command(pilot, "ctrl+left")
        await until(lambda: kept.exists() and "p4" in kept.read_text())
        await command(pilot, "z")
        await until(lambda: '"zoomed": true' in kept.read_text())
        workspace.zoom(False)
        before = {pane.status.session: pane.region for pane in workspace.panes}
        workspace.zoom(True)
        await until(lambda: '"zoomed": true' in kept.read_text())
        assert app.main.cockpit.shape.zoomed

    again = FakeService()
    again.left_shells = (shell_view("p4"), shell_view("p3"), shell_view("p1"))
    app = new_app(again)
    async with app.run_test(size=(120, 30)) as pilot:
        await ready(pilot)
        await pilot.press("s")
        await until(lambda: app.main.query(Workspace) and in_shells(pilot))
        workspace = app.main.query_one(Workspace)
        await until(lambda: workspace.zoomed and app.main.cockpit.shape.zoomed)
        assert workspace.current is not None
        assert workspace.current.status.session == "p4"
        await command(pilot, "z")
        await until(lambda: opens(workspace, 3))
        await until(
            lambda: (
                {pane.status.session: pane.region for pane in workspace.panes}.keys()
                == before.keys()
            )
        )
        assert [pane.status.session for pane in workspace.panes] == list(before)


async def test_a_zoomed_pane_is_so_again_when_one_comes_back() -> None:
    service = FakeService()
    async with opened(service, (100, 30)) as (pilot, workspace):
        await command(pilot, "percent_sign")
        await until(lambda: opens(workspace, 2))
        main = app_of(pilot).main
        await command(pilot, "z")
        assert workspace.zoomed and main.cockpit.shape.zoomed
        await command(pilot, "d")
        await until(lambda: main.sandboxes.table.has_focus)
        assert not main.cockpit.shape.zoomed
        await pilot.press("s")
        await until(lambda: workspace.zoomed and main.cockpit.shape.zoomed)
        await command(pilot, "z")
        assert not workspace.zoomed and not main.cockpit.shape.zoomed


async def test_a_lost_pane_says_how_it_goes_on() -> None:
    service = FakeService()
    async with opened(service, (100, 30)) as (pilot, workspace):
        (guest,) = service.terminals
        guest.tell(LinkState.LOST, "QEMU ended", runs=False)
        await until(lambda: "ctrl-] d, a starts it: QEMU ended" in screen_text(app_of(pilot)))
        await pilot.press("enter")
        assert service.terminals == [guest], "there is nothing to open a shell in"
        guest.tell(LinkState.LOST, "enter opens a new one: the sandbox runs again")
        await until(lambda: "(lost) enter opens a new one" in screen_text(app_of(pilot)))
        await pilot.press("enter")
        await until(lambda: len(service.terminals) == 2)
        assert guest.left
        await until(lambda: opens(workspace, 1))


async def test_shells_that_are_there_again_are_shown_beside_the_others() -> None:
    service = FakeService()
    async with opened(service, (120, 30)) as (pilot, workspace):
        await command(pilot, "d")
        service.left_shells = (
            shell_view("1", clients=1),
            shell_view("p8"),
            shell_view("p9", clients=1, is_pane=False),
        )
        await pilot.press("s")
        await until(lambda: opens(workspace, 2))
        assert [pane.status.session for pane in workspace.panes] == ["1", "p8"]
        assert workspace.current is workspace.panes[0]
