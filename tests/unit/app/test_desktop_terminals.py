"""The desktop tab on terminals of all kinds: what they show, what it costs, and what is left."""

from __future__ import annotations

import re
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from PIL import Image, ImageChops, ImageStat
from quicksand_pixels.placeholders import MARKS, PLACEHOLDER

from tests.conftest import wait_for
from tests.pty_terminal import WHOLE, PtyTerminal
from tests.unit.kit.test_probing import state_of
from tests.unit.pixels.decoders import KittyImages
from tests.unit.pixels.fake_desktop import FakeDesktop
from tests.unit.pixels.screens import desktop
from tests.unit.pixels.test_view import pressed

APP = str(Path(__file__).with_name("desktop_app.py"))
COLUMNS, ROWS = 110, 32
CELL = (10, 20)
NO_IMAGES = {
    question: answer
    for question, answer in WHOLE.items()
    if b"_G" not in question and b">0" not in question
}
_IMAGES = re.compile(rb"\x1b_G[^\x1b]*\x1b\\")


@pytest.fixture
def screen(tmp_path: Path) -> Iterator[FakeDesktop]:
    with FakeDesktop(tmp_path / "vnc.sock", desktop()) as found:
        yield found


def watching(
    screen: FakeDesktop, answers: Mapping[bytes, bytes] = WHOLE, **options: object
) -> PtyTerminal:
    argv = [sys.executable, APP, str(screen.path)]
    return PtyTerminal(argv, columns=COLUMNS, rows=ROWS, answers=answers, **options)  # type: ignore[arg-type]


class Place(NamedTuple):
    """A cell that shows a part of an image."""

    column: int
    row: int
    image: int
    of_column: int
    of_row: int


def images(terminal: PtyTerminal) -> KittyImages:
    found = KittyImages(CELL)
    for sequence in _IMAGES.findall(bytes(terminal.output)):
        if b"i=31," not in sequence:
            found.feed(sequence)
    return found


def places(terminal: PtyTerminal) -> list[Place]:
    """Where the text shows images."""
    found = []
    with terminal.emulated() as emulator:
        for row in range(ROWS):
            column = 0
            for run in emulator.line(emulator.screen_line + row):
                for cell in re.findall(rf"{PLACEHOLDER}(?:.(?<=[{MARKS}]))*|.", run.text):
                    if cell[0] == PLACEHOLDER and len(cell) == 3:  # else its marks are under way
                        of_row, of_column = map(MARKS.index, cell[1:])
                        image = run.style.fg & 0xFFFFFF
                        found.append(Place(column, row, image, of_column, of_row))
                    column += 1
    return found


def box_of(found: list[Place]) -> tuple[int, int, int, int]:
    columns, rows = [place.column for place in found], [place.row for place in found]
    return min(columns), min(rows), max(columns) + 1, max(rows) + 1


def pictured(found: list[Place], known: dict[int, Image.Image]) -> Image.Image:
    """What those places show, at least one. Cells without their image are black."""
    left, top, right, bottom = box_of(found)
    picture = Image.new("RGB", ((right - left) * CELL[0], (bottom - top) * CELL[1]))
    for place in found:
        if (image := known.get(place.image)) is not None:
            x, y = place.of_column * CELL[0], place.of_row * CELL[1]
            part = image.crop((x, y, x + CELL[0], y + CELL[1]))
            at = (place.column - left) * CELL[0], (place.row - top) * CELL[1]
            picture.paste(part, at)
    return picture


def differs(found: Image.Image, wanted: Image.Image) -> float:
    scaled = wanted.convert("RGB").resize(found.size, Image.Resampling.BOX)
    return max(ImageStat.Stat(ImageChops.difference(found, scaled)).mean)


def has_pixels(image: Image.Image | None, place: Place) -> bool:
    """Whether an image has all pixels of the cell that shows a part of it."""
    if image is None:
        return False
    wide, high = (place.of_column + 1) * CELL[0], (place.of_row + 1) * CELL[1]
    return image.width >= wide and image.height >= high


def shows(terminal: PtyTerminal, picture: Image.Image) -> set[Place]:
    """Waits until the terminal shows that picture, in images and nothing else; where it does. By
    then it has each of them, and none is a coarse one that a finer one is to replace: even with
    those a picture may be much like itself."""
    found: list[Place] = []

    def is_there() -> bool:
        found[:] = places(terminal)
        known = images(terminal).images
        if not found or not all(has_pixels(known.get(place.image), place) for place in found):
            return False
        left, top, right, bottom = box_of(found)
        is_whole = len(found) == (right - left) * (bottom - top)
        return is_whole and differs(pictured(found, known), picture) < 8

    wait_for(is_there, what="the picture")
    return set(found)


def open_desktop(terminal: PtyTerminal) -> None:
    terminal.sees("web")
    terminal.type(b"w")


def leave(terminal: PtyTerminal) -> None:
    """Ends the app; nothing of an image is left, and nothing of an answer for the shell."""
    terminal.type(b"\x1dd")
    terminal.sees("q quit")
    assert terminal.quits() == 0
    assert images(terminal).images == {}
    assert terminal.modes == terminal.before
    assert terminal.answered


def delays() -> Iterator[Any]:
    for delay_s in (0, 0.05, 0.15, 0.3):
        yield pytest.param(delay_s, marks=[] if delay_s == 0.3 else [pytest.mark.soak])


@pytest.mark.parametrize("delay_s", delays())
def test_kitty_shows_the_screen_in_images_however_late_it_answers(
    screen: FakeDesktop, delay_s: float
) -> None:
    with watching(screen, delay_s=delay_s) as terminal:
        open_desktop(terminal)
        shows(terminal, desktop())
        screen.show(desktop(seed=2))
        shows(terminal, desktop(seed=2))
        keys = [event for event in screen.events if event[0] == "key"]
        assert not keys, "answers became keys"
        leave(terminal)


@pytest.mark.parametrize(
    ("answers", "env"),
    [
        # How all of them are told apart is in tests/unit/pixels/test_user_input.py.
        pytest.param(WHOLE, {"QUICKSAND_CONFIG": "half.toml"}, id="config"),
        pytest.param({}, {}, id="mute", marks=pytest.mark.soak),
        pytest.param(NO_IMAGES, {}, id="sixels", marks=pytest.mark.soak),
        pytest.param(WHOLE, {"TMUX": "/tmp/x,1,0"}, id="tmux", marks=pytest.mark.soak),
        pytest.param(WHOLE, {"COLORTERM": ""}, id="few-colours", marks=pytest.mark.soak),
    ],
)
def test_all_others_show_half_cells(
    screen: FakeDesktop,
    answers: Mapping[bytes, bytes],
    env: dict[str, str],
    tmp_path: Path,
) -> None:
    (tmp_path / "half.toml").write_text('graphics = "half"\n')
    env = {
        name: value.replace("half.toml", str(tmp_path / "half.toml")) for name, value in env.items()
    }
    with watching(screen, answers, env=env) as terminal:
        open_desktop(terminal)
        wait_for(lambda: terminal.text.count("▀") > 500, what="half cells")
        assert PLACEHOLDER not in terminal.text
        assert b"\x1b_Ga=T" not in terminal.output
        terminal.type(b"\x1dd")
        terminal.sees("q quit")
        assert terminal.quits() == 0


def test_a_screen_at_rest_costs_nothing_and_a_change_only_its_tiles(screen: FakeDesktop) -> None:
    with watching(screen) as terminal:
        open_desktop(terminal)
        shows(terminal, desktop())
        terminal.sees("2 Saves 5")  # they are counted late
        terminal.rests()
        before = len(terminal.output)
        screen.show(desktop())  # all of it is said to be new, and none is
        changed = desktop()
        changed.paste("red", (300, 200, 340, 230))
        screen.show(changed, (300, 200, 340, 230))
        wait_for(lambda: b"a=T" in terminal.output[before:], what="the change")
        terminal.rests()
        shows(terminal, changed)
        drawn = bytes(terminal.output[before:])
        assert 1 <= drawn.count(b"a=T") <= 4
        assert PLACEHOLDER.encode() not in drawn, "text was drawn again"
        left = _IMAGES.sub(b"", drawn)
        assert re.fullmatch(rb"(?:\x1b\[\?2026[hl]|\x1b\[c)*", left)
        leave(terminal)


def test_a_dialog_lies_over_the_picture_and_nothing_of_either_stays(screen: FakeDesktop) -> None:
    with watching(screen) as terminal:
        open_desktop(terminal)
        whole = shows(terminal, desktop())
        terminal.type(b"\x1d?")  # the help, which tints what is below
        terminal.sees("Show all keys")
        wait_for(lambda: not places(terminal), what="half cells below")
        wait_for(lambda: images(terminal).images == {}, what="the images to be deleted")
        terminal.type(b"\x1b")
        assert shows(terminal, desktop()) == whole
        terminal.type(b"\x1dd")
        terminal.sees("q quit")
        terminal.type(b"l")  # the log
        wait_for(lambda: not places(terminal), what="another tab")
        wait_for(lambda: images(terminal).images == {}, what="the images to be deleted")
        terminal.sees("f follow")  # drawn after the tab: an older footer has "n new"
        terminal.type(b"\x1b")
        terminal.sees("n new")
        open_desktop(terminal)
        assert shows(terminal, desktop()) == whole
        leave(terminal)


def test_a_toast_over_the_picture_leaves_it_whole(screen: FakeDesktop) -> None:
    with watching(screen) as terminal:
        open_desktop(terminal)
        terminal.type(b"\x1dz")
        screen.show(desktop(1280, 720))
        whole = shows(terminal, desktop(1280, 720))
        for _ in range(4):
            terminal.type(b"\x1dk")  # no such command: a toast says so
        wait_for(lambda: set(places(terminal)) < whole, what="toasts over the picture")
        assert places(terminal), "what is not covered is as it was"
        wait_for(lambda: set(places(terminal)) == whole, what="the toast's end")
        leave(terminal)


def test_it_follows_the_size_of_the_terminal_and_of_the_screen_and_is_drawn_anew_after_a_stop(
    screen: FakeDesktop,
) -> None:
    with watching(screen) as terminal:
        open_desktop(terminal)
        shows(terminal, desktop())
        for size in ((90, 24), (COLUMNS, ROWS)):
            terminal.resize(*size)
            wait_for(_fits(terminal, size), what=f"{size}")
            shows(terminal, desktop())
        screen.show(desktop(1000, 300))
        shows(terminal, desktop(1000, 300))
        terminal.type(b"\x1d+\x1d+")
        wait_for(_is_not(terminal, desktop(1000, 300)), what="a part of it")
        terminal.type(b"\x1d0")
        shows(terminal, desktop(1000, 300))
        before = len(terminal.output)
        terminal.kill(signal.SIGTSTP)
        wait_for(lambda: state_of(terminal.process.pid) == "T", what="it to stop")
        wait_for(lambda: b"\x1b[?1049l" in terminal.output[before:], what="the usual screen")
        terminal.restore_modes()
        terminal.kill(signal.SIGCONT)
        wait_for(lambda: b"a=T" in terminal.output[before:], what="the images")
        shows(terminal, desktop(1000, 300))
        leave(terminal)


def _is_not(terminal: PtyTerminal, picture: Image.Image) -> Callable[[], bool]:
    def is_not() -> bool:
        found = places(terminal)
        return bool(found) and differs(pictured(found, images(terminal).images), picture) > 8

    return is_not


def _fits(terminal: PtyTerminal, size: tuple[int, int]) -> Callable[[], bool]:
    def fits() -> bool:
        found = places(terminal)
        return bool(found) and box_of(found)[2] <= size[0] and box_of(found)[3] <= size[1]

    return fits


def test_two_viewers_of_a_guest_that_changes_its_mode_all_the_time_until_it_ends(
    screen: FakeDesktop,
) -> None:
    # The other terminal answers nothing.
    with watching(screen) as one, watching(screen, {}) as other:
        for terminal in (one, other):
            open_desktop(terminal)
        shows(one, desktop())
        for number in range(60):
            screen.show(Image.new("RGB", (64 + 31 * number, 48 + 17 * (number % 7)), "red"))
        screen.show(desktop())
        shows(one, desktop())
        wait_for(lambda: other.text.count("▀") > 500, what="half cells")
        screen.end()
        for terminal in (one, other):
            terminal.sees("has ended")
        wait_for(lambda: not places(one), what="a text without images")
        wait_for(lambda: images(one).images == {}, what="the images to be deleted")
        other.type(b"\x1dd")
        other.sees("q quit")
        assert other.quits() == 0
        leave(one)


def test_characters_of_no_us_keyboard_are_typed_in_order_with_the_keys(screen: FakeDesktop) -> None:
    typed = screen.path.with_name("typed")
    with watching(screen, NO_IMAGES) as terminal:
        open_desktop(terminal)
        wait_for(lambda: terminal.text.count("▀") > 500, what="half cells")
        terminal.type("aéß".encode())
        wait_for(lambda: typed.exists() and typed.read_text() == "éß", what="the text")
        terminal.type("漢😀\x1b[200~ein\r\nText\x1b[201~".encode())
        wait_for(lambda: typed.read_text() == "éß漢😀ein\nText", what="the paste")
        wait_for(lambda: pressed(screen) == [ord("a")], what="the key")
        terminal.type(b"\x1dd")
        terminal.sees("q quit")
        assert terminal.quits() == 0
