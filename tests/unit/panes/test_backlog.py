"""Output that waits to be parsed, and where a guest's repeated output begins."""

from __future__ import annotations

from quicksand_panes.guest_terminal import Said, after_string
from quicksand_panes.terminal_link import ReplayStart

from tests.each import each


@each(
    ("data", "left"),
    [
        (b"!20~-#1~\x1b\\prompt\x1b[m", b"prompt\x1b[m"),
        (b"AAAA==\x1b\\\x1b_Gm=0;AA\x1b\\", b"\x1b_Gm=0;AA\x1b\\"),
        (b"text\x1b[mmore\x1b\\", b"text\x1b[mmore\x1b\\"),
        (b"\x1b]0;title\x1b\\text", b"\x1b]0;title\x1b\\text"),
        (b"text", b"text"),
        (b"", b""),
    ],
)
def test_what_a_replay_begins_in_the_midst_of_is_left_out(data: bytes, left: bytes) -> None:
    assert after_string(data) == left
    for cut in range(len(data) + 1):
        start = ReplayStart()
        shown = start.cut(data[:cut], Said.BEFORE) + start.cut(data[cut:], Said.BEFORE)
        assert shown + start.cut(b"now", Said.NOW) == left + b"now"


def test_what_is_written_now_is_whole() -> None:
    start = ReplayStart()
    assert start.cut(b"abc\x1b\\", Said.NOW) == b"abc\x1b\\"
    assert start.cut(b"\x1b\\", Said.BEFORE) == b"\x1b\\"
