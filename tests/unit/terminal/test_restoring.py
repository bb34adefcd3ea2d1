"""A terminal that got a guest's output as it was is put right: the emulator and tmux are the
judges."""

from __future__ import annotations

import dataclasses

from hypothesis import given
from hypothesis import strategies as st
from quicksand_vt import Modes, Terminal
from quicksand_vt.modes import ANSI_FLAGS, PRIVATE_FLAGS
from quicksand_vt.restoring import Restoring
from quicksand_vt.setting_resets import ANSI_ON_AT_FIRST, CURSOR_BLINKS, ON_AT_FIRST, SETTINGS

from tests.each import each
from tests.unit.terminal.tmux import tmux_facts
from tests.unit.terminal.touching import EVERY

VIM = b"\x1b[?1049h\x1b[22;0;0t\x1b[?1h\x1b=\x1b[?2004h\x1b[?25l\x1b[?1006;1000h"

INVISIBLE = frozenset(
    {"encoding", "protection", "link", "pointer shape", "progress", "lamps", "printer"}
    | {"status line", "ANSI mode 12", "mode 3"}
)
"""What the emulator does not show in its state; mode 3 has no effect before mode 40."""


def undo_of(*pieces: bytes) -> bytes:
    restoring = Restoring()
    for piece in pieces:
        restoring.feed(piece)
    return restoring.undo()


def shown(*pieces: bytes) -> Terminal:
    """A terminal with a title of its own that got these pieces."""
    terminal = Terminal(80, 24)
    terminal.feed(b"\x1b]2;ours\x1b\\" + b"".join(pieces))
    return terminal


def passed(*pieces: bytes) -> Terminal:
    """The same by way of `Restoring`, put right in the end."""
    restoring = Restoring()
    relayed = [part for piece in pieces for part in (restoring.feed(piece), piece)]
    return shown(*relayed, restoring.undo())


def state_of(terminal: Terminal) -> dict[str, object]:
    state = terminal._state
    screen = state.screen
    return {
        **dataclasses.asdict(state.modes),
        "alternate": screen.is_alternate,
        "region": (screen.top, screen.end, screen.left, screen.right),
        "charsets": screen.charsets.state(),
        "style": screen.cursor.style,
        "tabs": [screen.tabs.after(x) for x in range(79)],
        "colours": dict(state.colours.changed),
        "title": state.title,
        "titles": list(state.titles),
    }


@each("name", EVERY)
def test_what_was_set_is_put_right(name: str) -> None:
    untouched, sets = state_of(shown()), EVERY[name].encode()
    changed = state_of(shown(sets))
    assert changed != untouched or name in INVISIBLE or name == "directory"
    assert state_of(passed(sets)) == untouched
    for setting in SETTINGS:
        assert (setting.resets.encode() in undo_of(sets)) or setting.name != name


def test_everything_at_once_is_put_right_whatever_the_order() -> None:
    untouched = state_of(shown())
    for order in (EVERY.values(), reversed(EVERY.values())):
        assert state_of(passed("".join(order).encode())) == untouched


@given(st.lists(st.sampled_from(list(EVERY.values())), max_size=12), st.data())
def test_any_of_it_is_put_right_however_it_is_cut(sets: list[str], data: st.DataObject) -> None:
    output = "".join(sets).encode()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(output)), max_size=6)))
    pieces = [
        output[a:b]
        for a, b in zip([0, *cuts], [*cuts, data.draw(at(output))], strict=True)
        if a < b
    ]
    assert state_of(passed(*pieces)) == state_of(shown())


def at(output: bytes) -> st.SearchStrategy[int]:
    """Where output breaks off."""
    return st.integers(0, len(output))


def test_tmux_is_put_right() -> None:
    # Tmux has no title stack that survives its own title, and shows no pointer.
    restoring = Restoring()
    output = "".join(EVERY.values()).encode()
    before = restoring.feed(output)
    untouched = tmux_facts(b"")
    assert tmux_facts(output) != untouched
    assert tmux_facts(before + output + restoring.undo()) == untouched


def test_the_emulators_modes_have_the_values_of_the_table() -> None:
    fresh = Modes()
    for number, name in PRIVATE_FLAGS.items():
        if number != CURSOR_BLINKS:
            assert getattr(fresh, name) == (number in ON_AT_FIRST), name
    for number, name in ANSI_FLAGS.items():
        assert getattr(fresh, name) == (number in ANSI_ON_AT_FIRST), name


def test_the_cursor_stays_where_it_is() -> None:
    sets = "".join(setting.sets for setting in SETTINGS if setting.name != "margins").encode()
    terminal = passed(b"\x1b[5;7H" + sets)
    assert (terminal.cursor.line - terminal.screen_line, terminal.cursor.x) == (4, 6)


def test_a_terminal_that_was_not_touched_is_left_alone() -> None:
    restoring = Restoring()
    assert restoring.feed("ls\r\nDateiä\r\n".encode()) == b""
    assert restoring.undo() == b""


def test_what_an_editor_set_is_undone_the_alternate_screen_first() -> None:
    undo = undo_of(VIM)
    assert undo.startswith(b"\x1b[?1049l")
    for mode in (b"\x1b[?1l", b"\x1b[?2004l", b"\x1b[?25h", b"\x1b[?1006l", b"\x1b[?1000l"):
        assert mode in undo


def test_what_the_program_undid_itself_is_not_undone_again() -> None:
    undo = undo_of(VIM, b"\x1b[?1049l\x1b[?1l\x1b[?2004l\x1b[?25h\x1b[?1006;1000l")
    assert b"\x1b[?" not in undo


def test_a_query_of_a_colour_leaves_nothing_to_undo() -> None:
    assert b"\x1b]1" not in undo_of(b"\x1b]11;?\x1b\\\x1b]4;3;?\x07\x1b]10;?;?\x07")


def test_digits_of_other_scripts_are_no_numbers() -> None:
    undo = undo_of("\x1b]4;\u0663;red\x07\x1b]1\u0661;red\x07\x1b[?1049h".encode())
    assert undo.startswith(b"\x1b[?1049l")
    assert b"\x1b]1" not in undo


def test_a_notification_is_no_progress() -> None:
    assert b"\x1b]9" not in undo_of(b"\x1b]9;4 tests passed\x07")


def test_a_sequence_that_breaks_off_does_not_swallow_what_comes_next() -> None:
    for cut in (b"\x1b]2;half a ti", b"\x1b[?10", b"\x1bP+q", b"\x1b"):
        terminal = passed(b"text" + cut)
        terminal.feed(b"$ next")
        assert terminal.text(terminal.screen_line) == "text$ next"
        assert terminal.title == "ours"


def test_pushed_keyboard_modes_are_popped_each_on_its_screen() -> None:
    assert undo_of(b"\x1b[>1u\x1b[>5u\x1b[<u").count(b"\x1b[<u") == 1
    undo = undo_of(b"\x1b[>1u\x1b[?1049h\x1b[>1u\x1b[>1u\x1b[>1u\x1b[<2u")
    before, after = undo.split(b"\x1b[?1049l")
    assert (before.count(b"\x1b[<u"), after.count(b"\x1b[<u")) == (1, 1)


def test_the_terminals_own_title_is_kept_before_the_first_sequence_only() -> None:
    restoring = Restoring()
    pieces = [b"text", b"\x1b]2;a ti", b"tle\x07\x1b[1m", b"\x1b[0m"]
    assert [restoring.feed(piece) for piece in pieces] == [b"", b"\x1b[22;0t", b"", b""]


def test_a_flood_takes_no_memory() -> None:
    restoring = Restoring()
    for number in range(20_000):
        restoring.feed(
            b"\x1b[?%dh\x1b[%dh\x1b[>1u\x1b[22t\x1b]4;%d;#000\x07\x1b]%d;x\x07"
            % (number, number, number, number)
        )
    assert len(restoring.undo()) < 16 * 1024
