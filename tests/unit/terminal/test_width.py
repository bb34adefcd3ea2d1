"""How wide characters are, and what shares a cell."""

from __future__ import annotations

import ctypes
import locale
import re
import unicodedata
from collections.abc import Iterator

import pytest
from quicksand_vt.width import EMOJI_MAX, NARROW, NOT_SHOWN, WIDE, Widths, char_width, cluster_width
from rich.cells import cell_len

from tests.each import each


def every_char() -> Iterator[str]:
    """A list of them would take 90 MB for as long as the tests run."""
    return (chr(code) for code in range(0x110000) if not 0xD800 <= code < 0xE000)


@each(("ranges", "width"), [(NARROW, 1), (WIDE, 2)])
def test_the_ranges_hold_what_they_say(ranges: str, width: int) -> None:
    inside = re.compile(f"[{ranges}]")
    assert {
        char for char in every_char() if inside.match(char) and char_width(char) != width
    } == set()


@each(
    ("char", "width"),
    [
        *[("a", 1), ("é", 1), ("─", 1), ("\ue0b0", 1), ("①", 1), ("\xad", 1), ("\u0600", 1)],
        *[("你", 2), ("한", 2), ("Ａ", 2), ("\U0001f680", 2), ("\U0001f3fd", 2), ("⌚", 2)],
        *[("\U00020000", 2), ("\U0003fffd", 2), ("\U0001fae8", 2), ("\U0001f1e9", 1), ("❤", 1)],
        *[("\u0301", 0), ("\u200d", 0), ("\u200c", 0), ("\ufe0f", 0), ("\u1161", 0), ("\u20e3", 0)],
        *[("\x00", NOT_SHOWN), ("\x85", NOT_SHOWN), ("\u202e", NOT_SHOWN), ("\u2028", NOT_SHOWN)],
        *[("\u200b", NOT_SHOWN), ("\ufeff", NOT_SHOWN), ("\U000e0001", NOT_SHOWN)],
        *[("\U0010ffff", 1), ("\u0378", 1), ("\uffff", 1)],
    ],
)
def test_characters(char: str, width: int) -> None:
    assert char_width(char) == width


WIDE_SINCE_16 = re.compile("[\u2630-\u2637\u268a-\u268f\U0001d300-\U0001d356\U0001d360-\U0001d376]")
"""What a glibc before 2.41 counts as narrow still."""

NOT_AS_GLIBC = re.compile("[\ufff9-\ufffb\U0001171e\U00013430-\U0001343f]")
"""Invisible signs, which glibc gives a column, and a mark whose category was changed."""


def test_characters_take_the_columns_that_the_c_library_gives_them() -> None:
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "gnu_get_libc_version"):
        pytest.skip("this C library is not glibc")
    before = locale.setlocale(locale.LC_CTYPE)
    locale.setlocale(locale.LC_CTYPE, "C.UTF-8")
    try:
        libc.wcwidth.argtypes = [ctypes.c_wchar]
        theirs = {char: libc.wcwidth(char) for char in every_char()}
    finally:
        locale.setlocale(locale.LC_CTYPE, before)
    known = [
        char
        for char, width in theirs.items()
        if width >= 0 and unicodedata.category(char) not in ("Cc", "Cn")
    ]
    assert len(known) > 100_000
    wrong = {char for char in known if max(char_width(char), 0) != theirs[char]}
    assert {char for char in wrong if not NOT_AS_GLIBC.match(char)} <= set(
        WIDE_SINCE_16.findall("".join(wrong))
    ) | set("\u3164\uffa0")


@each("char", [*"☰⚏㉈䷀ो", "\U0001d300", "\U0001d376", "\u31e4"])
def test_characters_that_libraries_count_differently_are_as_in_debian_13(char: str) -> None:
    assert char_width(char) == (1 if char == "ो" else 2)


@each(
    ("cluster", "width"),
    [
        ("a", 1),
        ("e\u0301", 1),
        ("你\u0301", 2),
        ("❤", 1),
        ("❤\ufe0f", 2),
        ("❤\ufe0f\u200d\U0001f525", 2),
        ("1\ufe0f\u20e3", 2),
        ("1\u20e3", 1),
        ("\U0001f1e9\U0001f1ea", 2),
        ("\U0001f44d\U0001f3fd", 2),
        ("\U0001f468\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466", 2),
        ("\U0001f3f4\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f", 2),
        ("\u1112\u1161\u11ab", 2),
    ],
)
def test_clusters_are_as_wide_as_what_draws_them_takes_them_for(cluster: str, width: int) -> None:
    assert len(cluster) <= EMOJI_MAX
    assert cluster_width(cluster) == width == cell_len(cluster)


def test_a_skin_tone_makes_a_symbol_an_emoji() -> None:
    # Rich takes it for one column wide: who draws it has to know.
    assert cluster_width("☝\U0001f3fd") == 2


def test_only_some_thousand_widths_are_remembered() -> None:
    widths = Widths()
    for char in map(chr, range(20_000)):
        assert widths[char] == char_width(char)
        assert len(widths) <= Widths.MAX
