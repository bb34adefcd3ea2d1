"""`config`, and what the app's options are for."""

from __future__ import annotations

from pathlib import Path

import pytest

from quicksand_tui.cli.main import run
from quicksand_tui.cli.output import Exit
from quicksand_tui.home.config_file import read_config
from quicksand_tui.home.state import config_file
from tests.unit.cli.run_cli import quicksand


def test_without_a_config_there_is_nothing_to_complain_of(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["config"]) == run(["config", "check"]) == Exit.OK
    assert "there is none, which is fine" in capsys.readouterr().out
    assert run(["config", "path"]) == Exit.OK
    assert capsys.readouterr().out == f"{config_file()}\n"


def test_problems_are_listed_by_line_and_the_exit_code_is_2(
    capsys: pytest.CaptureFixture[str],
) -> None:
    place = config_file()
    place.parent.mkdir(parents=True)
    place.write_text('theme = "nrod"\nmous = 1\n[keys]\nstop = "d"\n')
    assert run(["config", "check"]) == Exit.USAGE
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 3
    assert f"{place}: line 1: theme: there is no theme 'nrod'; did you mean nord?" in lines[0]
    assert "line 2: mous: there is no such setting; did you mean mouse?" in lines[1]
    assert "line 4: keys.stop: d is the key of main.delete already" in lines[2]
    place.write_text('theme = "nord"\n')
    assert run(["config"]) == Exit.OK
    assert "no problems" in capsys.readouterr().out


def test_a_config_that_was_named_must_be_there(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("QUICKSAND_CONFIG", str(tmp_path / "mine.toml"))
    assert run(["config"]) == Exit.USAGE
    assert "mine.toml cannot be read: there is no such file" in capsys.readouterr().err


def test_the_example_can_be_begun_with_but_replaces_nothing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["config", "example"]) == Exit.OK
    example = capsys.readouterr().out
    assert run(["config", "example", "--write"]) == Exit.OK
    assert config_file().read_text() == example
    assert read_config(config_file()).problems == ()
    config_file().write_text("mouse = false\n")
    assert run(["config", "example", "--write"]) == Exit.FAILURE
    assert "already" in capsys.readouterr().err
    assert config_file().read_text() == "mouse = false\n"


def test_info_tells_where_the_config_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["info"]) == Exit.OK
    assert str(config_file()) in capsys.readouterr().out


def test_keys_are_not_tested_without_a_terminal() -> None:
    result = quicksand("config", "keys")
    assert result.returncode == Exit.USAGE
    assert b"no terminal" in result.stderr


def test_read_only_is_for_the_app() -> None:
    result = quicksand("--read-only")
    assert result.returncode == Exit.USAGE
    assert b"Usage: quicksand-tui" in result.stderr  # there is no terminal here
    result = quicksand("--read-only", "stop", "web")
    assert result.returncode == Exit.USAGE
    assert b"--read-only is for the app, not for stop" in result.stderr
