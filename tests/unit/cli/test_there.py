"""Commands for another machine: this one, over a private sshd, and without."""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import click
import pytest
from quicksand.base.listing import own_sockets
from quicksand.base.paths import Paths
from quicksand.records.host_sockets import HOST_SOCKETS
from quicksand.remote.passed_on import PASSED_ON, encode_values
from quicksand.saves.save_manifest import Base
from quicksand.saves.store import SaveStore

from quicksand_tui.cli.click_commands import parse_env
from quicksand_tui.cli.guests import terminal
from quicksand_tui.cli.host_choice import Chosen, find_host
from quicksand_tui.cli.hosts import there as relaying
from quicksand_tui.cli.hosts.there import FILES, READ, WRITTEN, files_of, read_line, words_of
from quicksand_tui.verbs.index import all_verbs
from tests.conftest import wait_for
from tests.pty_terminal import PtyTerminal
from tests.ssh_server import FarHost, far_environ, find_sshd, lock_key, with_sshd, without_sshd
from tests.unit.cli.run_cli import MODULE, make_stopped, quicksand
from tests.unit.saves.bundles.making import Home
from tests.unit.saves.making import make_save


def there(
    far: FarHost, *arguments: str, stdin: bytes = b"", cwd: Path | None = None, **env: str
) -> subprocess.CompletedProcess[bytes]:
    """One command that another machine carries out."""
    return subprocess.run(
        [*MODULE, "--host", far.address, *arguments],
        input=stdin,
        capture_output=True,
        timeout=60,
        env={**far.environ(), **env},
        cwd=cwd,
        check=False,
    )


@pytest.fixture(params=["sshd", "no sshd"])
def far(request: pytest.FixtureRequest, places: Paths) -> Iterator[FarHost]:
    """A machine that is reached over ssh. Nothing of it is left at the end."""
    if request.param == "sshd" and find_sshd() is None:
        pytest.skip("this host has no sshd: `python scripts/tools.py` gets it")
    with tempfile.TemporaryDirectory(prefix="qsh-") as root:
        way = with_sshd if request.param == "sshd" else without_sshd
        with way(Path(root), far_environ()) as found:
            yield found
            wait_for(
                lambda: not own_sockets(places.runtime, HOST_SOCKETS), what="the far end to end"
            )


def test_sandboxes_of_another_machine_are_listed(far: FarHost, places: Paths) -> None:
    make_stopped(places, "web")
    found = there(far, "ps", "-a", "--json")
    assert (found.returncode, found.stderr) == (0, b"")
    assert [entry["name"] for entry in json.loads(found.stdout)] == ["web"]


@pytest.mark.skipif(find_sshd() is None, reason="there is no sshd on this host")
def test_ssh_asks_on_the_terminal_of_a_command(places: Paths, tmp_path: Path) -> None:
    make_stopped(places, "web")
    with with_sshd(tmp_path, far_environ()) as found:
        lock_key(found, "sesame")
        argv = [*MODULE, "--host", found.address, "ps", "-aq"]
        env = {**found.environ(), "SSH_AUTH_SOCK": ""}
        with PtyTerminal(argv, env=env) as terminal:
            terminal.sees("Enter passphrase for key")
            terminal.type(b"sesame\r")
            assert terminal.ends() == 0
            assert "web" in terminal.text
            assert "sesame" not in terminal.text
            assert terminal.modes == terminal.before
        # Without one, as in a script, it does not wait for an answer.
        refused = subprocess.run(argv, env=env, capture_output=True, timeout=60, check=False)
        assert refused.returncode == 1
        assert b"cannot connect to" in refused.stderr


def test_exit_codes_errors_and_streams_are_those_of_the_other_machine(far: FarHost) -> None:
    found = there(far, "logs", "web")
    assert found.returncode == 1
    assert found.stdout == b""
    assert b"no sandbox is called 'web'" in found.stderr
    assert there(far, "exec", "web", "--", "true").returncode == 125


@pytest.mark.parametrize(
    "line",
    ["checkpoint web x", "stop nope", "checkpoint rm web x y", "clone web -n 2 --name a"],
)
def test_what_is_wrong_with_a_sandbox_is_told_as_of_one_here(
    far: FarHost, places: Paths, line: str
) -> None:
    make_stopped(places, "web")
    here = subprocess.run(
        [*MODULE, *line.split()], capture_output=True, env=far.environ(), timeout=60, check=False
    )
    found = there(far, *line.split())
    assert here.returncode > 0
    assert (found.returncode, found.stdout, found.stderr) == (
        here.returncode,
        here.stdout,
        here.stderr,
    )


def test_a_change_is_made_there(far: FarHost, places: Paths) -> None:
    make_stopped(places, "web")
    found = there(far, "rm", "web")
    assert (found.returncode, found.stdout) == (0, b"web\n")
    assert json.loads(there(far, "ps", "-a", "--json").stdout) == []
    assert there(far, "restore", "web").returncode == 0


def test_saves_are_worked_on_there_as_here(far: FarHost, store: SaveStore, base: Base) -> None:
    make_save(store, "dev", b"1", base=base)
    # A login by ssh begins in the home directory that the system knows.
    begins_in = pwd.getpwuid(os.getuid()).pw_dir if far.has_sshd else os.getcwd()
    for line in (
        *("saves verify --json", "saves verify dev", "saves verify nope", "saves rebase dev"),
        *("saves prune --keep 0 --dry-run --json", "saves rm nope", "restore nope"),
    ):
        here = quicksand(*line.split())
        found = there(far, *line.split())
        assert (found.returncode, found.stdout, found.stderr) == (
            here.returncode,
            here.stdout,
            here.stderr.replace(os.getcwd().encode(), begins_in.encode()),
        ), line
    assert there(far, "saves", "rm", "dev").stdout == b"dev\n"
    assert not store.list() and len(store.trash()) == 1
    assert there(far, "restore", "dev", "--start").returncode == 2
    assert there(far, "restore", "dev").stdout == b"dev\n"
    assert there(far, "saves", "prune", "--keep", "0", "--json").returncode == 0
    restored = there(far, "saves", "restore", "dev", "--name", "dev2")
    assert (restored.returncode, restored.stdout) == (0, b"dev2\n")


def test_the_variable_chooses_the_machine_and_the_option_wins(far: FarHost, places: Paths) -> None:
    make_stopped(places, "web")
    env = {**far.environ(), "QUICKSAND_HOST": far.address, "QUICKSAND_DATA_DIR": "/nonexistent"}
    found = subprocess.run(
        [*MODULE, "ps", "-aq"], capture_output=True, env=env, timeout=60, check=False
    )
    assert found.stdout == b"web\n"
    found = subprocess.run(
        [*MODULE, "--host", "local", "ps", "-aq"],
        capture_output=True,
        env={**env, "QUICKSAND_HOST": "ssh://nowhere.invalid"},
        timeout=60,
        check=False,
    )
    assert found.stdout == b""


def test_hosts_have_names_in_the_config(far: FarHost) -> None:
    def hosts(*arguments: str) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            [*MODULE, "hosts", *arguments],
            capture_output=True,
            env=far.environ(),
            timeout=60,
            check=False,
        )

    assert hosts("add", "box", far.address).returncode == 0
    assert hosts("add", "box", far.address).returncode == 1
    assert json.loads(hosts("--json").stdout) == [{"name": "box", "address": far.address}]
    (checked,) = json.loads(hosts("check", "--json").stdout)
    assert (checked["name"], checked["error"], checked["protocol"]) == ("box", None, 1)
    named = subprocess.run(
        [*MODULE, "--host", "box", "ps"],
        capture_output=True,
        env=far.environ(),
        timeout=60,
        check=False,
    )
    assert named.returncode == 0
    nowhere = hosts("check", "ssh://no-such-host@")
    assert (nowhere.returncode, nowhere.stdout) == (1, b""), "no table without rows"
    assert hosts("rm", "box").returncode == 0
    assert json.loads(hosts("--json").stdout) == []
    assert hosts("rm", "box").returncode == 1


@pytest.mark.skipif(find_sshd() is None, reason="this host has no sshd")
def test_one_session_is_enough_and_noise_is_skipped() -> None:
    """A server that allows one session only, and a login shell that greets."""
    noise = """ForceCommand echo "Welcome to ours"; printf 'QSND\\0\\377'; """
    settings = ("MaxSessions 1", noise + 'exec sh -c "$SSH_ORIGINAL_COMMAND"')
    with (
        tempfile.TemporaryDirectory(prefix="qsh-") as root,
        with_sshd(Path(root), far_environ(), *settings) as far,
    ):
        found = there(far, "ps", "--json")
        assert (found.returncode, found.stdout) == (0, b"[]\n")


@pytest.mark.skipif(find_sshd() is None, reason="this host has no sshd")
def test_a_server_that_does_not_run_our_command_is_shown() -> None:
    with (
        tempfile.TemporaryDirectory(prefix="qsh-") as root,
        with_sshd(Path(root), far_environ(), "ForceCommand echo This is a git server") as far,
    ):
        found = there(far, "ps")
        assert found.returncode == 1
        assert b"it printed:\nThis is a git server" in found.stderr


def test_a_machine_without_the_program_is_told_how_to_get_it(tmp_path: Path) -> None:
    nothing = {"PATH": os.defpath, "HOME": str(tmp_path)}
    with without_sshd(tmp_path, nothing) as far:
        found = there(far, "ps")
    assert found.returncode == 1
    assert b"there is no quicksand-tui on far" in found.stderr
    assert b"pipx install quicksand-tui" in found.stderr


def test_a_machine_where_nothing_answers_says_what_is_in_the_way(tmp_path: Path) -> None:
    """Each has its own error and its own hint."""
    program = tmp_path / "there" / "quicksand-tui"
    python = program.with_name("python3")
    program.parent.mkdir()

    def told(name: Path, lines: str, **env: str) -> str:
        name.write_text(f"#!/bin/sh\n{lines}\n")
        name.chmod(0o755)
        with without_sshd(tmp_path, {"PATH": f"{program.parent}:{os.defpath}", **env}) as far:
            return there(far, "ps").stderr.decode()

    said = told(program, "[ $1 = --version ] && echo quicksand-tui, version 0.1.0 && exit; exit 2")
    assert "quicksand-tui on far is too old to be used from here: 0.1.0" in said
    said = told(program, "echo SyntaxError >&2; exit 1")
    assert "quicksand-tui on far ended before it answered (exit code 1)" in said
    assert "it printed:\nSyntaxError\n" in said
    assert "by Python 3.11 or newer" in said
    program.unlink()
    said = told(python, "[ $1 = -V ] && echo Python 3.9.2 && exit; exit 2", HOME=str(tmp_path))
    assert "there is no quicksand-tui on far" in said
    assert "python3 there is 3.9.2" in said
    ssh = tmp_path / "bin" / "ssh"
    for lines, words in (
        ("echo This account is currently not available.; exit 1", "ran nothing for this login"),
        ("kill -9 $$", "ssh to far was ended on this machine by SIGKILL"),
    ):
        ssh.write_text(f"#!/bin/sh\n{lines}\n")
        found = there(FarHost(address="ssh://far", bin=ssh.parent, has_sshd=False), "ps")
        assert words in found.stderr.decode()


OTHER = """
import sys
sys.path.insert(0, {root!r})
from quicksand.remote import hello, serving
hello.PROTOCOL = serving.PROTOCOL = {protocol}
hello.version_text = lambda: "9.9.9"
from quicksand_tui.cli.main import run
sys.exit(run(sys.argv[1:]))
"""


@contextlib.contextmanager
def other_version(root: Path, protocol: int) -> Iterator[FarHost]:
    """A machine with the version 9.9.9, which speaks a protocol."""
    program = root / "bin" / "quicksand-tui"
    program.parent.mkdir()
    script = root / "other.py"
    script.write_text(OTHER.format(root=str(Path(__file__).parents[3]), protocol=protocol))
    program.write_text(f'#!/bin/sh\nexec {MODULE[0]} {script} "$@"\n')
    program.chmod(0o755)
    with without_sshd(root, far_environ(PATH=f"{program.parent}:{os.defpath}")) as far:
        yield far


def test_another_version_of_the_same_protocol_does_its_work(tmp_path: Path) -> None:
    with other_version(tmp_path, 1) as far:
        found = there(far, "ps", "--json")
        assert (found.returncode, found.stdout, found.stderr) == (0, b"[]\n", b"")
        checked = subprocess.run(
            [*MODULE, "hosts", "check", far.address],
            capture_output=True,
            env=far.environ(),
            timeout=60,
            check=False,
        )
    assert (checked.returncode, b"9.9.9" in checked.stdout) == (0, True)


def test_another_protocol_is_refused_with_both_versions(tmp_path: Path) -> None:
    with other_version(tmp_path, 2) as far:
        found = there(far, "ps")
    assert found.returncode == 1
    assert b"9.9.9 speaks the protocol 2 only" in found.stderr
    assert b"same version on both" in found.stderr


def test_a_machine_that_cannot_be_reached_is_told_with_the_words_of_ssh() -> None:
    found = subprocess.run(
        [*MODULE, "--host", "ssh://localhost:1", "ps"],
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert found.returncode == 1
    assert b"cannot connect to localhost:1" in found.stderr
    assert b"refused" in found.stderr.lower()


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["--host", "ssh://-oProxyCommand=id", "ps"], b"no valid host"),
        (["--host", "box", "ps"], b"there is no host 'box'"),
        (["--host", "http://x", "ps"], b"'http://x' is no address of a machine"),
        (["--host", "me@box:x", "ps"], b"'me@box:x' has no valid port"),
        (["--host", "ssh://box"], b"--host is for a command"),
        (["--host", "ssh://box", "hosts"], b"leave --host out"),
        (["--host", "ssh://box", "serve", "--stdio"], b"leave --host out"),
        (["--host", "ssh://box", "dance"], b"there is no command 'dance'"),
        (["--host", "ssh://box", "ps", "--dance"], b"no such option '--dance'"),
        (["--host", "ssh://box", "mount", "w", "src:/src"], b"its whole path there"),
        (["--host", "ssh://box", "run", "debian", "--mount", "./a:/a"], b"its whole path there"),
        (["serve"], b"say --stdio"),
        (["hosts", "add", "local", "ssh://box"], b"is not local"),
        (["hosts", "add", "box", "box"], b"no address"),
        (["hosts", "add", "box", "ssh://-x"], b"no valid host"),
    ],
)
def test_lines_that_make_no_sense_are_refused_before_ssh_is_called(
    argv: Sequence[str], words: bytes
) -> None:
    found = subprocess.run([*MODULE, *argv], capture_output=True, timeout=60, check=False)
    assert found.returncode == 2
    assert words in found.stderr


@pytest.mark.parametrize(
    ("argv", "host"),
    [
        (["--host", "a", "ps"], Chosen("a", ("ps",), True)),
        (["--host=a", "ps"], Chosen("a", ("ps",), True)),
        (["--host", "local", "ps"], Chosen("local", ("ps",), True)),
        (["ps"], Chosen("b", ("ps",), False)),
        ([], None),
        (["--help"], None),
        (["hosts"], None),
        (["--host"], None),
    ],
)
def test_the_machine_stands_in_front_of_the_command(
    argv: Sequence[str], host: Chosen | None
) -> None:
    assert find_host(argv, {"QUICKSAND_HOST": "b"}) == host


@pytest.mark.parametrize(
    ("argv", "words", "changes", "stdin"),
    [
        ("ps -a", "ps -a", False, False),
        ("exec w -- sh -c x", "exec -- w sh -c x", False, False),
        ("exec -i w cat -", "exec -i -- w cat -", False, True),
        ("exec --timeout=5 w true", "exec --timeout 5 -- w true", False, False),
        ("exec -e NOTHING w x", "exec -- w x", False, False),
        ("exec -e TOKEN -e A=b w x", "exec -e TOKEN -e A=b -- w x", False, False),
        ("run debian --name w", "run --name w -- debian", False, False),
        ("run debian -d -v /a:/b", "run --detach -v /a:/b -- debian", True, False),
        ("checkpoint w one -m note", "checkpoint -m note -- w one", True, False),
        ("checkpoint rm w one", "checkpoint rm -- w one", True, False),
        ("checkpoint -- rm", "checkpoint -- rm", True, False),
        ("images", "images", False, False),
        ("images rm x", "images rm -- x", True, False),
        ("saves verify --deep", "saves verify --deep", False, False),
        ("save w s --no-freeze", "save --no-freeze -- w s", True, False),
        ("type w -", "type -- w -", True, True),
        ("type w x", "type -- w x", True, False),
        ("export s -", "export -- s -", True, False),
        ("import -", "import -- -", True, True),
        ("screenshot w -", "screenshot -- w -", False, False),
        ("exec w -- df -h", "exec -- w df -h", False, False),
        ("exec w -- ls --help", "exec -- w ls --help", False, False),
        ("stop --all", "stop --all", True, False),
        ("trash", "trash", False, False),
        ("trash --empty a", "trash --empty -- a", True, False),
        ("saves trash --empty", "saves trash --empty", True, False),
    ],
)
def test_a_line_is_read_before_it_is_sent(
    monkeypatch: pytest.MonkeyPatch, argv: str, words: str, *, changes: bool, stdin: bool
) -> None:
    monkeypatch.setenv("TOKEN", "secret")
    monkeypatch.delenv("NOTHING", raising=False)
    line = read_line(argv.split())
    assert (" ".join(words_of(line)), line.changes, line.stdin) == (words, changes, stdin)


class Shown:
    """A command that has ended, after its output went to our terminal."""

    def __init__(self, exit_code: int | None) -> None:
        self.exit_code = exit_code

    async def pieces(self) -> AsyncIterator[tuple[int, bytes]]:
        yield 1, b"\x1b[?1049h"


@pytest.mark.parametrize(
    ("exit_code", "is_undone"), [(0, False), (1, False), (137, True), (None, True)]
)
async def test_a_command_that_could_not_put_our_terminal_right_has_it_put_right(
    monkeypatch: pytest.MonkeyPatch, exit_code: int | None, *, is_undone: bool
) -> None:
    written: list[bytes] = []

    class Writer:
        def __init__(self, _: int) -> None: ...

        async def write(self, data: bytes) -> None:
            written.append(data)

        async def close(self) -> None: ...

    async def types_nothing(*_: object) -> None: ...

    monkeypatch.setattr(relaying, "FdWriter", Writer)
    monkeypatch.setattr(relaying, "_type", types_nothing)
    monkeypatch.setattr(terminal, "raw_terminal", contextlib.nullcontext)
    monkeypatch.setattr(terminal, "terminal_size", lambda: (80, 24))
    await relaying.show_in_terminal(cast("Any", Shown(exit_code)), cast("Any", None))
    assert (b"\x1b[?1049l" in b"".join(written)) == is_undone


def test_what_others_may_read_of_what_is_fetched_is_as_here() -> None:
    def mode(*argv: str) -> int:
        (file,) = files_of(read_line(argv))
        return file.mode

    assert mode("export", "s", "s.quicksand") == 0o600
    assert mode("snapshot", "w", "w.qcow2") == 0o600
    assert mode("screenshot", "w", "w.png") == 0o644
    assert mode("record", "w", "w.gif") == 0o644


def test_a_variable_that_is_passed_on_has_its_value_beside_the_words(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TOKEN", "secret\udcff\n")
    monkeypatch.delenv("NOTHING", raising=False)
    line = read_line(["exec", "-e", "TOKEN", "-e", "NOTHING", "-e", "A=b", "w", "true"])
    assert line.values == {"TOKEN": "secret\udcff\n"}
    assert not any("secret" in word for word in words_of(line))
    # There, the command finds it; a variable of that machine is not meant.
    monkeypatch.setenv("TOKEN", "of the other machine")
    monkeypatch.setenv("NOTHING", "of the other machine")
    monkeypatch.setenv(PASSED_ON, encode_values(line.values))
    context = click.Context(click.Command("exec"))
    found = parse_env(context, click.Option(["--env"]), ("TOKEN", "NOTHING", "A=b"))
    assert found == {"TOKEN": "secret\udcff\n", "A": "b"}
    assert PASSED_ON not in os.environ


def test_every_file_of_a_command_is_either_sent_or_fetched() -> None:
    files = {
        (part.name, parameter.name)
        for verb in all_verbs()
        for part in verb.walk()
        for parameter in part.parameters
        if parameter.kind in FILES
    }
    assert files == READ | WRITTEN
    assert not READ & WRITTEN


def test_files_are_sent_and_fetched(far: FarHost, places: Paths, tmp_path: Path) -> None:
    """A save goes there and comes back: what is written there is not left there."""
    bundle = tmp_path / "a b.quicksand"
    bundle.write_bytes(b"no bundle" * 100_000)
    found = there(far, "info", str(bundle))
    assert found.returncode == 1
    assert str(bundle).encode() in found.stderr
    kept = places.cache / "hosts"
    wait_for(lambda: not [path for path in kept.glob("*") if path.is_dir()], what="its place to go")


def test_the_path_that_is_told_of_a_file_is_that_on_this_machine(
    places: Paths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = Home.make(tmp_path / "home")  # `places` has the user's own images
    monkeypatch.setenv("QUICKSAND_DATA_DIR", str(home.paths.data))
    home.add_image()
    home.add_save("env")
    (tmp_path / "here").mkdir()

    file, whole = "here/env.quicksand", str(tmp_path / "here" / "env.quicksand")
    with without_sshd(tmp_path, far_environ()) as found:

        def told(*arguments: str) -> subprocess.CompletedProcess[bytes]:
            return there(found, *arguments, cwd=tmp_path)

        plain = told("export", "env", file)
        assert (plain.returncode, plain.stdout, plain.stderr) == (0, file.encode() + b"\n", b"")
        assert json.loads(told("export", "env", "--json", file).stdout)["file"] == whole
        assert json.loads(told("info", "--json", file).stdout)["file"] == whole
        Path(whole).write_bytes(b"no bundle")
        refused = told("info", file)
        assert refused.returncode == 1
        assert whole.encode() in refused.stderr
        assert str(places.cache).encode() not in refused.stderr
        ended = "the far end to end"
        wait_for(lambda: not own_sockets(places.runtime, HOST_SOCKETS), what=ended)


def test_a_file_that_is_not_there_or_is_none_is_told(far: FarHost, tmp_path: Path) -> None:
    assert b"nothing.quicksand" in there(far, "info", str(tmp_path / "nothing.quicksand")).stderr
    found = there(far, "import", str(tmp_path))
    assert found.returncode == 2
    assert b"is no file" in found.stderr


def test_a_file_that_would_be_replaced_is_refused_before_the_work(tmp_path: Path) -> None:
    there_already = tmp_path / "web.qcow2"
    there_already.touch()
    found = subprocess.run(
        [*MODULE, "--host", "ssh://nowhere.invalid", "snapshot", "web", str(there_already)],
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert found.returncode == 1
    assert b"is there already" in found.stderr


@pytest.mark.parametrize("argv", [["ps", "--help"], ["exec", "-h"], ["checkpoint", "rm", "--help"]])
def test_help_is_here(argv: list[str]) -> None:
    found = subprocess.run(
        [*MODULE, "--host", "ssh://nowhere.invalid", *argv],
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert found.returncode == 0
    assert found.stdout.startswith(b"Usage: quicksand-tui ")


def test_a_path_that_was_meant_to_be_here_is_refused() -> None:
    with pytest.raises(click.UsageError, match="no file that can be sent"):
        read_line(["run", "./web"])
    with pytest.raises(click.UsageError, match="no file that can be sent"):
        read_line(["images", "build", "--from-oci", "../layout"])


def test_an_archive_and_a_recipe_that_lie_here_are_sent(tmp_path: Path) -> None:
    archive = tmp_path / "app.tar"
    recipe = tmp_path / "mine.toml"
    archive.touch()
    recipe.touch()
    line = read_line(["images", "build", "--from-oci", str(archive)])
    assert words_of(line) == ["images", "build", "--from-oci", "./app.tar"]
    line = read_line(["images", "build", str(recipe)])
    assert words_of(line) == ["images", "build", "--", "./mine.toml"]
    assert words_of(read_line(["images", "build", "debian"]))[-1] == "debian"
