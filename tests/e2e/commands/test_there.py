"""A sandbox of another machine: this one, over a private sshd where there is one."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from quicksand.base.listing import own_sockets
from quicksand.base.paths import Paths
from quicksand.records.host_sockets import HOST_SOCKETS

from quicksand_tui.cli.ssh.ssh_config import sockets_dir
from tests.conftest import wait_for
from tests.e2e.commands.conftest import IMAGE, PROGRAM, execute, in_vm, succeed
from tests.e2e.tmux import Terminal
from tests.pty_terminal import PtyTerminal
from tests.relay import relay
from tests.ssh_server import FarHost, far_environ, find_sshd, with_sshd, without_sshd

pytestmark = pytest.mark.vm


@pytest.fixture(scope="module")
def far(places: Paths) -> Iterator[FarHost]:
    way = with_sshd if find_sshd() is not None else without_sshd
    with (
        tempfile.TemporaryDirectory(prefix="qsh-") as root,
        way(Path(root), far_environ()) as found,
    ):
        yield found
        wait_for(lambda: not own_sockets(places.runtime, HOST_SOCKETS), what="the far end to end")


def there(far: FarHost, *arguments: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [*PROGRAM, "--host", far.address, *arguments],
        input=stdin,
        capture_output=True,
        timeout=120,
        env=far.environ(),
        check=False,
    )


@pytest.fixture(scope="module")
def web(far: FarHost) -> Iterator[str]:
    """A sandbox that was started there, and is removed there."""
    started = there(far, "run", IMAGE, "--name", "web", "--detach")
    assert (started.returncode, started.stdout) == (0, b"web\n"), started.stderr
    yield "web"
    assert there(far, "rm", "-f", "web").returncode == 0


def test_variables_go_there_and_streams_and_the_exit_code_come_back(
    far: FarHost, web: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKEN", "sécret word")
    names = ("-e", "TOKEN", "-e", "OTHER=one", "-e", "NOTHING")
    script = (
        "echo $TOKEN $OTHER ${NOTHING-unset} ${QUICKSAND_PASSED_ON-unset}; echo err >&2; exit 7"
    )
    found = there(far, "exec", *names, web, "--", "sh", "-c", script)
    assert (found.returncode, found.stderr) == (7, b"err\n")
    assert found.stdout.decode() == "sécret word one unset unset\n"


def test_a_sandbox_that_is_run_there_ends_with_its_command(
    far: FarHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKEN", "secret")
    script = "cat; echo $TOKEN; exit 9"
    found = there(far, "run", IMAGE, "-i", "-e", "TOKEN", "--", "sh", "-c", script, stdin=b"in\n")
    assert (found.returncode, found.stdout) == (9, b"in\nsecret\n"), found.stderr
    assert set(succeed("ps", "-aq").split()) <= {"web"}


def test_why_a_command_there_has_ended_is_told(far: FarHost) -> None:
    succeed("run", IMAGE, "--name", "short", "--detach")
    with subprocess.Popen(
        [*PROGRAM, "--host", far.address, "exec", "short", "--", "sh", "-c", "echo on; sleep 999"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=far.environ(),
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"on\n"
        succeed("kill", "short")
        _, err = process.communicate(timeout=60)
    assert (process.returncode, b"the sandbox 'short' was stopped" in err) == (125, True), err
    succeed("rm", "short")


@pytest.mark.soak
def test_stdin_and_stdout_carry_bytes_of_any_size(far: FarHost, web: str) -> None:
    data = os.urandom(5_000_000)
    found = there(far, "exec", "-i", web, "--", "cat", stdin=data)
    assert found.stdout == data


def test_a_command_takes_no_input_that_it_was_not_given(far: FarHost, web: str) -> None:
    """Or it would eat that of the script that calls it."""
    script = f"read word; {' '.join(PROGRAM)} --host {far.address} exec {web} -- echo $word; cat"
    found = subprocess.run(
        ["sh", "-c", script],
        input=b"one\ntwo\n",
        capture_output=True,
        timeout=120,
        env=far.environ(),
        check=False,
    )
    assert found.stdout == b"one\ntwo\n"


def test_an_interrupt_reaches_the_command_in_the_guest(far: FarHost, web: str) -> None:
    command = ["sh", "-c", 'trap "echo got; exit 3" INT; echo ready; while :; do sleep 0.1; done']
    with subprocess.Popen(
        [*PROGRAM, "--host", far.address, "exec", web, "--", *command],
        stdout=subprocess.PIPE,
        env=far.environ(),
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        process.send_signal(signal.SIGINT)
        assert process.stdout.read() == b"got\n"
        assert process.wait(60) == 3


def test_what_happens_there_is_told_as_it_happens(far: FarHost, web: str) -> None:
    with subprocess.Popen(
        [*PROGRAM, "--host", far.address, "events", "-f", "--json", web],
        stdout=subprocess.PIPE,
        env=far.environ(),
    ) as process:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["event"] == "watching"
        assert execute(web, ["sh", "-c", "exit 33"]).exit_code == 33
        told = map(json.loads, process.stdout)
        # What happened before may be told of late.
        assert any((one["event"], one.get("exit_code")) == ("command", 33) for one in told)
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130


def test_a_command_ends_with_its_client(far: FarHost, web: str) -> None:
    with subprocess.Popen(
        [*PROGRAM, "--host", far.address, "exec", web, "--", "sh", "-c", "echo ready; sleep 1234"],
        stdout=subprocess.PIPE,
        env=far.environ(),
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        process.kill()
    wait_for(lambda: in_vm(web, "pgrep -f '^sleep 1234' || true") == "", what="it to end")


def test_files_are_copied_between_this_machine_and_that_guest(
    far: FarHost, web: str, tmp_path: Path
) -> None:
    source = tmp_path / "source"
    (source / "sub").mkdir(parents=True)
    (source / "data").write_bytes(os.urandom(3_000_000))
    (source / "sub" / "link").symlink_to("../data")
    assert there(far, "cp", str(source), f"{web}:/tmp/copy").returncode == 0
    digest = hashlib.sha256((source / "data").read_bytes()).hexdigest()
    assert in_vm(web, "sha256sum < /tmp/copy/sub/link").split()[0] == digest
    assert there(far, "cp", f"{web}:/tmp/copy", str(tmp_path / "back")).returncode == 0
    assert (tmp_path / "back" / "data").read_bytes() == (source / "data").read_bytes()
    assert os.readlink(tmp_path / "back" / "sub" / "link") == "../data"
    missing = there(far, "cp", "nobody:/x", str(tmp_path / "x"))
    assert missing.returncode == 1
    assert b"no sandbox is called 'nobody'" in missing.stderr


@pytest.fixture
def box(far: FarHost, web: str, places: Paths) -> Iterator[dict[str, str]]:
    """The environment of programs for which the machine is called `box`."""
    env = far.environ()
    subprocess.run([*PROGRAM, "hosts", "add", "box", far.address], env=env, check=True, timeout=60)
    yield env
    subprocess.run([*PROGRAM, "hosts", "rm", "box"], env=env, check=True, timeout=60)
    # A connection that is kept ends with the name that led there.
    masters = sockets_dir(places)
    assert masters is not None
    wait_for(lambda: not [*masters.iterdir()], what="kept connections to end")
    masters.rmdir()


def test_programs_for_ssh_reach_it_by_its_name_and_that_of_its_machine(
    box: dict[str, str], far: FarHost, web: str, places: Paths, tmp_path: Path
) -> None:
    subprocess.run([*PROGRAM, "ssh-config"], env=box, check=True, timeout=60, capture_output=True)
    ours = ["-F", str(places.data / "ssh" / "config")]

    def done(*words: str, **more: str) -> str:
        found = subprocess.run(
            words, env=box | more, timeout=120, capture_output=True, check=False, text=True
        )
        assert found.returncode == 0, found.stderr
        return found.stdout

    assert done("ssh", *ours, f"{web}.box.qs", "echo $HOME; exec hostname") == "/root\nweb\n"
    (tmp_path / "sent").write_bytes(os.urandom(300_000))
    done("scp", *ours, str(tmp_path / "sent"), f"{web}.box.qs:sent")
    digest = hashlib.sha256((tmp_path / "sent").read_bytes()).hexdigest()
    assert in_vm(web, "sha256sum < /root/sent").split()[0] == digest
    assert done(*PROGRAM, "ssh", f"{web}.box", "hostname") == "web\n"
    # A machine that is only an address, and one that the variable chooses.
    assert done(*PROGRAM, "ssh", web, "hostname", QUICKSAND_HOST=far.address) == "web\n"
    # The editor is one of this machine.
    checked = subprocess.run(
        [*PROGRAM, "--host", "box", "code", web, "--check"],
        env=box,
        timeout=120,
        capture_output=True,
        check=False,
        text=True,
    )
    assert checked.stdout == f"code --remote ssh-remote+{web}.box.qs /root\n", checked.stderr


def test_a_snapshot_of_it_is_written_here(far: FarHost, web: str, tmp_path: Path) -> None:
    file = tmp_path / "web.qcow2"
    found = there(far, "snapshot", web, str(file), "--json")
    assert found.returncode == 0, found.stderr
    assert file.read_bytes()[:4] == b"QFI\xfb"
    assert json.loads(found.stdout)["path"] == str(file)


def test_a_terminal_in_it_is_as_one_here(far: FarHost, web: str) -> None:
    argv = [*PROGRAM, "--host", far.address, "shell", web]
    with PtyTerminal(argv, columns=90, env={"PATH": far.environ()["PATH"]}) as terminal:
        terminal.type(b"stty size; echo mar''ker\r")
        terminal.sees("24 90", "marker")
        terminal.resize(100, 30)
        # The size and what is typed go there in ways of their own: either may be first.
        terminal.type(b"until stty size | grep '30 100'; do sleep 0.1; done\r")
        terminal.sees("\n30 100")
        terminal.type(b"exit 5\r")
        assert terminal.process.wait(60) == 5
        assert terminal.modes == terminal.before


@pytest.mark.skipif(find_sshd() is None, reason="without sshd there is no line")
def test_a_line_that_is_long_and_loses_packets_only_takes_longer(far: FarHost, web: str) -> None:
    """200 ms there and back, and one segment in a hundred is sent again."""
    with relay(far.port, delay_s=0.1, loss=0.01) as line:
        slow = replace(far, address=f"ssh://localhost:{line.port}")
        data = os.urandom(1_000_000)
        found = there(slow, "exec", "-i", web, "--", "sh", "-c", "cat; exit 3", stdin=data)
        assert (found.returncode, found.stderr) == (3, b"")
        assert found.stdout == data


@pytest.mark.skipif(find_sshd() is None, reason="without sshd there is no line")
@pytest.mark.parametrize(
    ("breaks", "away_s"),
    [
        ("freeze", 2),
        ("cut", 2),
        pytest.param("freeze", 75, marks=pytest.mark.soak),
        pytest.param("cut", 60, marks=pytest.mark.soak),
    ],
)
def test_a_machine_that_is_away_for_a_while_is_found_again(
    far: FarHost, web: str, places: Paths, breaks: str, away_s: int
) -> None:
    """Without a word, or with the end of all connections; a change that had begun is made once. ssh
    gives a silent machine up after 45 s."""
    tag = f"{breaks}-{away_s}"
    with relay(far.port) as line:
        before = set(own_sockets(places.runtime, HOST_SOCKETS))
        address = f"ssh://localhost:{line.port}"
        with subprocess.Popen(
            [*PROGRAM, "--host", address, "checkpoint", web, tag],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=far.environ(),
        ) as process:
            wait_for(
                lambda: set(own_sockets(places.runtime, HOST_SOCKETS)) - before,
                what="it to be begun there",
            )
            getattr(line, breaks)()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(away_s)
            assert process.returncode is None
            line.mend()
            _, err = process.communicate(timeout=180)
        assert process.returncode == 0, err
        is_noticed = breaks == "cut" or away_s > 45
        assert (b"connecting again" in err) == is_noticed, err
    succeed("checkpoint", "rm", web, tag)


def cut_in_the_midst(far: FarHost, places: Paths, *arguments: str) -> bytes:
    """Carry a command out there whose ssh is killed once it has begun."""
    before = set(own_sockets(places.runtime, HOST_SOCKETS))
    with subprocess.Popen(
        [*PROGRAM, "--host", far.address, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=far.environ(),
    ) as process:
        wait_for(
            lambda: set(own_sockets(places.runtime, HOST_SOCKETS)) - before,
            what="it to be begun there",
        )
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        for child in children:
            os.kill(int(child), signal.SIGKILL)
        out, err = process.communicate(timeout=120)
    assert b"connecting again" in err, err
    assert process.returncode == 0, err
    return out


@pytest.mark.skipif(find_sshd() is None, reason="without sshd nothing is left of what was killed")
def test_changes_whose_connection_breaks_are_made_once(
    far: FarHost, web: str, places: Paths
) -> None:
    def tags() -> list[str]:
        tree = json.loads(succeed("tree", web, "--json"))
        return [one["tag"] for one in tree["checkpoints"] if one["tag"]]

    def names() -> list[str]:
        return sorted(succeed("ps", "-aq").split())

    def cut(*arguments: str) -> bytes:
        return cut_in_the_midst(far, places, *arguments)

    cut("checkpoint", web, "cut")
    assert tags().count("cut") == 1
    in_vm(web, "touch /after")
    cut("revert", web, "cut")
    assert in_vm(web, "ls /after || true") == ""
    cut("undo", web)
    assert in_vm(web, "ls /after") == "/after"
    assert cut("clone", web, "--name", "twin") == b"twin\n"
    assert names() == ["twin", web]
    assert cut("stop", "twin") == b"twin\n"
    assert cut("start", "twin") == b"twin\n"
    succeed("rm", "-f", "twin")
    assert names() == [web]
    assert there(far, "checkpoint", "rm", web, "cut").stdout == b"cut\n"
    assert "cut" not in tags()


def test_the_app_uses_sandboxes_of_another_machine(far: FarHost, web: str) -> None:
    """A group in the list, a shell, a checkpoint and a revert there, and a connection that
    breaks."""
    name = far.address.removeprefix("ssh://") if far.has_sshd else far.address
    environ = far.environ()
    app = [*PROGRAM, "--host", far.address]
    with Terminal(app, columns=110, rows=32, PATH=environ["PATH"]) as terminal:
        terminal.sees("▾ this machine  1 running", f"▾ {name}  1 running")
        # It has opened on that machine; the sandbox is below its header.
        terminal.sees(f"Address    {far.address}")
        terminal.press("j")
        terminal.sees(f"Tree of web@{name}")
        terminal.press("s")
        terminal.sees("root@web:~#")
        terminal.type("touch /there; ls -d /the*")
        terminal.press("Enter")
        terminal.until(lambda text: text.count("/there") >= 2, what="its answer")
        terminal.press("C-]", "c")
        terminal.sees("Checkpoint of")
        terminal.type("seen")
        terminal.press("Enter")
        terminal.sees("● seen", f"--host {name} checkpoint web seen  ✓")
        terminal.type("rm /there; ls -d /there")
        terminal.press("Enter")
        terminal.sees("No such file")
        terminal.press("C-]", "u")
        terminal.sees("Restores")
        terminal.press("Enter")
        terminal.sees("reverted to seen")
        terminal.until(lambda text: "No such file" not in text, what="the shell of then")
        terminal.type("ls -d /there; echo $((6 * 7))-there")
        terminal.press("Enter")
        terminal.sees("42-there")
        assert "No such file" not in terminal.text

        os.kill(terminal.child_of("exit 127'"), signal.SIGKILL)
        terminal.sees("is there again")
        terminal.type("echo $((6 * 9))-again")
        terminal.press("Enter")
        terminal.sees("54-again")
        terminal.press("C-]", "d", "q")
        terminal.sees("STATUS=0")
    succeed("checkpoint", "rm", web, "seen")
