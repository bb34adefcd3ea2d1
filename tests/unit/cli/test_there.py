"""Commands for another machine: this one, over a private sshd, and without."""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import click
import pytest
from quicksand.base.listing import own_sockets
from quicksand.base.paths import Paths
from quicksand.records.host_sockets import HOST_SOCKETS
from quicksand.saves.save_manifest import Base
from quicksand.saves.store import SaveStore

from quicksand_tui.cli.host_choice import Chosen, find_host
from quicksand_tui.cli.hosts.there import read_line
from quicksand_tui.verbs.index import all_verbs
from quicksand_tui.verbs.verb import Kind
from tests.conftest import wait_for
from tests.each import each
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


@pytest.fixture(params=["no sshd", pytest.param("sshd", marks=pytest.mark.soak)])
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


@pytest.mark.parametrize("far", ["sshd", "no sshd"], indirect=True)
def test_exit_codes_errors_and_streams_are_those_of_the_other_machine(far: FarHost) -> None:
    found = there(far, "logs", "web")
    assert found.returncode == 1
    assert found.stdout == b""
    assert b"no sandbox is called 'web'" in found.stderr
    assert there(far, "exec", "web", "--", "true").returncode == 125


def test_what_is_wrong_with_a_sandbox_is_told_as_of_one_here(far: FarHost, places: Paths) -> None:
    make_stopped(places, "web")
    for line in ("checkpoint web x", "stop nope", "clone web -n 2 --name a"):
        here = quicksand(*line.split())
        found = there(far, *line.split())
        assert here.returncode > 0
        assert (found.returncode, found.stdout, found.stderr) == (
            here.returncode,
            here.stdout,
            here.stderr,
        ), line


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
        for line in ("ps", "rm web"):
            found = there(far, *line.split())
            assert (found.returncode, found.stdout) == (1, b"")
            assert b"it printed:\nThis is a git server" in found.stderr


def test_a_machine_without_the_program_is_told_how_to_get_it(tmp_path: Path) -> None:
    nothing = {"PATH": os.defpath, "HOME": str(tmp_path)}
    with without_sshd(tmp_path, nothing) as far:
        for line in ("ps", "rm web"):
            found = there(far, *line.split())
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
            return there(far, "rm", "web").stderr.decode()

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
        found = there(FarHost(address="ssh://far", bin=ssh.parent, has_sshd=False), "rm", "web")
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
        assert there(far, "ps", "--json").stdout == b"[]\n", "by that program itself"
        found = there(far, "rm", "web")
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


@each(
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


@each(
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


@each(
    ("argv", "words"),
    [
        ("ps -a", "ps -a"),
        ("checkpoint rm w --help", ""),
        ("images", "images"),
        ("images rm x", "images rm -- x"),
        ("tree w --json", "tree --json -- w"),
        ("diff w one --json", "diff --json -- w one"),
        ("events --since=/x w", "events --since /x -- w"),
        ("logs -f w", "logs -f -- w"),
        ("rm --all-stopped", "rm --all-stopped"),
        ("stop --all", "stop --all"),
        ("run --fleet debian --name w", "run --fleet --name w -- debian"),
        ("trash --empty a", "trash --empty -- a"),
        ("mount w /a:/b", "mount -- w /a:/b"),
        ("key w ctrl+l", "key -- w ctrl+l"),
        ("view w", "view -- w"),
        ("du --each", "du --each"),
    ],
)
def test_a_line_is_carried_out_by_that_program(argv: str, words: str) -> None:
    line = read_line(argv.split())
    assert line.asks_help == (not words)
    if words:
        assert (" ".join(line.words), line.is_from_here) == (words, False)


@each(
    "argv",
    [
        *("exec w -- df -h", "exec -i w cat -", "exec -e TOKEN w x", "exec w -- ls --help"),
        *("run debian --name w", "run debian -d -v /a:/b", "shell w", "cp w:/a -", "type w -"),
        *("checkpoint w one -m note", "checkpoint -- rm", "saves verify --deep", "save w s"),
        *("export s -", "import -", "screenshot w -", "record w x.gif", "snapshot w x.qcow2"),
        *("start w", "stop w", "rm w", "restore w"),
    ],
)
def test_a_line_is_carried_out_from_here(argv: str) -> None:
    line = read_line(argv.split())
    assert line.is_from_here
    assert not line.asks_help


def test_a_variable_is_never_among_the_words_for_another_machine(tmp_path: Path) -> None:
    """There, all users could read it."""
    carrying = {
        part.name
        for verb in all_verbs()
        for part in verb.walk()
        if any(one.kind is Kind.ENV for one in part.parameters)
    }
    assert carrying == {"run", "exec"}
    bundle = tmp_path / "x.quicksand"
    bundle.touch()
    found = subprocess.run(
        [*MODULE, "--host", "ssh://nowhere.invalid", "run", str(bundle), "-d", "-e", "TOKEN"],
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert found.returncode == 2
    assert b"import it there first" in found.stderr


def test_files_are_sent(far: FarHost, places: Paths, tmp_path: Path) -> None:
    """They are not left there."""
    bundle = tmp_path / "a b.quicksand"
    bundle.write_bytes(b"no bundle" * 100_000)
    found = there(far, "info", str(bundle))
    assert found.returncode == 1
    assert bundle.name.encode() in found.stderr
    kept = places.cache / "hosts"
    wait_for(lambda: not [path for path in kept.glob("*") if path.is_dir()], what="its place to go")


def test_bundles_go_there_and_come_back(
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
        assert Path(whole).stat().st_mode & 0o777 == 0o600
        assert json.loads(told("info", "--json", file).stdout)["name"] == "env"
        again = told("import", file, "--name", "env2", "--json")
        assert again.returncode == 0, again.stderr
        assert json.loads(again.stdout)["name"] == "env2"
        streamed = told("export", "env2", "-")
        assert (streamed.returncode, streamed.stderr) == (0, b"")
        taken = there(found, "import", "-", "--name", "env3", stdin=streamed.stdout)
        assert (taken.returncode, taken.stdout) == (0, b"env3\n"), taken.stderr
        cut = there(found, "import", "-", "--name", "env4", stdin=streamed.stdout[:-20_000])
        assert cut.returncode == 1
        assert b"env4" not in told("saves", "list").stdout
        Path(whole).write_bytes(b"no bundle")
        refused = told("import", file)
        assert refused.returncode == 1
        assert b"it is not a bundle" in refused.stderr
        missing = told("export", "nope", "here/nope.quicksand")
        assert (missing.returncode, missing.stdout) == (1, b"")
        assert not (tmp_path / "here" / "nope.quicksand").exists()
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


@each("argv", [["ps", "--help"], ["exec", "-h"], ["checkpoint", "rm", "--help"]])
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
    assert line.words == ["images", "build", "--from-oci", "./app.tar"]
    line = read_line(["images", "build", str(recipe)])
    assert line.words == ["images", "build", "--", "./mine.toml"]
    assert read_line(["images", "build", "debian"]).words[-1] == "debian"
