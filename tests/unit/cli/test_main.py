"""Arguments, help, errors and exit codes."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import redirect_stdout
from io import BytesIO, TextIOWrapper

import click
import pytest
from quicksand.base.paths import Paths

from quicksand_tui.cli.click_commands import cli, load
from quicksand_tui.cli.main import run
from quicksand_tui.cli.output import COMPLETE_VARIABLE, MEANINGS, Exit
from quicksand_tui.verbs.index import all_verbs
from quicksand_tui.verbs.verb import AnyVerb
from tests.each import each
from tests.unit.cli.run_cli import MODULE, make_stopped, quicksand

AVAILABLE = list(all_verbs())
NAMES = [verb.name for verb in AVAILABLE]


def test_without_a_terminal_and_arguments_the_help_goes_to_stderr() -> None:
    result = quicksand()
    assert result.returncode == Exit.USAGE
    assert result.stdout == b""
    assert b"Usage: quicksand-tui" in result.stderr


def test_the_help_names_every_command_and_every_exit_code(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["--help"]) == Exit.OK
    out = capsys.readouterr().out
    for verb in AVAILABLE:
        assert verb.summary in out
    for code, meaning in MEANINGS.items():
        assert f"{int(code)}" in out
        assert meaning in out
    assert set(MEANINGS) == set(Exit)


@each("verb", AVAILABLE, ids=NAMES)
def test_every_command_is_the_one_that_the_table_tells_of(verb: AnyVerb) -> None:
    command = load(verb)
    assert command.name == verb.name
    assert command.callback is not None
    assert command.help


@each("verb", AVAILABLE, ids=NAMES)
def test_every_command_has_help(verb: AnyVerb, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([verb.name, "--help"]) == Exit.OK
    out = capsys.readouterr().out
    assert out.startswith(f"Usage: quicksand-tui {verb.name}")


@each("verb", AVAILABLE, ids=NAMES)
def test_every_option_has_help(verb: AnyVerb) -> None:
    for parameter in load(verb).params:
        if isinstance(parameter, click.Option):
            assert parameter.help, parameter.name


@each(
    ("argv", "said"),
    [
        (["exce"], "there is no command 'exce'; did you mean exec"),
        (["frobnicate"], "there is no command 'frobnicate'"),
        (["ps", "--jsno"], "--json"),
        (["exec", "a"], "there is no command to run"),
        (["exec", "a", "ls", "-l"], "put -- before the command"),
        (["exec", "a", "--timeout", "0", "--", "ls"], "--timeout"),
        (["exec", "a", "--timeout", "soon", "--", "ls"], "--timeout"),
        (["exec", "a", "-e", "1X=2", "--", "ls"], "'1X=2'"),
        (["exec", "a", "-t", "--json", "--", "ls"], "do not go together"),
        (["run"], "IMAGE"),
        (["run", "debian"], "no terminal for a shell"),
        (["run", "debian", "-d", "-t"], "do not go together"),
        (["run", "debian", "--json"], "--json needs"),
        (["run", "debian", "-d", "-p", "80:http"], "'80:http' is not HOST:GUEST"),
        (["run", "debian", "-d", "--memory", "banana"], "memory 'banana' is not a size"),
        (["run", "debian", "-d", "--cpus", "0"], "cpus must be 1 to 255, not 0"),
        (["run", "debian", "-d", "--name", "-x y"], "is no name for a sandbox"),
        (["run", "debian", "-d", "--accel", "warp"], "'warp'"),
        (["run", "debian", "-d", "-p", "70000:80"], "70000"),
        (["shell", "a", "--json"], "--json goes with --list"),
        (["stop"], "--all"),
        (["stop", "--all", "a"], "not both"),
        (["rm"], "--all-stopped"),
        (["cp", "x", "y"], "must be NAME:/path"),
        (["cp", "a:/x", "b:/y"], "must be NAME:/path"),
        (["cp", "a:x", "y"], "begins with a slash"),
        (["completions", "tcsh"], "'tcsh'"),
    ],
    ids=" ".join,
)
def test_a_wrong_command_line_is_explained_on_stderr(
    argv: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(argv) == Exit.USAGE
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("quicksand-tui: ")
    assert said in err


@each(
    ("argv", "code"),
    [
        (["exec", "nobody", "--", "true"], Exit.SANDBOX_FAILED),
        (["shell", "nobody", "--list"], Exit.SANDBOX_FAILED),
        (["run", "nosuchimage", "-d"], Exit.SANDBOX_FAILED),
        (["logs", "nobody"], Exit.FAILURE),
        (["stats", "nobody"], Exit.FAILURE),
        (["start", "nobody"], Exit.FAILURE),
        (["stop", "nobody"], Exit.FAILURE),
        (["kill", "nobody"], Exit.FAILURE),
        (["pause", "nobody"], Exit.FAILURE),
        (["resume", "nobody"], Exit.FAILURE),
        (["rm", "nobody"], Exit.FAILURE),
        (["cp", "nobody:/x", "."], Exit.FAILURE),
        (["images", "rm", "nobody"], Exit.FAILURE),
        (["images", "inspect", "nobody"], Exit.FAILURE),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_does_not_exist_is_named(
    argv: list[str], code: Exit, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(argv) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert "nobody" in err or "nosuchimage" in err


def test_a_near_name_is_suggested(places: Paths, capsys: pytest.CaptureFixture[str]) -> None:
    make_stopped(places, "webserver")
    assert run(["exec", "webservr", "--", "true"]) == Exit.SANDBOX_FAILED
    assert "did you mean 'webserver'?" in capsys.readouterr().err


def test_commands_need_a_running_sandbox(places: Paths, capsys: pytest.CaptureFixture[str]) -> None:
    make_stopped(places, "web")
    assert run(["exec", "web", "--", "true"]) == Exit.SANDBOX_FAILED
    err = capsys.readouterr().err
    assert "'web' is not running" in err
    assert "hint: `quicksand-tui start web`" in err


def test_one_bad_name_does_not_stop_the_others(
    places: Paths, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("one", "two"):
        make_stopped(places, name)
    assert run(["rm", "one", "nobody", "two"]) == Exit.FAILURE
    out, err = capsys.readouterr()
    assert sorted(out.split()) == ["one", "two"]
    assert err.count("quicksand-tui:") == 1
    assert run(["ps", "-a", "-q"]) == Exit.OK
    assert capsys.readouterr().out == ""


def test_a_stopped_sandbox_can_be_stopped_and_killed_again(
    places: Paths, capsys: pytest.CaptureFixture[str]
) -> None:
    make_stopped(places, "web")
    assert run(["stop", "web"]) == Exit.OK
    assert run(["kill", "web"]) == Exit.OK
    assert capsys.readouterr().out == "web\nweb\n"


def test_all_stopped_ones_are_removed_at_once(
    places: Paths, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("one", "two"):
        make_stopped(places, name)
    assert run(["rm", "--all-stopped"]) == Exit.OK
    assert sorted(capsys.readouterr().out.split()) == ["one", "two"]
    assert run(["rm", "--all-stopped"]) == Exit.OK


def test_a_reader_that_goes_away_is_no_error_to_talk_of(places: Paths) -> None:
    for number in range(300):
        make_stopped(places, f"sandbox-{number:03}-{'x' * 40}")
    with subprocess.Popen(
        [*MODULE, "ps", "-a", "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == Exit.READER_GONE


@each("unbuffered", ["", "1"])
def test_a_full_disk_is_an_error(unbuffered: str) -> None:
    env = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    with open("/dev/full", "wb") as full:
        result = subprocess.run(
            [*MODULE, "info", "--json"], stdout=full, stderr=subprocess.PIPE, check=False, env=env
        )
    assert result.returncode == Exit.FAILURE
    assert result.stderr == b"quicksand-tui: No space left on device\n"


@each("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_standard_streams_are_no_trouble(closed: str) -> None:
    script = f'"$@" {closed}'
    result = subprocess.run(
        ["sh", "-c", script, "sh", *MODULE, "ps"], capture_output=True, check=False
    )
    assert (result.returncode, result.stderr) == (0, b"")


def test_the_version_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--version"]) == Exit.OK
    assert capsys.readouterr().out.startswith("quicksand-tui, version ")


@each("shell", ["zsh", "fish"])
def test_completions_are_printed(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["completions", shell]) == Exit.OK
    assert "_QUICKSAND_TUI_COMPLETE" in capsys.readouterr().out


def test_completions_for_bash_are_valid_bash() -> None:
    result = quicksand("completions", "bash")
    assert result.returncode == Exit.OK
    assert b"_QUICKSAND_TUI_COMPLETE=bash_complete" in result.stdout
    assert subprocess.run(["bash", "-n"], input=result.stdout, check=False).returncode == 0


def complete(words: str, position: int) -> list[str]:
    """What bash is given for the word at a position (the program is 0)."""
    asked = {"COMP_WORDS": words, "COMP_CWORD": str(position)}
    told = BytesIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(TextIOWrapper(told)) as stdout:
        for name, value in {COMPLETE_VARIABLE: "bash_complete", **asked}.items():
            patch.setenv(name, value)
        assert run([]) == Exit.OK
        stdout.flush()
    return [line.partition(",")[2] for line in told.getvalue().decode().splitlines()]


def test_names_are_completed(places: Paths) -> None:
    make_stopped(places, "web")
    make_stopped(places, "worker")
    make_stopped(places, "db")
    assert complete("quicksand-tui exec w", 2) == ["web", "worker"]
    assert complete("quicksand-tui rm db we", 3) == ["web"]
    assert "web:/" in complete("quicksand-tui cp we", 2)
    assert complete("quicksand-tui sta", 1) == ["start", "stats"]


def test_the_module_can_be_run_too() -> None:
    result = subprocess.run(
        [sys.executable, "-m", "quicksand_tui", "--version"], capture_output=True, check=True
    )
    assert result.stdout.startswith(b"quicksand-tui")


def test_the_group_is_named_like_the_program() -> None:
    assert cli.name == "quicksand-tui"


@each(
    "argv",
    [
        ["x" * 100_000],
        ["ps", "--" + "x" * 100_000],
        ["run", "--memory", "x" * 100_000, "debian"],
        ["run", "--network", "x" * 100_000, "debian"],
        ["exec", "x" * 100_000, "true"],
        ["cp", "x" * 100_000 + ":/x", "."],
        ["cp", "x", "y" * 100_000],
        ["images", "inspect", "x " * 50_000],
    ],
    ids=lambda argv: " ".join(argv)[:20],
)
def test_a_long_argument_does_not_come_back_whole(
    argv: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(argv) != Exit.OK
    said = capsys.readouterr()
    assert said.out == ""
    assert 0 < len(said.err) < 10_000
