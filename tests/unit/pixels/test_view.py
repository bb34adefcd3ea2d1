"""`view` on terminals of all kinds: what they show, what it costs, and how they are left."""

from __future__ import annotations

import re
import signal
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from PIL import Image, ImageChops, ImageStat
from quicksand_driver.probe import RESET

from tests.conftest import wait_for
from tests.pty_terminal import WHOLE, PtyTerminal
from tests.unit.pixels.decoders import KittyTerminal, SixelTerminal, half_cells
from tests.unit.pixels.fake_desktop import FakeDesktop
from tests.unit.pixels.screens import desktop

RUNNER = str(Path(__file__).with_name("view_runner.py"))
COLUMNS, ROWS = 60, 21
SIXEL = {
    question: answer
    for question, answer in WHOLE.items()
    if b"_G" not in question and b">0" not in question
}
HALF = {question: answer for question, answer in SIXEL.items() if not question.endswith(rb"\[c")}
HALF[rb"\x1b\[c"] = b"\x1b[?62;22c"


@pytest.fixture
def screen(tmp_path: Path) -> Iterator[FakeDesktop]:
    with FakeDesktop(tmp_path / "vnc.sock", desktop()) as found:
        yield found


def viewing(
    screen: FakeDesktop, *arguments: str, answers: Mapping[bytes, bytes] = HALF, **options: object
) -> PtyTerminal:
    argv = [sys.executable, RUNNER, str(screen.path), *arguments]
    return PtyTerminal(argv, columns=COLUMNS, rows=ROWS, answers=answers, **options)  # type: ignore[arg-type]


_PICTURES = re.compile(
    rb"\x1b\[\d+;\d+H(?=\x1b[_P])|\x1b_G[^\x1b]*\x1b\\|\x1bP0;1;0q[^\x1b]*\x1b\\"
)


def shown(terminal: PtyTerminal) -> Image.Image:
    """What the terminal shows, half cells, sixels or kitty's images, two pixels a cell."""
    output = bytes(terminal.output)
    pictures = b"".join(_PICTURES.findall(output.replace(b"i=31,", b"")))
    cell = (10, 20)
    if b"\x1b_Ga=T" in output:
        kitty = KittyTerminal(COLUMNS, ROWS, cell)
        kitty.feed(_from(pictures))
        return kitty.screen().resize((COLUMNS, 2 * ROWS), Image.Resampling.BOX)
    if b"\x1bP0;1;0q" in output:
        sixel = SixelTerminal(COLUMNS, ROWS, cell)
        sixel.feed(_from(pictures))
        return sixel.screen.resize((COLUMNS, 2 * ROWS), Image.Resampling.BOX)
    half = Image.new("RGB", (COLUMNS, 2 * ROWS))
    with terminal.emulated() as emulator:
        half.paste(half_cells(emulator, COLUMNS, ROWS - 1))
    return half


def _from(pictures: bytes) -> bytes:
    """The pictures without what the probe asked."""
    start = re.search(rb"\x1b\[\d+;\d+H", pictures)
    return pictures[start.start() :] if start else b""


def looks_like(terminal: PtyTerminal, picture: Image.Image) -> bool:
    """Whether the terminal shows that picture in the middle, in proportion."""
    wanted = Image.new("RGB", (COLUMNS, 2 * ROWS))
    # 640x400 in 60x20 cells of 10x20 pixels: the whole height would be 64 cells wide.
    wide, high = COLUMNS, round(COLUMNS * 10 * 400 / 640 / 20) * 2
    scaled = picture.convert("RGB").resize((wide, high), Image.Resampling.BOX)
    wanted.paste(scaled, (0, ((ROWS - 1) - high // 2) // 2 * 2))
    try:
        found = shown(terminal)
    except (KeyError, AssertionError):
        return False  # in the midst of a picture
    return max(ImageStat.Stat(ImageChops.difference(found, wanted)).mean) < 8


def shows(terminal: PtyTerminal, picture: Image.Image) -> None:
    wait_for(lambda: looks_like(terminal, picture), what="the picture")


def pressed(screen: FakeDesktop) -> list[int]:
    """The keys that went down."""
    return [event[1] for event in screen.events if event[0] == "key" and event[2]]


def typed(screen: FakeDesktop) -> str:
    """What the guest was given as text."""
    path = screen.path.with_name("typed")
    return path.read_text() if path.exists() else ""


def leave(terminal: PtyTerminal) -> None:
    terminal.type(b"\x1dd")
    assert terminal.ends() == 0
    check_restored(terminal)


def check_restored(terminal: PtyTerminal) -> None:
    assert terminal.modes == terminal.before
    output = bytes(terminal.output)
    assert output.count(b"\x1b[?1049h") == output.count(b"\x1b[?1049l") == 1
    assert RESET.encode() in output


WAYS = {"kitty": WHOLE, "sixel": SIXEL, "half": HALF}


@pytest.mark.parametrize(
    ("way", "delay_s"), [("kitty", 0), ("kitty", 0.3), ("sixel", 0.15), ("half", 0.3)]
)
def test_the_way_is_chosen_by_the_answers_and_the_picture_is_shown(
    screen: FakeDesktop, way: str, delay_s: float
) -> None:
    with viewing(screen, answers=WAYS[way], delay_s=delay_s) as terminal:
        shows(terminal, desktop())
        sequences = {"kitty": b"\x1b_Ga=T", "sixel": b"\x1bP0;1;0q", "half": "▀".encode()}
        found = {name for name, mark in sequences.items() if mark in terminal.output}
        assert found == {way}
        leave(terminal)
    assert not [event for event in screen.events if event[0] == "key"], "answers became keys"


def test_changes_are_followed_and_a_still_picture_costs_nothing(screen: FakeDesktop) -> None:
    with viewing(screen) as terminal:
        shows(terminal, desktop())
        for seed in range(2, 5):
            screen.show(desktop(seed=seed))
            shows(terminal, desktop(seed=seed))
        terminal.rests()
        size = len(terminal.output)
        screen.show(desktop(seed=4))  # the same again
        terminal.type(b"x")
        wait_for(lambda: ("key", ord("x"), 0, 0) in screen.events, what="the key")
        assert len(terminal.output) == size
        leave(terminal)


def test_keys_and_the_mouse_go_to_the_guest(screen: FakeDesktop) -> None:
    with viewing(screen) as terminal:
        shows(terminal, desktop())
        terminal.type(b"aB\x1b[A\x03\x1b[200~hi\n\x1b[201~")
        wait_for(lambda: typed(screen) == "hi\n", what="the paste")
        shift, control, up = 0xFFE1, 0xFFE3, 0xFF52
        keys = [97, shift, 66, up, control, 99]
        wait_for(lambda: pressed(screen) == keys, what="the keys")
        # The picture is 60x19 cells from row 0.
        terminal.type(b"\x1b[<0;31;11M\x1b[<32;61;2M\x1b[<0;1;1m")
        wait_for(lambda: ("pointer", 5, 10, 0) in screen.events, what="the release")
        pointer = [event[1:] for event in screen.events if event[0] == "pointer"]
        assert pointer[0] == (325, 221, 1)
        leave(terminal)


def test_characters_that_no_us_keyboard_has_are_typed_as_a_text(screen: FakeDesktop) -> None:
    with viewing(screen) as terminal:
        shows(terminal, desktop())
        terminal.type("aé漢😀".encode())
        wait_for(lambda: typed(screen) == "é漢😀", what="the text")
        terminal.type(b"b")
        wait_for(lambda: ("key", ord("b"), 0, 0) in screen.events, what="the key after it")
        leave(terminal)


def test_two_viewers_at_once_and_the_view_of_one_is_its_own(screen: FakeDesktop) -> None:
    with viewing(screen) as one, viewing(screen, answers=WHOLE) as other:
        shows(one, desktop())
        shows(other, desktop())
        one.type(b"\x1d+\x1d+\x1d\x1b[C")
        wait_for(lambda: not looks_like(one, desktop()), what="the zoom")
        assert looks_like(other, desktop())
        one.type(b"\x1d0")
        shows(one, desktop())
        leave(one)
        screen.show(desktop(seed=7))
        shows(other, desktop(seed=7))
        leave(other)
    wait_for(lambda: screen.viewers == 0, what="the end of all connections")


def test_the_screen_is_saved(
    screen: FakeDesktop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_PICTURES_DIR", str(tmp_path))
    with viewing(screen) as terminal:
        shows(terminal, desktop())
        terminal.type(b"\x1ds")
        terminal.sees("saved to /")
        leave(terminal)
    (path,) = tmp_path.glob("quicksand/desk-*.png")
    with Image.open(path) as saved:
        assert saved.convert("RGB").tobytes() == desktop().tobytes()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_signals_leave_the_terminal_as_it_was(screen: FakeDesktop, number: signal.Signals) -> None:
    with viewing(screen, answers=WHOLE) as terminal:
        shows(terminal, desktop())
        terminal.kill(number)
        assert terminal.ends() == 128 + number
        check_restored(terminal)
        assert b"\x1b_Ga=d,d=A,q=2\x1b\\" in terminal.output
    wait_for(lambda: screen.viewers == 0, what="the end of the encoder")


def test_a_viewer_that_is_killed_leaves_no_process(screen: FakeDesktop) -> None:
    with viewing(screen) as terminal:
        shows(terminal, desktop())
        assert screen.viewers == 2
        terminal.kill(signal.SIGKILL)
        wait_for(lambda: screen.viewers == 0, what="the end of the encoder")


def test_a_guest_that_stops_ends_the_view_and_says_so(screen: FakeDesktop) -> None:
    with viewing(screen) as terminal:
        shows(terminal, desktop())
        screen.path.with_suffix(".stopped").touch()
        screen.end()
        assert terminal.ends() == 125
        check_restored(terminal)
        assert "was stopped" in terminal.text


def test_a_revert_is_followed(screen: FakeDesktop) -> None:
    with viewing(screen) as terminal:
        shows(terminal, desktop())
        screen.end()
        terminal.sees("waiting for another")
        with FakeDesktop(screen.path, desktop(seed=9)) as other:
            shows(terminal, desktop(seed=9))
            terminal.type(b"y")
            wait_for(lambda: ("key", ord("y"), 0, 0) in other.events, what="the key")
            leave(terminal)


def test_it_says_live_that_the_sandbox_is_paused(screen: FakeDesktop) -> None:
    paused = screen.path.with_suffix(".paused")
    with viewing(screen) as terminal:
        shows(terminal, desktop())
        paused.touch()
        terminal.sees("paused: what is typed is lost")
        size = len(terminal.output)
        paused.unlink()
        wait_for(lambda: b"prefix ctrl-]: zoom" in terminal.output[size:], what="the usual line")
        leave(terminal)


def test_without_a_terminal_it_is_refused(screen: FakeDesktop) -> None:
    import subprocess

    done = subprocess.run(
        [sys.executable, RUNNER, str(screen.path)], capture_output=True, text=True, check=False
    )
    assert done.returncode != 0 and "must be a terminal" in done.stderr
