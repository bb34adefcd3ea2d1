"""Input of a terminal, parted between the guest and the app."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from quicksand_driver.input_splitter import APP_ESCAPE_WAIT_S, ESCAPE_WAIT_S, InputSplitter, Piece

from tests.conftest import examples
from tests.each import each


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def splitter() -> tuple[InputSplitter, Clock]:
    clock = Clock()
    made = InputSplitter(clock=clock)
    made.raw = True
    return made, clock


def parted(data: bytes) -> list[tuple[bytes, bool]]:
    return [piece[:2] for piece in splitter()[0].feed(data)]


KEYS = [
    b"ls -l\r",
    b"\x01\x02\x03\x04\x08\x09\x7f\x00\x1f",
    "žluťoučký 漢字 🦊".encode(),
    b"\x1bb\x1bf\x1b\x7f\x1b\r",
    b"\x1b[A\x1b[1;5D\x1bOP\x1b[15~\x1b[3;5~\x1b[Z\x1b[1;2R",
    b"\x1b\x1b[A",
    b"\x1b[97;5u\x1b[27u\x1b[97:65;6:3u",
]


@each("data", KEYS, ids=repr)
def test_keys_are_the_pane_s_byte_for_byte(data: bytes) -> None:
    assert parted(data) == [(data, True)]


ANSWERS = [
    b"\x1b[<0;10;20M",
    b"\x1b[<35;1;1m",
    b"\x1b[I",
    b"\x1b[O",
    b"\x1b[?62;4c",
    b"\x1b[?2026;2$y",
    b"\x1b[48;24;80;384;640t",
    b"\x1b[?5u",
    b"\x1b]11;rgb:0000/0000/0000\x1b\\",
    b"\x1bP>|kitty(0.42)\x1b\\",
    b"\x1b_Gi=31;OK\x1b\\",
    b"\x1b[200~rm -rf /\r\x1b[A\x1d\x1b[201~",
]


@each("data", ANSWERS, ids=repr)
def test_what_is_no_key_is_the_app_s(data: bytes) -> None:
    assert parted(b"a" + data + b"b") == [(b"a", True), (data, False), (b"b", True)]


def test_without_a_pane_all_is_the_app_s() -> None:
    made, _ = splitter()
    made.raw = False
    assert made.feed(b"q\x1b[A\x1d") == [Piece(b"q\x1b[A\x1d", for_pane=False)]


@each("key", [b"%", b"\x1b[A", "ž".encode(), b"\x1d", b"\x1bOA"])
def test_after_the_prefix_one_key_is_the_app_s(key: bytes) -> None:
    assert parted(b"a\x1d" + key + b"ls\r") == [
        (b"a", True),
        (b"\x1d", False),
        (key, False),
        (b"ls\r", True),
    ]


def test_prefix_and_command_may_come_by_the_keyboard_protocol() -> None:
    for prefix in (b"\x1b[93;5u", b"\x1b[93:125;133u", b"\x1d"):
        assert splitter()[0].feed(prefix + b"\x1b[99;5ux\x1b[93;6u") == [
            Piece(b"\x1d", for_pane=False),
            Piece(b"\x1b[99;5u", for_pane=False, is_command=True),
            Piece(b"x\x1b[93;6u", for_pane=True),
        ]


def test_the_key_after_the_prefix_may_come_late_and_after_the_focus_went() -> None:
    made, _ = splitter()
    assert made.feed(b"\x1d") == [Piece(b"\x1d", for_pane=False)]
    made.raw = False
    assert made.feed(b"c") == [Piece(b"c", for_pane=False, is_command=True)]
    made.raw = True
    assert made.feed(b"c") == [Piece(b"c", for_pane=True)]


def test_an_escape_before_the_prefix_is_a_key_of_its_own() -> None:
    assert parted(b"\x1b\x1dC") == [(b"\x1b", True), (b"\x1d", False), (b"C", False)]


def test_a_mouse_between_prefix_and_key_changes_nothing() -> None:
    made, _ = splitter()
    made.feed(b"\x1d")
    assert made.feed(b"\x1b[<35;1;1M%x") == [
        Piece(b"\x1b[<35;1;1M", for_pane=False),
        Piece(b"%", for_pane=False, is_command=True),
        Piece(b"x", for_pane=True),
    ]


def test_an_escape_is_the_key_when_nothing_follows() -> None:
    made, clock = splitter()
    assert made.feed(b"\x1b") == []
    assert made.waits
    assert made.tick() == []
    clock.now += ESCAPE_WAIT_S
    assert made.tick() == [Piece(b"\x1b", for_pane=True)]
    assert not made.waits
    assert made.feed(b":wq\r") == [Piece(b":wq\r", for_pane=True)]


def test_a_paste_is_waited_for() -> None:
    made, clock = splitter()
    assert made.feed(b"\x1b[200~some") == []
    clock.now += 60
    assert made.tick() == []
    (piece,) = made.feed(b" text\x1b[201~")
    assert piece == Piece(b"\x1b[200~some text\x1b[201~", for_pane=False)


def test_what_never_ends_is_not_kept_for_ever() -> None:
    made, _ = splitter()
    for _ in range(100):
        made.feed(b"\x1b]0;" + b"x" * 1000)
        made.feed(b"\x1b[" + b"1;" * 500)
    assert len(made._rest) < 100_000


@settings(max_examples=examples(300))
@given(
    st.lists(st.sampled_from([*KEYS, *ANSWERS, b"\x1d%", b"x"]), max_size=8),
    st.lists(st.integers(1, 7), min_size=1),
)
def test_cuts_make_no_difference(tokens: list[bytes], cuts: list[int]) -> None:
    data = b"".join(tokens)
    whole, _ = splitter()
    expected = whole.feed(data)
    pieces, _ = splitter()
    found: list[Piece] = []
    at = turn = 0
    while at < len(data):
        found += pieces.feed(data[at : at + cuts[turn % len(cuts)]])
        at += cuts[turn % len(cuts)]
        turn += 1
    for_pane = [b"".join(p.data for p in some if p.for_pane) for some in (expected, found)]
    for_app = [b"".join(p.data for p in some if not p.for_pane) for some in (expected, found)]
    assert for_pane[0] == for_pane[1]
    assert for_app[0] == for_app[1]


@given(st.lists(st.binary(max_size=40), max_size=20))
def test_nothing_is_lost_and_nothing_raises(chunks: list[bytes]) -> None:
    made, clock = splitter()
    got = b""
    for chunk in chunks:
        got += b"".join(piece.data for piece in made.feed(chunk))
    assert got + made._rest == b"".join(chunks)
    clock.now += 1
    made.tick()


@each(
    ("data", "pieces"),
    [
        (b"\x1bs", [b"\x1b", b"s"]),
        (b"x\x1b:rev", [b"x", b"\x1b", b":rev"]),
        (b"\x1b[A\x1bs", [b"\x1b[A", b"\x1b", b"s"]),
        (b"\x1bb\x1b\x7f", [b"\x1bb\x1b\x7f"]),
        (b"\x1b]11;rgb:0/0/0\x1b\\", [b"\x1b]11;rgb:0/0/0\x1b\\"]),
        (b"\x1b[200~a\x1bs\x1b[201~", [b"\x1b[200~a\x1bs\x1b[201~"]),
    ],
    ids=repr,
)
def test_for_the_app_esc_is_a_key_though_more_came_with_it(
    data: bytes, pieces: list[bytes]
) -> None:
    """A busy host reads Esc and the next key at once, and no key of the app has Alt."""
    made, _ = splitter()
    made.raw = False
    assert [piece.data for piece in made.feed(data)] == pieces
    assert not made.waits


def test_esc_and_a_key_that_comes_soon_after_it_are_two_keys_for_the_app() -> None:
    made, clock = splitter()
    made.raw = False
    assert made.feed(b"\x1b") == [] and made.waits
    assert [piece.data for piece in made.feed(b"s")] == [b"\x1b", b"s"]
    made.feed(b"\x1b")
    clock.now += APP_ESCAPE_WAIT_S
    assert [piece.data for piece in made.tick()] == [b"\x1b"]


def test_a_paste_into_the_app_is_cut_nowhere() -> None:
    made, _ = splitter()
    made.raw = False
    for data in (b"\x1b[200~one", b"two\x1bs", b"three\x1b[201~"):
        assert [piece.data for piece in made.feed(data)] == [data]
    assert [piece.data for piece in made.feed(b"\x1bs")] == [b"\x1b", b"s"]
