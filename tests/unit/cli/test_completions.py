"""`completions --install`: where the files are put, what they do, and what is left alone."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from quicksand_tui.cli.completing import LOADERS, place_for
from quicksand_tui.cli.main import run
from quicksand_tui.cli.output import Exit
from tests.unit.cli.run_cli import quicksand

Output = pytest.CaptureFixture[str]

WHERE = {
    "bash": ".local/share/bash-completion/completions/quicksand-tui",
    "zsh": ".local/share/zsh/site-functions/_quicksand-tui",
    "fish": ".config/fish/completions/quicksand-tui.fish",
}


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home directory of the test's own."""
    for name in ("XDG_DATA_HOME", "XDG_CONFIG_HOME", "BASH_COMPLETION_USER_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize("shell", LOADERS)
def test_it_is_put_where_the_shell_looks(shell: str, home: Path, capsys: Output) -> None:
    assert run(["completions", shell, "--install"]) == Exit.OK
    out, err = capsys.readouterr()
    place = home / WHERE[shell]
    assert out == f"{place}\n"
    assert f"quicksand-tui completions {shell}" in place.read_text()
    assert ("fpath=(" in err) is (shell == "zsh")
    assert run(["completions", shell, "--install"]) == Exit.OK  # a second time, too


def test_the_directories_that_are_named_are_used(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(home / "data"))
    monkeypatch.setenv("XDG_CONFIG_HOME", "relative")
    assert place_for("zsh") == home / "data/zsh/site-functions/_quicksand-tui"
    assert place_for("bash") == home / "data/bash-completion/completions/quicksand-tui"
    assert place_for("fish") == home / WHERE["fish"]
    monkeypatch.setenv("BASH_COMPLETION_USER_DIR", f"{home / 'b'}:{home / 'c'}")
    assert place_for("bash") == home / "b/completions/quicksand-tui"


def fixed(path: Path) -> tuple[int, ...]:
    """What does not change when a file is read, or a link followed."""
    found = path.lstat()
    return found.st_ino, found.st_mode, found.st_nlink, found.st_size, found.st_mtime_ns


@pytest.mark.parametrize("kind", ["file", "longer", "link", "directory", "pipe"])
def test_what_is_there_and_not_ours_is_left_alone(kind: str, home: Path, capsys: Output) -> None:
    place = home / WHERE["bash"]
    place.parent.mkdir(parents=True)
    if kind == "file":
        place.write_text("mine")
    elif kind == "longer":
        run(["completions", "bash", "--install"])
        place.write_text(place.read_text() + "mine")
    elif kind == "link":
        place.symlink_to(home / "elsewhere")
    elif kind == "directory":
        place.mkdir()
    else:
        os.mkfifo(place)
    before = fixed(place)
    assert run(["completions", "bash", "--install"]) == Exit.FAILURE
    assert "is there already, and it is not ours" in capsys.readouterr().err
    assert fixed(place) == before
    assert not (home / "elsewhere").exists()


def test_a_place_that_cannot_be_written_is_an_error_in_one_line(home: Path) -> None:
    (home / ".local").write_text("no directory")
    done = quicksand("completions", "bash", "--install")
    assert done.returncode == Exit.FAILURE
    assert done.stderr.count(b"\n") == 1


def test_bash_completes_with_what_is_installed(home: Path) -> None:
    assert run(["completions", "bash", "--install"]) == Exit.OK
    programs = home / "bin"
    programs.mkdir()
    program = programs / "quicksand-tui"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m quicksand_tui "$@"\n')
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    script = """
        . "$1"
        COMP_WORDS=(quicksand-tui che) COMP_CWORD=1
        _quicksand_tui_completion quicksand-tui
        complete -p quicksand-tui
        printf '%s\\n' "${COMPREPLY[@]}"
    """
    found = subprocess.run(
        ["bash", "-c", script, "bash", str(home / WHERE["bash"])],
        env={**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"},
        capture_output=True,
        check=True,
    )
    lines = found.stdout.decode().splitlines()
    assert lines[0].endswith("_quicksand_tui_completion quicksand-tui")
    assert lines[1:] == ["checkpoint"]
