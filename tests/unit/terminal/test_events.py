"""Titles, links, clipboard, notifications, directories, prompts, colours."""

from __future__ import annotations

import base64

import pytest
from quicksand_vt import (
    Bell,
    ClipboardWrite,
    CommandFinished,
    CwdChanged,
    Event,
    Mark,
    Notification,
    Palette,
    PaletteChanged,
    Special,
    Terminal,
    TitleChanged,
)
from quicksand_vt.style import ADDRESS_MAX, LINKS_MAX, parse_colour

from tests.each import each
from tests.unit.terminal.cases import make_terminal, screen_rows


def events_of(data: bytes | str) -> tuple[Event, ...]:
    terminal = make_terminal()
    terminal.feed(data.encode() if isinstance(data, str) else data)
    return terminal.take_events()


def osc(text: str) -> bytes:
    return f"\x1b]{text}\x07".encode()


# Titles


@each("number", ["0", "2"])
def test_a_title(number: str) -> None:
    assert events_of(osc(f"{number};name; and more")) == (TitleChanged("name; and more"),)


def test_a_title_that_stays_is_no_event() -> None:
    assert events_of(osc("2;a") + osc("2;b") + osc("2;b")) == (TitleChanged("b"),)
    terminal = make_terminal()
    terminal.feed(osc("2;a"))
    terminal.take_events()
    terminal.feed(osc("2;a"))
    assert terminal.take_events() == ()


def test_a_title_is_fit_to_be_shown() -> None:
    terminal = make_terminal()
    terminal.feed("\x1b]2;a\nb\tc\u202ed\u009b1m[b]\x07".encode())
    assert terminal.title.isprintable()
    assert "\u202e" not in terminal.title


@each("end", [b"\x07", b"\x1b\\"])
def test_a_title_of_megabytes_is_cut(end: bytes) -> None:
    terminal = make_terminal()
    terminal.feed(b"\x1b]2;" + b"t" * 3_000_000 + end + b"x")
    assert terminal.title == "t" * 255 + "…"
    assert screen_rows(terminal) == ("x",)


def test_the_stack_of_titles() -> None:
    terminal = make_terminal()
    terminal.feed(osc("2;a") + b"\x1b[22;0t" + osc("2;b") + b"\x1b[23;0t")
    assert terminal.title == "a"
    terminal.feed(b"\x1b[23t")
    assert terminal.title == "a"


def test_the_icon_has_no_title() -> None:
    assert events_of(osc("1;icon")) == ()


# Links


def link_at(terminal: Terminal, x: int, line: int = 0) -> str:
    styles = [run.style for run in terminal.line(line) for _ in range(run.columns)]
    return terminal.link(styles[x].link)


def test_a_link() -> None:
    terminal = make_terminal()
    terminal.feed(osc("8;;https://example.org/a;b") + b"ab\x1b[1mc\x1b[md" + osc("8;;") + b"e")
    assert [link_at(terminal, x) for x in range(5)] == ["https://example.org/a;b"] * 4 + [""]


@each(
    ("address", "is_link"),
    [
        ("http://example.org/", True),
        ("HTTPS://example.org/", True),
        ("file:///etc/passwd", True),
        ("mailto:user@example.org", True),
        ("javascript:alert(1)", False),
        ("data:text/html,x", False),
        ("vscode://x", False),
        ("ftp://example.org/", False),
        ("https://exämple.org/", False),
        ("https://example.org/ x", False),
        ("https://example.org/\x0b", False),
        ("https:", False),
        ("https://" + "x" * (ADDRESS_MAX - 8), True),
        ("https://" + "x" * (ADDRESS_MAX - 7), False),
    ],
)
def test_which_addresses_are_links(address: str, is_link: bool) -> None:
    terminal = make_terminal()
    terminal.feed(osc(f"8;id=1;{address}") + b"x")
    assert link_at(terminal, 0) == (address if is_link else "")


def test_a_link_goes_into_the_scrollback() -> None:
    terminal = make_terminal()
    terminal.feed(osc("8;;https://example.org/") + b"x\r\n" * 9)
    assert terminal.screen_line > 0
    assert link_at(terminal, 0) == "https://example.org/"


def test_the_oldest_links_are_forgotten() -> None:
    terminal = make_terminal()
    terminal.feed(osc("8;;https://example.org/first") + b"x")
    for number in range(LINKS_MAX):
        terminal.feed(osc(f"8;;https://example.org/{number}"))
    terminal.feed(b"y")
    assert link_at(terminal, 0) == ""
    assert link_at(terminal, 1) == f"https://example.org/{LINKS_MAX - 1}"


# The clipboard


def test_a_text_for_the_clipboard() -> None:
    coded = base64.b64encode("tëxt\n".encode()).decode()
    assert events_of(osc(f"52;c;{coded}")) == (ClipboardWrite("tëxt\n"),)
    assert events_of(osc(f"52;;{coded}")) == (ClipboardWrite("tëxt\n"),)


@each("data", ["52;c;?", "52;c;", "52;c;a$b", "52;c;abc", "52", "52;c"])
def test_what_is_no_text_for_the_clipboard(data: str) -> None:
    assert events_of(osc(data)) == ()


def test_a_text_for_the_clipboard_is_bounded() -> None:
    fits = base64.b64encode(b"x" * 700_000)
    (event,) = events_of(b"\x1b]52;c;" + fits + b"\x07")
    assert event == ClipboardWrite("x" * 700_000)
    assert events_of(b"\x1b]52;c;" + base64.b64encode(b"x" * 800_000) + b"\x07") == ()


# Notifications and bells


def test_notifications() -> None:
    assert events_of(osc("9;done")) == (Notification("", "done"),)
    assert events_of(osc("777;notify;title;a;b")) == (Notification("title", "a;b"),)


@each("data", ["9;4;1;50", "9;", "777;other;a;b", "777;notify", "99;;x"])
def test_what_is_no_notification(data: str) -> None:
    assert events_of(osc(data)) == ()


def test_only_some_notifications_are_kept() -> None:
    events = events_of(b"".join(osc(f"9;note {n}") for n in range(100)))
    assert events == tuple(Notification("", f"note {n}") for n in range(8))


def test_notifications_are_fit_to_be_shown() -> None:
    (event,) = events_of("\x1b]777;notify;a\nb;c\u202ed\x07".encode())
    assert isinstance(event, Notification)
    assert event.title.isprintable()
    assert event.body.isprintable()


def test_many_bells_are_one() -> None:
    assert events_of(b"\x07" * 1000) == (Bell(),)


def test_events_are_told_once_and_in_order() -> None:
    terminal = make_terminal()
    terminal.feed(osc("2;a") + b"\x07" + osc("9;b") + osc("2;c"))
    assert terminal.take_events() == (Bell(), Notification("", "b"), TitleChanged("c"))
    assert terminal.take_events() == ()


# Directories


@each(
    ("url", "path"),
    [
        ("file://host/home/user", "/home/user"),
        ("file:///a%20b", "/a b"),
        ("file:///%C3%A9", "/é"),
        ("file:///%FF", None),
        ("file:///a%0ab", None),
        ("file:///a%1b[31m", None),
        ("file:relative", None),
        ("http://host/path", None),
        ("/path", None),
        ("file://[::1/x", None),
        ("file:///" + "x" * 5000, None),
        ("", None),
    ],
)
def test_directories(url: str, path: str | None) -> None:
    terminal = make_terminal()
    terminal.feed(osc(f"7;{url}"))
    assert terminal.take_events() == (() if path is None else (CwdChanged(path),))
    assert terminal.cwd == (path or "")


# Prompts


def test_marks_of_a_shell() -> None:
    terminal = make_terminal(20, 4)
    prompt = osc("133;A;cl=m") + b"$ " + osc("133;B")
    for command in (b"true", b"false"):
        terminal.feed(prompt + command + b"\r\n" + osc("133;C") + b"output\r\n" + osc("133;D;1"))
    terminal.feed(prompt)
    marks = [terminal.mark(number) for number in range(terminal.end_line)]
    typed = Mark.PROMPT | Mark.COMMAND
    assert marks == [typed, Mark.OUTPUT, typed, Mark.OUTPUT, typed]
    assert terminal.take_events() == (CommandFinished(1),)


def test_a_cleared_screen_has_no_marks() -> None:
    terminal = make_terminal()
    terminal.feed(osc("133;A") + b"$ \x1b[H\x1b[J")
    assert terminal.mark(0) == 0


@each(
    ("data", "status"),
    [
        ("133;D", None),
        ("133;D;0", 0),
        ("133;D;-1;x", -1),
        ("133;D;x", None),
        ("133;D;" + "9" * 99, None),
    ],
)
def test_commands_that_finished(data: str, status: int | None) -> None:
    assert events_of(osc(data)) == (CommandFinished(status),)


# Colours


def test_colours_can_be_changed_and_reset() -> None:
    terminal = make_terminal()
    terminal.feed(osc("4;1;#102030;2;rgb:ff/00/7f") + osc("11;#fff"))
    assert terminal.take_events() == (PaletteChanged(),)
    assert terminal.colours.get(1) == 0x102030
    assert terminal.colours.get(2) == 0xFF007F
    assert terminal.colours.get(Special.BACKGROUND) == 0xF0F0F0
    terminal.feed(osc("104;1"))
    assert (terminal.colours.get(1), terminal.colours.get(2)) == (0xCD0000, 0xFF007F)
    terminal.feed(osc("104") + osc("111"))
    assert terminal.colours.changed == {}
    assert terminal.take_events() == (PaletteChanged(),)
    terminal.feed(osc("104") + osc("111") + osc("4;1;#cd0000") + osc("10;nonsense"))
    assert terminal.take_events() == ()


def test_programs_are_told_the_colours_of_the_app() -> None:
    terminal = Terminal(palette=Palette(background=0x112233))
    terminal.feed(osc("11;?"))
    assert terminal.take_replies() == b"\x1b]11;rgb:1111/2222/3333\x07"


@each(
    ("text", "colour"),
    [
        ("rgb:f/0/8", 0xFF0088),
        ("rgb:ffff/0000/8000", 0xFF007F),
        ("RGB:FF/00/80", 0xFF0080),
        ("#F08", 0xF00080),
        ("#fff000888", 0xFF0088),
        ("#ffff00008888", 0xFF0088),
        ("#ff", None),
        ("rgb:1/2", None),
        ("rgb:12345/1/1", None),
        ("red", None),
        ("", None),
    ],
)
def test_colours_in_words(text: str, colour: int | None) -> None:
    assert parse_colour(text) == colour


def test_a_palette_has_all_colours() -> None:
    with pytest.raises(ValueError, match="not 16"):
        Palette(colours=(0,) * 16)
