"""Names of keys, and the keys that type a character."""

from __future__ import annotations

import pytest
from quicksand_vnc import (
    STROKES,
    AskedError,
    Key,
    Stroke,
    keysym_of,
    keysym_of_key,
    parse_key,
    parse_keys,
)

from tests.each import each


def test_every_printable_ascii_character_is_typed_by_one_stroke() -> None:
    printable = {chr(code) for code in range(0x20, 0x7F)}
    assert printable | {"\n", "\t", "\b"} == set(STROKES)
    assert len(set(STROKES.values())) == len(STROKES)
    assert all(stroke.key in set(Key) for stroke in STROKES.values())


@each(
    ("character", "stroke"),
    [
        ("a", Stroke("a", False)),
        ("Z", Stroke("z", True)),
        ("!", Stroke("1", True)),
        (")", Stroke("0", True)),
        ('"', Stroke("apostrophe", True)),
        ("~", Stroke("grave_accent", True)),
        ("|", Stroke("backslash", True)),
        ("?", Stroke("slash", True)),
        ("\n", Stroke("ret", False)),
    ],
)
def test_characters_of_a_us_keyboard(character: str, stroke: Stroke) -> None:
    assert STROKES[character] == stroke


@each(
    ("name", "key"),
    [
        ("ret", "ret"),
        ("Enter", "ret"),
        ("CTRL", "ctrl"),
        ("Page-Up", "pgup"),
        ("A", "a"),
        (";", "semicolon"),
        (" ", "spc"),
        ("F12", "f12"),
        ("0", "0"),
        (Key.META_L, "meta_l"),
        (Key.N7, "7"),
    ],
)
def test_names_of_keys(name: str, key: str) -> None:
    assert parse_key(name) == key


@each("name", ["", "hyper", "f99", "é", "ctrl+c", "a\0"])
def test_what_is_no_key(name: str) -> None:
    with pytest.raises(AskedError, match="is no key"):
        parse_key(name)


def test_a_near_name_is_suggested() -> None:
    with pytest.raises(AskedError, match="did you mean 'backspace'"):
        parse_key("backspce")


@each(
    ("name", "keys"),
    [
        ("ctrl+c", '"ctrl", "c"'),
        ("Ctrl-Alt-Del", '"ctrl", "alt", "delete"'),
        ("+", '"shift", "equal"'),
        ("!", '"shift", "1"'),
    ],
)
def test_keys_that_are_named_together_are_said_one_by_one(name: str, keys: str) -> None:
    with pytest.raises(AskedError, match=r"is no key$") as caught:
        parse_key(name)
    assert f"press_key({keys})" in caught.value.hint


def test_a_chord_has_each_key_once() -> None:
    assert parse_keys(["ctrl", "control", "c"]) == ("ctrl", "c")
    with pytest.raises(AskedError, match="no key is named") as caught:
        parse_keys([])
    assert "press_key(" in caught.value.hint


def test_every_key_has_a_keysym_of_its_own() -> None:
    keysyms = {key: keysym_of_key(key) for key in {str(key) for key in Key}}
    assert len(set(keysyms.values())) == len(keysyms)
    assert keysyms["a"] == 0x61 and keysyms["f12"] == 0xFFC9 and keysyms["kp_0"] == 0xFFB0


def test_a_character_has_the_keysym_of_x11() -> None:
    assert [keysym_of(character) for character in "A~\n\t\b"] == [
        0x41,
        0x7E,
        0xFF0D,
        0xFF09,
        0xFF08,
    ]
    assert keysym_of("ÿ") == 0xFF and keysym_of("Ā") == 0x0100_0100
