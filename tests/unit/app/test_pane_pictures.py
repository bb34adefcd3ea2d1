"""Pictures of guests' programs in shells, on terminals of all kinds."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from PIL import Image
from quicksand_pixels.encoding.sixel import encode_sixels
from quicksand_pixels.placeholders import PLACEHOLDER
from quicksand_vt import RGB

from tests.conftest import wait_for
from tests.pty_terminal import WHOLE, PtyTerminal
from tests.unit.app.fakes import FakeService, app_of
from tests.unit.app.test_desktop_terminals import CELL, NO_IMAGES, box_of, leave, places, shows
from tests.unit.panes.test_panes_screen import opened, says
from tests.unit.pixels.guest import chunked, noise, png

APP = str(Path(__file__).with_name("pictures_app.py"))
COLUMNS, ROWS = 110, 32


def picture(size: tuple[int, int] = (200, 180)) -> Image.Image:
    """Four colours in a few stripes."""
    found = Image.new("RGB", size)
    for number, colour in enumerate(("#ff0000", "#00ff00", "#0000ff", "#ffff00")):
        found.paste(colour, (number * 50, 0, number * 50 + 50, size[1] - number * 20))
    return found


@pytest.fixture
def said(tmp_path: Path) -> Path:
    """What the guest says when a letter is typed."""
    for name, data in {
        "k": chunked("a=T,f=100,i=7", png(picture())),
        "x": encode_sixels(picture()),
        "l": chunked("a=T,f=24,s=600,v=400,q=2,C=1", noise((600, 400)).tobytes(), 4096),
        "v": b"".join(
            b"\x1b[H" + chunked("a=T,f=24,s=200,v=100,i=1,q=2,C=1", frame.tobytes(), 4096)
            for frame in (noise((200, 100), seed=seed) for seed in range(1, 41))
        )
        + b"\x1b[20Hthe last",
        "n": b"\r\n" * 3,
        "c": b"\x1b[2J\x1b[H",
        "d": b"\x1b_Ga=d,d=A\x1b\\",
        "a": b"\x1b[?1049h",
        "q": b"\x1b[c\x1b[16t\x1b[14t",
        "h": f"\x1b[38;2;0;16;0m{PLACEHOLDER}\u0305\u0305there".encode(),
    }.items():
        (tmp_path / name).write_bytes(data)
    return tmp_path


def shell(said: Path, answers: Mapping[bytes, bytes] = WHOLE, **options: object) -> PtyTerminal:
    argv = [sys.executable, APP, str(said)]
    return PtyTerminal(argv, columns=COLUMNS, rows=ROWS, answers=answers, **options)  # type: ignore[arg-type]


def open_shell(terminal: PtyTerminal) -> None:
    terminal.sees("web")
    terminal.type(b"s")
    terminal.sees("ctrl-]")


def test_kitty_shows_them_in_images_that_move_with_the_text(said: Path) -> None:
    with shell(said) as terminal:
        open_shell(terminal)
        for protocol in ("kitty", "x for sixel"):
            terminal.type(protocol[:1].encode())
            before = box_of(list(shows(terminal, picture())))
            assert (before[2] - before[0], before[3] - before[1]) == (20, 9), protocol
            sent = terminal.output.count(b"a=T")
            terminal.type(b"n" * 8)
            wait_for(
                lambda end=before[3]: box_of(places(terminal))[3] < end,  # type: ignore[misc]
                what="scrolling",
            )
            assert terminal.output.count(b"a=T") == sent, "moving costs no pixels"
            terminal.type(b"c")
            wait_for(lambda: not places(terminal), what="the end of the picture")
        leave(terminal)


def test_their_images_are_deleted_with_them_and_come_back_after_a_dialog(said: Path) -> None:
    with shell(said) as terminal:
        open_shell(terminal)
        terminal.type(b"k")
        shows(terminal, picture())
        sent = set(re.findall(rb"a=T,U=1[^;]*,i=(\d+)", bytes(terminal.output)))
        assert len(sent) == 4
        terminal.type(b"d")
        wait_for(lambda: deleted(terminal) == sent, what="the end of the images")
        terminal.type(b"ck")
        shows(terminal, picture())
        terminal.type(b"\x1d?")
        wait_for(lambda: not places(terminal), what="half cells below the help")
        terminal.type(b"\x1b")
        shows(terminal, picture())
        leave(terminal)


def deleted(terminal: PtyTerminal) -> set[bytes]:
    return set(re.findall(rb"a=d,d=I,q=2,i=(\d+)", bytes(terminal.output)))


@pytest.mark.parametrize(
    ("answers", "env"),
    [
        pytest.param(NO_IMAGES, {}, id="no-images", marks=pytest.mark.soak),
        pytest.param(WHOLE, {"TMUX": "/tmp/x,1,0"}, id="tmux"),
    ],
)
def test_all_others_show_half_cells(
    said: Path, answers: Mapping[bytes, bytes], env: dict[str, str]
) -> None:
    with shell(said, answers, env=env) as terminal:
        open_shell(terminal)
        terminal.type(b"x")
        wait_for(lambda: len(half_cells(terminal)) >= 100, what="half cells")
        assert {colour for row in half_cells(terminal) for colour in row} >= {0xFF0000, 0x0000FF}
        assert PLACEHOLDER not in terminal.text
        sent = bytes(terminal.output)
        assert b"\x1b_Ga=T" not in sent
        assert not re.search(rb"\x1bP[\d;]*q", sent)


def half_cells(terminal: PtyTerminal) -> list[tuple[int, int]]:
    """The upper and the lower colour of each cell that has some of its own."""
    found = []
    with terminal.emulated() as emulator:
        for line in range(emulator.screen_line, emulator.end_line):
            for run in emulator.line(line):
                for char in run.text:
                    fg, bg = run.style.fg, run.style.bg
                    if char == "▀" and fg & RGB:
                        found.append((fg & 0xFFFFFF, bg & 0xFFFFFF))
                    elif char == " " and bg in (RGB | 0xFF0000, RGB | 0x00FF00, RGB | 0x0000FF):
                        found.append((bg & 0xFFFFFF, bg & 0xFFFFFF))
    return found


def test_programs_are_told_of_them_and_cannot_name_an_image_of_the_terminal(said: Path) -> None:
    with shell(said) as terminal:
        open_shell(terminal)
        terminal.type(b"kq")
        reported = said / "reported"
        wait_for(lambda: reported.exists() and b"\x1b[4;" in reported.read_bytes(), what="answers")
        told = reported.read_bytes()
        assert told.startswith(b"\x1b_Gi=7;OK\x1b\\\x1b[?64;4;")
        assert b"\x1b[6;%d;%dt" % (CELL[1], CELL[0]) in told
        terminal.type(b"ch")
        terminal.sees("there")
        assert PLACEHOLDER not in terminal.text
        leave(terminal)


@pytest.mark.parametrize(
    "is_far",
    [pytest.param(False, id="slow", marks=pytest.mark.soak), pytest.param(True, id="far")],
)
def test_a_slow_line_gets_them_coarser_and_keys_overtake_them(said: Path, *, is_far: bool) -> None:
    speed = 20_000
    env = {"SSH_TTY": "/dev/pts/1"} if is_far else {}
    with shell(said, bytes_per_s=speed, is_far=is_far, env=env) as terminal:
        terminal.sees("web", timeout=60)
        terminal.type(b"s")
        terminal.sees("ctrl-]", timeout=60)
        terminal.type(b"l")
        wait_for(lambda: b"a=T" in terminal.output, what="the first tile", timeout=60)
        wait_for(lambda: terminal.output.count(b"a=T") >= 12, what="all tiles", timeout=60)
        whole = sum(map(len, re.findall(rb"\x1b_G[^\x1b]*\x1b\\", bytes(terminal.output))))
        assert whole < 12 * speed * 0.2


def test_of_many_pictures_in_one_place_a_slow_line_gets_few(said: Path) -> None:
    with shell(said, bytes_per_s=20_000) as terminal:
        terminal.sees("web", timeout=60)
        terminal.type(b"s")
        terminal.sees("ctrl-]", timeout=60)
        terminal.type(b"v")
        terminal.sees("the last", timeout=60)
        tiles = 40 * 2
        assert terminal.output.count(b"a=T,U=1") < tiles / 2
        wait_for(lambda: len(places(terminal)) == 20 * 5, what="the picture", timeout=60)
        terminal.type(b"c")
        wait_for(lambda: not places(terminal), what="a key's effect", timeout=60)


async def test_a_shell_has_them_in_half_cells_where_there_is_no_terminal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLORTERM", "truecolor")
    service = FakeService()
    async with opened(service) as (pilot, _):
        (guest,) = service.terminals
        await says(pilot, guest, b"\x1b[c" + encode_sixels(picture((40, 40))))
        assert guest.typed.startswith(b"\x1b[?64;4;")
        pane = app_of(pilot).main.area.shells.pane
        assert pane is not None
        (top, *_) = [segment.style for segment in pane.render_line(0)]
        assert top is not None and top.bgcolor is not None
        assert top.bgcolor.get_truecolor() == (255, 0, 0)


async def test_a_terminal_without_colours_has_none_and_programs_know(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    service = FakeService()
    async with opened(service) as (pilot, _):
        (guest,) = service.terminals
        await says(pilot, guest, b"\x1b[c" + encode_sixels(picture((40, 40))))
        assert guest.typed.startswith(b"\x1b[?64;6;")
