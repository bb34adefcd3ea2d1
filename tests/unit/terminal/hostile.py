"""Strategies for output of programs that mean no good, or do not know what they do."""

from __future__ import annotations

from hypothesis import strategies as st

_TEXTS = st.sampled_from(
    [
        *("a", "hello ", "x" * 30, "  ", "é", "─│┌", "你好", "カナ", "한", "\U0001f680"),
        *(
            "\u0301",
            "\u200d",
            "\ufe0f",
            "❤",
            "❤\ufe0f",
            "\U0001f1e9",
            "\U0001f3fd",
            "1\ufe0f\u20e3",
        ),
        *(
            "\U0001f469\u200d\U0001f4bb",
            "\u094d",
            "\u202e",
            "\u2028",
            "\x85",
            "\ufffd",
            "\U0010ffff",
        ),
        *("\u1112\u1161", "\U000e0067", "\uffff", "\xad", "\u115f", "\u3164"),
    ]
)
_CONTROLS = st.sampled_from([*map(chr, range(32)), "\x7f", "\r\n", "\r\n", "\n", "\t"])
_NUMBERS = st.one_of(
    st.sampled_from(
        [
            "",
            "0",
            "1",
            "2",
            "3",
            "4",
            "5",
            "7",
            "8",
            "9",
            "25",
            "47",
            "69",
            "1049",
            "1045",
            "2026",
            "2027",
        ]
    ),
    st.integers(0, 120).map(str),
    st.sampled_from(["65535", "99999999999", "1" * 60]),
)
_SEQUENCES = st.builds(
    lambda prefix, numbers, between, final: f"\x1b[{prefix}{';'.join(numbers)}{between}{final}",
    st.sampled_from(["", "", "", "", "?", "?", ">", "=", "<", ":"]),
    st.lists(_NUMBERS, max_size=4),
    st.sampled_from(["", "", "", "", "", "$", "*", "'", " ", "!", '"', "\n", "\x1b"]),
    st.sampled_from([chr(code) for code in range(0x40, 0x7F)]),
)
_COLOURS = st.builds(
    lambda code, mark, rest: f"\x1b[{code}{mark}{mark.join(rest)}m",
    st.sampled_from(["", "1", "4", "38", "48", "58", "48;2", "38;5", "48:2", "7"]),
    st.sampled_from([";", ":"]),
    st.lists(_NUMBERS, max_size=5),
)
_SMALL = st.integers(0, 9).map(str)
_MARGINS = st.builds(
    lambda left, right, text: f"\x1b[?69h\x1b[{left};{right}s{text}",
    _SMALL,
    _SMALL,
    st.sampled_from(["", "", "\x1b[?6h", "\x1b[2;4r", "\x1b[4h", "\x1b[?1045h", "\x1b[?2027h"]),
)
_BOXES = st.builds(
    lambda numbers, final: f"\x1b[{';'.join(numbers)}{final}",
    st.lists(_SMALL, max_size=8),
    st.sampled_from(
        ["$v", "$x", "$z", "${", "$r", "$t", "*x", "*y", "'}", "'~", '"q', '"p', "*|", "L", "M"]
    ),
)
_ESCAPES = st.builds(
    lambda between, final: f"\x1b{between}{final}",
    st.sampled_from(["", "", "", "(", ")", "*", "#", " ", "%"]),
    st.sampled_from([chr(code) for code in range(0x30, 0x7F)]),
)
_STRINGS = st.builds(
    lambda kind, data, end: f"\x1b{kind}{data}{end}",
    st.sampled_from(["]", "]", "]", "P", "X", "^", "_", "k"]),
    st.sampled_from(
        [
            *("0;title", "2;", "8;;https://example.org/", "8;;", "8;id=1;file:///x", "133;A"),
            *("133;B", "133;C", "133;D;1", "52;c;aGVsbG8=", "52;c;?", "4;1;?", "4;1;#fff;2;?"),
            *("10;?;?;?", "11;rgb:1/2/3", "104", "7;file:///tmp/%41", "9;hello", "777;notify;a;b"),
            *("$qm", "$qr", "+q54", "\n\t", "x" * 300, "\x7f", "9;4;1;50", "110", "你\u202e"),
        ]
    ),
    st.sampled_from(["\x07", "\x1b\\", "\x18", "", "\x1bx"]),
)
_BROKEN = st.sampled_from([b"\xff", b"\xc3", b"\xe4\xbd", b"\xf0\x9f", b"\x80", b"\xed\xa0\x80"])

PIECES = st.one_of(
    st.one_of(
        *(_TEXTS, _TEXTS, _TEXTS, _CONTROLS, _CONTROLS, _SEQUENCES, _COLOURS, _ESCAPES, _STRINGS),
        *(_MARGINS, _BOXES),
    ).map(str.encode),
    _BROKEN,
)

OUTPUT = st.one_of(st.lists(PIECES, max_size=40).map(b"".join), st.binary(max_size=200))
"""What a program may write."""

SIZES = st.tuples(st.integers(2, 14), st.integers(1, 6))
"""Columns and rows: small, so that much happens at the margins."""
