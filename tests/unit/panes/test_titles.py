"""The title of a pane says what runs there, and where."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from quicksand.base.errors import AgentUnreachableError
from quicksand_panes.guest_terminal import (
    COMMAND_CELLS,
    LinkState,
    Running,
    home_shortened,
    named,
    what_runs,
)

from quicksand_tui.door import typed
from quicksand_tui.door.typed import COMMAND_MAX, DIRECTORY_MAX, Foreground, running_of
from tests.each import each
from tests.unit.app.fakes import FULL, FakeService, screen_text, shown, until


@each(
    ("reported", "told", "running", "title"),
    [
        ("", "", Running(), "shell"),
        ("", "", Running(command="/bin/bash -l", directory="/root/src"), "bash ~/src"),
        ("", "/srv", Running(command="-bash", directory="/root"), "bash /srv"),
        ("", "", Running(command="vim notes", directory="/home/ann/x"), "vim notes ~/x"),
        ("htop", "/srv", Running(command="htop", directory="/"), "htop"),
        ("", "/etc", Running(), "shell /etc"),
    ],
)
def test_a_title_is_the_programs_own_or_its_name_and_its_directory(
    reported: str, told: str, running: Running, title: str
) -> None:
    assert what_runs(reported, told, running) == title


def test_a_long_command_leaves_room_for_the_directory() -> None:
    assert len(named("make " + "x" * 500)) == COMMAND_CELLS


@each(
    ("path", "shown_as"),
    [("/root", "~"), ("/rooted", "/rooted"), ("/home", "/home"), ("/home/", "/home/"), ("", "")],
)
def test_a_home_is_shown_as_shells_show_it(path: str, shown_as: str) -> None:
    assert home_shortened(path) == shown_as


def info(**facts: Any) -> Any:
    return SimpleNamespace(**{"argv": ("/bin/bash",), "foreground": (), "cwd": "", **facts})


def test_what_a_guest_says_of_its_programs_is_bounded_and_harmless() -> None:
    said = running_of(
        info(foreground=("\x1b]0;x\x07\x1b[2J", "a\n" * 10_000), cwd="/\u202e" * 9999)
    )
    assert len(said.command) <= COMMAND_MAX and len(said.directory) <= DIRECTORY_MAX
    assert said.command.isprintable() and "\u202e" not in said.directory


async def test_the_guest_is_asked_only_after_it_has_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(typed, "SETTLED_S", 0.0)
    monkeypatch.setattr(typed, "ASK_EVERY_S", 0.0)
    told: list[Running] = []
    asked = 0
    answers = [info(), info(), info(foreground=("vim", "x"), cwd="/srv")]

    async def find() -> Any:
        nonlocal asked
        asked += 1
        if not answers:
            raise AgentUnreachableError("gone")
        return answers.pop(0)

    follower = Foreground(told.append)
    task = asyncio.ensure_future(follower.follow(find))
    for count in (1, 2, 3):
        await asyncio.sleep(0)
        assert asked == count - 1
        follower.spoke()
        await until(lambda count=count: asked == count)  # type: ignore[misc]
    await until(lambda: len(told) == 2)
    assert told == [Running(command="/bin/bash"), Running(command="vim x", directory="/srv")]
    follower.spoke()
    await until(lambda: asked == 4)  # one that does not answer is asked again
    answers.append(info())
    follower.spoke()
    await until(lambda: len(told) == 3)
    task.cancel()
    await asyncio.wait((task,))


async def test_a_pane_is_titled_by_what_runs_in_it() -> None:
    service = FakeService(FULL)
    async with shown(service) as (app, pilot):
        await pilot.press("s")
        await until(lambda: service.terminals)
        guest = service.terminals[0]
        await until(lambda: " 1 shell" in screen_text(app))
        guest.sink.running(Running(command="/bin/bash", directory="/root/src"))
        await until(lambda: " 1 bash ~/src" in screen_text(app))
        guest.say(b"\x1b]7;file://web/etc\x07")
        await until(lambda: " 1 bash /etc" in screen_text(app))
        guest.say(b"\x1b]2;make all\x07")
        await until(lambda: " 1 make all" in screen_text(app))


async def test_the_message_of_a_lost_pane_is_not_cut_however_narrow_it_is() -> None:
    service = FakeService(FULL)
    async with shown(service) as (app, pilot):
        await pilot.press("s")
        await until(lambda: service.terminals)
        await pilot.press("ctrl+right_square_bracket", "percent_sign")
        await until(lambda: len(service.terminals) == 2)
        why = (
            "enter opens a new one: the sandbox was reverted to before the upgrade of this morning"
        )
        service.terminals[1].tell(LinkState.LOST, why)

        def half() -> str:
            lines = (line[41:].strip() for line in screen_text(app).splitlines())
            return " ".join(" ".join(lines).split())

        await until(lambda: why in half())
