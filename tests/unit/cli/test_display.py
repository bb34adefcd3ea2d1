"""screenshot, type, key, mouse and vnc, where there is no VM."""

from __future__ import annotations

import asyncio
import dataclasses
import io
import json
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from quicksand.base.errors import NoDisplayError
from quicksand.display.recording import Recorded

from quicksand_tui.cli.guests import display
from quicksand_tui.cli.main import run
from quicksand_tui.cli.output import Exit
from quicksand_tui.door.engine_screen import recorded_text
from tests.unit.cli.run_cli import make_stopped

if TYPE_CHECKING:
    from quicksand.base.paths import Paths


class FakeBox:
    """A sandbox with a screen, which notes what is asked of it."""

    name = "web"

    def __init__(self) -> None:
        self.done: list[tuple[Any, ...]] = []
        self.vnc_socket = Path("/run/web/vnc.sock")
        self.vnc_port: int | None = None
        self.vnc_password: str | None = None
        self.kept: bytes | None = b"small"
        """The picture of a checkpoint."""

    async def __aenter__(self) -> FakeBox:
        return self

    async def __aexit__(self, *_: object) -> None:
        return

    def close(self) -> None:
        return

    def __getattr__(self, name: str) -> Any:
        async def call(*words: Any, **more: Any) -> Any:
            self.done.append((name, *words, *sorted(more.items())))
            answers = {
                "screenshot": b"picture",
                "query_mouse_position": (16396, 8202),
                "query_display_size": (1280, 800),
            }
            return {**answers, "checkpoint_screen": self.kept}.get(name)

        return call


@pytest.fixture
def box(monkeypatch: pytest.MonkeyPatch) -> FakeBox:
    found = FakeBox()
    monkeypatch.setattr(display, "attached", lambda _name, **_: found)
    for module in (display, display):
        monkeypatch.setattr(module, "opened", lambda _name, **_: found)
    return found


MICE = {
    "move 10,20": [("mouse_move_px", 10, 20)],
    "move 10,20 --absolute": [("mouse_move", 10, 20)],
    "click": [("mouse_click", "left", ("double", False))],
    "click 1,2 -b right": [("mouse_move_px", 1, 2), ("mouse_click", "right", ("double", False))],
    "double 1,2": [("mouse_move_px", 1, 2), ("mouse_click", "left", ("double", True))],
    "down -b middle": [("mouse_down", "middle")],
    "up 3,4": [("mouse_move_px", 3, 4), ("mouse_up", "left")],
    "drag 1,2 3,4": [("mouse_drag", (1, 2), (3, 4), ("button", "left"), ("pixels", True))],
    "scroll up": [("mouse_scroll", -1)],
    "scroll down 5": [("mouse_scroll", 5)],
    "move -5,10": [("mouse_move_px", -5, 10)],
    "move -- -5,10": [("mouse_move_px", -5, 10)],
    "where": [("query_mouse_position",), ("query_display_size",)],
    "where --absolute": [("query_mouse_position",)],
}


@pytest.mark.parametrize("words", MICE)
def test_the_mouse(words: str, box: FakeBox) -> None:
    assert run(["mouse", "web", *words.split()]) == Exit.OK
    assert box.done == MICE[words]


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ("move", "`move` takes one place, as in `move 640,400`; none was given"),
        ("move 1,2 3,4", "takes one place, as in `move 640,400`; 2 were given"),
        ("move 1.2", "'1.2' is not X,Y"),
        ("move --absolut 1,2", "no such option '--absolut'. Did you mean '--absolute'?"),
        ("drag 1,2", "takes 2 to 1000 places"),
        ("click 1,2 3,4", "takes at most one place, as in `click 640,400`; 2 were given"),
        ("where 1,2", "takes no place"),
        ("scroll down 99999999", "at most 10000 notches, not by 99999999"),
        ("scroll", "no way to turn the wheel"),
        ("scroll left", "no way to turn the wheel"),
        ("scroll up much", "no way to turn the wheel"),
        ("fly", "'fly' is not one of"),
    ],
)
def test_what_no_mouse_does(
    words: str, why: str, box: FakeBox, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["mouse", "web", *words.split()]) == Exit.USAGE
    assert why in capsys.readouterr().err
    assert box.done == []


def test_where_the_mouse_is(box: FakeBox, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["mouse", "web", "where"]) == Exit.OK
    assert capsys.readouterr().out == "640,200\n"
    assert run(["mouse", "web", "where", "--absolute"]) == Exit.OK
    assert capsys.readouterr().out == "16396,8202\n"
    assert run(["mouse", "web", "where", "--json"]) == Exit.OK
    assert json.loads(capsys.readouterr().out) == {
        "pixels": {"x": 640, "y": 200},
        "absolute": {"x": 16396, "y": 8202},
    }


def test_keys_are_pressed_one_after_the_other(box: FakeBox) -> None:
    assert run(["key", "web", "ctrl+L", "enter", "--hold", "0.5"]) == Exit.OK
    assert box.done == [
        ("press_key", "ctrl", "l", ("hold", 0.5)),
        ("press_key", "ret", ("hold", 0.5)),
    ]


def test_a_wrong_key_is_found_before_the_first_is_pressed(
    box: FakeBox, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["key", "web", "a", "ctrl+nothing"]) == Exit.USAGE
    assert "'nothing' is no key" in capsys.readouterr().err
    assert box.done == []


@pytest.mark.parametrize(
    ("chord", "words"),
    [
        ("ctrl-c", ["did you mean 'ctrl+c'?", "`quicksand-tui key web ctrl+c`"]),
        ("Ctrl-Alt+t", ["did you mean 'ctrl+alt+t'?"]),
        ("ctrl+", ["'ctrl+' lacks a key", "shift+equal"]),
        ("+", ["'+' lacks a key", "shift+equal"]),
        ("!", ["did you mean 'shift+1'?"]),
    ],
)
def test_how_a_key_is_pressed_is_told(
    chord: str, words: list[str], box: FakeBox, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["key", "web", chord]) == Exit.USAGE
    told = capsys.readouterr().err
    assert all(word in told for word in words), told


def test_a_text_is_typed(box: FakeBox, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(["type", "web", "ls -l\n"]) == Exit.OK
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO("é\n".encode())))
    assert run(["type", "web", "-"]) == Exit.OK
    assert box.done == [("type_text", "ls -l\n"), ("type_text", "é\n")]


def test_what_is_no_text(
    box: FakeBox, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"\xff\xfe")))
    assert run(["type", "web", "-"]) == Exit.USAGE
    assert "no text in UTF-8" in capsys.readouterr().err


def test_a_screenshot(box: FakeBox, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    words = ["--region", "1,2,30,40", "--scale", "0.5"]
    assert run(["screenshot", "web", "shot.png", *words]) == Exit.OK
    assert run(["screenshot", "web", "-", "--format", "ppm"]) == Exit.OK
    assert capfdbinary.readouterr().out == b"picture"
    part: dict[str, Any] = {"format": None, "region": (1, 2, 30, 40), "scale": 0.5}
    whole: dict[str, Any] = {"format": "ppm", "region": None, "scale": None}
    assert box.done == [
        ("screenshot", Path("shot.png"), *part.items()),
        ("screenshot", *whole.items()),
    ]


def test_the_picture_of_a_checkpoint(
    box: FakeBox,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    monkeypatch.setattr("quicksand.sandbox.Sandbox.open", lambda _name, host: box)
    path = tmp_path / "then.png"
    assert run(["screenshot", "web", str(path), "--at", "one"]) == Exit.OK
    assert path.read_bytes() == b"small"
    assert run(["screenshot", "web", "-", "--at", "one"]) == Exit.OK
    assert capfdbinary.readouterr().out == b"small"
    assert ("checkpoint_screen", "one") in box.done
    assert run(["screenshot", "web", "-", "--at", "one", "--scale", "2"]) == Exit.USAGE
    assert run(["screenshot", "web", str(tmp_path / "then.ppm"), "--at", "one"]) == Exit.USAGE
    assert run(["screenshot", "web", str(tmp_path / "then.jpg"), "--at", "one"]) == Exit.USAGE
    assert run(["screenshot", "web", str(tmp_path / "no" / "x.png"), "--at", "one"]) == Exit.FAILURE
    assert f"there is no directory {tmp_path}/no".encode() in capfdbinary.readouterr().err
    box.kept = None
    assert run(["screenshot", "web", "-", "--at", "one"]) == Exit.USAGE
    assert b"'one' of 'web' has no picture" in capfdbinary.readouterr().err


class FakeRecording:
    """A recording that ends when it is told to, or at once."""

    def __init__(self, done: Recorded, signal_number: int | None) -> None:
        self._done = done
        self._signal = signal_number
        self._told = asyncio.Event()

    async def __aenter__(self) -> FakeRecording:
        return self

    async def __aexit__(self, *_: object) -> None:
        return

    def stop(self) -> None:
        self._told.set()

    async def wait(self) -> Recorded:
        if self._signal is not None:
            os.kill(os.getpid(), self._signal)
            await self._told.wait()
        return self._done


def recorded(**changes: Any) -> Recorded:
    done = Recorded(
        path=Path("/tmp/a.gif"),
        pictures=2,
        seconds=3.25,
        size_bytes=2048,
        width=640,
        height=480,
        why="stop",
    )
    return dataclasses.replace(done, **changes)


@pytest.mark.parametrize("number", [None, signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_recording_ends_by_itself_or_by_a_signal(
    number: int | None,
    box: FakeBox,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    asked: list[Any] = []

    def record(_self: object, path: Path, **options: Any) -> FakeRecording:
        asked.append((path, options))
        return FakeRecording(recorded(), number)

    monkeypatch.setattr(FakeBox, "record", record, raising=False)
    assert run(["record", "web", "a.gif", "--seconds", "9", "--fps", "2", "-f"]) == Exit.OK
    assert asked == [(Path("a.gif"), {"seconds": 9, "fps": 2, "scale": 1, "replace": True})]
    assert capsys.readouterr().err.splitlines() == [
        "recording web for 9s at most; Ctrl-C ends it",
        "/tmp/a.gif: 3.2 s, 2 pictures of 640x480, 2 KiB",
    ]


def test_what_a_recording_tells() -> None:
    assert ", 1 picture of " in recorded_text(recorded(pictures=1))
    assert recorded_text(recorded(why="sandbox")).endswith("; the sandbox has ended")
    assert recorded_text(recorded(why="seconds")).endswith("; it was as long as it may be")


@pytest.mark.parametrize("region", ["1,2,3", "a,b,c,d", "1,2,3,-4"])
def test_a_malformed_region_is_refused(
    region: str, box: FakeBox, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["screenshot", "web", "x.png", "--region", region]) == Exit.USAGE
    assert "is not X,Y,WIDTH,HEIGHT" in capsys.readouterr().err


def test_a_terminal_gets_no_picture(
    box: FakeBox, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert run(["screenshot", "web", "-"]) == Exit.USAGE
    assert "not written to a terminal" in capsys.readouterr().err


def test_where_a_viewer_finds_the_screen(box: FakeBox, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["vnc", "web"]) == Exit.OK
    assert capsys.readouterr().out == "/run/web/vnc.sock\n"
    assert run(["vnc", "web", "--json"]) == Exit.OK
    assert json.loads(capsys.readouterr().out)["socket"] == "/run/web/vnc.sock"
    box.vnc_port, box.vnc_password = 5901, "secret12"
    assert run(["vnc", "web"]) == Exit.OK
    told = capsys.readouterr()
    assert told.out == "127.0.0.1::5901\n" and "secret12" in told.err


def test_a_sandbox_that_does_not_run(places: Paths, capsys: pytest.CaptureFixture[str]) -> None:
    make_stopped(places, "web", enable_display=True)
    make_stopped(places, "bare")
    for verb, *words in (["screenshot", "x.png"], ["record", "x.gif"], ["type", "x"], ["vnc"]):
        assert run([verb, "web", *words]) == Exit.FAILURE
        assert "`quicksand-tui start web` starts it" in capsys.readouterr().err
        assert run([verb, "bare", *words]) == Exit.FAILURE
        told = capsys.readouterr().err
        assert "the sandbox 'bare' has no display" in told and "run --display" in told


def test_one_without_a_screen_is_told_how_to_get_one(
    box: FakeBox, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(_self: object) -> None:
        raise NoDisplayError("it has no display", hint="`quicksand-tui run --display`")

    monkeypatch.setattr(FakeBox, "vnc_socket", property(refuse, lambda *_: None), raising=False)
    assert run(["vnc", "web"]) == Exit.FAILURE
    assert "run --display" in capsys.readouterr().err
