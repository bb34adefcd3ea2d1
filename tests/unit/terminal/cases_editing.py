"""Erasing, inserting, repeating; character sets; resets; the alternate screen."""

from __future__ import annotations

from tests.unit.terminal.cases import Case

ABCD = b"a\r\nb\r\nc\r\nd"
LINE = b"abcdefghij"

CASES = (
    # Erasing
    Case("EL to the end", LINE + b"\x1b[1;4H\x1b[K", ("abc",), (3, 0)),
    Case("EL from the beginning", LINE + b"\x1b[1;4H\x1b[1K", ("    efghij",), (3, 0)),
    Case("EL of all", LINE + b"\x1b[1;4H\x1b[2K", (), (3, 0)),
    Case("EL of an unknown kind", LINE + b"\x1b[1;4H\x1b[7K", ("abcdefghij",), (3, 0)),
    Case("DECSEL is EL", LINE + b"\x1b[1;4H\x1b[?K", ("abc",), (3, 0)),
    Case("ED to the end", ABCD + b"\x1b[2;1H\x1b[J", ("a",), (0, 1)),
    Case("ED from the beginning", ABCD + b"\x1b[2;1H\x1b[1J", ("", "", "c", "d"), (0, 1)),
    Case("ED of all", ABCD + b"\x1b[2J", (), (1, 3)),
    Case("DECSED is ED", ABCD + b"\x1b[2;1H\x1b[?J", ("a",), (0, 1)),
    Case("ECH", LINE + b"\x1b[1;4H\x1b[3X", ("abc   ghij",), (3, 0)),
    Case("ECH stays in its row", LINE + b"k\x1b[1;4H\x1b[99X", ("abc", "k"), (3, 0)),
    # Inserting and deleting
    Case("ICH", LINE + b"\x1b[1;4H\x1b[3@", ("abc   defg",), (3, 0)),
    Case("ICH of more than there is room for", LINE + b"\x1b[1;4H\x1b[99@", ("abc",), (3, 0)),
    Case("DCH", LINE + b"\x1b[1;4H\x1b[3P", ("abcghij",), (3, 0)),
    Case("DCH of more than there are", LINE + b"\x1b[1;4H\x1b[99P", ("abc",), (3, 0)),
    Case("IRM", LINE + b"\x1b[1;4H\x1b[4hxy\x1b[4lz", ("abcxyzefgh",), (6, 0)),
    Case("IRM at the margin", b"\x1b[4h" + LINE + b"kl", ("abcdefghij", "kl"), (2, 1)),
    Case("REP", b"ab\x1b[3b", ("abbbb",), (5, 0)),
    Case("REP wraps", b"ab\x1b[10b", ("abbbbbbbbb", "bb"), (2, 1)),
    Case("REP of nothing", b"\x1b[3bx", ("x",), (1, 0)),
    Case("REP of a wide character", "你\x1b[2b".encode(), ("你你你",), (6, 0)),
    Case("REP is bounded", b"x\x1b[999999999b", ("x" * 10,) * 3 + ("x",), None),
    # Character sets
    Case("line drawing in G0", b"\x1b(0lqk\x1b(Bq", ("┌─┐q",), (4, 0)),
    Case("line drawing in G1", b"\x1b)0q\x0eq\x0fq", ("q─q",), (3, 0)),
    Case("line drawing in G2 and G3", b"\x1b*0\x1b+0q\x1bnq\x1boq\x0fq", ("q──q",), (4, 0)),
    Case("single shift", b"\x1b*0\x1bNqq\x1b+0\x1bOqq", ("─q─q",), (4, 0)),
    Case("British pound", b"\x1b(A#\x1b(B#", ("£#",), (2, 0)),
    Case("an unknown set is ASCII", b"\x1b(0\x1b(Kq", ("q",), (1, 0)),
    Case("a set with two final characters", b'\x1b("?q', ("q",), (1, 0)),
    # Resets
    Case("DECALN", b"ab\x1b#8", ("E" * 10,) * 4, (0, 0)),
    Case(
        "DECALN resets the region", b"\x1b[2;3r\x1b#8\x1b[4;1H\nx", ("E" * 10,) * 3 + ("x",), (1, 3)
    ),
    Case("RIS", ABCD + b"\x1b[2;3r\x1b[?6h\x1b[4h\x1b(0\x1b[1m\x1bcq", ("q",), (1, 0)),
    Case("RIS sets the tabs", b"\x1b[3g\x1bc\tx", (" " * 8 + "x",), (9, 0)),
    Case("DECSTR keeps the picture", b"ab\x1b[!pc", ("abc",), (3, 0)),
    Case(
        "DECSTR resets the region", ABCD + b"\x1b[2;3r\x1b[4;1H\x1b[!p\n", ("b", "c", "d"), (0, 3)
    ),
    Case("DECSTR resets IRM and sets", b"ab\x1b[4h\x1b(0\x1b[!p\x1b[Hq", ("qb",), (1, 0)),
    Case("DECSTR forgets what was saved", b"abc\x1b7\x1b[!p\x1b8x", ("xbc",), (1, 0)),
    # The alternate screen
    Case("1049 saves, clears and restores", b"ab\x1b[?1049hx\x1b[?1049lc", ("abc",), (3, 0)),
    Case("1049 keeps the cursor's place", b"ab\x1b[?1049hx", ("  x",), (3, 0)),
    Case("1049 clears again", b"\x1b[?1049hx\x1b[?1049l\x1b[?1049h", (), None),
    Case("1047 clears when it is left", b"ab\x1b[?1047hx\x1b[?1047l\x1b[?1047h", (), None),
    Case("47 clears nothing", b"ab\x1b[?47hx\x1b[?47l\x1b[?47h", ("  x",), None),
    Case("47 has one cursor for both", b"ab\x1b[?47hx\x1b[?47ly", ("ab y",), (4, 0)),
    Case(
        "each screen has its saved cursor",
        b"a\x1b7\x1b[?47h\x1b[3;3H\x1b7\x1b[?47l\x1b8x",
        ("ax",),
        None,
    ),
    Case("entering twice leaves once", b"ab\x1b[?1049h\x1b[?1049hx\x1b[?1049l", ("ab",), None),
)
