"""What is no picture: sequences that are unknown, broken, swallowed, or questions."""

from __future__ import annotations

from tests.unit.terminal.cases import Case

CASES = (
    # Sequences that mean nothing here
    Case("an unknown CSI", b"a\x1b[5;6yb", ("ab",), (2, 0)),
    Case("an unknown escape", b"a\x1b%Gb\x1b#3c", ("abc",), (3, 0)),
    Case(
        "modifyOtherKeys is no underline", b"\x1b[>4;2ma\x1b[?4mb", ("ab",), (2, 0), b"\x1b[>4;2m"
    ),
    Case(
        "kitty's keyboard",
        b"\x1b[>1ua\x1b[?ub\x1b[<uc\x1b[=1;1ud",
        ("abcd",),
        (4, 0),
        b"\x1b[?1u",
    ),
    Case("colons where none belong", b"a\x1b[2:3Hb", ("ab",), (2, 0)),
    Case("CSI with spaces", b"a\x1b[1 @b", ("ab",), (2, 0)),
    Case("DECSLRM is none without DECLRMM", b"ab\x1b[3;5sc", ("abc",), (3, 0)),
    # Strings
    Case(
        "an OSC that is unknown", b"a\x1b]9999;x\x07b\x1b]1337;File=:eA==\x1b\\c", ("abc",), (3, 0)
    ),
    Case("DCS", b"a\x1bP1;2|x\x1b\\b", ("ab",), (2, 0)),
    Case("sixel", b'a\x1bPq"1;1;8;8#0;2;0;0;0#0~~@@-\x1b\\b', ("ab",), (2, 0)),
    Case("APC, PM, SOS", b"a\x1b_Gx\x1b\\b\x1b^x\x1b\\c\x1bXx\x1b\\d", ("abcd",), (4, 0)),
    Case("the title of GNU screen", b"a\x1bkname\x1b\\b", ("ab",), (2, 0)),
    Case("BEL does not end a DCS", b"a\x1bPx\x07y\x1b\\b", ("ab",), (2, 0)),
    Case("CAN ends a string", b"a\x1b]0;x\x18b", ("ab",), (2, 0)),
    Case("SUB ends a string", b"a\x1bPx\x1ab", ("ab",), (2, 0)),
    Case("another sequence ends a string", b"a\x1b]0;x\x1b[3Cb", ("a   b",), (5, 0)),
    Case("a string without an end swallows", b"a\x1b]0;" + b"x" * 9999, ("a",), (1, 0)),
    # Broken sequences
    Case("CAN ends a sequence", b"a\x1b[3\x18Cb", ("aCb",), (3, 0)),
    Case("SUB ends a sequence", b"a\x1b[3\x1aCb", ("aCb",), (3, 0)),
    Case("ESC begins anew", b"a\x1b[3\x1b[2Cb", ("a  b",), (4, 0)),
    Case("a control within a sequence is done", b"a\x1b[2\r\nCb", ("a", "  b"), (3, 1)),
    Case("a control within an escape is done", b"a\x1b\n7b", ("a", " b"), (2, 1)),
    Case("DEL is ignored everywhere", b"a\x7f\x1b[\x7f2Cb", ("a  b",), (4, 0)),
    Case("NUL and unknown controls are ignored", b"a\x00\x01\x05\x1cb", ("ab",), (2, 0)),
    Case("text that is not ASCII ends a sequence", "a\x1b[3éb".encode(), ("aéb",), (3, 0)),
    Case("a number of a million digits", b"a\x1b[" + b"9" * 1_000_000 + b"Cb", ("ab",), (2, 0)),
    Case("a number that is too large", b"a\x1b[99999999999999999999Cb", ("a        b",), (9, 0)),
    Case("too many numbers", b"a\x1b[" + b"1;" * 500 + b"1Cb", ("ab",), (2, 0)),
    Case(
        "too many intermediates",
        b"a\x1b[" + b"!" * 50 + b"pb\x1b" + b" " * 50 + b"Fc",
        ("abc",),
        None,
    ),
    # UTF-8
    Case("C1 is ignored in UTF-8", "a\u009b2Cb\u0090x".encode(), ("a2Cbx",), (5, 0)),
    Case("bytes that are no UTF-8", b"a\xff\xc3(b", ("a��(b",), (5, 0)),
    Case("UTF-8 that is cut off", b"a\xe4\xbdb", ("a�b",), (3, 0)),
    Case("surrogates", b"\xed\xa0\x80x", ("���x",), (4, 0)),
    # Questions
    Case("DA1", b"\x1b[c\x1b[0c", None, None, b"\x1b[?64;6;21;22;28;52c" * 2),
    Case("DECID", b"\x1bZ", None, None, b"\x1b[?64;6;21;22;28;52c"),
    Case("DA1 of another kind", b"\x1b[1c", None, None, b""),
    Case("DA2", b"\x1b[>c", None, None, b"\x1b[>41;383;0c"),
    Case("DA3", b"\x1b[=c", None, None, b"\x1bP!|00000000\x1b\\"),
    Case("XTVERSION", b"\x1b[>q\x1b[>0q", None, None, b"\x1bP>|quicksand-vt\x1b\\" * 2),
    Case("DSR 5", b"\x1b[5n", None, None, b"\x1b[0n"),
    Case("DSR 6", b"ab\r\nc\x1b[6n", None, None, b"\x1b[2;2R"),
    Case("DECXCPR", b"ab\r\nc\x1b[?6n", None, None, b"\x1b[?2;2;1R"),
    Case(
        "DSR of printer and keyboard",
        b"\x1b[?15n\x1b[?26n",
        None,
        None,
        b"\x1b[?13n\x1b[?27;1;0;0n",
    ),
    Case("DECRQM", b"\x1b[?7$p\x1b[?25l\x1b[?25$p", None, None, b"\x1b[?7;1$y\x1b[?25;2$y"),
    Case(
        "DECRQM of what is unknown",
        b"\x1b[?9999$p\x1b[99$p",
        None,
        None,
        b"\x1b[?9999;0$y\x1b[99;0$y",
    ),
    Case("DECRQM of ANSI modes", b"\x1b[4h\x1b[4$p\x1b[20$p", None, None, b"\x1b[4;1$y\x1b[20;2$y"),
    Case("DECRQM of 1049", b"\x1b[?1049h\x1b[?1049$p", None, None, b"\x1b[?1049;1$y"),
    Case(
        "DECRQM of the mouse",
        b"\x1b[?1002h\x1b[?1002$p\x1b[?1000$p",
        None,
        None,
        b"\x1b[?1002;1$y\x1b[?1000;2$y",
    ),
    Case("DECRQM of clusters", b"\x1b[?2027$p", None, None, b"\x1b[?2027;2$y"),
    Case("DECRQM of synchronized output", b"\x1b[?2026$p", None, None, b"\x1b[?2026;2$y"),
    Case(
        "DECRQSS of SGR",
        b"\x1b[1;4:3;31;48;2;1;2;3m\x1bP$qm\x1b\\",
        None,
        None,
        b"\x1bP1$r0;1;4:3;31;48:2::1:2:3m\x1b\\",
    ),
    Case("DECRQSS of the region", b"\x1b[2;3r\x1bP$qr\x1b\\", None, None, b"\x1bP1$r2;3r\x1b\\"),
    Case("DECRQSS of the cursor", b"\x1b[4 q\x1bP$q q\x1b\\", None, None, b"\x1bP1$r4 q\x1b\\"),
    Case("DECRQSS of what is unknown", b"\x1bP$qz\x1b\\", None, None, b"\x1bP0$r\x1b\\"),
    Case("XTGETTCAP", b"\x1bP+q436f\x1b\\", None, None, b"\x1bP1+r436f=323536\x1b\\"),
    Case("XTGETTCAP of a key", b"\x1bP+q6b75\x1b\\", None, None, b"\x1bP0+r\x1b\\"),
    Case("XTGETTCAP of nonsense", b"\x1bP+qzz;;\x1b\\", None, None, b"\x1bP0+r\x1b\\"),
    Case("XTQMODKEYS", b"\x1b[>4;1m\x1b[?4m\x1b[>4n\x1b[?4m", None, None, b"\x1b[>4;1m\x1b[>4;0m"),
    Case(
        "XTWINOPS of sizes",
        b"\x1b[14t\x1b[16t\x1b[18t",
        None,
        None,
        b"\x1b[4;64;80t\x1b[6;16;8t\x1b[8;4;10t",
    ),
    Case("no title is told", b"\x1b]2;secret\x07\x1b[20t\x1b[21t", None, None, b""),
    Case(
        "OSC 10, 11, 12",
        b"\x1b]10;?\x07\x1b]11;?\x1b\\\x1b]12;?\x07",
        None,
        None,
        b"\x1b]10;rgb:e5e5/e5e5/e5e5\x07\x1b]11;rgb:0000/0000/0000\x1b\\\x1b]12;rgb:e5e5/e5e5/e5e5\x07",
    ),
    Case(
        "OSC 10 for several",
        b"\x1b]10;?;?\x07",
        None,
        None,
        b"\x1b]10;rgb:e5e5/e5e5/e5e5\x07\x1b]11;rgb:0000/0000/0000\x07",
    ),
    Case(
        "OSC 4",
        b"\x1b]4;1;?;2;rgb:1/2/3;2;?\x07",
        None,
        None,
        b"\x1b]4;1;rgb:cdcd/0000/0000\x07\x1b]4;2;rgb:1111/2222/3333\x07",
    ),
    Case(
        "OSC 4 beyond the palette", b"\x1b]4;261;?\x07\x1b]4;x;?\x07\x1b]4;1\x07", None, None, b""
    ),
    Case("OSC 52 is never read", b"\x1b]52;c;?\x07\x1b]52;;?\x1b\\", None, None, b""),
    Case("ENQ is not answered", b"\x05", None, None, b""),
)
