"""Keys: what they are called, and who gets them."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from textual.keys import _character_to_key

from quicksand_tui.actions.all_actions import (
    ACTIONS,
    PREFIXED,
    Scope,
    default_keymap,
    find_action,
)
from quicksand_tui.actions.rebinding import Assignment, bind
from quicksand_tui.model.keymap import (
    ALIKE,
    NO_KEYS,
    RESERVED,
    KeyNameError,
    key_text,
    parse_key,
    parse_prefix,
)
from tests.each import each


@each("character", [chr(code) for code in range(0x21, 0x7F)])
def test_characters_are_called_as_textual_calls_them(character: str) -> None:
    assert parse_key(character) == _character_to_key(character)
    assert key_text(parse_key(character)) == character


@each(
    ("typed", "key"),
    [
        ("Ctrl-R", "ctrl+r"),
        ("ctrl+]", "ctrl+right_square_bracket"),
        ("ctrl-@", "ctrl+@"),
        ("shift+g", "G"),
        ("PgUp", "pageup"),
        ("esc", "escape"),
        ("F5", "f5"),
        ("shift+tab", "shift+tab"),
        ("ctrl-right", "ctrl+right"),
        ("question_mark", "question_mark"),
        (" ", "space"),
        ("é", "é"),
    ],
)
def test_keys_can_be_written_as_people_do(typed: str, key: str) -> None:
    assert parse_key(typed) == key


@each(
    ("typed", "why"),
    [
        ("alt+x", "esc and a letter"),
        ("ctrl+shift+a", "do not send"),
        ("ctrl+5", "do not send"),
        ("shift+1", "the character itself"),
        ("hyper+x", "ctrl and shift are known"),
        ("foo", "is no key"),
        ("ctrl+", "is no key"),
        ("", "is no key"),
        ("\x07", "can be typed"),
    ],
)
def test_what_is_no_key_is_refused_with_why(typed: str, why: str) -> None:
    with pytest.raises(KeyNameError, match=why):
        parse_key(typed)


@given(st.text(max_size=30))
@example("«")
@example("shift+ß")
@example("ctrl+˥")
def test_anything_typed_is_a_key_or_refused(text: str) -> None:
    try:
        key = parse_key(text)
    except KeyNameError:
        return
    assert key and "," not in key
    assert parse_key(key_text(key)) == key


@each(("text", "data"), [("ctrl-a", b"\x01"), ("ctrl+]", b"\x1d")])
def test_a_prefix_is_a_byte(text: str, data: bytes) -> None:
    assert parse_prefix(text).data == data


@each("text", ["a", "f5", "ctrl+i", "ctrl+[", "ctrl+q", "ctrl+right", "x y"])
def test_other_keys_are_no_prefix(text: str) -> None:
    with pytest.raises(KeyNameError):
        parse_prefix(text)


def test_a_hint_is_the_key_or_else_the_command() -> None:
    assert default_keymap().hint("stop") == "x"
    assert NO_KEYS.hint("full_shell") == ":full-shell"


# Rebinding


def keys(target: str, *wanted: str, line: int = 0) -> Assignment:
    return Assignment(target=target, keys=wanted, line=line)


def test_without_assignments_everything_is_as_the_registry_says() -> None:
    keymap, problems = bind([])
    assert problems == []
    assert keymap == default_keymap()
    assert keymap.changes_from(default_keymap()) == {}


def test_an_id_stands_for_every_screen_and_an_address_for_one() -> None:
    keymap, problems = bind([keys("help", "f1"), keys("saves.help", "H")])
    assert problems == []
    # Log, tree and mounts are parts of the main screen and have its help.
    for scope in set(Scope) - {Scope.LOG, Scope.TREE, Scope.MOUNTS}:
        expected = ("H",) if scope is Scope.SAVES else ("f1",)
        assert keymap.keys_of(find_action("help", scope)) == expected


def test_none_takes_a_key_away_and_enter_stays() -> None:
    keymap, problems = bind([keys("order"), keys("main.open", "o")])
    assert problems == []
    assert keymap.keys_of(find_action("order")) == ()
    assert keymap.hint("order") == ":order"
    assert keymap.keys_of(find_action("open")) == ("o", "enter")
    changes = keymap.changes_from(default_keymap())
    assert changes["main.order"] == "unbound"
    assert changes["main.open"] == "o,enter"


def test_two_actions_can_change_places() -> None:
    keymap, problems = bind([keys("stop", "d"), keys("main.delete", "x")])
    assert problems == []
    assert keymap.hint("stop") == "d" and keymap.hint("delete") == "x"


def test_a_key_of_another_action_stays_with_it() -> None:
    keymap, (problem,) = bind([keys("stop", "d", line=7)])
    assert problem.what == "d is the key of main.delete already, so main.stop does not get it"
    assert problem.line == 7
    assert keymap.hint("stop") == "x" and keymap.hint("delete") == "d"


def test_of_two_that_want_a_key_the_first_gets_it() -> None:
    keymap, (problem,) = bind([keys("main.kill", "f9"), keys("main.undo", "f9", "f8")])
    assert "f9 is the key of main.kill already" in problem.what
    assert keymap.hint("kill") == "f9" and keymap.hint("undo") == "f8"


def test_who_gets_nothing_and_has_lost_its_own_key_is_told_of() -> None:
    keymap, problems = bind([keys("stop", "d"), keys("main.kill", "x")])
    assert [found.what for found in problems] == [
        "d is the key of main.delete already, so main.stop does not get it",
        "main.stop has no key now: another one got its own",
    ]
    assert keymap.hint("kill") == "x" and keymap.hint("stop") == ":stop"


@each("key", [*RESERVED, *ALIKE])
def test_what_lists_inputs_and_the_app_need_cannot_be_given_away(key: str) -> None:
    keymap, (problem,) = bind([keys("main.stop", key)])
    assert key_text(key) in problem.what
    assert keymap.hint("stop") == "x"


def test_behind_the_prefix_keys_are_free_but_for_the_prefix() -> None:
    prefix = parse_prefix("ctrl-a")
    keymap, (problem,) = bind([keys("panes.zoom", "j", "ctrl+a")], prefix)
    assert "is the prefix" in problem.what
    assert keymap.keys_of(find_action("zoom", Scope.PANES)) == ("j",)


def test_an_unknown_action_is_named_with_one_that_is_like_it() -> None:
    _, (problem,) = bind([keys("hlep", "x")])
    assert problem.what == "there is no such action; did you mean help?"


@given(
    st.lists(
        st.tuples(
            st.sampled_from([name for a in ACTIONS for name in (a.id, a.address)]),
            st.lists(st.sampled_from(["x", "d", "j", "f1", "ctrl+i", "enter", "Q", "?", "é"])),
        ),
        max_size=12,
    )
)
def test_whatever_is_assigned_no_two_actions_of_a_screen_have_one_key(
    wishes: list[tuple[str, list[str]]],
) -> None:
    keymap, _ = bind([keys(target, *wanted) for target, wanted in wishes])
    for scope in Scope:
        given = [key for a in ACTIONS if a.scope is scope for key in keymap.keys_of(a)]
        assert len(given) == len(set(given))
    for action in ACTIONS:
        usual = {key for key in action.keys if action.scope not in PREFIXED and key in RESERVED}
        assert usual <= set(keymap.keys_of(action))
