"""Characters of two columns, marks, emoji."""

from __future__ import annotations

from tests.unit.terminal.cases import Case


def case(
    name: str, text: str, rows: tuple[str, ...], cursor: tuple[int, int] | None = None
) -> Case:
    return Case(name, text.encode(), rows, cursor)


def clusters(
    name: str, text: str, rows: tuple[str, ...], cursor: tuple[int, int] | None = None
) -> Case:
    return case(f"{name}, by clusters", f"\x1b[?2027h{text}", rows, cursor)


WOMAN_CODER = "\U0001f469\u200d\U0001f4bb"
FLAG = "\U0001f1e9\U0001f1ea"
HEART = "❤\ufe0f"
THUMB = "\U0001f44d\U0001f3fd"
FAMILY = "\U0001f468\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466"

CASES = (
    case("wide characters", "你好x", ("你好x",), (5, 0)),
    case("a wide character does not fit", "abcdefghi你", ("abcdefghi", "你"), (2, 1)),
    case("a wide character fits exactly", "abcdefgh你", ("abcdefgh你",), (9, 0)),
    case("after a wide character at the margin", "abcdefgh你x", ("abcdefgh你", "x"), (1, 1)),
    case("many wide characters", "你" * 12, ("你" * 5, "你" * 5, "你" * 2), (4, 2)),
    case("odd number of columns left", "a" + "你" * 6, ("a" + "你" * 4, "你你"), (4, 1)),
    case(
        "a wide one at the margin without DECAWM", "\x1b[?7labcdefghi你x", ("abcdefghix",), (9, 0)
    ),
    case("overwriting the first half", "你好\x1b[Hx", ("x 好",), (1, 0)),
    case("overwriting the second half", "你好\x1b[1;2Hx", (" x好",), (2, 0)),
    case("overwriting two halves", "你好\x1b[1;2Hxy", (" xy",), (3, 0)),
    case("a wide one over halves", "你好吗\x1b[1;2H们", (" 们 吗",), (3, 0)),
    case("EL cuts a character", "你好\x1b[1;2H\x1b[K", (), (1, 0)),
    case("EL 1 cuts a character", "你好\x1b[1;3H\x1b[1K", (), (2, 0)),
    case("ECH cuts a character", "你好吗\x1b[1;2H\x1b[2X", ("    吗",), (1, 0)),
    case("DCH cuts a character", "你好\x1b[1;2H\x1b[P", (" 好",), (1, 0)),
    case("ICH cuts a character", "你好\x1b[1;2H\x1b[@", ("   好",), (1, 0)),
    case("ICH pushes half a character out", "abcdefgh你\x1b[H\x1b[@", (" abcdefgh",), (0, 0)),
    case("IRM with a wide character", "abc\x1b[H\x1b[4h你", ("你abc",), (2, 0)),
    case("a mark", "e\u0301x", ("e\u0301x",), (2, 0)),
    case("a mark in another sequence", "e\x1b[m\u0301x", ("e\u0301x",), (2, 0)),
    case("a mark at the margin", "abcdefghij\u0301k", ("abcdefghij\u0301", "k"), (1, 1)),
    case("a mark on a wide character", "你\u0301x", ("你\u0301x",), (3, 0)),
    case(
        "a mark on a wide character at the margin",
        "abcdefgh你\u0301",
        ("abcdefgh你\u0301",),
        (9, 0),
    ),
    case("a mark with nothing before it", "\u0301x", ("x",), (1, 0)),
    case("a mark on a blank", "\x1b[C\u0301x", (" \u0301x",), (2, 0)),
    case("no more marks than four", "e" + "\u0301" * 50 + "x", ("e" + "\u0301" * 4 + "x",), (2, 0)),
    case("precomposed characters", "äöü─│", ("äöü─│",), (5, 0)),
    # As tmux and the C library count
    case("joined emoji", WOMAN_CODER + "x", (WOMAN_CODER + "x",), (3, 0)),
    case("a family", FAMILY + "x", (FAMILY + "x",), (3, 0)),
    case(
        "joined emoji in pieces",
        "\U0001f469\x1b[m\u200d\x1b[m\U0001f4bbx",
        (WOMAN_CODER + "x",),
        (3, 0),
    ),
    case("a skin tone", THUMB + "x", (THUMB + "x",), (5, 0)),
    case("a skin tone alone", "a\U0001f3fdx", ("a\U0001f3fdx",), (4, 0)),
    case("a flag", FLAG + "x", (FLAG + "x",), (3, 0)),
    case("half a flag", "\U0001f1e9x", ("\U0001f1e9x",), (2, 0)),
    case("a flag at the margin", "abcdefghi" + FLAG, ("abcdefghi" + FLAG[0], FLAG[1]), (1, 1)),
    case("VS16 widens nothing", HEART + "x", (HEART + "x",), (2, 0)),
    case("VS16 on a letter", "a\ufe0fx", ("a\ufe0fx",), (2, 0)),
    case("a keycap", "1\ufe0f\u20e3x", ("1\ufe0f\u20e3x",), (2, 0)),
    case(
        "a narrow one with a joiner",
        HEART + "\u200d\U0001f525x",
        (HEART + "\u200d\U0001f525x",),
        (2, 0),
    ),
    # With mode 2027
    clusters("joined emoji", WOMAN_CODER + "x", (WOMAN_CODER + "x",), (3, 0)),
    clusters("a family", FAMILY + "x", (FAMILY + "x",), (3, 0)),
    clusters(
        "joined emoji in pieces",
        "\U0001f469\x1b[m\u200d\x1b[m\U0001f4bbx",
        (WOMAN_CODER + "x",),
        (3, 0),
    ),
    clusters("a skin tone", THUMB + "x", (THUMB + "x",), (3, 0)),
    clusters("a skin tone alone", "a\U0001f3fdx", ("a\U0001f3fdx",), (4, 0)),
    clusters("a flag", FLAG + "x", (FLAG + "x",), (3, 0)),
    clusters("flags", FLAG * 2 + "x", (FLAG * 2 + "x",), (5, 0)),
    clusters("half a flag", "\U0001f1e9x", ("\U0001f1e9x",), (2, 0)),
    clusters("a flag at the margin", "abcdefghi" + FLAG, ("abcdefghi", FLAG), (2, 1)),
    clusters("VS16 makes a heart wide", HEART + "x", (HEART + "x",), (3, 0)),
    clusters("VS16 at the margin", "abcdefghi" + HEART + "x", ("abcdefghi", HEART + "x"), (3, 1)),
    clusters("VS16 in another sequence", "❤\x1b[m\ufe0fx", (HEART + "x",), (3, 0)),
    clusters("VS16 on a letter", "a\ufe0fx", ("a\ufe0fx",), (2, 0)),
    clusters("a keycap", "1\ufe0f\u20e3x", ("1\ufe0f\u20e3x",), (3, 0)),
    case("a joiner between letters", "क\u094d\u200dषx", ("क\u094d\u200dषx",), (3, 0)),
    case("Hangul in parts", "\u1112\u1161\u11abx", ("\u1112\u1161\u11abx",), (3, 0)),
    case(
        "the end of an emoji is bounded",
        "\U0001f469" + "\u200d" * 99 + "x",
        ("\U0001f469" + "\u200d" * 15 + "x",),
        (3, 0),
    ),
    case("bidi controls are left out", "a\u202eb\u2066c\u200ed", ("abcd",), (4, 0)),
    case("line separators are left out", "a\u2028b\u2029c", ("abc",), (3, 0)),
    case("zero width space is left out", "a\u200bb\ufeffc", ("abc",), (3, 0)),
    case("private characters", "\ue0b0x", ("\ue0b0x",), (2, 0)),
    case("emoji that Python does not know yet", "\U0001faffx", ("\U0001faffx",), (3, 0)),
    case("halfwidth and fullwidth", "ｱＡx", ("ｱＡx",), (4, 0)),
)
