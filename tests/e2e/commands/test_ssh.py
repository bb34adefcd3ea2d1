"""The system's ssh, scp, sftp, rsync and git with sandboxes that have neither network nor sshd."""

from __future__ import annotations

import contextlib
import os
import socket
import stat
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from quicksand.base.paths import Paths

from quicksand_tui.cli.ssh.ssh_config import sockets_dir
from tests.conftest import free_port, wait_for
from tests.e2e.commands.conftest import execute, in_vm, quicksand, start_quicksand, succeed
from tests.pty_terminal import PtyTerminal

pytestmark = pytest.mark.vm

PATIENCE_S = 180

ECHO = """
import socket, sys
family = socket.AF_UNIX if sys.argv[1].startswith("/") else socket.AF_INET
server = socket.socket(family)
server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
server.bind(sys.argv[1] if family == socket.AF_UNIX else ("127.0.0.1", int(sys.argv[1])))
server.listen()
while True:
    peer, _ = server.accept()
    text = b"".join(iter(lambda: peer.recv(65536), b""))
    peer.sendall(b"guest:" + text)
    peer.close()
"""
"""A service in the guest that answers once it has been told all."""

ASK = """
import socket, sys
place = sys.argv[1]
peer = socket.socket(socket.AF_UNIX if place.startswith("/") else socket.AF_INET)
peer.connect(place if place.startswith("/") else ("127.0.0.1", int(place)))
peer.sendall(b"hello")
peer.shutdown(socket.SHUT_WR)
print(b"".join(iter(lambda: peer.recv(65536), b"")).decode())
"""


@pytest.fixture(scope="module")
def config(places: Paths) -> Iterator[Path]:
    """The config that ssh gets here, which includes ours."""
    file = places.data / "user-config"
    printed = succeed("ssh-config")
    assert printed == (places.data / "ssh" / "config").read_text()
    file.write_text(f'Include "{places.data}/ssh/config"\n')
    yield file
    sockets = sockets_dir(places)
    assert sockets is not None
    for master in sockets.glob("*"):
        subprocess.run(
            ["ssh", "-F", file, "-O", "exit", "-S", master, "x"], capture_output=True, check=False
        )
    wait_for(lambda: not list(sockets.glob("*")), what="the masters to end")
    sockets.rmdir()


class Client:
    """Programs of OpenSSH, as a user calls them."""

    def __init__(self, config: Path) -> None:
        self.config = config

    def run(
        self, *words: str | Path, stdin: bytes = b"", program: str = "ssh"
    ) -> subprocess.CompletedProcess[bytes]:
        line = [program, "-F", self.config, *words]
        return subprocess.run(
            line, input=stdin, capture_output=True, timeout=PATIENCE_S, check=False
        )

    def say(self, *words: str | Path, stdin: bytes = b"", program: str = "ssh") -> str:
        """What one that succeeds prints."""
        done = self.run(*words, stdin=stdin, program=program)
        assert done.returncode == 0, done
        return done.stdout.decode().strip()

    def start(self, *words: str | Path) -> subprocess.Popen[bytes]:
        """One that runs on, with a connection of its own."""
        return subprocess.Popen(
            ["ssh", "-F", self.config, "-S", "none", *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )


@pytest.fixture(scope="module")
def client(config: Path) -> Client:
    return Client(config)


@pytest.fixture(scope="module")
def host(vm: str) -> str:
    return f"{vm}.qs"


def first_line(process: subprocess.Popen[bytes]) -> bytes:
    assert process.stdout is not None
    return process.stdout.readline()


def test_streams_stay_apart_and_the_exit_code_is_the_commands(client: Client, host: str) -> None:
    done = client.run(host, "printf 'o\\0\\377'; echo e >&2; exit 7")
    assert (done.returncode, done.stdout, done.stderr) == (7, b"o\0\xff", b"e\n")


def test_the_quick_cipher_is_chosen(client: Client, host: str) -> None:
    done = client.run("-S", "none", "-o", "LogLevel=DEBUG", host, "true")
    assert done.stderr.count(b"cipher: aes128-gcm@openssh.com") == 2


def test_a_signal_that_ends_the_command_is_told(client: Client, host: str) -> None:
    assert client.run(host, "kill -TERM $$").returncode == 255  # as with sshd
    assert client.run(host, "sh -c 'kill -TERM $$'; exit 3").returncode == 3


def test_a_script_on_stdin_runs_in_the_users_home(client: Client, host: str) -> None:
    script = b"echo $PWD $USER $SHELL; test -t 0 || echo no terminal\n"
    expected = "/root root /bin/bash\nno terminal"
    assert client.say("-T", host, stdin=script) == expected


def test_much_goes_through_unchanged(client: Client, host: str) -> None:
    data = os.urandom(2 << 20)
    assert client.run(host, "cat", stdin=data).stdout == data


def test_a_terminal_has_a_name_and_the_clients_size_and_follows_it(
    client: Client, host: str
) -> None:
    named = '[ "$SSH_TTY" = "$(tty)" ] && echo "named: $SSH_TTY"; '
    resized = 'stty size; trap "stty size; exit 5" WINCH; echo ready; while :; do sleep 0.1; done'
    command = named + resized
    line = ["ssh", "-F", str(client.config), "-tt", host, command]
    with PtyTerminal(line, columns=99, rows=33) as terminal:
        wait_for(lambda: b"33 99" in terminal.output and b"ready" in terminal.output, what="it")
        assert b"named: /dev/pts/" in terminal.output
        terminal.resize(70, 20)
        wait_for(lambda: b"20 70" in terminal.output, what="the new size")
        assert terminal.process.wait(PATIENCE_S) == 5


def test_a_terminal_of_a_type_that_the_guest_lacks_has_this_hosts_entry_or_a_usual_type(
    client: Client, host: str, tmp_path: Path
) -> None:
    entry = next(
        path
        for root in ("/lib/terminfo", "/usr/share/terminfo")
        for path in Path(root).glob("x/xterm-256color")
    )
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "xterm-of-this-host").write_bytes(entry.read_bytes())
    line = ["ssh", "-F", str(client.config), "-S", "none", "-tt", host]
    for kind, told in (
        ("xterm-of-this-host", "xterm-of-this-host"),
        ("xterm-from-2050", "xterm-256color"),
    ):
        env = {**os.environ, "TERM": kind, "TERMINFO": str(tmp_path)}
        with PtyTerminal([*line, "clear && echo term=$TERM."], env=env) as terminal:
            wait_for(lambda: f"term={told}.".encode() in terminal.output, what="it")  # noqa: B023
            assert terminal.process.wait(PATIENCE_S) == 0


def test_a_terminal_is_hung_up_with_its_client(client: Client, vm: str, host: str) -> None:
    with PtyTerminal(["ssh", "-F", str(client.config), "-S", "none", "-tt", host]) as terminal:
        wait_for(lambda: b"#" in terminal.output, what="a prompt")
        terminal.type(b"exec sleep 4711\n")
        wait_for(lambda: in_vm(vm, "pgrep -fx 'sleep 4711' || :"), what="it to run")
        terminal.process.terminate()
    wait_for(lambda: not in_vm(vm, "pgrep -fx 'sleep 4711' || :"), what="it to end")


def test_commands_end_with_their_client_and_what_they_have_started_lives_on(
    client: Client, vm: str, host: str
) -> None:
    process = client.start(host, "sleep 4712 & echo started; exec sleep 4713")
    assert first_line(process) == b"started\n"
    # A signal between bash's last look for one and its exec is lost.
    wait_for(lambda: in_vm(vm, "pgrep -fx 'sleep 4713' || :"), what="it to begin")
    process.terminate()
    process.communicate()
    wait_for(lambda: not in_vm(vm, "pgrep -fx 'sleep 4713' || :"), what="it to end")
    assert in_vm(vm, "pgrep -fx 'sleep 4712'; pkill -fx 'sleep 4712'")


def test_scp_copies_both_ways_and_succeeds(client: Client, host: str, tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    (tree / "sub").mkdir(parents=True)
    for number in range(8):
        (tree / "sub" / f"f {number}").write_bytes(os.urandom(number * 1000))
    (tree / "run").write_text("#!/bin/sh\n")
    (tree / "run").chmod(0o750)
    client.say("-rp", tree, f"{host}:", program="scp")
    client.say("-rp", f"{host}:~/tree", tmp_path / "back", program="scp")
    for path in tree.rglob("*"):
        copy = tmp_path / "back" / path.relative_to(tree)
        assert stat.filemode(copy.stat().st_mode) == stat.filemode(path.stat().st_mode)
        assert not path.is_file() or copy.read_bytes() == path.read_bytes()
    client.say(host, "rm -r tree")
    assert client.run(f"{host}:missing", tmp_path, program="scp").returncode == 1


def test_sftp_does_what_clients_ask_for(client: Client, host: str, tmp_path: Path) -> None:
    (tmp_path / "f").write_text("text")
    batch = f"""
        mkdir d
        put {tmp_path}/f d/f
        rename d/f d/g
        ln d/g d/hard
        symlink g d/link
        chmod 600 d/g
        df
        get d/link {tmp_path}/back
        ls -l d
        rm d/g
        rm d/hard
        rm d/link
        rmdir d
    """
    listed = client.say("-b", "-", host, stdin=batch.encode(), program="sftp")
    assert "-rw-------" in listed and "lrwxrwxrwx" in listed
    assert (tmp_path / "back").read_text() == "text"


def test_files_are_those_of_the_user_who_logs_in(client: Client, vm: str, host: str) -> None:
    in_vm(vm, "useradd -m -s /bin/sh joe 2>/dev/null; id joe >/dev/null")
    assert client.say(f"joe@{host}", "id -un; pwd") == "joe\n/home/joe"
    done = client.run("-b", "-", f"joe@{host}", stdin=b"mkdir /root/x", program="sftp")
    assert done.returncode == 1
    client.say("-b", "-", f"joe@{host}", stdin=b"mkdir mine", program="sftp")
    assert in_vm(vm, "stat -c %U /home/joe/mine") == "joe"


def test_rsync_copies_only_what_differs(
    client: Client, host: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RSYNC_RSH", f"ssh -F {client.config}")
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a").write_text("a")
    line = ["rsync", "-a", "--stats", f"{tmp_path}/docs/", f"{host}:docs/"]
    for moved in ("transferred: 1", "transferred: 0"):
        done = subprocess.run(line, capture_output=True, timeout=PATIENCE_S, check=False)
        assert done.returncode == 0, done.stderr
        assert moved in done.stdout.decode()
    assert client.say(host, "cat docs/a; rm -r docs") == "a"


def test_git_clones_and_pushes(
    client: Client, host: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_SSH_COMMAND", f"ssh -F {client.config}")
    client.say(
        host,
        "git init -q -b main repo && cd repo && git config receive.denyCurrentBranch ignore && "
        "git -c user.name=x -c user.email=x@y commit -q --allow-empty -m first",
    )

    def git(*words: str) -> str:
        line = ["git", "-c", "user.name=x", "-c", "user.email=x@y", *words]
        done = subprocess.run(line, cwd=tmp_path, capture_output=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout.decode().strip()

    git("clone", "-q", f"{host}:repo", "repo")
    git("-C", "repo", "commit", "-q", "--allow-empty", "-m", "second")
    git("-C", "repo", "push", "-q")
    assert client.say(host, "git -C repo log --format=%s main; rm -rf repo") == "second\nfirst"


@pytest.fixture
def echo(client: Client, vm: str, host: str) -> Iterator[None]:
    """Services in the guest, at a port and at a Unix socket."""
    in_vm(vm, "cat >/root/echo.py <<'E'\n" + ECHO + "E\n")
    for place in ("7000", "/root/echo"):
        in_vm(vm, f"setsid python3 /root/echo.py {place} </dev/null >/dev/null 2>&1 &")
    wait_for(lambda: execute(vm, "ss -ltn | grep -q :7000; test -S /root/echo").ok, what="them")
    yield
    in_vm(vm, "pkill -f '[/]root/echo.py'; rm /root/echo")


def ask(place: int | Path, text: bytes = b"hi") -> bytes:
    """What a service answers, here."""
    is_port = isinstance(place, int)
    with socket.socket(socket.AF_INET if is_port else socket.AF_UNIX) as peer:
        peer.settimeout(PATIENCE_S)
        peer.connect(("127.0.0.1", place) if is_port else str(place))
        peer.sendall(text)
        peer.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: peer.recv(65536), b""))


def listens(port: int) -> bool:
    with socket.socket() as peer:
        return peer.connect_ex(("127.0.0.1", port)) == 0


def test_ports_and_sockets_of_the_guest_are_reached_from_here(
    client: Client, host: str, echo: None, tmp_path: Path
) -> None:
    port, socks, there = free_port(), free_port(), tmp_path / "there"
    forwards = ["-L", f"{port}:127.0.0.1:7000", "-L", f"{there}:/root/echo", "-D", f"{socks}"]
    process = client.start("-N", *forwards, host)
    try:
        wait_for(lambda: listens(socks) and there.exists(), what="the forwards")
        assert ask(port) == b"guest:hi"
        assert ask(there) == b"guest:hi"
        much = os.urandom(2 << 20)
        assert ask(port, much) == b"guest:" + much
        with socket.create_connection(("127.0.0.1", socks), PATIENCE_S) as peer:
            peer.sendall(b"\x05\x01\x00\x05\x01\x00\x03\x09localhost" + (7000).to_bytes(2))
            assert peer.recv(2) == b"\x05\x00"
            assert peer.recv(10)[:2] == b"\x05\x00"
            peer.sendall(b"hi")
            peer.shutdown(socket.SHUT_WR)
            assert b"".join(iter(lambda: peer.recv(100), b"")) == b"guest:hi"
    finally:
        process.terminate()
        process.communicate()


def test_a_forward_of_our_own_command_lasts_as_long_as_it(
    client: Client, vm: str, host: str, echo: None
) -> None:
    client.say(host, "true")  # there is a master, which would take it over
    port = free_port()
    process = start_quicksand("ssh", vm, "-N", "-L", f"{port}:127.0.0.1:7000")
    try:
        wait_for(lambda: listens(port), what="the forward")
        assert ask(port) == b"guest:hi"
        assert process.poll() is None
    finally:
        process.terminate()
        process.communicate()
    wait_for(lambda: not listens(port), what="the forward to end")


def test_a_forward_does_not_reach_this_hosts_loopback(client: Client, host: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as mine:
        port = free_port()
        target = f"127.0.0.1:{mine.getsockname()[1]}"
        process = client.start("-N", "-L", f"{port}:{target}", host)
        try:
            wait_for(lambda: listens(port), what="the forward")
            with contextlib.suppress(ConnectionError):  # it is refused in the guest
                assert ask(port) == b""
            mine.setblocking(False)
            with pytest.raises(BlockingIOError):
                mine.accept()
        finally:
            process.terminate()
            process.communicate()


def ask_in_guest(vm: str, place: str, server: socket.socket) -> str:
    """What a program in the guest gets when it asks what listens here."""
    with ThreadPoolExecutor() as pool:
        asked = pool.submit(execute, vm, ["python3", "-c", ASK, place])
        peer, _ = server.accept()
        with peer:
            text = b"".join(iter(lambda: peer.recv(100), b""))
            peer.sendall(b"host:" + text)
        return asked.result(PATIENCE_S).stdout.strip()


def test_what_listens_here_is_reached_from_the_guest(
    client: Client, vm: str, host: str, tmp_path: Path
) -> None:
    mine = tmp_path / "mine"
    with socket.create_server(("127.0.0.1", 0)) as tcp, socket.socket(socket.AF_UNIX) as unix:
        unix.bind(str(mine))
        unix.listen()
        forwards = ["-R", f"7100:127.0.0.1:{tcp.getsockname()[1]}", "-R", f"/root/back:{mine}"]
        process = client.start("-N", "-o", "ExitOnForwardFailure=yes", *forwards, host)
        try:
            ready = "ss -ltn | grep -q :7100; test -S /root/back"
            wait_for(lambda: execute(vm, ready).ok, what="the listeners")
            assert ask_in_guest(vm, "7100", tcp) == "host:hello"
            assert ask_in_guest(vm, "/root/back", unix) == "host:hello"
            assert "0.0.0.0:7100" not in in_vm(vm, "ss -ltn")
        finally:
            process.terminate()
            process.communicate()
    wait_for(lambda: execute(vm, "! ss -ltn | grep -q :7100; test ! -e /root/back").ok, what="end")


def test_neither_the_agent_nor_the_screen_of_this_host_is_handed_to_the_guest(
    client: Client, host: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    place = tmp_path / "agent"
    monkeypatch.setenv("DISPLAY", ":0")
    wanted = ("-S", "none", "-A", "-X", "-o", f"IdentityAgent={place}", host)
    with subprocess.Popen(["ssh-agent", "-D", "-a", place], stdout=subprocess.DEVNULL) as agent:
        try:
            wait_for(place.exists, what="the agent")
            assert client.say(*wanted, "echo $SSH_AUTH_SOCK$DISPLAY.") == "."
        finally:
            agent.terminate()


def test_only_harmless_variables_are_passed_on(
    client: Client, host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("LD_PRELOAD_X", "BASH_ENV", "LC_TEST", "GIT_PROTOCOL"):
        monkeypatch.setenv(name, "/here")
    sent = ("-S", "none", "-o", "SendEnv=LD_PRELOAD_X BASH_ENV LC_TEST GIT_PROTOCOL")
    found = client.say(*sent, host, "env").split("\n")
    assert {"LC_TEST=/here", "GIT_PROTOCOL=/here"} <= set(found)
    assert not any(line.startswith(("LD_PRELOAD_X", "BASH_ENV")) for line in found)
    assert any(line.startswith("SSH_CONNECTION=") for line in found)


def test_two_dozen_sessions_share_one_connection(client: Client, host: str, places: Paths) -> None:
    client.say(host, "true")
    sockets = sockets_dir(places)
    assert sockets is not None
    before = set(sockets.iterdir())
    with ThreadPoolExecutor(24) as pool:
        ran = [pool.submit(client.say, host, f"sleep 0.5; echo {n}; cat") for n in range(24)]
        assert [one.result() for one in ran] == [str(n) for n in range(24)]
    assert set(sockets.iterdir()) == before


def test_an_unknown_user_and_names_that_are_paths_are_refused(client: Client, host: str) -> None:
    for user in ("../root", "no-such-user", "a b"):
        done = client.run("-S", "none", "-l", user, host, "id")
        assert (done.returncode, done.stdout) == (255, b"")
        assert b"not found" in done.stderr


def test_a_name_does_not_reach_a_shell(client: Client, host: str, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    for name in (f"x';touch {mark};'.qs", f"$(touch {mark}).qs", f"`touch {mark}`.qs", "-x.qs"):
        assert client.run("-S", "none", "--", name, "id").returncode == 255
    for name in ("../shared.qs", "shared/../shared.qs"):
        assert quicksand("ssh", name, "id").returncode == 1
    assert not mark.exists()


def test_why_there_is_no_sandbox_is_shown(client: Client) -> None:
    done = client.run("-S", "none", "no-such.qs", "id")
    assert done.returncode == 255
    assert b"no sandbox is called 'no-such'" in done.stderr
    ours = quicksand("ssh", "no-such", "id")
    assert (ours.returncode, ours.stdout) == (1, b"")
    assert ours.stderr.startswith(b"quicksand-tui: no sandbox is called 'no-such'")


def test_our_own_command_passes_on_what_is_for_ssh(vm: str, config: Path) -> None:
    done = quicksand("ssh", vm, "-T", "-o", "BatchMode=yes", "cat; exit 3", stdin=b"text")
    assert (done.returncode, done.stdout) == (3, b"text")


def test_a_revert_and_a_kill_end_the_connection_and_the_next_one_is_fresh(
    client: Client,
) -> None:
    """Of one whose name has a capital, which ssh takes for a small letter elsewhere."""
    succeed("run", "debian", "--name", "Brief", "--detach")
    client.say("Brief.qs", "true")  # from now on there is a master
    succeed("checkpoint", "Brief", "a")
    client.say("Brief.qs", "touch /root/later")
    old = client.start("Brief.qs", "echo started; sleep 4714")
    assert first_line(old) == b"started\n"
    succeed("revert", "Brief", "a")
    _, told = old.communicate(timeout=PATIENCE_S)
    assert (old.returncode, b"was reverted to 'a'" in told) == (255, True)
    fresh = client.say("Brief.qs", "ls /root/later 2>/dev/null; hostname")
    assert fresh.lower() == "brief"

    old = client.start("Brief.qs", "echo started; sleep 4715")
    assert first_line(old) == b"started\n"
    succeed("kill", "Brief")
    old.communicate(timeout=PATIENCE_S)
    assert old.returncode == 255
    stopped = client.run("Brief.qs", "true")
    assert stopped.returncode == 255
    assert b"quicksand-tui start Brief" in stopped.stderr
    succeed("rm", "-f", "Brief")
