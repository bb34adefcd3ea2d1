"""The list of sandboxes is on the screen before the app is loaded."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from quicksand.base.paths import Paths
from quicksand.things.status import Status
from quicksand_vt import Terminal

from quicksand_tui.door.service import EngineService
from quicksand_tui.kit.first_list import first_list
from quicksand_tui.kit.outline import Looks, outline
from quicksand_tui.model.shown_sandboxes import SandboxView
from quicksand_tui.model.text import sanitise
from quicksand_tui.model.world import World
from quicksand_tui.opening.opening import FirstLook, Sketch
from quicksand_tui.views.main_layout import USUAL_NEEDS, Shape
from tests.conftest import wait_for
from tests.pty_terminal import WHOLE, PtyTerminal
from tests.unit.app.test_reader import make
from tests.unit.kit.test_outline import LOOKS, drawn_in, screen
from tests.unit.kit.test_probing import APP, RAISING, ends_by, first, given_back

MOUSE_ON = b"\x1b[?1000h"
"""Textual writes this before its first frame."""
FRAME_END = b"\x1b[?2026l"

HELD = """
import importlib.abc, sys
from pathlib import Path
class Gate(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        while name == "textual" and not Path(sys.argv[1]).exists():
            pass
        return None
sys.meta_path.insert(0, Gate())
from quicksand_tui.opening import opening
opening.LIST_WAIT_S = 30.0  # on a busy host
sys.exit(opening.run_app(ascii_glyphs="ascii" in sys.argv))
"""
"""The app, whose import of Textual takes until a file exists."""


@pytest.fixture(autouse=True)
def remembered(places: object) -> Path:
    """The looks of a run before."""
    file = Path(os.environ["QUICKSAND_STATE_DIR"]) / "app.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps({"outline": LOOKS.to_json()}))
    return file


def held(gate: Path, **options: object) -> PtyTerminal:
    argv = [sys.executable, "-c", HELD, str(gate)]
    return PtyTerminal(argv, columns=120, rows=36, answers=WHOLE, **options)  # type: ignore[arg-type]


@drawn_in(((120, 36), "unicode"), ((80, 24), "unicode"), ((40, 12), "ascii"))
def test_the_apps_first_frame_has_it_at_the_same_cells(
    size: tuple[int, int], glyphs: str, tmp_path: Path, places: Paths
) -> None:
    for number, name in enumerate(("web", "a-name-that-is-rather-long-for-a-sandbox", "b")):
        make(places, number, name=name)
    columns, rows = size
    argv = [sys.executable, "-c", HELD, str(tmp_path), glyphs]
    env = {"COLUMNS": "90", "LINES": "30"}  # not the terminal's size
    with PtyTerminal(argv, columns=columns, rows=rows, answers=WHOLE, env=env) as terminal:
        wait_for(
            lambda: FRAME_END in terminal.output.partition(MOUSE_ON)[2], what="the first frame"
        )
        assert terminal.quits() == 0
        given_back(terminal)
    before, _, after = bytes(terminal.output).partition(MOUSE_ON)
    drawn = screen(before.decode(), columns, rows)
    framed = screen((before + after[: after.index(FRAME_END)]).decode(), columns, rows)
    listed = [y for y, line in enumerate(drawn) if " web " in line]
    assert len(listed) == 1, drawn
    assert "3 stopped" in drawn[0]
    for old, new in zip(drawn, framed, strict=True):
        for was, now in zip(old, new, strict=True):
            # Titles that are not known beforehand take the place of a line.
            assert was in (" ", "─", "━", "-", now), f"{old!r} became {new!r}"
    assert " web " in framed[listed[0]]


def test_it_is_there_before_textual_is_imported_and_keys_are_kept(
    tmp_path: Path, places: Paths
) -> None:
    for number in range(3):
        make(places, number)
    gate = tmp_path / "gate"
    with held(gate) as terminal:
        terminal.sees("quicksand  3 stopped", "box-0", "box-1", "box-2", "Name")
        assert MOUSE_ON not in terminal.output
        terminal.type(b"j")
        gate.touch()
        terminal.sees("Tree of box-1")
        assert terminal.output.count(b"\x1b[?1049h") == 1
        assert terminal.quits() == 0
        given_back(terminal)


@first(signal.SIGTERM)
def test_a_signal_then_gives_the_terminal_back(
    tmp_path: Path, places: Paths, number: signal.Signals
) -> None:
    make(places)
    with held(tmp_path / "never") as terminal:
        terminal.sees("box-0")
        ends_by(terminal, number)


@pytest.mark.parametrize(
    "where",
    [
        "from quicksand_tui.kit import first_list as f; f.first_list = lambda *_: fail(None)",
        pytest.param(
            "application.QuicksandApp.__init__ = lambda *a, **k: fail(None)",
            marks=pytest.mark.soak,
        ),
    ],
)
def test_an_exception_then_is_seen_on_the_usual_screen(where: str, places: Paths) -> None:
    make(places)
    argv = [sys.executable, "-c", RAISING.format(where=where)]
    with PtyTerminal(argv, answers=WHOLE) as terminal:
        assert terminal.ends() == 1
        given_back(terminal)
        output = bytes(terminal.output)
        assert output.index(b"\x1b[?1049l") < output.index(b"this is a test")


@pytest.mark.parametrize(
    "env", [{"NO_COLOR": "1"}, pytest.param({"COLORTERM": ""}, marks=pytest.mark.soak)], ids=str
)
def test_it_has_no_colours_where_the_outline_has_none(
    tmp_path: Path, places: Paths, env: dict[str, str]
) -> None:
    make(places)
    with held(tmp_path / "never", env=env) as terminal:
        terminal.sees("box-0")
        assert b"38;2" not in terminal.output
        ends_by(terminal, signal.SIGTERM)


def test_a_first_run_and_one_with_a_theme_of_its_own_begin_without(
    tmp_path: Path, places: Paths, remembered: Path
) -> None:
    make(places)
    with PtyTerminal([*APP, "--theme", "nonsense"], answers=WHOLE) as terminal:
        assert terminal.ends() == 2
        assert b"box-0" not in terminal.output, "nor an outline"
        assert b"1049" not in terminal.output and b"nonsense" in terminal.output
    remembered.write_text(json.dumps({"outline": {"ascii": False, "of": "another version"}}))
    gate = tmp_path / "gate"
    with held(gate) as terminal:
        wait_for(lambda: b"\x1b[c" in terminal.output, what="the questions")
        gate.touch()
        terminal.sees("box-0")
        assert b"box-0" not in terminal.output.partition(MOUSE_ON)[0]
        assert terminal.quits() == 0


def test_no_outline_leaves_no_sketch_to_draw_into() -> None:
    class Nothing:
        def get(self, name: str) -> object:
            return LOOKS.to_json() if name == "outline" else None

    assert Sketch.of((0, 0), Nothing(), ascii_glyphs=False) is None  # type: ignore[arg-type]
    assert Sketch.of((80, 24), Nothing(), ascii_glyphs=False) is not None  # type: ignore[arg-type]


# The look


def waiting(gate: threading.Event) -> Callable[[], World]:
    def look() -> World:
        gate.wait(60)
        return World(taken=1.0)

    return look


def test_a_slow_disk_delays_the_app_for_a_moment_only() -> None:
    gate = threading.Event()
    look = FirstLook(waiting(gate))
    assert look.wait(0.01) is None
    gate.set()
    assert look.wait(60) == World(taken=1.0)
    assert look.wait() == World(taken=1.0)


def test_a_look_that_fails_is_no_error(capfd: pytest.CaptureFixture[str]) -> None:
    def fail() -> World:
        raise OSError(5, "Input/output error")

    assert FirstLook(fail).wait(60) is None
    assert capfd.readouterr() == ("", "")


def test_it_reads_the_sandboxes_and_the_next_look_everything(places: Paths) -> None:
    make(places)
    service = EngineService()
    first = service.read_sandboxes()
    assert [view.name for view in first.sandboxes] == ["box-0"]
    assert (first.loaded, first.knows_images, first.images) == (True, False, ())
    whole = service.read()
    assert whole.knows_images and whole.images
    assert whole.sandboxes == first.sandboxes


# What is drawn

NAMES = st.text(min_size=1, max_size=70).map(lambda text: sanitise(text, limit=63))


@given(
    st.integers(1, 250),
    st.integers(1, 70),
    st.lists(st.tuples(NAMES, st.sampled_from(Status)), max_size=30),
    st.booleans(),
)
def test_whatever_the_names_it_stays_within_the_list(
    columns: int, rows: int, named: list[tuple[str, Status]], ascii_only: bool
) -> None:
    views = tuple(
        SandboxView(id=str(at), name=name, state=state) for at, (name, state) in enumerate(named)
    )
    looks = Looks(ascii=ascii_only)
    world = World(taken=1.0, sandboxes=views)
    text = first_list(columns, rows, looks, Shape(), USUAL_NEEDS, world)
    whole = outline(columns, rows, looks, Shape(), USUAL_NEEDS) + text
    assert not set(text) & {"\n", "\r", "\t", "\x07", "\x9b"}
    lines, larger = screen(whole, columns, rows), Terminal(columns + 60, rows + 10, scrollback=0)
    larger.feed(whole.encode())
    for y in range(larger.screen_line, larger.end_line):
        drawn = "".join(run.text for run in larger.line(y))
        assert drawn[columns:].strip() == "" or not drawn.isascii()
    if ascii_only:
        assert text.isascii()
    # The frames are whole: nothing was written over them.
    empty = replace(world, sandboxes=tuple(replace(view, name="x") for view in views))
    plain = screen(
        outline(columns, rows, looks, Shape(), USUAL_NEEDS)
        + first_list(columns, rows, looks, Shape(), USUAL_NEEDS, empty),
        columns,
        rows,
    )
    for line, other in zip(lines, plain, strict=True):
        assert line.count("┃") == other.count("┃")
