"""Left and right margins, rectangles, protection, reverse wrap."""

from __future__ import annotations

from tests.unit.terminal.cases import Case

FOUR = b"abcdefghij\r\nklmnopqrst\r\nuvwxyzABCD\r\nEFGHIJKLMN\x1b[H"
SIDES = b"\x1b[?69h\x1b[3;6s"
"""Columns 2 to 5, counted from 0."""
SHOWN = b"\x1b[?69l"

CASES = (
    # Left and right margins
    Case("text wraps between margins", SIDES + b"\x1b[1;3Habcdef", ("  abcd", "  ef"), (4, 1)),
    Case("text beyond the right margin", SIDES + b"\x1b[1;8Habcde", (" " * 7 + "abc", "  de")),
    Case("text before the left margin", SIDES + b"abcdefgh", ("abcdef", "  gh"), (4, 1)),
    Case("a wide one wraps between margins", SIDES + "\x1b[1;6H你".encode(), ("", "  你"), (4, 1)),
    Case("no wrap between margins", SIDES + b"\x1b[?7l\x1b[1;3Habcdef", ("  abcf",), (5, 0)),
    Case("DECSLRM moves home", b"xyz" + SIDES, ("xyz",), (0, 0)),
    Case("DECSLRM of one column", b"xyz\x1b[?69h\x1b[3;3s", ("xyz",), (3, 0)),
    Case("CSI s saves the cursor", b"ab\x1b[scd\x1b[u", ("abcd",), (2, 0)),
    Case("CR to the left margin", SIDES + b"\x1b[1;4H\rx", ("  x",), (3, 0)),
    Case("CR before the left margin", SIDES + b"\x1b[1;2H\rx", ("x",), (1, 0)),
    Case("CUF and CUB stop at margins", SIDES + b"\x1b[1;4H\x1b[9Cx\x1b[9Dy", ("  y  x",), (3, 0)),
    Case("a tab stops at the margin", SIDES + b"\x1b[1;4H\tx", ("     x",), (5, 0)),
    Case(
        "LF scrolls between margins",
        FOUR + SIDES + b"\x1b[4;3H\n",
        ("abmnopghij", "klwxyzqrst", "uvGHIJABCD", "EF    KLMN"),
        (2, 3),
    ),
    Case("LF beyond margins", FOUR + SIDES + b"\x1b[4;8H\nx", None, (8, 3)),
    Case(
        "RI scrolls between margins",
        FOUR + SIDES + b"\x1b[1;3H\x1bM",
        ("ab    ghij", "klcdefqrst", "uvmnopABCD", "EFwxyzKLMN"),
    ),
    Case(
        "IL between margins",
        FOUR + SIDES + b"\x1b[2;4H\x1b[L",
        ("abcdefghij", "kl    qrst", "uvmnopABCD", "EFwxyzKLMN"),
        (2, 1),
    ),
    Case(
        "DL between margins",
        FOUR + SIDES + b"\x1b[2;4H\x1b[2M",
        ("abcdefghij", "klGHIJqrst", "uv    ABCD", "EF    KLMN"),
        (2, 1),
    ),
    Case("ICH between margins", FOUR[:10] + SIDES + b"\x1b[1;4H\x1b[@", ("abc deghij",)),
    Case("DCH between margins", FOUR[:10] + SIDES + b"\x1b[1;4H\x1b[P", ("abcef ghij",)),
    Case("IRM between margins", FOUR[:10] + SIDES + b"\x1b[4h\x1b[1;4Hx", ("abcxdeghij",)),
    Case(
        "a wide one across the right margin",
        "abcde你hij".encode() + SIDES + b"\x1b[1;3H\x1b[@",
        ("ab cde hij",),
    ),
    Case(
        "SU and SD between margins",
        FOUR + SIDES + b"\x1b[S\x1b[2T",
        ("ab    ghij", "kl    qrst", "uvmnopABCD", "EFwxyzKLMN"),
    ),
    Case("origin mode", SIDES + b"\x1b[2;3r\x1b[?6hx\x1b[6n", ("", "  x"), (3, 1), b"\x1b[1;2R"),
    Case("margins are gone with mode 69", SIDES + SHOWN + b"abcdefgh", ("abcdefgh",), (8, 0)),
    Case("margins need mode 69", b"\x1b[3;6sabcdefgh", ("abcdefgh",), (8, 0)),
    Case("margins need level 4", b'\x1b[63"p' + SIDES + b"abcdefgh", ("abcdefgh",), (8, 0)),
    # Columns
    Case("DECIC", b"abc\r\ndef\x1b[1;2H\x1b[2'}", ("a  bc", "d  ef"), (1, 0)),
    Case("DECDC", b"abc\r\ndef\x1b[1;2H\x1b['~", ("ac", "df"), (1, 0)),
    Case("DECBI", b"abc\x1b[1;2H\x1b6\x1b6", (" abc",), (0, 0)),
    Case("DECFI", b"abc\x1b[1;9H\x1b9\x1b9", ("bc",), (9, 0)),
    # Rectangles
    Case(
        "DECCRA",
        FOUR + b"\x1b[1;1;2;3;1;3;8;1$v",
        ("abcdefghij", "klmnopqrst", "uvwxyzAabc", "EFGHIJKklm"),
        (0, 0),
    ),
    Case(
        "DECCRA onto itself",
        FOUR + b"\x1b[1;1;3;3;1;2;2$v",
        ("abcdefghij", "kabcopqrst", "uklmyzABCD", "EuvwIJKLMN"),
    ),
    Case("DECCRA beyond the screen", FOUR[:10] + b"\x1b[1;1;1;4;1;1;9$v", ("abcdefghab",)),
    Case("DECFRA", b"\x1b[35;2;2;3;4$x", ("", " ###", " ###"), (0, 0)),
    Case("DECFRA of a control character", b"\x1b[7;2;2;3;4$x", (), (0, 0)),
    Case("DECFRA cuts wide ones", "你你你".encode() + b"\x1b[35;1;2;1;3$x", (" ## 你",)),
    Case("DECERA", FOUR[:10] + b"\x1b[1;3;1;5$z", ("ab   fghij",)),
    Case("DECERA of nothing", FOUR[:10] + b"\x1b[1;5;1;3$z", ("abcdefghij",)),
    Case("DECRQCRA is not answered", b"abc\x1b[1;1;1;1;1;3*y", ("abc",), (3, 0)),
    # Protection
    Case("DECSEL", b'ab\x1b[1"qcd\x1b[0"qef\x1b[?2K', ("  cd",), (6, 0)),
    Case("DECSED", b'ab\r\n\x1b[1"qcd\x1b[2"qef\x1b[?2J', ("", "cd"), (4, 1)),
    Case("DECSERA", b'ab\x1b[1"qcd\x1b[0"qef\x1b[1;2;1;5${', ("a cd f",)),
    Case("EL erases what DECSCA protects", b'ab\x1b[1"qcd\x1b[2K', (), (4, 0)),
    Case("EL spares what SPA protects", b"ab\x1bVcd\x1bWef\x1b[2K", ("  cd",), (6, 0)),
    Case("ED spares what SPA protects", b"ab\x1bVcd\x1bWef\x1b[2J", ("  cd",), (6, 0)),
    Case("ECH spares what SPA protects", b"ab\x1bVcd\x1bWef\x1b[H\x1b[9X", ("  cd",), (0, 0)),
    Case("SGR 0 leaves the protection", b'\x1b[1"q\x1b[31ma\x1b[mb\x1b[?2K', ("ab",), (2, 0)),
    Case("a soft reset ends the protection", b'\x1b[1"q\x1b[!pab\x1b[?2K', (), (2, 0)),
    # Reverse wrap
    Case("BS stops without reverse wrap", LONG := b"abcdefghijkl\b\b\b", None, (0, 1)),
    Case("BS along a wrapped line", b"\x1b[?45h" + LONG, None, (9, 0)),
    Case("BS not to a line of its own", b"\x1b[?45habc\r\nd\b\b\b", None, (0, 1)),
    Case("BS to any line", b"\x1b[?1045habc\r\nd\b\b\b", None, (8, 0)),
    Case("BS from the first to the last", b"\x1b[?1045h\b", None, (9, 3)),
    Case("CUB along a wrapped line", b"\x1b[?45h" + b"x" * 25 + b"\x1b[99D", None, (0, 0)),
    Case("reverse wrap between margins", SIDES + b"\x1b[?1045h\x1b[2;3H\b", None, (5, 0)),
    Case("reverse wrap needs DECAWM", b"\x1b[?45;7habc\x1b[?7l\x1b[2H\b", None, (0, 1)),
    # Columns of the screen
    Case("DECCOLM clears where it is allowed", b"abc\x1b[2;3r\x1b[?40;3h", (), (0, 0)),
    Case("DECCOLM does nothing otherwise", b"abc\x1b[?3h", ("abc",), (3, 0)),
    Case("DECSLPP does nothing", b"abc\x1b[30t\x1b[8;9;9t\x1b[9*|", ("abc",), (3, 0)),
    # Settings
    Case("DECRQSS of margins", SIDES + b"\x1bP$qs\x1b\\", None, None, b"\x1bP1$r3;6s\x1b\\"),
    Case("DECRQSS of DECSCL", b'\x1b[62"p\x1bP$q"p\x1b\\', None, None, b'\x1bP1$r62;1"p\x1b\\'),
    Case("DECRQM below level 3", b'\x1b[62"p\x1b[?7$p\x1b[4$p', None, None, b""),
    Case("DECRQM of KAM", b"\x1b[2$p", None, None, b"\x1b[2;4$y"),
    Case(
        "OSC 5",
        b"\x1b]5;0;#123\x07\x1b]5;0;?\x07\x1b]4;256;?\x07",
        None,
        None,
        b"\x1b]5;0;rgb:1010/2020/3030\x07\x1b]4;256;rgb:1010/2020/3030\x07",
    ),
    Case(
        "OSC 105",
        b"\x1b]5;1;#123\x07\x1b]105;1\x07\x1b]5;1;?\x07",
        None,
        None,
        b"\x1b]5;1;rgb:e5e5/e5e5/e5e5\x07",
    ),
)
