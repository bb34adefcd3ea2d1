"""Pictures in the terminal of a guest: where they are, what removes them, and what is answered."""

from __future__ import annotations

import zlib
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageChops
from quicksand_pixels.decoding import kitty_reading, places
from quicksand_pixels.decoding.guest_graphics import Decode, Decoded, here
from quicksand_pixels.decoding.places import Budget
from quicksand_vt import Terminal

from tests.conftest import examples
from tests.each import each
from tests.unit.pixels.guest import (
    BLUE,
    CELL,
    GREEN,
    RED,
    Drawing,
    chunked,
    command,
    noise,
    packed,
    png,
)
from tests.unit.terminal.soundness import check_sound

SIXELS = b'\x1bP0;1q"1;1;30;40#1;2;100;0;0#1' + b"!30~-" * 6 + b"!30N\x1b\\"
"""A red picture of three columns and two rows."""


def solid(colour: tuple[int, int, int], size: tuple[int, int] = (30, 40)) -> Image.Image:
    return Image.new("RGB", size, colour)


def rgb(image: Image.Image, keys: str = "a=T") -> tuple[str, bytes]:
    return f"{keys},f=24,s={image.width},v={image.height}", image.tobytes()


# Sixels


def test_a_sixel_picture_takes_its_cells_and_the_cursor_is_in_its_last_row() -> None:
    drawing = Drawing()
    drawing.feed(b"ab" + SIXELS + b"x")
    assert drawing.map == "ab###\n  x##"
    drawing = Drawing()
    drawing.feed(b"ab" + SIXELS)
    assert drawing.map == "ab###\n  ###"
    assert drawing.place == (1, 2)
    assert drawing.colours() == {RED}


def test_modes_place_the_cursor_and_the_picture() -> None:
    drawing = Drawing()
    drawing.feed(b"ab\x1b[?8452h" + SIXELS + b"x")
    assert drawing.map == "ab###\n  ###x"
    drawing = Drawing()
    drawing.feed(b"\r\n\r\nab\x1b[?80h" + SIXELS + b"x")
    assert drawing.map == "###\n###\nabx"
    assert drawing.feed(b"\x1b[?80$p\x1b[?1070$p") == b"\x1b[?80;1$y\x1b[?1070;3$y"


def test_a_picture_at_the_bottom_scrolls_and_goes_to_the_scrollback() -> None:
    drawing = Drawing(10, 3)
    drawing.feed(b"1\r\n2\r\n3 " + SIXELS)
    assert drawing.map == "1\n2\n3 ###\n  ###"
    drawing.feed(b"\r\n4\r\n5\r\n6\r\n7")
    assert drawing.map == "1\n2\n3 ###\n  ###\n4\n5\n6\n7"
    frozen = drawing.terminal.freeze()
    styles = [run.style.picture for line in range(8) for run in frozen.line(line)]
    assert len([number for number in styles if number]) == 6
    assert frozen.text(2) == "3"


def test_a_picture_is_cut_at_the_edge_and_in_a_narrower_terminal() -> None:
    drawing = Drawing(4, 4)
    drawing.feed(b"ab" + SIXELS)
    assert drawing.map == "ab##\n  ##"
    drawing = Drawing(10, 4)
    drawing.feed(b"ab" + SIXELS + b"\r\nlonger text")
    drawing.terminal.resize(4, 6)
    assert drawing.map == "ab##\n  ##\nlong\ner t\next"
    drawing.terminal.resize(12, 6)
    assert drawing.map == "ab##\n  ##\nlonger text"
    check_sound(drawing.terminal)


@each(
    ("erasing", "left"),
    [
        (b"\x1b[1;1Hxyz", "xyz##\n  ###"),
        (b"\x1b[1;3H\x1b[K", "ab\n  ###"),
        (b"\x1b[2;4H\x1b[X", "ab###\n  # #"),
        (b"\x1b[1;1H\x1b[P", "b###\n  ###"),
        (b"\x1b[1;1H\x1b[@", " ab###\n  ###"),
        (b"\x1b[2;1H\x1b[M", "ab###"),
        (b"\x1b[1;1H\x1b[L", "\nab###\n  ###"),
        (b"\x1b[2J", ""),
        (b"\x1b[1;1H\x1b[J", ""),
        (b"\x1bc", ""),
        (b"\x1b[?1049h", ""),
        (b"\x1b[?1049h\x1b[?1049l", "ab###\n  ###"),
        (b"\x1b[1;1;1;5;1;4;1;1$v", "ab###\n  ###\n\nab###"),
    ],
    ids=["text", "EL", "ECH", "DCH", "ICH", "DL", "IL", "ED", "ED-0", "RIS", "alt", "back", "copy"],
)
def test_what_changes_cells_changes_pictures(erasing: bytes, left: str) -> None:
    drawing = Drawing()
    drawing.feed(b"ab" + SIXELS + erasing)
    assert drawing.map == left


def test_a_picture_with_a_background_hides_what_is_there_and_one_without_does_not() -> None:
    dot = b'\x1b[1;1H\x1bP7;%dq"1;1;30;40#2;2;0;0;100#2@\x1b\\'
    drawing = Drawing()
    drawing.feed(SIXELS + dot % 1)
    assert drawing.colours() == {RED, BLUE}
    drawing.feed(dot % 0)
    assert drawing.colours() == {BLUE}


def test_pictures_show_through_those_above_them_each_in_its_cells() -> None:
    drawing = Drawing()
    for column, colour in enumerate((RED, GREEN, BLUE), 1):
        drawing.feed(b"\x1b[1;%dH" % column)
        control, data = rgb(solid(colour, (10, 20)), "a=T,C=1")
        drawing.kitty(control, data)
    drawing.feed(b"\x1b[1;1H")
    clear = Image.new("RGBA", (40, 40))
    clear.putpixel((35, 35), (255, 255, 255, 255))
    drawing.kitty("a=T,s=40,v=40,C=1", clear.tobytes())
    shown = [drawing.image.getpixel((x, 10)) for x in (5, 15, 25, 35)]
    assert shown == [(*RED, 255), (*GREEN, 255), (*BLUE, 255), (0, 0, 0, 0)]
    assert drawing.image.getpixel((35, 35)) == (255, 255, 255, 255)


def test_a_broken_off_picture_is_not_shown() -> None:
    drawing = Drawing()
    drawing.feed(SIXELS[:-2] + b"\x18text")
    assert drawing.map == "text"
    drawing.feed(SIXELS[:-2] + b"\x1b[1mmore")
    assert drawing.map == "textmore"


# Kitty's protocol


def formats() -> dict[str, tuple[Image.Image, bytes]]:
    plain, clear = noise((30, 40)), noise((30, 40), "RGBA")
    return {
        "24": (plain, command("a=T,f=24,s=30,v=40", plain.tobytes())),
        "32": (clear, command("a=T,f=32,s=30,v=40", clear.tobytes())),
        "default": (clear, command("a=T,s=30,v=40", clear.tobytes())),
        "packed": (plain, command("a=T,f=24,s=30,v=40,o=z", packed(plain))),
        "png": (plain, command("a=T,f=100", png(plain))),
        "png-clear": (clear, command("a=T,f=100", png(clear))),
        "png-palette": (
            (few := plain.quantize(16)).convert("RGB"),
            command("a=T,f=100", png(few)),
        ),
        "png-grey": (
            plain.convert("L").convert("RGB"),
            command("a=T,f=100", png(plain.convert("L"))),
        ),
        "png-packed": (plain, command("a=T,f=100,o=z", zlib.compress(png(plain)))),
        "chunks": (plain, chunked("a=T,f=24,s=30,v=40", plain.tobytes())),
        "chunks-odd": (plain, chunked("a=T,f=24,s=30,v=40", plain.tobytes(), 63)),
        "chunks-png": (plain, chunked("a=T,f=100", png(plain), 4096)),
    }


@each("name", list(formats()))
def test_each_format_is_shown_pixel_by_pixel(name: str) -> None:
    picture, sent = formats()[name]
    drawing = Drawing()
    assert drawing.feed(sent) == b"", "only what names a picture is answered"
    assert drawing.map == "###\n###"
    assert drawing.place == (1, 3)
    shown = drawing.image.crop((0, 0, 30, 40))
    assert not ImageChops.difference(shown, picture.convert("RGBA")).getbbox(alpha_only=False)


def test_a_picture_is_scaled_into_the_cells_that_are_asked_for() -> None:
    drawing = Drawing()
    halves = solid(RED, (40, 10))
    halves.paste(BLUE, (20, 0, 40, 10))
    control, data = rgb(halves)
    drawing.kitty(f"{control},c=6,r=2,C=1", data)
    assert drawing.map == "######\n######"
    assert drawing.place == (0, 0), "C=1 leaves the cursor"
    assert drawing.image.getpixel((5, 35)) == (*RED, 255)
    assert drawing.image.getpixel((55, 5)) == (*BLUE, 255)
    drawing.feed(b"\x1b[2J")
    drawing.kitty(f"{control},c=8,C=1", data)
    assert drawing.map == "########", "the rows follow: 80x20 pixels"


def test_parts_and_offsets_are_shown() -> None:
    drawing = Drawing()
    halves = solid(RED, (40, 20))
    halves.paste(BLUE, (20, 0, 40, 20))
    control, data = rgb(halves)
    drawing.kitty(f"{control},x=20,w=10,C=1", data)
    assert drawing.map == "#"
    assert drawing.colours() == {BLUE}
    drawing.feed(b"\x1bc")
    drawing.kitty(f"{control},X=5,Y=10,C=1", data)
    assert drawing.map == "#####\n#####"
    assert drawing.image.getpixel((4, 12)) == (0, 0, 0, 0)
    assert drawing.image.getpixel((5, 10)) == (*RED, 255)
    assert drawing.image.getpixel((44, 29)) == (*BLUE, 255)
    assert drawing.image.getpixel((45, 29)) == (0, 0, 0, 0)


def test_pictures_are_sent_once_and_shown_often() -> None:
    drawing = Drawing()
    control, data = rgb(solid(RED), "a=t,i=5")
    assert drawing.kitty(control, data) == b"\x1b_Gi=5;OK\x1b\\"
    assert drawing.map == ""
    assert drawing.kitty("a=p,i=5,p=1,c=2,r=1") == b"\x1b_Gi=5,p=1;OK\x1b\\"
    drawing.feed(b"\r\n")
    drawing.kitty("a=p,i=5,p=2,c=2,r=1,q=1")
    assert drawing.map == "##\n##"
    drawing.feed(b"\x1b[4;4H")
    drawing.kitty("a=p,i=5,p=1,c=1,r=1")
    assert drawing.map == "\n##\n\n   #", "a placement that is shown again has moved"
    control, data = rgb(solid(BLUE), "a=t,i=5")
    drawing.kitty(control, data)
    assert drawing.map == "", "what replaces a picture removes its places"
    assert drawing.kitty("a=p,i=6") == b"\x1b_Gi=6;ENOENT:there is no such picture\x1b\\"


def test_text_beneath_a_deleted_picture_is_there_again() -> None:
    drawing = Drawing()
    drawing.feed(b"text\r")
    control, data = rgb(solid(RED, (20, 20)), "a=T,i=1,C=1")
    drawing.kitty(control, data)
    assert drawing.map == "##xt"
    assert drawing.terminal.text(0) == "text"
    drawing.kitty("a=d,d=i,i=1")
    assert drawing.map == "text"


@each(
    ("keys", "left"),
    [
        ("", ""),
        ("d=a", ""),
        ("d=i,i=1", "  ##"),
        ("d=i,i=1,p=7", "##  ##"),
        ("d=i,i=1,p=3", "  ##"),
        ("d=n,I=9", "##"),
        ("d=p,x=1,y=1", "  ##"),
        ("d=p,x=9,y=9", "##  ##"),
        ("d=q,x=1,y=1,z=4", "##  ##"),
        ("d=q,x=1,y=1,z=0", "  ##"),
        ("d=x,x=2", "  ##"),
        ("d=y,y=1", ""),
        ("d=z,z=-3", "##"),
        ("d=r,x=1,y=10", "  ##"),
        ("d=c", "##"),
        ("d=?", "##  ##"),
        ("d=p", "##  ##"),
    ],
)
def test_deleting_takes_what_it_names(keys: str, left: str) -> None:
    for upper in (False, True):
        drawing = Drawing()
        control, data = rgb(solid(RED, (20, 20)), "a=T,i=1,p=3,C=1,q=2")
        drawing.kitty(control, data)
        drawing.feed(b"\x1b[1;5H")
        control, data = rgb(solid(GREEN, (20, 20)), "a=T,I=9,z=-3,C=1,q=2")
        drawing.kitty(control, data)
        chosen = keys.replace(keys[:3], keys[:3].swapcase().replace("D=", "d=")) if upper else keys
        drawing.kitty(f"a=d,{chosen}".strip(","))
        expected = left if left != "  ##" else "    ##"
        assert drawing.map == expected, chosen
        gone = expected in ("", "    ##") and bool(keys)
        answer = drawing.kitty("a=p,i=1")
        assert (b"ENOENT" in answer) == (upper and gone), "capitals forget the picture itself"


def test_a_number_names_the_newest_picture_and_gets_an_id() -> None:
    drawing = Drawing()
    control, data = rgb(solid(RED), "a=t,I=4")
    answer = drawing.kitty(control, data)
    assert answer.startswith(b"\x1b_Gi=") and answer.endswith(b",I=4;OK\x1b\\")
    control, data = rgb(solid(BLUE), "a=t,I=4")
    drawing.kitty(control, data)
    drawing.kitty("a=p,I=4")
    assert drawing.colours() == {BLUE}


@each(
    ("control", "payload", "answer"),
    [
        ("a=q,i=31,s=1,v=1,f=24", b"abc", "OK"),
        ("a=q,i=31,s=1,v=1,f=24,q=1", b"abc", None),
        ("a=q,s=1,v=1,f=24", b"abc", None),
        ("a=q,i=31,s=1,v=1,f=24,t=f", b"/etc/passwd", "EINVAL"),
        ("a=q,i=31,s=1,v=1,f=24,t=t", b"/tmp/x", "EINVAL"),
        ("a=q,i=31,s=1,v=1,f=24,t=s", b"/shm", "EINVAL"),
        ("a=q,i=31,s=1,v=1,f=24,t=s,q=2", b"/shm", None),
        ("a=q,i=31,s=2,v=1,f=24", b"abc", "ENODATA"),
        ("a=q,i=31,s=1,v=1,f=24", b"abcdefghi", "EFBIG"),
        ("a=q,i=31,f=24", b"abc", "EINVAL"),
        ("a=q,i=31,s=99999,v=99999,f=24", b"abc", "EFBIG"),
        ("a=q,i=31,s=1,v=1,f=25", b"abc", "EINVAL"),
        ("a=q,i=31,s=1,v=1,f=24,o=x", b"abc", "EINVAL"),
        ("a=q,i=31,s=1,v=1,f=24,o=z", b"abc", "EINVAL"),
        ("a=q,i=31,f=100", b"\x89PNG\r\n\x1a\nabc", "EINVAL"),
        ("a=q,i=31,f=100", b"GIF89a" + bytes(40), "EINVAL"),
        ("a=T,i=31,s=1,v=1,f=24,c=5000,r=5000", b"abc", "EINVAL"),
        ("a=T,i=31,s=1,v=1,f=24,U=1", b"abc", "EINVAL"),
        ("a=T,i=31,I=2,s=1,v=1,f=24", b"abc", "EINVAL"),
        ("a=T,i=31,s=1,v=1,f=24,x=9", b"abc", "EINVAL"),
        ("a=f,i=31,s=1,v=1,f=24", b"abc", "EINVAL"),
    ],
)
def test_programs_that_ask_are_answered(control: str, payload: bytes, answer: str | None) -> None:
    drawing = Drawing()
    told = drawing.kitty(control, payload)
    if answer is None:
        assert told == b""
    else:
        assert told.startswith(f"\x1b_Gi=31{',I=2' if 'I=2' in control else ''};{answer}".encode())
        assert told.endswith(b"\x1b\\") and told[:-2].isascii()
    assert drawing.map == ""
    if "a=q" in control:
        assert b"ENOENT" in drawing.kitty("a=p,i=31"), "a question keeps nothing"


@each("text", ["a=T,=", "a", "a=T,s=x", "a=T,s=99999999999", "é=1", ",,", "a=\x07"])
def test_what_is_no_command_has_no_effect(text: str) -> None:
    drawing = Drawing()
    assert drawing.feed(f"\x1b_G{text};AAAA\x1b\\text") == b""
    assert drawing.map == "text"


def test_what_is_drawn_is_told_and_only_then() -> None:
    asked = b"\x1b[c\x1b[?1;1S\x1b[?2;4S\x1b[?3;1S\x1b[?1;3;9S\x1b[14t\x1b[16t\x1b[18t"
    told = (
        b"\x1b[?64;4;6;21;22;28;52c\x1b[?1;0;1024S\x1b[?2;0;200;120S\x1b[?3;1;0S\x1b[?1;3;0S"
        b"\x1b[4;120;200t\x1b[6;20;10t\x1b[8;6;20t"
    )
    assert Drawing().feed(asked) == told
    terminal = Terminal(20, 6)
    terminal.feed(b"\x1b[c\x1b[?1;1S" + SIXELS + command("a=q,i=1,s=1,v=1,f=24", b"abc"))
    assert terminal.take_replies() == b"\x1b[?64;6;21;22;28;52c"
    assert terminal.text(0) == ""


def test_questions_of_before_are_not_answered() -> None:
    drawing = Drawing()
    drawing.terminal.feed(command("a=q,i=1,s=1,v=1,f=24", b"abc"), answered=False)
    assert drawing.terminal.take_replies() == b""


# What takes long


class Later:
    """Decodes when it is told to."""

    def __init__(self) -> None:
        self.calls: list[Callable[[], None]] = []

    def __call__(self, decode: Decode, done: Decoded) -> None:
        self.calls.append(lambda: here(decode, done))


def test_a_large_picture_has_its_place_at_once_and_is_seen_later() -> None:
    later = Later()
    drawing = Drawing(80, 30, elsewhere=later)
    large = noise((600, 500))
    assert drawing.feed(chunked("a=T,f=100,i=3", png(large), 4096) + b"after") == b""
    assert drawing.place[1] == 65
    assert drawing.colours() == set()
    drawing.terminal.take_damage()
    (call,) = later.calls
    call()
    assert drawing.changes == 1
    assert drawing.terminal.take_damage().all
    assert drawing.terminal.take_replies() == b"\x1b_Gi=3;OK\x1b\\"
    shown = drawing.image.crop((0, 0, 600, 500)).convert("RGB")
    assert not ImageChops.difference(shown, large).getbbox()


def test_a_large_picture_that_is_damaged_is_gone_later() -> None:
    later = Later()
    drawing = Drawing(80, 30, elsewhere=later)
    drawing.feed(chunked("a=T,f=100,i=3", png(noise((600, 500)))[:-900] + bytes(900), 4096))
    assert drawing.map
    later.calls[0]()
    assert drawing.map == ""
    assert drawing.terminal.take_replies() == b"\x1b_Gi=3;EINVAL:the PNG is damaged\x1b\\"


def test_only_a_few_large_pictures_wait() -> None:
    later = Later()
    drawing = Drawing(80, 30, elsewhere=later)
    sent = chunked("a=t,f=24,o=z,s=600,v=600,i=%d", packed(solid(RED, (600, 600))))
    told = b"".join(drawing.feed(sent.replace(b"%d", b"%d" % n)) for n in range(1, 9))
    assert len(later.calls) == 4
    assert told.count(b"EBUSY") == 4


def test_a_terminal_has_a_turn_though_another_has_many_pictures_waiting() -> None:
    later, budget = Later(), Budget()
    sent = chunked("a=t,f=24,o=z,s=600,v=600,i=1", packed(solid(RED, (600, 600))))
    flood = Drawing(80, 30, elsewhere=later, budget=budget)
    other = Drawing(80, 30, elsewhere=later, budget=budget)
    assert b"EBUSY" in flood.feed(sent * 8)
    assert other.feed(sent) == b""
    assert b"EBUSY" in other.feed(sent), "but one only"
    for call in later.calls:
        call()
    assert budget.waiting == 0


# Bounds


def test_bombs_are_refused_before_they_fill_memory() -> None:
    drawing = Drawing()
    bomb = zlib.compress(bytes(64 << 20))
    assert b"OK" in drawing.feed(chunked("a=t,i=1,f=24,s=100,v=100,o=z", bomb, 4096))
    assert drawing.graphics.places.pixels == 100 * 100
    assert b"EINVAL" in drawing.feed(chunked("a=t,i=1,f=100,o=z", bomb, 4096))
    wide = bytearray(png(solid(RED)))
    wide[16:24] = b"\x00\x01\x00\x00\x00\x01\x00\x00"
    assert b"EFBIG" in drawing.feed(command("a=t,i=1,f=100", bytes(wide)))


def test_pixels_and_places_are_bounded_and_what_is_seen_stays_longest() -> None:
    budget = Budget(each=20_000, together=30_000)
    drawing = Drawing(40, 10, budget=budget)
    control, data = rgb(solid(RED, (50, 60)), "a=T,i=1,q=2,C=1")
    drawing.kitty(control, data)
    for number in range(2, 40):
        control, data = rgb(solid(BLUE, (50, 60)), f"a=t,i={number}")
        assert b"OK" in drawing.kitty(control, data)
        assert drawing.graphics.places.pixels <= 20_000
    assert drawing.colours() == {RED}
    control, data = rgb(solid(BLUE, (200, 200)), "a=t,i=99")
    assert b"ENOSPC" in drawing.kitty(control, data)
    largest = noise((100, 200), "RGBA")
    assert b"OK" in drawing.feed(chunked("a=t,i=99,s=100,v=200", largest.tobytes(), 4096))
    drawing.feed(b"\x1bc")
    other = Drawing(40, 10, budget=budget)
    for number in range(1, 9):
        control, data = rgb(solid(GREEN, (50, 60)), f"a=t,i={number}")
        assert b"OK" in other.kitty(control, data)
        assert drawing.graphics.places.pixels + other.graphics.places.pixels <= 30_000


def test_the_number_of_places_is_bounded() -> None:
    drawing = Drawing(40, 10)
    control, data = rgb(solid(RED, (1, 1)), "a=t,i=1")
    drawing.kitty(control, data)
    for _ in range(3 * places.COUNT_MAX):
        drawing.kitty("a=p,i=1,C=1,q=2")
    assert len(drawing.graphics.places.placed) <= places.COUNT_MAX
    drawing.feed(b"\x1bc")
    assert drawing.graphics.places.pixels == 0


def test_a_thin_picture_in_one_column_takes_no_memory_for_what_is_not_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[int] = []
    new = Image.new

    def note(mode: str, size: tuple[int, int]) -> Image.Image:
        made.append(size[0] * size[1])
        assert made[-1] <= 8192
        return new(mode, size)

    drawing = Drawing()
    line = packed(solid(RED, (8192, 1)))
    monkeypatch.setattr(Image, "new", note)
    drawing.feed(chunked("a=T,i=1,f=24,s=8192,v=1,c=1,o=z,C=1", line, 4096))
    (shown,) = drawing.graphics.places.placed
    assert (shown.columns, shown.rows) == (1, 1)
    assert shown.part(0, 0, 1, 1, CELL).size == CELL
    drawing.kitty("a=T,s=1,v=1,C=1", bytes(4))


@each("is_later", [False, True])
def test_a_picture_much_larger_than_its_cells_is_reduced_once(*, is_later: bool) -> None:
    later = Later()
    drawing = Drawing(80, 30, elsewhere=later)
    halves = solid(RED, (1000, 1000))
    halves.paste(BLUE, (500, 0, 1000, 1000))
    drawing.feed(chunked(f"a={'T' if is_later else 't'},f=100,i=1,c=4,r=2", png(halves), 4096))
    if is_later:
        drawing.kitty("a=p,i=1,c=4,r=2")
    later.calls[0]()
    if not is_later:
        drawing.kitty("a=p,i=1,c=4,r=2")
    for shown in drawing.graphics.places.placed:
        assert shown.stored.image.size == (40, 40)
    assert drawing.image.getpixel((19, 39)) == (*RED, 255)
    assert drawing.image.getpixel((20, 0)) == (*BLUE, 255)
    assert drawing.map == ("####\n########\n    ####" if is_later else "####\n####")
    drawing.kitty("a=d,d=I,i=1")
    assert drawing.graphics.places.pixels == 0


def test_reducing_pictures_again_and_again_comes_to_an_end() -> None:
    drawing = Drawing(80, 30, clock=lambda: 0.0)
    drawing.feed(chunked("a=t,i=1,q=1,f=24,s=2000,v=1000,o=z", packed(solid(RED, (2000, 1000)))))
    told = b"".join(drawing.kitty("a=p,i=1,c=1,r=1,C=1") for _ in range(20))
    assert told.count(b"OK") == 3


def test_covering_cells_again_and_again_comes_to_an_end() -> None:
    drawing = Drawing(200, 60, clock=lambda: 0.0)
    control, data = rgb(solid(RED, (1, 1)), "a=t,i=1")
    drawing.kitty(control, data)
    told = b"".join(drawing.kitty("a=p,i=1,c=200,r=60,C=1,q=1") for _ in range(30))
    assert told.count(b"ENOSPC") == 30 - 8


def test_a_name_for_parts_is_never_larger_than_the_scrollback_holds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(places, "NUMBERS_MAX", 20)
    drawing = Drawing()
    for _ in range(9):
        drawing.feed(SIXELS + b"\r\n")
    assert max(max(drawing.numbers(line)) for line in range(drawing.terminal.end_line)) <= 20


def test_commands_that_are_refused_use_up_no_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(places, "NUMBERS_MAX", 2_000_000)
    drawing = Drawing(clock=lambda: 0.0)
    control, data = rgb(solid(RED), "a=T,i=1,q=1,C=1")
    drawing.kitty(control, data)
    told = b"".join(drawing.kitty("a=p,i=1,c=1000,r=1000") for _ in range(9))
    assert told.count(b"ENOSPC") == 9
    assert drawing.colours() == {RED}
    control, data = rgb(solid(GREEN), "a=T,i=2,q=1,C=1")
    drawing.feed(b"\r\n\n\n")
    drawing.kitty(control, data)
    assert drawing.numbers(0)[0] < drawing.numbers(3)[0]


def test_what_is_forgotten_with_all_others_is_not_kept() -> None:
    drawing = Drawing()
    control, data = rgb(solid(RED), "a=t,i=1,q=1")
    drawing.kitty(control, data)
    stored = drawing.graphics.places.stored(1)
    assert stored is not None and stored.is_kept
    drawing.feed(b"\x1bc")
    assert not stored.is_kept


_KEYS = st.builds(
    lambda key, value: f"{key}={value}",
    st.sampled_from("aftsviImoxywhXYcrzdpqUC"),
    st.one_of(
        st.sampled_from(["T", "t", "p", "d", "q", "a", "24", "32", "100", "z", "f", "A", "I", ""]),
        st.integers(-2, 12).map(str),
        st.sampled_from(["4294967295", "99999999999", "-1", "1000"]),
    ),
)
_DATA = st.sampled_from(
    ["", "AAAA", "/" * 24, "A", "é", "iVBORw0KGgo=", "eJxjYGBgAAAABAAB", "QUJD" * 30]
)
_COMMANDS = st.one_of(
    st.builds(
        lambda keys, data: f"\x1b_G{','.join(keys)};{data}\x1b\\",
        st.lists(_KEYS, max_size=8),
        _DATA,
    ),
    st.builds(
        lambda keys: f"\x1b_G{','.join(['a=T,f=24,s=2,v=2', *keys])};AAAAAAAAAAAAAAAA\x1b\\",
        st.lists(_KEYS, max_size=4),
    ),
    st.sampled_from(
        [
            *(
                "\r\n\n\n",
                "text",
                "\x1b[2J",
                "\x1bc",
                "\x1b[?1049h",
                "\x1b[?1049l",
                "\x1b[L",
                "\x1b[2P",
            ),
            *("\x1b[3;1H", "\x1b[2;3r", "\x1b[?69h\x1b[2;4s", "\x1b[?80h", "漢字", "\x1b[1$r"),
            *('\x1bP0;1q"1;1;25;50#1~-~\x1b\\', "\x1bPq#1!30~\x1b\\", "\x1b[?2;1S", "\x18"),
        ]
    ),
)


@settings(max_examples=examples(400))
@given(
    size=st.tuples(st.integers(2, 12), st.integers(1, 6)),
    steps=st.lists(
        st.one_of(_COMMANDS, st.tuples(st.integers(2, 12), st.integers(1, 6))), max_size=14
    ),
)
def test_any_commands_leave_a_sound_terminal_within_its_bounds(
    size: tuple[int, int], steps: list[str | tuple[int, int]]
) -> None:
    drawing = Drawing(*size, budget=Budget(each=3000, together=4000), scrollback=20)
    for step in steps:
        if isinstance(step, str):
            drawing.feed(step)
        else:
            drawing.terminal.resize(*step)
        check_sound(drawing.terminal)
        assert drawing.graphics.places.pixels <= 3000
    assert drawing.image.size == (
        drawing.terminal.columns * CELL[0],
        drawing.terminal.rows * CELL[1],
    )


@settings(max_examples=examples(200))
@given(
    start=st.sampled_from(
        [png(noise((20, 20))), png(noise((9, 9), "RGBA")), packed(noise((9, 9)))]
    ),
    changes=st.lists(st.tuples(st.integers(0, 2000), st.integers(0, 255)), max_size=6),
    cut=st.integers(0, 2000),
)
def test_damaged_data_never_raises(start: bytes, changes: list[tuple[int, int]], cut: int) -> None:
    data = bytearray(start)
    for at, value in changes:
        data[at % len(data)] = value
    data = data[: max(1, cut)]
    for keys in ("f=100", "f=24,s=9,v=9,o=z", "f=100,o=z"):
        drawing = Drawing()
        assert drawing.kitty(f"a=T,i=1,{keys}", bytes(data)).endswith(b"\x1b\\")
    assert drawing.graphics.places.pixels < kitty_reading.PIXELS_MAX
