"""Names of keys, and the keys that type a character."""

from __future__ import annotations

import string

import pytest
from quicksand import Key
from quicksand.base.errors import ConfigError
from quicksand.display.any_text import check_text, needs_tool
from quicksand.display.keys import STROKES, Stroke, parse_key, parse_keys


def test_every_printable_ascii_character_is_typed_by_one_stroke() -> None:
    printable = {chr(code) for code in range(0x20, 0x7F)}
    assert printable | {"\n", "\t", "\b"} == set(STROKES)
    assert len(set(STROKES.values())) == len(STROKES)
    assert all(stroke.key in set(Key) for stroke in STROKES.values())


@pytest.mark.parametrize(
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


@pytest.mark.parametrize(
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


@pytest.mark.parametrize("name", ["", "hyper", "f99", "é", "ctrl+c", "a\0"])
def test_what_is_no_key(name: str) -> None:
    with pytest.raises(ConfigError, match="is no key"):
        parse_key(name)


def test_a_near_name_is_suggested() -> None:
    with pytest.raises(ConfigError, match="did you mean 'backspace'"):
        parse_key("backspce")


@pytest.mark.parametrize(
    ("name", "keys"),
    [
        ("ctrl+c", '"ctrl", "c"'),
        ("Ctrl-Alt-Del", '"ctrl", "alt", "delete"'),
        ("+", '"shift", "equal"'),
        ("!", '"shift", "1"'),
    ],
)
def test_keys_that_are_named_together_are_said_one_by_one(name: str, keys: str) -> None:
    with pytest.raises(ConfigError, match=r"is no key$") as caught:
        parse_key(name)
    assert f"press_key({keys})" in caught.value.hint


def test_a_chord_has_each_key_once() -> None:
    assert parse_keys(["ctrl", "control", "c"]) == ("ctrl", "c")
    with pytest.raises(ConfigError, match="no key is named") as caught:
        parse_keys([])
    assert "press_key(" in caught.value.hint


def test_only_what_a_us_keyboard_lacks_needs_the_tool() -> None:
    assert not needs_tool(string.printable.replace("\r", "").replace("\x0b", "")[:-1])
    assert needs_tool("naïve") and needs_tool("漢") and needs_tool("\N{GRINNING FACE}")


@pytest.mark.parametrize("text", ["\x1b", "a\0", "\r", "\x7f", "\ud800", "\u202e"])
def test_what_cannot_be_typed(text: str) -> None:
    with pytest.raises(ConfigError, match="cannot be typed"):
        check_text(text, 10)


def test_texts_have_an_end() -> None:
    check_text("é" * 10, 10)
    with pytest.raises(ConfigError, match="11 characters is too long"):
        check_text("x" * 11, 10)
    with pytest.raises(ConfigError, match="must be a string"):
        check_text(b"x", 10)  # type: ignore[arg-type]
