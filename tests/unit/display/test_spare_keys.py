"""The keys that characters beyond a US keyboard are given."""

from __future__ import annotations

import string

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from quicksand.base.errors import ConfigError
from quicksand.display.any_text import (
    NAMES,
    SpareKeys,
    characters_on,
    check_text,
    missing,
    needs_tool,
    parts,
    xmodmap_lines,
)
from quicksand_vnc import STROKES

from tests.conftest import examples
from tests.each import each

KEYMAP = """\
keycode   8 =
keycode  24 = q Q q Q
keycode  93 =
keycode 222 = U1F600 U1F600
keycode 230 = eacute eacute
keycode 300 =
key 5 =
"""

RECORD = '_QUICKSAND_KEYS = "222:1f600 230:e9"'


def test_free_keys_come_first_and_then_those_used_longest_ago() -> None:
    keys = SpareKeys.parse(KEYMAP, RECORD)
    assert keys.count == 4
    assert keys.give("aé".removeprefix("a")) == ({}, False)
    assert keys.give("ß漢") == ({8: "ß", 93: "漢"}, False)
    assert keys.record == "222:1f600 230:e9 8:df 93:6f22"
    assert keys.give("é€") == ({222: "€"}, True)
    assert keys.record == "8:df 93:6f22 230:e9 222:20ac"


def test_what_the_next_call_needs_is_not_taken_away_for_it() -> None:
    keys = SpareKeys([8, 9])
    assert keys.give("ab") == ({8: "a", 9: "b"}, False)
    assert keys.give("ca") == ({9: "c"}, True)


def test_keys_that_have_lost_their_characters_are_free() -> None:
    """As after a change of the layout."""
    bare = KEYMAP.replace("= U1F600 U1F600", "=").replace("= eacute eacute", "=")
    keys = SpareKeys.parse(bare, RECORD)
    assert (keys.count, keys.record) == (4, "")


@each("record", ["", "not found.", '"222:110000"', '"7:61 24a:62 :: 5: :61"'])
def test_a_malformed_record_names_no_spare_key(record: str) -> None:
    assert SpareKeys.parse(KEYMAP, record).record == ""


@settings(max_examples=examples(300))
@given(st.text(alphabet=string.hexdigits + ": =\nkeycod", max_size=300), st.text(max_size=300))
def test_whatever_a_guest_says_keys_are_keys(keymap: str, record: str) -> None:
    keys = SpareKeys.parse(KEYMAP + keymap, RECORD + record)
    new, _ = keys.give("äöü")
    assert all(8 <= code < 256 for code in new)
    assert SpareKeys.parse(keymap, keys.record).count >= 0


def test_letters_stay_large() -> None:
    assert xmodmap_lines({9: "É", 10: "\N{GRINNING FACE}"}) == (
        "keycode 9 = U00C9 U00C9\nkeycode 10 = U1F600 U1F600\n"
    )


@settings(max_examples=examples(300))
@given(st.text(), st.integers(1, 5))
def test_a_text_is_divided_into_what_fits(text: str, count: int) -> None:
    found = list(parts(text, count))
    assert "".join(found) == text
    assert all(len(missing(part)) <= count for part in found)
    assert len(found) == 1 or len(missing(text)) > count


def test_what_emoji_are_made_of_can_be_typed() -> None:
    family = "\N{WOMAN}\u200d\N{PERSONAL COMPUTER} \N{HEAVY BLACK HEART}\ufe0f"
    check_text(family, 10)
    assert missing(family) == [c for c in family if c not in STROKES]


GERMAN = """\
keycode  24 = q Q q Q at Greek_OMEGA at
keycode  29 = z Z z Z leftarrow yen leftarrow
keycode  49 = dead_circumflex degree dead_circumflex degree
keycode  61 = minus underscore minus underscore
keycode  65 = space NoSymbol space
"""


def test_what_another_layout_lacks_gets_spare_keys() -> None:
    """A dead key types nothing by itself."""
    known = characters_on(GERMAN)
    assert known == set("qQzZ@-_ \n\t\b")
    assert missing("z@ ^Ä-\n", known) == ["^", "Ä"]
    assert list(parts("z^-a-", 1, known)) == ["z^-", "a-"]


def test_a_character_on_a_spare_key_is_not_there_for_good() -> None:
    """So it counts as used when it is typed again, and its key is not given to the next one."""
    keymap = GERMAN + "keycode 200 = H H\nkeycode 201 =\n"
    keys = SpareKeys.parse(keymap, '_QUICKSAND_KEYS = "200:48"')
    known = characters_on(keymap, keys.codes)
    assert missing("zHÄ", known) == ["H", "Ä"]
    assert keys.give(missing("zHÄ", known)) == ({201: "Ä"}, False)


def test_all_characters_of_a_us_keyboard_have_names() -> None:
    keymap = "".join(
        f"keycode {8 + number} = {NAMES.get(character, character)}\n"
        for number, character in enumerate(sorted(STROKES))
        if character >= " "
    )
    assert characters_on(keymap) == set(STROKES)


def test_only_what_a_us_keyboard_lacks_needs_the_tool() -> None:
    assert not needs_tool(string.printable.replace("\r", "").replace("\x0b", "")[:-1])
    assert needs_tool("naïve") and needs_tool("漢") and needs_tool("\N{GRINNING FACE}")


@each("text", ["\x1b", "a\0", "\r", "\x7f", "\ud800", "\u202e"])
def test_what_cannot_be_typed(text: str) -> None:
    with pytest.raises(ConfigError, match="cannot be typed"):
        check_text(text, 10)


def test_texts_have_an_end() -> None:
    check_text("é" * 10, 10)
    with pytest.raises(ConfigError, match="11 characters is too long"):
        check_text("x" * 11, 10)
    with pytest.raises(ConfigError, match="must be a string"):
        check_text(b"x", 10)  # type: ignore[arg-type]
