"""Progress: on a terminal only, for what takes long, and gone at the end."""

from __future__ import annotations

import asyncio
import re
import sys
import termios

import pytest
from quicksand.base.progress import WHOLE

from quicksand_tui.cli import progress_display
from quicksand_tui.cli.progress_display import BuildProgress, Rate, StartProgress
from tests.conftest import wait_for
from tests.each import each
from tests.pty_terminal import PtyTerminal
from tests.unit.cli.corpus import HOSTILE

JOB = """
import asyncio, os, sys
from quicksand_tui.cli import progress_display as progress
from quicksand_tui.cli.output import Exit, say, tell
from quicksand_tui.cli.progress_display import BuildProgress
from quicksand_tui.cli.runner import run_async
from quicksand_tui.cli.progress_display import Rate
from quicksand_tui.model import pace
from quicksand.base.progress import WHOLE

progress.PATIENCE_S = pace.SECONDS_MIN = 0.0
pace.SHARE_MIN = 0.015
rate, whole = Rate(sys.argv[1]), BuildProgress(sys.argv[1])
rate.report("copying", 512 * 2**20, 2048 * 2**20)
looks = [rate.look]

async def main(signals):
    async with progress.shown(lambda: looks[-1]()):
        typed = asyncio.Queue()
        asyncio.get_running_loop().add_reader(0, lambda: typed.put_nowait(os.read(0, 100)))
        while True:
            for word in (await typed.get()).split():
                if word == b"end":
                    tell("END")
                    return Exit.OK
                if word == b"raise":
                    raise ValueError("on purpose")
                if word == b"more":
                    rate.report("copying", 1024 * 2**20, 2048 * 2**20)
                if word.startswith(b"whole-"):
                    _, stage, done = word.decode().split("-")
                    whole.stage(stage, int(done), WHOLE)
                    looks.append(whole.look)
                if word == b"stage":
                    rate.report("syncing", 0, 0)
                if word == b"lines":
                    tell("data")
                    say("a word")

sys.exit(run_async(main))
"""
SEQUENCE = re.compile(rb"\x1b\[[0-9;]*[mKA]")
"""Styles, the erasing of a line, and going up."""


def job(title: str = "web: saving", columns: int = 80, **env: str) -> PtyTerminal:
    """A job that does what is typed, on a terminal that does not show what is typed."""
    terminal = PtyTerminal(
        [sys.executable, "-c", JOB, title], columns=columns, env={"COLUMNS": "", **env}
    )
    modes = terminal.modes
    modes[3] &= ~termios.ECHO
    termios.tcsetattr(terminal.master, termios.TCSANOW, modes)
    return terminal


def screen(terminal: PtyTerminal) -> list[str]:
    return [line for line in map(str.strip, terminal.text.splitlines()) if line]


def test_a_bar_tells_how_far_it_is_and_nothing_of_it_stays() -> None:
    with job() as terminal:
        terminal.sees("web: saving: copying", "━", "25 %")
        terminal.type(b"more\n")
        terminal.sees("50 %", "iB/s", "left")
        terminal.type(b"end\n")
        assert terminal.ends() == 0
        assert screen(terminal) == ["END"]
        assert not re.search(rb"\x1b\[\?", terminal.output), "the cursor is left alone"


def test_what_nobody_counts_has_its_time_and_no_bar() -> None:
    with job() as terminal:
        terminal.sees("25 %")
        terminal.type(b"stage\n")
        wait_for(lambda: re.search(r"web: saving *\d\.\d s *$", terminal.text, re.M), what="time")
        terminal.type(b"end\n")
        assert terminal.ends() == 0


def test_lines_that_are_written_meanwhile_stand_above_it() -> None:
    with job() as terminal:
        terminal.sees("25 %")
        terminal.type(b"lines\nmore\n")
        terminal.sees("data", "a word", "50 %")
        first, second, bar = screen(terminal)
        assert (first, second) == ("data", "a word") and bar.startswith("web: saving")
        terminal.type(b"end\n")
        assert terminal.ends() == 0
        assert screen(terminal) == ["data", "a word", "END"]


@each(("typed", "status"), [(b"raise\n", 1), (b"\x03", 130)])
def test_however_it_ends_nothing_of_it_stays(typed: bytes, status: int) -> None:
    with job() as terminal:
        terminal.sees("25 %")
        terminal.type(typed)
        assert terminal.ends() == status
        assert not [line for line in screen(terminal) if "copying" in line or "━" in line]


@each(
    ("columns", "words"),
    [
        (24, ["50 %", "left"]),
        (40, ["…", "copying", "50 %", "left"]),
        (60, ["…", "copying", "50 %", "iB/s", "left"]),
        (100, ["…", "copying", "━", "50 %", "iB/s", "left"]),
    ],
)
def test_it_is_one_line_however_narrow_the_terminal_is(columns: int, words: list[str]) -> None:
    with job("web: writing " + "/directory" * 9, columns) as terminal:
        terminal.sees("25 %")
        terminal.type(b"more\n")
        terminal.sees(*words)
        assert len(screen(terminal)) == 1
        terminal.type(b"end\n")
        assert terminal.ends() == 0
        assert screen(terminal) == ["END"]


def test_where_there_is_but_ascii_it_is_ascii() -> None:
    with job(PYTHONIOENCODING="ascii", PYTHONUTF8="0") as terminal:
        terminal.sees("25 %")
        terminal.type(b"stage\n")
        terminal.sees(" s")
        terminal.type(b"end\n")
        assert terminal.ends() == 0
    assert terminal.output.isascii()


def test_a_dumb_terminal_gets_nothing_but_lines() -> None:
    with job(TERM="dumb") as terminal:
        terminal.type(b"lines\nend\n")
        assert terminal.ends() == 0
        assert screen(terminal) == ["data", "a word", "END"]
    assert b"\x1b" not in terminal.output


def test_what_is_in_a_name_can_only_be_read() -> None:
    title = "".join(text for text in HOSTILE if text.isascii() and "\x00" not in text)
    with job(f"[red]{title}[/] {{0}}") as terminal:
        terminal.sees("[red]")
        terminal.type(b"end\n")
        assert terminal.ends() == 0
    left = SEQUENCE.sub(b"", bytes(terminal.output)).decode()
    assert all(char.isprintable() or char in "\r\n" for char in left)


async def test_without_a_terminal_nothing_is_written(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress_display, "PATIENCE_S", 0.0)
    looked = asyncio.Event()

    async with progress_display.shown("web: saving"):
        asyncio.get_running_loop().call_later(0.05, looked.set)
        await looked.wait()
    assert capfd.readouterr() == ("", "")


def test_a_build_has_one_bar_with_the_time_left_which_no_new_stage_begins_anew() -> None:
    with job("setup") as terminal:
        terminal.sees("25 %")
        terminal.type(b"whole-unpacking-10000\n")
        terminal.sees("setup: unpacking", "━", "1 %")
        terminal.type(b"whole-installing-20000\n")
        terminal.sees("setup: installing", "━", "2 %", "about", "s left")
        terminal.type(b"end\n")
        assert terminal.ends() == 0
        assert screen(terminal) == ["END"]


@each("kind", [StartProgress, BuildProgress])
def test_what_has_one_count_of_all_stages_tells_its_share(
    kind: type[StartProgress | BuildProgress], capsys: pytest.CaptureFixture[str]
) -> None:
    followed = kind("web")
    followed.stage("downloading packages", WHOLE // 4, WHOLE)
    found = followed.look()
    assert (found.text, found.share) == ("web: downloading packages", 0.25)
    assert (found.step, found.steps) == (0, 0)
    assert (found.left_s, found.total) == (0.0, 0 if kind is StartProgress else WHOLE)
    followed.stage("guest", 4, 5)
    assert followed.look().share is None


def test_without_a_terminal_each_stage_has_a_line_with_its_share_and_the_time_left(
    capsys: pytest.CaptureFixture[str],
) -> None:
    now = 0.0
    followed = BuildProgress("debian", clock=lambda: now)
    followed.stage("unpacking", WHOLE // 20, WHOLE)
    now = 10.0
    followed.stage("installing", WHOLE // 4, WHOLE)
    followed.stage("installing", WHOLE // 3, WHOLE)
    assert capsys.readouterr().err.splitlines() == [
        "  5% unpacking",
        " 25% installing, about 37s left",
    ]


def test_a_job_tells_what_it_does_and_of_how_much() -> None:
    rate = Rate("saving")
    assert rate.look().text == "saving"
    rate.report("copying", 1, 4)
    found = rate.look()
    assert (found.text, found.stage, found.done, found.total) == (
        "saving: copying",
        "copying",
        1,
        4,
    )
    start = StartProgress("web")
    assert start.look().text == "web: starting"
    start.stage("guest", 4, 5)
    assert (start.look().text, start.look().total) == ("web: booting the guest (5 of 5)", 0)
