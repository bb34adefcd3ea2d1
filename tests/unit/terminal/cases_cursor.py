"""Moving the cursor, the margin and the scroll region."""

from __future__ import annotations

from tests.unit.terminal.cases import Case

ABCD = b"a\r\nb\r\nc\r\nd"

CASES = (
    # Moving
    Case("CUP", b"\x1b[2;3Hx", ("", "  x"), (3, 1)),
    Case("CUP without numbers goes home", b"abc\x1b[Hx", ("xbc",), (1, 0)),
    Case("CUP with zeros goes home", b"abc\x1b[0;0Hx", ("xbc",), (1, 0)),
    Case("CUP stays on the screen", b"\x1b[99;99Hx", ("", "", "", " " * 9 + "x"), (9, 3)),
    Case("HVP", b"\x1b[2;3fx", ("", "  x"), (3, 1)),
    Case("CUU", b"\x1b[3;3H\x1b[Ax\x1b[9Ay", ("   y", "  x"), (4, 0)),
    Case("CUD", b"\x1b[Bx\x1b[9By", ("", "x", "", " y"), (2, 3)),
    Case("CUF and CUB", b"\x1b[3Cx\x1b[2Dy\x1b[99Cz\x1b[99Dw", ("w yx     z",), None),
    Case("CNL and CPL", b"ab\x1b[Ex\x1b[2Fy", ("yb", "x"), (1, 0)),
    Case("CHA, HPA", b"\x1b[4Gx\x1b[7`y", ("   x  y",), (7, 0)),
    Case("VPA", b"ab\x1b[3dx", ("ab", "", "  x"), (3, 2)),
    Case("HPR and VPR", b"\x1b[2ax\x1b[2ey", ("  x", "", "   y"), (4, 2)),
    Case("BS stops at the first column", b"ab\b\b\b\bx", ("xb",), (1, 0)),
    Case("CR, LF, VT, FF", b"a\rb\nc\vd\fe", ("b", " c", "  d", "   e"), (4, 3)),
    Case("LNM", b"\x1b[20ha\nb\x1b[20l\nc", ("a", "b", " c"), (2, 2)),
    Case("IND, NEL, RI", b"a\x1bDb\x1bEc\x1bMd", ("a", " d", "c"), (2, 1)),
    Case("RI scrolls at the top", b"a\r\nb\x1b[H\x1bMx", ("x", "a", "b"), (1, 0)),
    Case("IND scrolls at the bottom", ABCD + b"\x1bDx", ("b", "c", "d", " x"), (2, 3)),
    # Tabs
    Case("HT", b"\tx\ty", (" " * 8 + "x" + "y",), (9, 0)),
    Case("HT stops every eight columns", b"a\tb\tc", ("a       b       c",), None, size=(30, 2)),
    Case("HT goes to the last column", b"\t\t\tx", (" " * 9 + "x",), (9, 0)),
    Case("HTS and TBC", b"\x1b[3g\x1b[4G\x1bH\r\tx\ty", ("   x     y",), None),
    Case("TBC of one stop", b"\x1b[9G\x1b[g\r\tx", (" " * 9 + "x",), None),
    Case("CHT and CBT", b"\x1b[2Ix\x1b[2Zy", ("        y       x",), (9, 0), size=(30, 2)),
    Case("CBT stops at the first column", b"ab\x1b[9Zx", ("xb",), (1, 0)),
    Case("DECST8C", b"\x1b[3g\x1b[?5W\r\tx", (" " * 8 + "x",), (9, 0)),
    # The margin
    Case("wrap is pending at the margin", b"abcdefghij", ("abcdefghij",), (9, 0)),
    Case("the next character wraps", b"abcdefghijk", ("abcdefghij", "k"), (1, 1)),
    Case("text over several rows", b"x" * 25, ("x" * 10, "x" * 10, "x" * 5), (5, 2)),
    Case("wrap at the bottom scrolls", b"\n" * 3 + b"x" * 11, ("", "", "x" * 10, "x"), (1, 3)),
    Case("CR cancels the wrap", b"abcdefghij\rx", ("xbcdefghij",), (1, 0)),
    Case("BS cancels the wrap", b"abcdefghij\bx", ("abcdefghxj",), (9, 0)),
    Case("LF cancels the wrap", b"abcdefghij\nx", ("abcdefghij", " " * 9 + "x"), (9, 1)),
    Case("RI cancels the wrap", b"\nabcdefghij\x1bMx", (" " * 9 + "x", "abcdefghij"), (9, 0)),
    Case("a tab does not cancel the wrap", b"abcdefghij\tx", ("abcdefghij", "x"), (1, 1)),
    Case("SGR does not cancel the wrap", b"abcdefghij\x1b[mx", ("abcdefghij", "x"), (1, 1)),
    Case("a mode does not cancel the wrap", b"abcdefghij\x1b[?25hx", ("abcdefghij", "x"), None),
    Case("BEL does not cancel the wrap", b"abcdefghij\ax", ("abcdefghij", "x"), None),
    Case("CUP cancels the wrap", b"abcdefghij\x1b[1;10Hx", ("abcdefghix",), (9, 0)),
    Case("CUF cancels the wrap", b"abcdefghij\x1b[Cx", ("abcdefghix",), (9, 0)),
    Case("EL cancels the wrap", b"abcdefghij\x1b[Kx", ("abcdefghix",), (9, 0)),
    Case("EL 1 cancels the wrap", b"abcdefghij\x1b[1Kx", (" " * 9 + "x",), (9, 0)),
    Case("EL 2 cancels the wrap", b"abcdefghij\x1b[2Kx", (" " * 9 + "x",), (9, 0)),
    Case("ED 2 cancels the wrap", b"abcdefghij\x1b[2Jx", (" " * 9 + "x",), (9, 0)),
    Case("ED cancels the wrap", b"abcdefghij\x1b[Jx", ("abcdefghix",), (9, 0)),
    Case("ECH cancels the wrap", b"abcdefghij\x1b[Xx", ("abcdefghix",), (9, 0)),
    Case("ICH cancels the wrap", b"abcdefghij\x1b[@x", ("abcdefghix",), (9, 0)),
    Case("DCH cancels the wrap", b"abcdefghij\x1b[Px", ("abcdefghix",), (9, 0)),
    Case(
        "DECSC and DECRC keep the wrap", b"abcdefghij\x1b7\x1b[H\x1b8x", ("abcdefghij", "x"), (1, 1)
    ),
    Case("CPR at the margin", b"abcdefghij\x1b[6nx", None, (1, 1), b"\x1b[1;10R"),
    Case(
        "DECAWM off: the last column is overwritten",
        b"\x1b[?7labcdefghijklm",
        ("abcdefghim",),
        (9, 0),
    ),
    Case("DECAWM off, one by one", b"\x1b[?7labcdefghij\x1b[mk\x1b[ml", ("abcdefghil",), (9, 0)),
    Case("DECAWM on again", b"\x1b[?7labcdefghijk\x1b[?7hl", ("abcdefghik", "l"), (1, 1)),
    # The scroll region
    Case("DECSTBM goes home", b"\x1b[3;3H\x1b[2;3rx", ("x",), (1, 0)),
    Case("LF scrolls the region", ABCD + b"\x1b[2;3r\x1b[3;1H\nx", ("a", "c", "x", "d"), (1, 2)),
    Case(
        "LF below the region does not scroll",
        ABCD + b"\x1b[1;2r\x1b[4;1H\nx",
        ("a", "b", "c", "x"),
        (1, 3),
    ),
    Case("RI scrolls the region", ABCD + b"\x1b[2;3r\x1b[2;1H\x1bMx", ("a", "x", "b", "d"), (1, 1)),
    Case(
        "RI above the region does not scroll",
        ABCD + b"\x1b[2;3r\x1b[H\x1bMx",
        ("x", "b", "c", "d"),
        (1, 0),
    ),
    Case("SU and SD", ABCD + b"\x1b[2S", ("c", "d"), (1, 3)),
    Case("SD", ABCD + b"\x1b[T", ("", "a", "b", "c"), (1, 3)),
    Case("SD by ECMA-48", ABCD + b"\x1b[^", ("", "a", "b", "c"), (1, 3)),
    Case("SU in the region", ABCD + b"\x1b[2;3r\x1b[S", ("a", "c", "", "d"), None),
    Case("SD in the region", ABCD + b"\x1b[2;3r\x1b[T", ("a", "", "b", "d"), None),
    Case(
        "five numbers and T are no scrolling", ABCD + b"\x1b[1;1;1;1;1T", ("a", "b", "c", "d"), None
    ),
    Case("IL", ABCD + b"\x1b[2;2H\x1b[Lx", ("a", "x", "b", "c"), (1, 1)),
    Case("DL", ABCD + b"\x1b[2;2H\x1b[Mx", ("a", "x", "d"), (1, 1)),
    Case("IL in the region", ABCD + b"\x1b[2;3r\x1b[2;1H\x1b[L", ("a", "", "b", "d"), None),
    Case("DL in the region", ABCD + b"\x1b[2;3r\x1b[2;1H\x1b[M", ("a", "c", "", "d"), None),
    Case(
        "IL outside the region does nothing",
        ABCD + b"\x1b[2;3r\x1b[H\x1b[L",
        ("a", "b", "c", "d"),
        (0, 0),
    ),
    Case("a region of one row is none", ABCD + b"\x1b[2;2r\x1b[4;1H\n", ("b", "c", "d"), (0, 3)),
    Case("the region can be reset", ABCD + b"\x1b[2;3r\x1b[r\x1b[4;1H\n", ("b", "c", "d"), (0, 3)),
    Case("CUU stops at the region", b"\x1b[2;3r\x1b[3;1H\x1b[9Ax", ("", "x"), (1, 1)),
    Case(
        "CUU from above the region goes to the top", b"\x1b[3;4r\x1b[2;1H\x1b[9Ax", ("x",), (1, 0)
    ),
    Case("CUD stops at the region", b"\x1b[2;3r\x1b[2;1H\x1b[9Bx", ("", "", "x"), (1, 2)),
    Case("DECOM counts from the region", b"\x1b[2;3r\x1b[?6hx\x1b[2;2Hy", ("", "x", " y"), (2, 2)),
    Case("DECOM keeps the cursor inside", b"\x1b[2;3r\x1b[?6h\x1b[9;1Hx", ("", "", "x"), (1, 2)),
    Case("CPR in DECOM", b"\x1b[2;3r\x1b[?6h\x1b[6n", None, (0, 1), b"\x1b[1;1R"),
    Case("VPA in DECOM", b"\x1b[2;3r\x1b[?6h\x1b[2dx", ("", "", "x"), None),
    Case("DECOM reset goes home", b"\x1b[2;3r\x1b[?6h\x1b[?6lx", ("x",), (1, 0)),
    # Saving
    Case("DECSC and DECRC", b"ab\x1b7\x1b[3;3Hx\x1b8y", ("aby", "", "  x"), (3, 0)),
    Case("CSI s and CSI u", b"ab\x1b[s\x1b[3;3Hx\x1b[uy", ("aby", "", "  x"), (3, 0)),
    Case("DECRC without DECSC goes home", b"ab\x1b8x", ("xb",), (1, 0)),
    Case("DECRC restores DECOM", b"\x1b[2;3r\x1b[?6h\x1b7\x1b[?6l\x1b8\x1b[Hx", ("", "x"), None),
    Case("DECRC restores the character set", b"\x1b(0\x1b7\x1b(B\x1b8q", ("─",), None),
    Case("1048 saves the cursor", b"ab\x1b[?1048h\x1b[3;3H\x1b[?1048lx", ("abx",), (3, 0)),
)
