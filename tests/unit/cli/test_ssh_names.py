"""Which sandbox a host for ssh stands for."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from quicksand.base.errors import ConfigError
from quicksand.base.paths import Paths

from quicksand_tui.cli.host_choice import find_host
from quicksand_tui.cli.main import run
from quicksand_tui.cli.ssh.ssh_config import SshName, find_ssh_name, there
from tests.unit.cli.run_cli import make_stopped


@pytest.fixture
def called(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """What is run in the place of ssh and of editors; a machine is called `box`."""
    found: list[list[str]] = []
    monkeypatch.setattr("os.execv", lambda _, words: found.append(words))
    assert run(("hosts", "add", "box", "ssh://me@far.example")) == 0
    return found


def test_a_host_has_the_name_of_a_sandbox_and_of_its_machine(
    called: list[list[str]], places: Paths
) -> None:
    assert find_ssh_name("web.qs") == SshName("web")
    assert find_ssh_name("web.box.qs") == SshName("web", "box")
    assert find_ssh_name("my.web.box.qs") == SshName("my.web", "box")
    assert find_ssh_name("web.other.qs") == SshName("web.other")
    # One that is here is called so.
    make_stopped(places, "web.box")
    assert find_ssh_name("web.box.qs") == SshName("web.box")
    assert not SshName("web", "box").has_word
    with pytest.raises(ConfigError, match="no name of a sandbox"):
        there("-oProxyCommand=id", "box")


def test_ssh_of_another_machine_runs_here(called: list[list[str]], places: Paths) -> None:
    run(("ssh", "joe@web.box", "-v", "true"))
    assert called.pop()[3:] == ["-l", "joe", "web.box.qs", "-v", "true"]
    run(("--host", "box", "ssh", "web", "-L", "8080:127.0.0.1:80"))
    assert called.pop()[3:] == ["-S", "none", "web.box.qs", "-L", "8080:127.0.0.1:80"]
    # No name leads there: it is asked for by its address, and shares no connection.
    run(("--host", "ssh://me@far.example", "ssh", "web"))
    option, command, *rest = called.pop()[3:]
    assert (option, rest) == ("-o", ["-S", "none", "web.qs"])
    assert command.endswith(" --host ssh://me@far.example ssh --stdio '%n'")
    make_stopped(places, "web.box")
    run(("--host", "box", "ssh", "web"))
    assert called.pop()[-1] == "web.qs"


def test_the_config_for_ssh_is_that_of_this_machine(
    called: list[list[str]], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(("--host", "box", "ssh-config")) == 2
    assert "ssh-config is about this machine" in capsys.readouterr().err
    assert find_host(["ssh-config"], {"QUICKSAND_HOST": "box"}) is None
    # Nor does a machine that is chosen where ssh runs change whose sandbox NAME.qs is.
    monkeypatch.setenv("QUICKSAND_HOST", "box")
    assert run(("ssh-config",)) == 0
    printed = capsys.readouterr().out
    assert " QUICKSAND_HOST= " in printed
    assert f" QUICKSAND_CONFIG={Path(os.environ['XDG_CONFIG_HOME'])}/" in printed


def test_an_editor_is_told_of_machines_that_have_names(
    called: list[list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(("--host", "ssh://me@far.example", "code", "web", "--check")) == 2
    assert "hosts add NAME ssh://USER@HOST" in capsys.readouterr().err
