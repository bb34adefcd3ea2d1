"""The keys that leave a terminal."""

from __future__ import annotations

import pytest
from quicksand.base.errors import ConfigError

from quicksand_tui.cli.click_commands import parse_keys
from quicksand_tui.cli.guests.terminal import DetachKeys
from quicksand_tui.verbs.parameters import DEFAULT_KEYS
from tests.each import each

SEQUENCE = parse_keys(DEFAULT_KEYS)


@each(
    ("text", "codes"),
    [
        ("ctrl-],d", b"\x1dd"),
        ("ctrl-p,ctrl-q", b"\x10\x11"),
        ("Ctrl-A", b"\x01"),
        ("~,.", b"~."),
        ("ctrl-\\", b"\x1c"),
    ],
)
def test_keys_are_parsed(text: str, codes: bytes) -> None:
    assert parse_keys(text) == codes


@each("text", ["", "ctrl-", "ctrl-1", "ab", "ctrl-],", "é", "alt-x"])
def test_what_is_no_key_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="no key"):
        parse_keys(text)


@each(
    ("typed", "sent", "found"),
    [
        ([b"ls\n"], b"ls\n", False),
        ([b"\x1dd"], b"", True),
        ([b"ab\x1d", b"dcd"], b"ab", True),
        ([b"\x1d"], b"", False),
        ([b"\x1d\x1d"], b"\x1d", False),
        ([b"\x1d", b"\x1d", b"d"], b"\x1dd", False),
        ([b"\x1dx"], b"\x1dx", False),
        ([b"\x1d\x1d\x1dd"], b"\x1d", True),
        ([b"\x1dd", b"more"], b"", True),
    ],
)
def test_keys_are_found_and_the_rest_is_sent(typed: list[bytes], sent: bytes, found: bool) -> None:
    keys = DetachKeys(SEQUENCE)
    assert b"".join(keys.feed(piece) for piece in typed) == sent
    assert keys.found is found


def test_a_sequence_that_begins_again_within_itself_is_found() -> None:
    keys = DetachKeys(b"aab")
    assert keys.feed(b"xab") == b"xab"
    assert keys.feed(b"aab") == b""
    assert keys.found
