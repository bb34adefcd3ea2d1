"""Copy mode, the mouse and pasting, in panes on the screen."""

from __future__ import annotations

from quicksand_panes.guest_terminal import TYPED_MAX, LinkState
from quicksand_panes.widgets import Pane, Workspace
from textual import events
from textual.pilot import Pilot

from quicksand_tui.screens.confirm import ConfirmScreen
from tests.each import each, trying
from tests.unit.app.fakes import FakeService, FakeTerminal, app_of, screen_text, toasts, until
from tests.unit.panes.test_panes_screen import command, in_shells, opened, opens, says

LINES = b"".join(b"line %d\r\n" % n for n in range(100))
MOUSE_ON = b"\x1b[?1002h\x1b[?1006h"


def shows(pilot: Pilot[int], text: str) -> bool:
    return text in screen_text(app_of(pilot))


async def copying(pilot: Pilot[int], workspace: Workspace) -> Pane:
    """Copy mode over a hundred lines."""
    await says(pilot, workspace_guest(pilot), LINES)
    await until(lambda: shows(pilot, "line 99"))
    await command(pilot, "left_square_bracket")
    (pane,) = workspace.panes
    await until(lambda: pane.copy_mode is not None)
    return pane


def workspace_guest(pilot: Pilot[int]) -> FakeTerminal:
    service = app_of(pilot).service
    assert isinstance(service, FakeService)
    return service.terminals[0]


def told(pilot: Pilot[int]) -> str:
    return " ".join(toasts(app_of(pilot)))


def marked(pilot: Pilot[int], pane: Pane, kind: str) -> list[str]:
    """What is drawn in the style of a component, row by row."""
    wanted = pane.get_component_rich_style(kind).bgcolor
    found = []
    for y in range(pane.size.height):
        cells = [
            segment.text
            for segment in pane.render_line(y)
            if segment.style is not None and segment.style.bgcolor == wanted
        ]
        if cells:
            found.append("".join(cells))
    return found


# Copy mode


async def test_lines_are_selected_copied_and_pasted() -> None:
    service = FakeService()
    async with opened(service) as (pilot, workspace):
        pane = await copying(pilot, workspace)
        (guest,) = service.terminals
        assert shows(pilot, "copy mode 101/101")
        assert shows(pilot, "v selects")
        await pilot.press("g")
        await until(lambda: shows(pilot, "line 0"))
        assert not shows(pilot, "v selects")
        await says(pilot, guest, b"and more\r\n" * 50)
        assert shows(pilot, "line 0"), "the view stays where it is"
        await pilot.press("w", "v", "j", "dollar_sign")
        assert marked(pilot, pane, "pane--selection") == [
            "0" + " " * (pane.size.width - 6),
            "line 1",
        ]
        await pilot.press("y")
        await until(lambda: pane.copy_mode is None)
        assert pilot.app.clipboard == "0\nline 1"
        assert "Copied 2 lines, 8 characters" in told(pilot)
        await until(lambda: shows(pilot, "and more"))
        assert guest.typed == b""
        await says(pilot, guest, b"\x1b[?2004h")
        await command(pilot, "right_square_bracket")
        assert guest.typed == b"\x1b[200~0\rline 1\x1b[201~"


async def test_a_search_is_shown_while_it_is_typed() -> None:
    service = FakeService()
    async with opened(service) as (pilot, workspace):
        pane = await copying(pilot, workspace)
        await pilot.press("question_mark", "l", "i", "n", "e", "space", "9")
        await until(lambda: shows(pilot, "?line 9"))
        await until(lambda: shows(pilot, "11 of 11 matches"))
        assert marked(pilot, pane, "pane--found") == ["line 9"]
        assert len(marked(pilot, pane, "pane--match")) == 9
        await pilot.press("enter", "n")
        await until(lambda: shows(pilot, "10 of 11 matches"))
        await pilot.press("escape")
        await until(lambda: marked(pilot, pane, "pane--match") == [])
        await pilot.press("escape")
        await until(lambda: pane.copy_mode is None)
        assert service.terminals[0].typed == b""


async def test_ten_thousand_lines_are_searched_in_slices() -> None:
    service = FakeService()
    async with opened(service) as (pilot, workspace):
        (guest,) = service.terminals
        (pane,) = workspace.panes
        pane.terminal.feed(b"".join(b"line %d and more of it\r\n" % n for n in range(10_000)))
        await command(pilot, "left_square_bracket")
        mode = pane.copy_mode
        assert mode is not None
        await pilot.press("question_mark", *"line 7")
        await until(lambda: shows(pilot, "1111 of 1111 matches"))
        assert mode.lines.text(mode.cursor.line).startswith("line 7999")
        assert guest.typed == b""


async def test_page_up_behind_the_prefix_looks_back_until_the_end_is_reached() -> None:
    service = FakeService()
    async with opened(service) as (pilot, workspace):
        (pane,) = workspace.panes
        await says(pilot, service.terminals[0], LINES)
        await command(pilot, "pageup")
        await until(lambda: shows(pilot, "line 70"))
        await pilot.press("q")
        await until(lambda: pane.copy_mode is None)


async def test_what_is_too_much_for_the_terminal_is_pasted_all_the_same() -> None:
    service = FakeService()
    async with opened(service) as (pilot, workspace):
        await command(pilot, "right_square_bracket")
        assert "Nothing was copied yet" in told(pilot)
        (pane,) = workspace.panes
        written: list[str] = []
        app = app_of(pilot)
        assert app._driver is not None
        app._driver.write = written.append  # type: ignore[method-assign,assignment]
        pane.copying.copy("x" * 1000)
        assert any("\x1b]52;" in text for text in written)
        written.clear()
        pane.copying.copy("y" * 100_000)
        assert not any("\x1b]52;" in text for text in written)
        await command(pilot, "right_square_bracket")
        assert service.terminals[0].typed == b"y" * 100_000


async def test_another_width_drops_what_is_selected() -> None:
    service = FakeService()
    async with opened(service) as (pilot, workspace):
        pane = await copying(pilot, workspace)
        await pilot.press("g", "v", "j")
        await pilot.resize_terminal(60, 24)
        await until(lambda: service.terminals[0].size[0] == 60)
        assert pane.copy_mode is not None
        assert pane.copy_mode.selection is None
        await pilot.resize_terminal(60, 20)
        await until(lambda: service.terminals[0].size == (60, 17))
        await pilot.press("Y")
        await until(lambda: pane.copy_mode is None)


@each("state", [LinkState.LOST, LinkState.ENDED])
async def test_what_a_dead_guest_showed_can_still_be_copied(state: LinkState) -> None:
    service = FakeService()
    async with opened(service) as (pilot, workspace):
        pane = await copying(pilot, workspace)
        await pilot.press("g", "v", "e")
        (guest,) = service.terminals
        guest.tell(state, "enter opens a new one: it is gone")
        await until(lambda: shows(pilot, f"({state.value})"))
        await pilot.press("enter")
        await until(lambda: pane.copy_mode is None)
        assert pilot.app.clipboard == "line"
        await until(lambda: shows(pilot, "it is gone"))
        assert service.terminals == [guest], "enter was copy mode's"
        await pilot.press("enter")
        await until(lambda: len(service.terminals) == 2)


async def test_a_revert_ends_copy_mode() -> None:
    service = FakeService()
    async with opened(service) as (pilot, workspace):
        pane = await copying(pilot, workspace)
        (guest,) = service.terminals
        guest.tell(LinkState.CONNECTING, "reverted to 'clean'")
        assert pane.copy_mode is not None
        guest.tell(LinkState.OPEN, "reverted to 'clean'")
        assert pane.copy_mode is None
        await says(pilot, guest, b"before it")
        await until(lambda: shows(pilot, "before it"))


async def test_output_that_a_revert_makes_void_does_not_hold_the_guest_up() -> None:
    service = FakeService()
    async with opened(service):
        (guest,) = service.terminals
        guest.say(b"x" * 200_000)
        guest.tell(LinkState.CONNECTING)
        guest.tell(LinkState.OPEN)
        await until(lambda: guest.unread == 0)


# The mouse


async def drag(pilot: Pilot[int], pane: Pane, *path: tuple[int, int], shift: bool = False) -> None:
    """Press the left button at the first place, go to the others, release it at the last."""
    post = pilot._post_mouse_events
    await post([events.MouseDown], pane, path[0], button=1, shift=shift)
    for place in path[1:]:
        await post([events.MouseMove], pane, place, button=1, shift=shift)
    await post([events.MouseUp], pane, path[-1], button=1, shift=shift)
    await pilot.pause()


async def test_dragging_selects_the_release_copies_and_typing_clears_the_mark() -> None:
    service = FakeService()
    async with opened(service) as (pilot, workspace):
        (pane,) = workspace.panes
        (guest,) = service.terminals
        await says(pilot, guest, b"hello world\r\nsecond line")
        await drag(pilot, pane, (6, 0), (3, 1), (5, 1))
        assert pilot.app.clipboard == "world\nsecond"
        assert "Copied 2 lines, 12 characters" in told(pilot)
        assert pane.copy_mode is None
        selection = ["world" + " " * (pane.size.width - 11), "second"]
        assert marked(pilot, pane, "pane--selection") == selection
        await says(pilot, guest, b"\r\nmore")
        assert marked(pilot, pane, "pane--selection") == selection, "it has not changed"
        await pilot.click(pane, offset=(1, 5))
        assert marked(pilot, pane, "pane--selection") == []
        assert guest.typed == b""
        await drag(pilot, pane, (0, 0), (4, 0))
        assert pane.copying.highlight is not None
        await pilot.press("x")
        assert pane.copying.highlight is None
        assert guest.typed == b"x"


async def test_the_mark_goes_when_what_was_marked_changes() -> None:
    service = FakeService()
    async with opened(service) as (pilot, workspace):
        (pane,) = workspace.panes
        (guest,) = service.terminals
        for change in (b"\x1b[2;1HSECOND", b"\x1b[2J", b"\x1b[?1049h", b"\x1bc"):
            with trying(change):
                await says(pilot, guest, b"\x1bchello world\r\nsecond line")
                await drag(pilot, pane, (6, 0), (5, 1))
                assert pane.copying.highlight is not None
                await says(pilot, guest, change)
                await until(lambda: pane.copying.highlight is None)


async def test_clicks_select_words_and_lines() -> None:
    service = FakeService()
    async with opened(service) as (pilot, workspace):
        (pane,) = workspace.panes
        await says(pilot, service.terminals[0], b"see path/to-it, and more\r\nnext")
        for times, text in ((2, "path/to-it"), (3, "see path/to-it, and more")):
            await pilot.click(pane, offset=(6, 0), times=times)
            await until(lambda text=text: pilot.app.clipboard == text)  # type: ignore[misc]
            assert marked(pilot, pane, "pane--selection")[0].rstrip() == text


async def test_dragging_beyond_the_edge_scrolls() -> None:
    service = FakeService()
    async with opened(service) as (pilot, workspace):
        (pane,) = workspace.panes
        await says(pilot, service.terminals[0], LINES)
        post = pilot._post_mouse_events
        await post([events.MouseDown], pane, (3, 5), button=1)
        # The title's row is above the pane.
        await post([events.MouseMove], pane, (3, -1), button=1)
        await until(
            lambda: pane.copying.mode is not None and pane.copying.mode.top == 0, timeout=60
        )
        await post([events.MouseUp], pane, (3, -1), button=1)
        await pilot.pause()
        assert pilot.app.clipboard.startswith("e 0\nline 1\n")
        assert pane.copy_mode is not None, "the user may want to see what was selected"
        assert pane._gestures._edge is None
        await pilot.press("q")
        await until(lambda: pane.copy_mode is None)


async def test_the_mouse_is_the_guest_s_if_it_wants_it_but_not_with_shift() -> None:
    service = FakeService()
    async with opened(service) as (pilot, workspace):
        (pane,) = workspace.panes
        (guest,) = service.terminals
        await says(pilot, guest, b"hello world" + MOUSE_ON)
        await drag(pilot, pane, (6, 0), (10, 0))
        assert guest.typed == b"\x1b[<0;7;1M\x1b[<32;11;1M\x1b[<0;11;1m"
        assert pilot.app.clipboard == ""
        await pilot.click(pane, offset=(6, 0), times=2)
        assert pilot.app.clipboard == ""
        guest.typed = b""
        await drag(pilot, pane, (6, 0), (10, 0), shift=True)
        assert guest.typed == b""
        assert pilot.app.clipboard == "world"
        await drag(pilot, pane, (6, 0), (6, -1))
        assert guest.typed.endswith(b"\x1b[<0;7;1m"), "it is released within the pane"


async def wheel(pilot: Pilot[int], pane: Pane, *, up: bool, times: int = 1) -> None:
    kind = events.MouseScrollUp if up else events.MouseScrollDown
    for _ in range(times):
        await pilot._post_mouse_events([kind], pane, (3, 3))
    await pilot.pause()


async def test_the_wheel_looks_back_and_is_arrow_keys_on_the_alternate_screen() -> None:
    service = FakeService()
    async with opened(service) as (pilot, workspace):
        (pane,) = workspace.panes
        await wheel(pilot, pane, up=True)
        assert pane.copy_mode is None, "nothing has scrolled off yet"
        await says(pilot, service.terminals[0], LINES)
        await wheel(pilot, pane, up=False)
        assert pane.copy_mode is None
        await wheel(pilot, pane, up=True, times=2)
        assert pane.copy_mode is not None
        assert pane.copy_mode.top == pane.terminal.screen_line - 6
        await wheel(pilot, pane, up=False)
        assert pane.copy_mode is not None
        await wheel(pilot, pane, up=False)
        assert pane.copy_mode is None
        (guest,) = service.terminals
        await says(pilot, guest, b"\x1b[?1049h\x1b[?1h")
        await wheel(pilot, pane, up=True)
        assert guest.typed == b"\x1bOA" * 3
        assert pane.copy_mode is None
        guest.typed = b""
        await says(pilot, guest, MOUSE_ON)
        await wheel(pilot, pane, up=False)
        assert guest.typed == b"\x1b[<65;4;4M"


async def test_the_line_between_panes_is_dragged_and_titles_are_clicked() -> None:
    service = FakeService()
    async with opened(service, (95, 30)) as (pilot, workspace):
        await command(pilot, "percent_sign")
        await until(lambda: opens(workspace, 2))
        first, second = workspace.panes
        await until(lambda: second.has_focus and second.size.width == 47)
        post = pilot._post_mouse_events
        await post([events.MouseDown], workspace, (47, 5), button=1)
        await post([events.MouseMove], workspace, (40, 5), button=1)
        await post([events.MouseMove], workspace, (30, 5), button=1)
        await post([events.MouseUp], workspace, (30, 5), button=1)
        await until(lambda: [t.size[0] for t in service.terminals] == [30, 64])
        await pilot.click(workspace, offset=(5, 0))
        await until(lambda: first.has_focus)
        await pilot.click(second, offset=(5, 5))
        await until(lambda: second.has_focus)
        assert all(guest.typed == b"" for guest in service.terminals)


# Pasting


async def paste(pilot: Pilot[int], text: str) -> None:
    pilot.app.post_message(events.Paste(text))
    await pilot.pause()


async def test_several_lines_are_pasted_after_a_question() -> None:
    service = FakeService()
    text = "echo one\n[red]rm -rf /[/red]\x1b[2J\n" + "x\n" * 20
    async with opened(service) as (pilot, _):
        (guest,) = service.terminals
        await paste(pilot, text)
        await until(lambda: isinstance(pilot.app.screen, ConfirmScreen))
        assert shows(pilot, "Paste 22 lines?")
        assert shows(pilot, "[red]rm -rf /[/red]")
        assert shows(pilot, "and 16 more lines")
        await pilot.press("enter")
        await until(lambda: in_shells(pilot))
        assert guest.typed == b"", "Cancel has the focus"
        await paste(pilot, text)
        await until(lambda: isinstance(pilot.app.screen, ConfirmScreen))
        await pilot.press("ctrl+y")
        await until(lambda: guest.typed)
        assert guest.typed == b"echo one\r[red]rm -rf /[/red][2J\r" + b"x\r" * 20


async def test_what_does_no_harm_is_pasted_at_once() -> None:
    service = FakeService()
    async with opened(service) as (pilot, _):
        (guest,) = service.terminals
        for mode, text, typed in (
            (b"x", "echo one", b"echo one"),
            (b"x", "echo one\n", b"echo one\r"),
            (b"\x1b[?2004h", "a\nb", b"\x1b[200~a\rb\x1b[201~"),
            (b"\x1b[?2004h", "a\x1b[201~b\nc", b"\x1b[200~a[201~b\rc\x1b[201~"),
        ):
            with trying((mode, text)):
                guest.typed = b""
                await says(pilot, guest, mode)
                await paste(pilot, text)
                assert guest.typed == typed


async def test_more_than_a_guest_takes_is_refused_whole_and_all_by_one_that_has_ended() -> None:
    service = FakeService()
    async with opened(service) as (pilot, _):
        await paste(pilot, "x" * (TYPED_MAX + 1))
        assert service.terminals[0].typed == b""
        assert "1.0M at most" in told(pilot)
        service.terminals[0].tell(LinkState.ENDED)
        await paste(pilot, "a\nb")
        assert "Nothing was pasted" in told(pilot)
        assert in_shells(pilot)


async def test_a_paste_in_copy_mode_is_searched_for_or_ends_it() -> None:
    service = FakeService()
    async with opened(service) as (pilot, workspace):
        pane = await copying(pilot, workspace)
        await pilot.press("question_mark")
        await paste(pilot, "line 42")
        await until(lambda: shows(pilot, "1 of 1 match"))
        assert service.terminals[0].typed == b""
        await pilot.press("enter")
        await paste(pilot, "ls")
        await until(lambda: pane.copy_mode is None)
        assert service.terminals[0].typed == b"ls"
