"""The app on terminals that answer at once, late, never, or nonsense, while somebody types."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import sys
import termios
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from quicksand.base.paths import Paths
from quicksand_driver.probe import RESET
from quicksand_vt import Modes
from textual.drivers import linux_driver

from tests.conftest import wait_for
from tests.pty_terminal import WHOLE, PtyTerminal

RECORDER = str(Path(__file__).with_name("key_recorder.py"))
APP = [sys.executable, "-m", "quicksand_tui"]
RAISING = """
import sys
from quicksand_tui.ui import app as application
from quicksand_tui.opening.opening import run_app
def fail(self): raise RuntimeError("this is a test")
{where}
sys.exit(run_app())
"""
GARBAGE: Mapping[bytes, bytes] = {
    rb"\x1b\[c": b"\x1b]11;rgb:zz/\x07\x1bP>|\x1b\\\x1b[6;99999;1t\x1b_Gi=32;OK\x1b\\\x1b[?c"
    b"\x1b[?999999999999999u\x1b[?1;2;3;4;5;6;7;8;9c"
}


def recording(log: Path, **options: object) -> PtyTerminal:
    return PtyTerminal([sys.executable, RECORDER, str(log)], **options)  # type: ignore[arg-type]


def keys(log: Path) -> list[str]:
    return log.read_text().split() if log.exists() else []


def check_keys(log: Path, *typed: str) -> None:
    """Those keys came, and after them q, as often as it had to be pressed."""
    came = keys(log)
    assert (*came[: len(typed)],) == typed
    assert {*came[len(typed) :]} == {"q"}


def late_answers() -> Iterator[Any]:
    """Before all else is there, in the midst of it, and long after it."""
    usual = ((0, "local"), (0.15, "ssh"), (1.0, "local"))
    for delay_s in (0, 0.05, 0.15, 0.3, 1.0):
        for where in ("local", "ssh"):
            marks = [] if (delay_s, where) in usual else [pytest.mark.soak]
            yield pytest.param(delay_s, where, marks=marks)


@pytest.mark.parametrize(("delay_s", "where"), late_answers())
def test_answers_are_no_keys_however_late_they_come(
    tmp_path: Path, delay_s: float, where: str
) -> None:
    log = tmp_path / "keys"
    env = {"SSH_TTY": "/dev/pts/0"} if where == "ssh" else {}
    with recording(log, answers=WHOLE, delay_s=delay_s, env=env) as terminal:
        terminal.type(b"ab")
        terminal.sees("Sandboxes")
        terminal.type(b"c\x1b[A")
        wait_for(lambda: terminal.answered, what="all answers")
        terminal.type("dä".encode())
        wait_for(lambda: len(keys(log)) >= 6, what="all keys")
        assert terminal.quits() == 0
        assert terminal.modes == terminal.before
    check_keys(log, "a", "b", "c", "up", "d", "ä")


@pytest.mark.parametrize("answers", [{}, GARBAGE], ids=["mute", "garbage"])
def test_terminals_that_say_nothing_of_use_are_no_harm(
    tmp_path: Path, answers: Mapping[bytes, bytes]
) -> None:
    log = tmp_path / "keys"
    with recording(log, answers=answers) as terminal:
        wait_for(lambda: b"\x1b[c" in terminal.output, what="the questions")
        terminal.type(b"ab\r")
        terminal.sees("Sandboxes")
        wait_for(lambda: len(keys(log)) >= 3, what="all keys")
        terminal.type(b"\x1b")
        wait_for(lambda: len(keys(log)) >= 4, what="escape")
        assert terminal.quits() == 0
    check_keys(log, "a", "b", "enter", "escape")


def test_a_light_terminal_has_the_light_theme_from_the_second_start_on_at_once(
    places: Paths,
) -> None:
    known = Path(os.environ["QUICKSAND_STATE_DIR"]) / "terminals.json"
    light, dark = b"48;2;250;248;243", b"48;2;22;24;27"
    with PtyTerminal(APP, answers=WHOLE) as terminal:
        wait_for(lambda: light in terminal.output, what="the light theme")
        assert terminal.quits() == 0
    ((key, entry),) = json.loads(known.read_text()).items()
    assert entry["name"] == "kitty(0.40.0)"
    # Beside other tests the next terminal may have another number.
    *words, _ = json.loads(key)
    keys = [json.dumps([*words, f"/dev/pts/{number}"]) for number in range(256)]
    known.write_text(json.dumps(dict.fromkeys(keys, entry)))
    with PtyTerminal(APP, answers=WHOLE, delay_s=1.0) as terminal:
        terminal.sees("Sandboxes")
        assert dark not in terminal.output, "it was dark before it was light"
        assert terminal.quits() == 0
    with PtyTerminal(APP, env={"QUICKSAND_PROBE": "off"}) as terminal:
        wait_for(lambda: dark in terminal.output, what="the dark theme")
        assert b"\x1b[c" not in terminal.output
        assert terminal.quits() == 0


def test_a_first_start_on_a_mute_terminal_does_not_wait_for_it(tmp_path: Path) -> None:
    """The questions are asked before the app is loaded; then nothing is waited for."""
    gate = tmp_path / "gate"
    with recording(tmp_path / "keys", env={"WAIT_FOR": str(gate)}) as terminal:
        wait_for(lambda: b"\x1b[c" in terminal.output, what="the questions")
        lflag = terminal.modes[3]
        assert not lflag & termios.ECHO and lflag & termios.ISIG
        gate.touch()
        terminal.sees("Sandboxes")
        assert terminal.quits() == 0


# The terminal is given back


def given_back(terminal: PtyTerminal) -> None:
    """The terminal is as it was, as soon as all that was written is read."""
    wait_for(lambda: not switched_on(bytes(terminal.output)), what="the modes to be switched off")
    assert terminal.modes == terminal.before
    with terminal.emulated() as screen:
        assert screen.modes == Modes()


def switched_on(output: bytes) -> list[bytes]:
    """Modes that were left on."""
    left = [
        mode
        for mode in (b"1049", b"1000", b"1003", b"1006", b"2004", b"1004")
        if output.rfind(b"\x1b[?%sh" % mode) > output.rfind(b"\x1b[?%sl" % mode)
    ]
    left += [b"25"] if output.rfind(b"\x1b[?25l") > output.rfind(b"\x1b[?25h") else []
    pointers = re.findall(rb"\x1b\]22;([^\x07\x1b]*)", output)
    left += [b"pointer"] if pointers and pointers[-1] else []
    return left + ([b"u"] if output.count(b"\x1b[>25u") > output.count(b"\x1b[<u") else [])


def ends_by(terminal: PtyTerminal, number: signal.Signals) -> None:
    """A signal ends the app, which gives the terminal back and says nothing of it."""
    terminal.kill(number)
    assert terminal.ends() == SIGNALS[number]
    given_back(terminal)
    assert b"Traceback" not in terminal.output


SIGNALS = {signal.SIGTERM: 143, signal.SIGHUP: 129, signal.SIGINT: 130}


def first(*numbers: signal.Signals) -> pytest.MarkDecorator:
    """All signals, of which those are tried outside `make soak`, too: each is at some place."""
    seldom = (pytest.param(one, marks=pytest.mark.soak) for one in SIGNALS if one not in numbers)
    return pytest.mark.parametrize("number", [*numbers, *seldom])


@first(signal.SIGTERM, signal.SIGINT)
def test_a_signal_while_the_app_is_loaded(tmp_path: Path, number: signal.Signals) -> None:
    gate = tmp_path / "gate"  # never made
    with recording(tmp_path / "keys", env={"WAIT_FOR": str(gate)}) as terminal:
        wait_for(lambda: b"\x1b[c" in terminal.output, what="the questions")
        ends_by(terminal, number)


@first(signal.SIGHUP)
def test_a_signal_at_the_first_paint(number: signal.Signals) -> None:
    with PtyTerminal(APP, answers=WHOLE) as terminal:
        wait_for(lambda: b"\x1b[?1049h" in terminal.output, what="the first paint")
        ends_by(terminal, number)


@first(signal.SIGINT)
def test_a_signal_while_the_app_runs(number: signal.Signals) -> None:
    with PtyTerminal(APP, answers=WHOLE) as terminal:
        terminal.sees("Sandboxes", "q quit")
        ends_by(terminal, number)


@pytest.mark.parametrize(
    "where",
    [
        "application.QuicksandApp.compose = fail",
        pytest.param("application.QuicksandApp.on_mount = fail", marks=pytest.mark.soak),
        "from quicksand_tui.ui.everywhere import Everywhere; Everywhere.do_help = fail",
        pytest.param(
            "application.QuicksandApp.__init__ = lambda *a, **k: fail(None)",
            marks=pytest.mark.soak,
        ),
        "from quicksand_driver import textual_private as t; "
        "t.RawDriver.stop_application_mode = fail",
    ],
)
def test_an_exception_anywhere(where: str, faults: Callable[[], str]) -> None:
    with PtyTerminal(
        [sys.executable, "-c", RAISING.format(where=where)], answers=WHOLE
    ) as terminal:
        if "help" in where:
            terminal.sees("Sandboxes")
            terminal.type(b"?")
        elif "stop" in where:
            terminal.sees("Sandboxes")
            terminal.type(b"q")
        assert terminal.ends() == 1
        given_back(terminal)
        if "__init__" in where:  # raised to the command, which notes it
            assert b"this is a test" in terminal.output
        else:
            assert b"has made a mistake" in terminal.output
            assert "RuntimeError: this is a test" in faults()


POINTING = """
import sys
from quicksand_tui.opening.opening import run_app
from quicksand_tui.ui import app as application
mount = application.QuicksandApp.on_mount
def on_mount(self):
    mount(self)
    self._set_pointer_shape("wait")
application.QuicksandApp.on_mount = on_mount
sys.exit(run_app())
"""


@contextlib.contextmanager
def pointing() -> Iterator[PtyTerminal]:
    with PtyTerminal([sys.executable, "-c", POINTING], answers=WHOLE) as terminal:
        terminal.sees("Sandboxes")
        wait_for(lambda: b"\x1b]22;wait" in terminal.output, what="another pointer")
        yield terminal


def test_the_mouse_pointer_has_its_usual_shape_again() -> None:
    with pointing() as terminal:
        assert terminal.quits() == 0
        given_back(terminal)


@pytest.mark.soak
@pytest.mark.parametrize("number", SIGNALS)
def test_the_mouse_pointer_has_its_usual_shape_again_after_a_signal(number: signal.Signals) -> None:
    with pointing() as terminal:
        ends_by(terminal, number)


def test_a_terminal_that_goes_away_ends_the_app() -> None:
    with PtyTerminal(APP, answers=WHOLE) as terminal:
        terminal.sees("Sandboxes")
        terminal.hang_up()
        assert terminal.process.wait(60) == 129


def stopped(terminal: PtyTerminal) -> bool:
    return state_of(terminal.process.pid) == "T"


def test_stopped_and_continued_it_is_as_before() -> None:
    """By a signal, by its key, and by a signal that nobody can handle."""
    with PtyTerminal(APP, answers=WHOLE) as terminal:
        terminal.sees("Sandboxes")
        terminal.kill(signal.SIGTSTP)
        wait_for(lambda: stopped(terminal), what="it to stop")
        given_back(terminal)
        seen = len(terminal.output)
        terminal.kill(signal.SIGCONT)
        wait_for(lambda: b"\x1b[?1049h" in terminal.output[seen:], what="the other screen")
        terminal.sees("quicksand", "━ 1 Sandboxes", "Images", "q quit")
        assert not terminal.modes[3] & termios.ICANON
        assert b"\x1b[?1003h" in terminal.output[seen:]
        terminal.type(b"\x1a")
        wait_for(lambda: stopped(terminal), what="it to stop by its key")
        given_back(terminal)
        terminal.kill(signal.SIGCONT)
        terminal.sees("q quit")
        terminal.kill(signal.SIGSTOP)
        wait_for(lambda: stopped(terminal), what="it to stop at once")
        terminal.restore_modes()  # as a shell does
        seen = len(terminal.output)
        terminal.kill(signal.SIGCONT)
        wait_for(lambda: b"\x1b[?1049h" in terminal.output[seen:], what="the other screen")
        wait_for(lambda: not terminal.modes[3] & termios.ICANON, what="the app's modes")
        terminal.type(b"?")
        terminal.sees("esc closes")
        assert terminal.quits() == 0
        given_back(terminal)


BUSY = """
import os, signal, sys
from quicksand_tui.opening.opening import run_app
from textual.drivers._writer_thread import WriterThread
write = WriterThread.write
def interrupted(self, text):
    if "Images" in text:
        with self._queue.mutex:
            WriterThread.write = write
            os.kill(os.getpid(), signal.{signal})
    write(self, text)
WriterThread.write = interrupted
sys.exit(run_app())
"""


@pytest.mark.parametrize("name", ["SIGTSTP", "SIGCONT"])
def test_a_signal_while_something_is_written_is_no_end(name: str) -> None:
    script = [sys.executable, "-c", BUSY.format(signal=name)]
    with PtyTerminal(script, answers=WHOLE) as terminal:
        if name == "SIGTSTP":
            wait_for(lambda: stopped(terminal), what="it to stop")
            given_back(terminal)
            terminal.kill(signal.SIGCONT)
        terminal.sees("Sandboxes", "q quit")
        terminal.type(b"?")
        terminal.sees("esc closes")
        assert terminal.quits() == 0
        given_back(terminal)


LEAVING = """
import os, signal, sys
from quicksand_tui.opening.opening import run_app
from quicksand_tui.door.service import EngineService
def close(self):
    for number in (signal.SIGTSTP, signal.SIGCONT):
        os.kill(os.getpid(), number)
    print("it goes on", flush=True)
EngineService.close = close
sys.exit(run_app())
"""


def test_a_signal_when_the_app_is_over_already_is_no_error() -> None:
    """The kernel stops no program that has no shell to continue it, as this one."""
    with PtyTerminal([sys.executable, "-c", LEAVING], answers=WHOLE) as terminal:
        terminal.sees("q quit")
        assert terminal.quits() == 0
        assert b"it goes on" in terminal.output
        assert b"Traceback" not in terminal.output
        given_back(terminal)


def state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_the_mouse_is_given_to_the_terminal_and_taken_back() -> None:
    with PtyTerminal(APP, answers=WHOLE) as terminal:
        terminal.sees("Sandboxes")
        seen = len(terminal.output)
        terminal.type(b"m")
        terminal.sees("mouse: terminal")
        wait_for(lambda: b"\x1b[?1003l" in terminal.output[seen:], what="the release")
        terminal.kill(signal.SIGTSTP)
        wait_for(lambda: stopped(terminal), what="it to stop")
        seen = len(terminal.output)
        terminal.kill(signal.SIGCONT)
        wait_for(lambda: b"Sandboxes" in terminal.output[seen:], what="it to draw again")
        assert b"\x1b[?1003h" not in terminal.output[seen:], "it is still the terminal's"
        terminal.type(b"m")
        wait_for(lambda: b"\x1b[?1003h" in terminal.output[seen:], what="the mouse")
        wait_for(lambda: "mouse: terminal" not in terminal.text, what="the top line")
        assert terminal.quits() == 0
        given_back(terminal)


# In a pane

PANE_APP = str(Path(__file__).with_name("pane_app.py"))
KITTY_PUSH, KITTY_POP = b"\x1b[>25u", b"\x1b[<u"


@contextlib.contextmanager
def in_a_pane(log: Path) -> Iterator[PtyTerminal]:
    """The app with a pane that has the focus: keys are the guest's, byte for byte."""
    env = {"PYTHONPATH": str(Path(__file__).parents[3])}
    with PtyTerminal([sys.executable, PANE_APP, str(log)], answers=WHOLE, env=env) as terminal:
        terminal.sees("● running")
        terminal.type(b"s")
        terminal.sees("guest$")
        wait_for(lambda: KITTY_POP in terminal.output, what="keys as the guest expects them")
        yield terminal


@pytest.mark.soak
@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_while_a_pane_has_the_keys(tmp_path: Path, number: signal.Signals) -> None:
    with in_a_pane(tmp_path / "typed") as terminal:
        ends_by(terminal, number)


def test_a_guest_gets_plain_keys_and_no_late_answers_also_after_a_stop(tmp_path: Path) -> None:
    """And a signal that ends the app then gives the terminal back."""
    log = tmp_path / "typed"
    with in_a_pane(log) as terminal:
        terminal.type(b"a" + b"".join(WHOLE.values()) + b"b\x1bbc")
        wait_for(lambda: log.exists() and log.read_bytes().endswith(b"c"), what="all keys")
        assert log.read_bytes() == b"ab\x1bbc"
        terminal.kill(signal.SIGTSTP)
        wait_for(lambda: stopped(terminal), what="it to stop")
        given_back(terminal)
        seen = len(terminal.output)
        terminal.kill(signal.SIGCONT)
        wait_for(lambda: b"guest$" in terminal.output[seen:], what="it to draw again")
        again = bytes(terminal.output[seen:])
        assert KITTY_PUSH in again and again.rfind(KITTY_POP) > again.rfind(KITTY_PUSH)
        terminal.type(b"\x1bb\x08")
        wait_for(lambda: log.read_bytes() == b"ab\x1bbc\x1bb\x08", what="the keys")
        seen = len(terminal.output)
        terminal.type(b"\x1dm")
        terminal.sees("mouse: terminal")
        assert b"\x1b[?1003l" in terminal.output[seen:], "the mouse is released"
        terminal.type(b"\x1dm")
        wait_for(lambda: b"\x1b[?1003h" in terminal.output[seen:], what="the mouse")
        ends_by(terminal, signal.SIGTERM)


def test_the_reset_names_all_that_textual_switches_on() -> None:
    source = Path(linux_driver.__file__).read_text()
    for mode in set(re.findall(r"x1b\[\?(\d+)h", source)) - {
        "7",
        "25",
        "1007",
    }:  # 1007 is in a comment
        assert f"\x1b[?{mode}l" in RESET


def test_a_theme_said_for_a_run_and_auto(places: Paths) -> None:
    chosen = Path(os.environ["QUICKSAND_STATE_DIR"]) / "appearance.json"
    chosen.parent.mkdir(parents=True)
    chosen.write_text('{"theme": "nord", "more": 1}')
    with PtyTerminal([*APP, "--theme", "no-such"], answers=WHOLE) as terminal:
        assert terminal.ends() == 2
        terminal.sees("there is no theme 'no-such'", "quicksand-light")
        given_back(terminal)
    with PtyTerminal([*APP, "--theme", "auto"], answers=WHOLE) as terminal:
        wait_for(lambda: b"48;2;250;248;243" in terminal.output, what="the light theme")
        assert terminal.quits() == 0
    assert json.loads(chosen.read_text()) == {"theme": "", "more": 1}


def test_the_terminal_and_not_the_environment_says_how_large_it_is() -> None:
    env = {"COLUMNS": "80", "LINES": "24"}
    with PtyTerminal(APP, columns=120, rows=36, answers=WHOLE, env=env) as terminal:
        terminal.sees("disk free")
        lines = terminal.text.splitlines()
        assert max(len(line.rstrip()) for line in lines) > 110
        assert "quit" in lines[-1]
        assert terminal.quits() == 0
