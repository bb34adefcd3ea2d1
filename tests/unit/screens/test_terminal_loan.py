"""Lending the terminal to a shell."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import replace
from pathlib import Path

from pytest import CaptureFixture

from quicksand_tui.door.service_protocol import ShellView
from quicksand_tui.kit.key_handling import Hands
from quicksand_tui.model.jobs import Failure
from quicksand_tui.model.world import MachineView
from quicksand_tui.screens.reports import FailureScreen
from quicksand_tui.screens.terminal_loan import Ended, Loan, ShellsScreen, shell_argv
from quicksand_tui.ui.app import QuicksandApp
from tests.each import each
from tests.unit.app.fakes import (
    FULL,
    NOW,
    WEB,
    FakeService,
    SlowHands,
    ready,
    screen_text,
    select,
    until,
)


class AppWithoutTerminal(QuicksandApp):
    """There is no terminal in a test to be lent."""

    def __init__(self, ended: Ended, service: FakeService | None = None) -> None:
        hands = Hands(lambda _, act: act(), SlowHands())
        super().__init__(service or FakeService(), clock=lambda: NOW, hands=hands)
        self.lent: list[list[str]] = []
        self._ended = ended
        self.full_shell._run = self._lend  # type: ignore[method-assign]

    async def _lend(self, loan: Loan) -> Ended:
        self.lent.append(loan._argv)
        self.banner = loan._banner
        return self._ended


async def test_s_runs_the_command_shell_and_comes_back() -> None:
    app = AppWithoutTerminal(Ended(7))
    async with app.run_test(size=(80, 24)) as pilot:
        await ready(pilot)
        await pilot.press("f")
        await until(lambda: app.lent)
        assert app.lent == [shell_argv(WEB.id)]
        assert app.lent[0][-3:] == ["--host=local", "shell", WEB.id]
        assert app.banner == "── web: exit ends this shell, ctrl-] d leaves it running ──"
        await until(lambda: "$ quicksand-tui shell web" in screen_text(app))
        assert app.screen is app.main


async def test_on_another_machine_it_runs_over_an_ssh_of_its_own() -> None:
    box = MachineView(name="box", address="ssh://me@box")
    there = replace(WEB, id=f"{WEB.id}@box", name="web@box", host="box")
    world = replace(FULL, sandboxes=(there,), machines=(box,))
    app = AppWithoutTerminal(Ended(7), FakeService(world))
    async with app.run_test(size=(80, 24)) as pilot:
        await ready(pilot)
        await select(pilot, there)
        await pilot.press("f")
        await until(lambda: app.lent)
        assert app.lent == [shell_argv(WEB.id, address="ssh://me@box")]
        assert app.lent[0][-3:] == ["--host=ssh://me@box", "shell", WEB.id]
        await until(lambda: "$ quicksand-tui --host box shell web" in screen_text(app))


async def test_a_shell_that_could_not_be_opened_is_explained() -> None:
    failure = Failure(title="t", message="all agent sockets are in use")
    app = AppWithoutTerminal(Ended(125, failure))
    async with app.run_test(size=(80, 24)) as pilot:
        await ready(pilot)
        await pilot.press("f")
        await until(lambda: isinstance(app.screen, FailureScreen))
        await pilot.pause()
        await until(lambda: "all agent sockets are in use" in screen_text(app))


LEFT = (
    ShellView(session="p2", command="-bash", created=NOW - 60),
    ShellView(session="p1", command="[b]vi[/b] x", created=NOW - 600),
)


async def test_a_shell_that_was_left_is_offered() -> None:
    service = FakeService()
    service.left_shells = LEFT
    app = AppWithoutTerminal(Ended(0), service)
    async with app.run_test(size=(80, 24)) as pilot:
        await ready(pilot)
        await pilot.press("f")
        await until(lambda: isinstance(app.screen, ShellsScreen))
        await until(lambda: "Attach to p2: -bash, 1m old" in screen_text(app))
        await until(lambda: "Attach to p1: [b]vi[/b] x, 10m old" in screen_text(app))
        await pilot.press("j", "enter")
        await until(lambda: app.lent)
        assert app.lent == [shell_argv(WEB.id, "p1")]
        assert app.lent[0][-1] == "--session=p1"
        await until(lambda: "$ quicksand-tui shell web --session p1" in screen_text(app))


@each(("key", "lent"), [("n", [shell_argv(WEB.id)]), ("escape", [])])
async def test_a_new_shell_or_none_can_be_had_instead(key: str, lent: list[list[str]]) -> None:
    service = FakeService()
    service.left_shells = LEFT
    app = AppWithoutTerminal(Ended(0), service)
    async with app.run_test(size=(80, 24)) as pilot:
        await ready(pilot)
        await pilot.press("f")
        await until(lambda: isinstance(app.screen, ShellsScreen))
        await pilot.press(key)
        await until(lambda: app.screen is app.main and not app.full_shell.opens)
        assert app.lent == lent


async def test_what_is_typed_before_the_shell_is_there_is_no_command_of_the_app() -> None:
    service = FakeService()
    service.hold_shells = asyncio.Event()
    app = AppWithoutTerminal(Ended(0), service)
    async with app.run_test(size=(80, 24)) as pilot:
        await ready(pilot)
        await pilot.press("f", "x", "d", "q", "s")
        await pilot.pause()
        service.hold_shells.set()
        await until(lambda: app.lent)
        await until(lambda: not app.full_shell.opens)
        assert service.calls in ([], ["read fresh"]) and len(app.lent) == 1
        assert app.screen is app.main
        await pilot.press("x")
        await until(lambda: f"stop {WEB.id}" in service.calls)


async def test_the_banner_comes_before_what_the_program_says(capfd: CaptureFixture[str]) -> None:
    loan = Loan([sys.executable, "-c", "print('hello')"], "web", banner="── web")
    assert await loan.run() == Ended(0)
    assert capfd.readouterr().out == "── web\nhello\n"


def python(code: str) -> Loan:
    return Loan([sys.executable, "-c", code], "web")


async def test_the_status_of_the_shells_last_command_is_no_failure() -> None:
    assert await python("raise SystemExit(3)").run() == Ended(3)
    assert await python("import sys; sys.stderr.write('left it running')").run() == Ended(0)


async def test_what_it_says_before_it_fails_is_kept_and_harmless() -> None:
    code = "import sys; sys.stderr.write('Error: \\x1b[2Jno agent\\nhint: wait\\n'); sys.exit(125)"
    ended = await python(code).run()
    assert ended.failure is not None
    assert ended.failure.message == "Error: no agent"
    assert ended.failure.log == ("hint: wait",)


async def test_cancelling_ends_the_program(tmp_path: Path) -> None:
    told = tmp_path / "pid"
    code = f"import os, time; print(os.getpid(), file=open({str(told)!r}, 'w')); time.sleep(60)"
    task = asyncio.create_task(python(code).run())
    await until(lambda: told.exists() and told.read_text().endswith("\n"))
    pid = int(told.read_text())
    task.cancel()
    await asyncio.wait((task,))
    assert not Path(f"/proc/{pid}").exists()


async def test_one_that_needs_all_of_the_terminal_has_said_there_why_it_failed(
    capfd: CaptureFixture[str],
) -> None:
    code = "import sys; sys.stderr.write('no way to box'); sys.exit(125)"
    ended = await Loan([sys.executable, "-c", code], "web@box", keeps_errors=False).run()
    assert ended.failure is not None
    assert "web@box ended with status 125" in ended.failure.title
    assert "away" in ended.failure.message
    assert capfd.readouterr().err == "no way to box"
