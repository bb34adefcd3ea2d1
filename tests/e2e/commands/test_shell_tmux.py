"""Terminals of a VM in a real terminal."""

from __future__ import annotations

import os
import shlex
import signal
from collections.abc import Iterator

import pytest

from tests.conftest import wait_for
from tests.e2e.commands.conftest import IMAGE, PROGRAM, execute, in_vm, invoke, quicksand
from tests.e2e.tmux import Terminal
from tests.unit.terminal.touching import EVERY

pytestmark = pytest.mark.vm

BOOT_S = 90.0
HERE = "here>"
"""Our own shell's prompt; the guest's is another one."""


class Person:
    """Somebody at a terminal with a shell in it."""

    def __init__(self, terminal: Terminal) -> None:
        self.terminal = terminal

    def enter(self, line: str) -> None:
        """Type a line and Enter."""
        self.terminal.type(line)
        self.terminal.press("Enter")

    def run(self, *arguments: str, **env: str) -> None:
        """Run one of our commands on an empty screen."""
        words = [f"{name}={value}" for name, value in env.items()]
        self.enter(f"clear; env {shlex.join([*words, *PROGRAM, *arguments])}")

    def open_shell(self, *arguments: str, **env: str) -> None:
        """Open a terminal in the VM and wait for its prompt."""
        self.run("shell", *arguments, **env)
        self.at_a_prompt()

    def at_a_prompt(self) -> None:
        """Wait until the guest's shell does."""
        self.terminal.until(lambda text: text.rstrip().endswith("#"), what="the guest's prompt")

    def is_back(self, code: int) -> None:
        """Our own shell answers; the last command ended with ``code``, the terminal is in order."""
        self.enter("echo code=$?; stty -a | grep -o ' -*icanon\\| -*echo '")
        self.terminal.sees(f"code={code}", " icanon", " echo")
        assert " -icanon" not in self.terminal.text
        assert not self.terminal.alternate


@pytest.fixture
def person() -> Iterator[Person]:
    """Somebody at a terminal of 100 x 30."""
    argv = ["bash", "--norc", "--noprofile", "-i"]
    with Terminal(argv, columns=100, rows=30, PS1=f"{HERE} ", TERM="xterm-256color") as terminal:
        terminal.sees(HERE)
        yield Person(terminal)


def test_a_shell_has_our_kind_and_size_also_later_and_its_exit_code_is_ours(
    vm: str, person: Person
) -> None:
    person.open_shell(vm, COLORTERM="truecolor")
    person.enter("stty size; echo $TERM $COLORTERM; tty")
    person.terminal.sees("30 100", "xterm-256color truecolor", "/dev/pts/")
    person.terminal.resize(77, 21)
    person.enter("stty size")
    person.terminal.sees("21 77")
    person.enter("exit 9")
    person.terminal.sees(HERE)
    person.is_back(9)


def test_a_kind_of_terminal_that_the_guest_does_not_know_becomes_a_usual_one(
    vm: str, person: Person
) -> None:
    person.open_shell(vm, TERM="xterm-from-2050")
    person.enter("echo term=$TERM")
    person.terminal.sees("term=xterm-256color")
    person.enter("exit")
    person.terminal.sees(HERE)


def test_vi_edits_a_file_and_gives_the_screen_back(vm: str, person: Person) -> None:
    person.open_shell(vm)
    person.enter("vi /tmp/edited")
    person.terminal.sees("~", "/tmp/edited")
    person.terminal.type("ifirst line")
    person.terminal.resize(90, 25)
    person.terminal.press("Enter")
    person.terminal.type("second line")
    person.terminal.press("Escape")
    person.terminal.until(
        lambda text: text.count("\n~") >= 20, what="an editor of the new size's rows"
    )
    person.enter(":wq")
    person.terminal.sees("# vi /tmp/edited")
    person.enter("exit")
    person.terminal.sees(HERE)
    person.is_back(0)
    assert in_vm(vm, "cat /tmp/edited") == "first line\nsecond line"


@pytest.mark.soak
def test_less_pages_and_follows_a_resize(vm: str, person: Person) -> None:
    person.open_shell(vm)
    person.enter("seq 1000 | less")
    person.terminal.until(lambda text: "29\n:" in text, what="the first page")
    person.terminal.press("Space")
    person.terminal.until(lambda text: text.startswith("30\n"), what="the second page")
    person.terminal.resize(100, 12)
    person.terminal.until(lambda text: text.rstrip().endswith(":"), what="a shorter page")
    person.terminal.press("G")
    person.terminal.until(lambda text: "1000\n(END)" in text, what="the end")
    person.terminal.press("q")
    person.enter("exit")
    person.terminal.sees(HERE)
    person.is_back(0)


@pytest.mark.soak
def test_htop_draws_itself_anew_in_the_new_size(vm: str, person: Person) -> None:
    person.open_shell(vm)
    person.enter("htop")
    person.terminal.sees("Tasks:", "F10Quit")
    assert person.terminal.alternate
    person.terminal.resize(120, 40)
    person.terminal.until(lambda text: "F10Quit" in text.splitlines()[39], what="htop in 40 rows")
    person.terminal.press("q")
    person.terminal.until(lambda text: "F10Quit" not in text, what="htop's end")
    person.enter("exit")
    person.terminal.sees(HERE)
    person.is_back(0)


def test_ctrl_c_goes_to_the_guest(vm: str, person: Person) -> None:
    person.open_shell(vm)
    # What says 42 is in the foreground: a ctrl-c before that would be the guest's shell's.
    person.enter("python3 -c 'print(6 * 7, flush=True); import time; time.sleep(1000)'")
    person.terminal.sees("\n42")
    person.terminal.press("C-c")
    person.terminal.sees("KeyboardInterrupt")
    person.at_a_prompt()  # what is typed before it the shell may drop
    person.enter("echo still here")
    person.terminal.until(lambda text: "\nstill here" in text, what="the shell's answer")
    person.enter("exit")
    person.terminal.sees(HERE)


def test_one_can_leave_a_shell_and_come_back(vm: str, person: Person) -> None:
    person.open_shell(vm)
    person.enter("marker=kept; echo session is $((40 + 2))")
    person.terminal.sees("session is 42")
    person.terminal.press("C-]")
    person.terminal.press("d")
    person.terminal.sees("detached; ", "--session p")
    person.is_back(0)
    session = person.terminal.text.partition("--session ")[2].partition("`")[0]

    listed = quicksand("shell", vm, "--list").stdout.decode()
    assert session in listed.split()
    person.run("shell", vm, "--session", session)
    person.terminal.sees("session is 42")  # replayed
    person.enter("echo marker is $marker")
    person.terminal.sees("marker is kept")
    person.enter("exit 5")
    person.terminal.sees(HERE)
    person.is_back(5)


def test_the_keys_that_leave_can_be_chosen_and_the_first_twice_is_sent_once(
    vm: str, person: Person
) -> None:
    person.run("shell", vm, "--detach-keys", "ctrl-p,q")
    person.terminal.until(lambda text: text.rstrip().endswith("#"), what="the guest's prompt")
    person.enter("cat -v")
    person.terminal.press("C-]", "d", "Enter")
    person.terminal.sees("^]d")
    person.terminal.press("C-p", "C-p", "x", "Enter")
    person.terminal.until(lambda text: "\n^Px" in text, what="one control character")
    person.terminal.press("C-p", "q")
    person.terminal.sees("detached; ", HERE)
    person.is_back(0)


def test_a_client_that_is_ended_puts_the_terminal_right_and_leaves_the_shell(
    vm: str, person: Person
) -> None:
    person.open_shell(vm)
    person.enter("vi /tmp/other")
    person.terminal.sees("/tmp/other")
    person.terminal.until(lambda _: person.terminal.alternate, what="the alternate screen")
    os.kill(person.terminal.pid_of(f"shell {vm}"), signal.SIGTERM)
    person.terminal.sees("detached; ", HERE)
    person.is_back(128 + signal.SIGTERM)
    in_vm(vm, "pkill vi")


def test_a_command_may_have_a_terminal(vm: str, person: Person) -> None:
    person.run("exec", "-t", vm, "--cwd", "/usr", "--", "sh", "-c", "tty; pwd; stty size; exit 6")
    person.terminal.sees("/dev/pts/", "/usr", "30 100", HERE)
    person.is_back(6)
    person.run("exec", "-t", vm, "--timeout", "0.5", "--", "sleep", "60")
    person.terminal.sees("timed out after 0.5 s", HERE)
    person.is_back(124)
    person.run("exec", "-t", vm, "--", "no-such-program")
    person.terminal.sees("not found", HERE)
    person.is_back(127)


def test_without_a_terminal_a_shell_is_refused(vm: str) -> None:
    for arguments in (("shell", vm), ("exec", "-t", vm, "--", "true"), ("run", IMAGE, "-t")):
        result = quicksand(*arguments)
        assert result.returncode == 2
        assert b"must be a terminal" in result.stderr


def test_run_without_a_command_is_a_shell_and_the_sandbox_ends_with_it(person: Person) -> None:
    person.run("run", IMAGE, "--name", "brief", "--rm")
    person.terminal.until(
        lambda text: text.rstrip().endswith("#"), what="the guest's prompt", timeout=BOOT_S
    )
    person.enter("hostname; exit 3")
    person.terminal.sees("brief", HERE)
    person.is_back(3)
    assert invoke("ps", "-aq").stdout.split().count(b"brief") == 0


def test_leaving_the_shell_of_run_leaves_the_sandbox_running(person: Person) -> None:
    person.run("run", IMAGE, "--name", "stays")
    person.terminal.until(
        lambda text: text.rstrip().endswith("#"), what="the guest's prompt", timeout=BOOT_S
    )
    person.terminal.press("C-]", "d")
    person.terminal.sees("detached; ", HERE)
    person.is_back(0)
    assert b"stays" in invoke("ps", "-q").stdout

    # A guest that dies under an editor: why is told, the terminal is put right.
    person.open_shell("stays")
    person.enter("vi /tmp/doomed")
    person.terminal.until(lambda _: person.terminal.alternate, what="the alternate screen")
    assert invoke("kill", "stays").returncode == 0
    person.terminal.sees("the sandbox 'stays' was stopped", HERE)
    person.is_back(125)
    assert invoke("rm", "stays").returncode == 0


@pytest.mark.parametrize(
    "ending",
    [
        "detached",
        pytest.param("SIGTERM", marks=pytest.mark.soak),
        "SIGHUP",
        pytest.param("the guest is gone", marks=pytest.mark.soak),
    ],
)
def test_a_terminal_that_a_guests_program_left_changed_is_put_right(
    vm: str, person: Person, ending: str
) -> None:
    before = person.terminal.facts
    person.open_shell(vm)
    # The words come last: until then it may not have got everything.
    touching = "".join(EVERY.values()) + "\x1b[?1049l\x1b(B\x0fchanged-it"
    execute(vm, ["sh", "-c", "cat >/root/touching <<'END'\n" + touching + "\nEND"])
    person.enter("cat /root/touching; sleep 1000")
    person.terminal.sees("changed-it")
    assert person.terminal.facts != before
    if ending == "detached":
        person.terminal.press("C-]")
        person.terminal.type("d")
    elif ending == "the guest is gone":
        assert invoke("kill", vm).returncode == 0
    else:
        os.kill(person.terminal.pid_of(f"quicksand_tui shell {vm}"), signal.Signals[ending])
    person.terminal.sees(HERE)
    wait_for(lambda: person.terminal.facts == before, what="a terminal as before")
    if ending == "the guest is gone":
        assert invoke("start", vm).returncode == 0
