"""The app as a person uses it: in a terminal, with real sandboxes."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from quicksand import QuicksandError, Sandbox
from quicksand.base.paths import Paths
from quicksand.records.registry import Registry
from quicksand.things.status import Status

from tests.conftest import our_processes, wait_for
from tests.e2e.tmux import Terminal

APP = [sys.executable, "-m", "quicksand_tui"]
BOOT_S = 90.0


@pytest.fixture(autouse=True)
def nothing_runs_on(places: Paths) -> Iterator[None]:
    """Also after a test that failed in the midst of a sandbox's life."""
    yield

    async def end(name: str) -> None:
        with contextlib.suppress(QuicksandError):
            await Sandbox.attach(name).kill()

    for entry in Registry(places).list():
        asyncio.run(end(entry.id))


def left_clean(terminal: Terminal, status: int) -> None:
    """The program has ended with ``status`` and given the terminal back as it was."""
    terminal.sees(f"STATUS={status}", "icanon", "echo", "DONE")
    assert not terminal.alternate
    assert terminal.is_in_order, terminal.facts


def start_sandbox(terminal: Terminal) -> None:
    terminal.sees("n starts your first sandbox, from debian")
    terminal.press("n")
    terminal.sees("New sandbox", "$ quicksand-tui run debian --name debian-1 --detach")
    terminal.press("Enter")
    terminal.sees("● debian-1", timeout=BOOT_S)


def states(places: Paths) -> list[Status]:
    return [entry.status for entry in Registry(places).list()]


@pytest.mark.vm
def test_a_sandboxs_life_by_keys(places: Paths) -> None:
    with Terminal(APP) as terminal:
        terminal.sees("n starts your first sandbox, from debian")
        terminal.press("n")
        terminal.sees("New sandbox")
        terminal.press("Enter")
        terminal.sees("● debian-1", timeout=BOOT_S)
        terminal.sees("run debian --name debian-1 --detach")

        terminal.press("f")
        terminal.sees("root@debian-1")
        terminal.type("stty size; echo $((6 * 7))-from-the-guest | tee /dev/console")
        terminal.press("Enter")
        terminal.sees("24 80", "42-from-the-guest")
        terminal.type("exit 3")
        terminal.press("Enter")
        terminal.sees("━ 1 Sandboxes ", "$ quicksand-tui shell debian-1")

        terminal.press("P")
        terminal.sees("‖ debian-1", "$ quicksand-tui pause debian-1  ✓")
        terminal.press("P")
        terminal.sees("● debian-1", "$ quicksand-tui resume debian-1  ✓")

        terminal.press("l")
        terminal.sees(" console ", "following")
        terminal.sees("42-from-the-guest")
        terminal.press("Escape")
        terminal.sees("━ 1 Sandboxes ")

        terminal.press("x")
        terminal.sees("○ debian-1", "$ quicksand-tui stop debian-1")
        terminal.press("x")
        terminal.sees("debian-1 does not run")

        terminal.press("d")
        terminal.sees("Delete debian-1?", "It goes to the trash")
        terminal.answer("Enter", "Delete debian-1?")
        assert states(places) == [Status.STOPPED]
        terminal.press("d")
        terminal.sees("Delete debian-1?")
        terminal.answer("C-y", "Delete debian-1?")
        terminal.sees("n starts your first sandbox", "debian-1 is in the trash")
        assert states(places) == []

        terminal.press("q")
        left_clean(terminal, 0)
        assert "still running" not in terminal.text


@pytest.mark.vm
def test_a_shell_that_is_left_runs_on_and_can_be_come_back_to() -> None:
    with Terminal(APP) as terminal:
        start_sandbox(terminal)
        terminal.press("f")
        terminal.sees("ctrl-] d leaves it running", "root@debian-1")
        terminal.type("sleep 600")
        terminal.press("Enter")
        terminal.sees("# sleep 600")
        terminal.press("C-]", "d")
        terminal.sees("━ 1 Sandboxes ", "s shell")
        terminal.resize(100, 30)

        terminal.press("f")
        terminal.sees("Shell in debian-1", "Attach to", "Open a new one")
        terminal.press("Enter")
        terminal.until(lambda text: text.count("# sleep 600") == 2, what="what was shown before")
        terminal.press("C-c")
        terminal.until(lambda text: text.rstrip().endswith("root@debian-1:~#"), what="a prompt")
        terminal.type("stty size; echo $((6 * 7))-again")
        terminal.press("Enter")
        terminal.sees("30 100", "42-again")
        terminal.type("exit")
        terminal.press("Enter")
        terminal.sees("━ 1 Sandboxes ", "--session")

        # The first one has ended: there is nothing to come back to.
        terminal.press("f")
        terminal.until(lambda text: "Sandboxes" not in text, what="a new shell")
        terminal.type("exit")
        terminal.press("Enter")
        terminal.sees("━ 1 Sandboxes ")


@pytest.mark.soak
@pytest.mark.vm
def test_checkpoint_revert_and_undo_by_keys() -> None:
    with Terminal(APP, columns=120, rows=36) as terminal:
        start_sandbox(terminal)
        terminal.sees("c takes one", "No checkpoints yet")
        in_guest("echo first > /root/file")
        terminal.press("c")
        terminal.sees("Checkpoint of debian-1")
        terminal.type("clean")
        terminal.sees("$ quicksand-tui checkpoint debian-1 clean")
        terminal.press("Enter")
        terminal.sees("checkpoint clean: paused for")
        terminal.sees("● clean", "HERE")

        in_guest("echo second > /root/file")
        terminal.press("u")
        terminal.sees("● clean", "enter reverts, U undoes it")
        terminal.press("Enter")
        terminal.sees("reverted to clean (undo: U)")
        terminal.sees("$ quicksand-tui revert debian-1 clean  ✓")
        terminal.press("4")  # it is where it was before: in the list
        terminal.press("z")
        terminal.sees("● clean", "HERE", "⋯ 1 auto")
        terminal.press("z")
        assert in_guest("cat /root/file") == "first\n"

        terminal.press("U")
        terminal.sees("revert undone (undo: U)")
        terminal.sees("$ quicksand-tui undo debian-1  ✓")
        assert in_guest("cat /root/file") == "second\n"


@pytest.mark.vm
def test_start_at_a_checkpoint_of_another_client_and_delete_it_by_keys() -> None:
    with Terminal(APP, columns=120, rows=36) as terminal:
        start_sandbox(terminal)
        in_guest("echo first > /root/file")
        asyncio.run(take_checkpoint("by-a-script", note="[red]of another client[/]"))
        terminal.sees("● by-a-script", "Since by-a-script")
        terminal.press("4")
        terminal.sees("━ 4 Tree of debian-1 ·")
        terminal.press("z")
        terminal.until(lambda text: "─ 1 Sandboxes" not in text, what="the tree alone")
        terminal.sees("● by-a-script", "HERE")
        terminal.press("z")
        terminal.sees("─ 1 Sandboxes")
        terminal.press("1")
        terminal.sees("━ 1 Sandboxes")
        in_guest("echo second > /root/file; sync")
        terminal.sees("on disk")  # by then no letter is that of a text
        terminal.press("x")
        terminal.sees("○ debian-1")
        terminal.press("u")
        terminal.sees("enter starts it there")
        terminal.sees("─ by-a-script ─", "[red]of another client[/]")
        terminal.press("Enter")
        terminal.sees("debian-1: started at by-a-script", timeout=BOOT_S)
        terminal.press("z")
        terminal.sees("⋯ 1 auto")
        terminal.press("j", "Right")
        terminal.sees("○ before start at by-a-")
        terminal.press("k", "z")
        assert in_guest("cat /root/file") == "first\n"

        terminal.sees("─ by-a-script ─")
        terminal.press("d")
        terminal.sees("Delete the checkpoint by-a-script?")
        terminal.answer("Enter", "Delete the")
        assert "by-a-script" in tags()
        terminal.press("d")
        terminal.sees("Delete the checkpoint by-a-script?")
        terminal.answer("C-y", "Delete the checkpoint by-a-script?")
        terminal.sees("checkpoint by-a-script is deleted")
        terminal.press("z")
        terminal.sees("⋯ 1 auto")
        terminal.press("z")
        assert "by-a-script" not in tags()
        terminal.press("Escape")
        terminal.sees("━ 1 Sandboxes ")
        terminal.press("q")
        left_clean(terminal, 0)


def in_guest(command: str, *, name: str = "debian-1") -> str:
    """What a command in the sandbox says, asked by another client than the app."""

    async def ask() -> str:
        sandbox = Sandbox.attach(name)
        try:
            return (await sandbox.execute(command)).stdout
        finally:
            sandbox.close()

    return asyncio.run(ask())


async def take_checkpoint(tag: str, *, note: str) -> None:
    sandbox = Sandbox.attach("debian-1")
    try:
        await sandbox.checkpoint(tag, note=note)
    finally:
        sandbox.close()


def tags() -> list[str]:
    sandbox = Sandbox.open("debian-1")
    try:
        return [made.tag for made in sandbox.checkpoints()]
    finally:
        sandbox.close()


@pytest.mark.vm
def test_a_machine_that_is_killed_while_it_is_shown(places: Paths) -> None:
    with Terminal(APP) as terminal:
        start_sandbox(terminal)
        run = Registry(places).find("debian-1").run
        assert run is not None
        os.kill(run.qemu_pid, signal.SIGKILL)
        terminal.sees("✗ crashed", "debian-1", "QEMU was ended by SIGKILL", "a start")


def test_without_qemu_it_says_what_to_do(places: Paths) -> None:
    (places.data / "qemu").unlink()
    with Terminal(APP, PATH=f"{Path(sys.executable).parent}:/nowhere") as terminal:
        terminal.sees("n starts your first sandbox, from debian")
        terminal.press("n")
        terminal.sees("New sandbox")
        terminal.press("Enter")
        terminal.sees("debian-1 did not start", "install QEMU 7.2 or newer")
        terminal.press("Enter")
        terminal.sees("✗ failed", "n starts your first sandbox")


@pytest.mark.vm
def test_a_cancelled_start_leaves_nothing(places: Paths) -> None:
    # Cold, it takes seconds: a warm one may be over before a careful key counts.
    with Terminal(APP, QUICKSAND_TEMPLATES="off") as terminal:
        terminal.sees("n starts your first sandbox, from debian")
        terminal.press("n")
        terminal.sees("New sandbox")
        terminal.press("Enter")
        terminal.sees("booting the guest", timeout=BOOT_S)
        terminal.press("Escape")
        terminal.sees("It still runs: X cancels it", "booting the guest")
        terminal.press("X")
        terminal.sees("n starts your first sandbox", "cancelled")
        assert states(places) == []
        wait_for(lambda: not our_processes(str(places.data)), what="its processes to end")
        terminal.press("q")
        left_clean(terminal, 0)


@pytest.mark.vm
def test_a_start_ends_with_its_app_and_leaves_nothing(places: Paths) -> None:
    with Terminal(APP, QUICKSAND_TEMPLATES="off") as terminal:
        terminal.sees("n starts your first sandbox, from debian")
        terminal.press("n")
        terminal.sees("New sandbox")
        terminal.press("Enter")
        terminal.sees("booting the guest", timeout=BOOT_S)
        os.kill(terminal.pid_of("-m quicksand_tui"), signal.SIGTERM)
        left_clean(terminal, 128 + signal.SIGTERM)
        assert states(places) == []
        wait_for(lambda: not our_processes(str(places.data)), what="its processes to end")


@pytest.mark.vm
def test_two_apps_see_each_others_work_and_sandboxes_outlive_both(places: Paths) -> None:
    with Terminal(APP) as one, Terminal(APP, columns=120, rows=36) as two:
        two.sees("n starts your first sandbox")
        start_sandbox(one)
        two.sees("● debian-1", "TCG" if "TCG" in one.text else "")

        # A signal while the shell has the terminal: the shell ends, the terminal is as it was.
        one.press("f")
        one.sees("root@debian-1")
        os.kill(one.pid_of("-m quicksand_tui"), signal.SIGTERM)
        left_clean(one, 128 + signal.SIGTERM)
        assert states(places) == [Status.RUNNING]

        two.press("q")
        left_clean(two, 0)
        assert "still running: debian-1" in two.text
    with Terminal(APP) as three:
        three.sees("● debian-1")
        three.press("K")
        three.sees("Kill debian-1?")
        three.answer("C-y", "Kill debian-1?")
        three.sees("stopped   debian-1")


@pytest.mark.parametrize(
    "number", [pytest.param(signal.SIGTERM, marks=pytest.mark.soak), signal.SIGHUP]
)
def test_a_signal_ends_the_app_and_restores_the_terminal(number: signal.Signals) -> None:
    with Terminal(APP) as terminal:
        terminal.sees("n starts your first sandbox")
        assert terminal.alternate
        os.kill(terminal.pid_of("-m quicksand_tui"), number)
        left_clean(terminal, 128 + number)


def test_a_crash_restores_the_terminal_and_names_the_log_that_has_it(
    places: Paths, faults: Callable[[], str]
) -> None:
    code = (
        "from quicksand_tui.door import service\n"
        "from quicksand_tui.opening.opening import run_app\n"
        "def read(*_, **__): raise ZeroDivisionError('a fault of ours')\n"
        "service.EngineService.read = read\n"
        "raise SystemExit(run_app())"
    )
    with Terminal([sys.executable, "-c", code], rows=50) as terminal:
        terminal.sees("quicksand-tui has made a mistake", "please report it, with the last lines")
        left_clean(terminal, 1)
        assert "ZeroDivisionError" not in terminal.text
    assert "ZeroDivisionError: a fault of ours" in faults()


def test_a_line_that_a_script_types_at_once_goes_where_its_first_key_leads() -> None:
    with Terminal(APP) as terminal:
        terminal.sees("n starts your first sandbox, from debian")
        # One read for the app, without a person's pauses.
        terminal.press(":saves", "Enter", ":trash", "Enter", ":help", "Enter")
        terminal.sees("─ Keys ─", "Trash", "Restore it")
        terminal.press("/delete xu")
        terminal.sees("Nothing has “delete xu”")
        for _ in range(4):  # the filter, the help, the trash, the saves
            terminal.press("Escape")
        terminal.sees("n starts your first sandbox, from debian")
        terminal.press("delete xu and run it")
        terminal.sees("That was typed text")
        terminal.press(":quit", "Enter")
        left_clean(terminal, 0)


def test_a_storm_of_sizes_is_survived() -> None:
    with Terminal(APP) as terminal:
        terminal.sees("n starts your first sandbox")
        for columns, rows in ((200, 50), (40, 10), (20, 5), (120, 36), (79, 23), (80, 24)):
            terminal.resize(columns, rows)
        terminal.sees("━ 1 Sandboxes ", "quit")
        terminal.press("q")
        left_clean(terminal, 0)


def test_without_colour_and_without_utf8_it_can_be_used() -> None:
    with Terminal(APP, NO_COLOR="1", QUICKSAND_TUI_ASCII="1") as terminal:
        terminal.sees("- 1 Sandboxes ", "n starts your first sandbox")
        assert terminal.text.isascii()
        terminal.press("q")
        left_clean(terminal, 0)


@pytest.mark.soak
def test_help_names_what_a_newcomer_needs() -> None:
    with Terminal(APP, rows=120) as terminal:
        terminal.sees("? help")
        terminal.press("?")
        terminal.sees("Start a new sandbox from an image", "Start a stopped sandbox")
        terminal.sees("Leave the app; sandboxes keep running", "States")
        terminal.press("q")
        terminal.until(lambda text: "Start a stopped" not in text, what="the end of the help")
        terminal.press("q")
        left_clean(terminal, 0)


@pytest.mark.vm
def test_what_is_typed_where_no_shell_is_loses_nothing_and_undo_brings_a_delete_back(
    places: Paths,
) -> None:
    with Terminal(APP) as terminal:
        start_sandbox(terminal)
        in_guest("echo kept >/dev/shm/f")
        for text in ("ready to delete yes", "quit undo exit next six kill"):
            terminal.type(text)
            terminal.sees("That was typed text")
        terminal.type(*"ready to delete yes")
        terminal.paste("ready to delete yes")
        terminal.sees("Pasting is refused here")
        assert states(places) == [Status.RUNNING]
        # Until then the next letter could belong to the text.
        terminal.until(lambda text: "refused here" not in text, what="the end of the toast")
        terminal.press("d")
        terminal.sees("Delete debian-1?", "its last state is kept", "U restores it")
        terminal.answer("C-y", "Delete debian-1?")
        terminal.sees("debian-1 is in the trash")
        assert states(places) == []
        terminal.press("U")
        terminal.sees("$ quicksand-tui restore --start debian-1  ✓")
        assert states(places) == [Status.RUNNING]
        assert in_guest("cat /dev/shm/f") == "kept\n"
