"""What `ssh-config` writes, and where; no sandbox runs."""

from __future__ import annotations

import os
import pwd
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from quicksand.base.paths import Paths, paths
from quicksand.records.config import SandboxConfig
from quicksand.records.host_sockets import ours_beside_sandboxes
from quicksand.records.registry import Registry
from quicksand.records.sandboxes import Record, new_id

from quicksand_tui.cli.main import run
from quicksand_tui.cli.ssh import ssh_config
from quicksand_tui.cli.ssh.ssh_config import (
    BEGIN,
    END,
    config_text,
    prepare_files,
    sockets_dir,
    with_include,
    without_include,
)
from tests.unit.cli.run_cli import quicksand


@pytest.fixture
def user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's own config, which need not exist."""
    file = tmp_path / ".ssh" / "config"
    monkeypatch.setattr(ssh_config, "user_config", lambda: file)
    return file


def succeeds(*arguments: str) -> None:
    """Run one command in this process."""
    assert run(arguments) == 0


def resolved(config: Path, host: str) -> dict[str, str]:
    """What ssh makes of a config for a host; nothing if it refuses the host's name."""
    done = subprocess.run(["ssh", "-F", config, "-G", host], capture_output=True, check=False)
    return dict(line.split(" ", 1) for line in done.stdout.decode().splitlines() if " " in line)


def test_it_is_installed_once_for_all_sandboxes_and_removed_without_a_trace(
    user: Path, places: Paths
) -> None:
    succeeds("ssh-config", "--install")
    text = user.read_text()
    succeeds("ssh-config", "--install")
    assert user.read_text() == text == with_include("", places.data / "ssh" / "config")
    assert stat.S_IMODE(user.parent.stat().st_mode) == 0o700
    assert stat.S_IMODE(user.stat().st_mode) == 0o600
    found = resolved(user, "Web-1.qs")
    assert found["hostkeyalias"] == "quicksand"
    assert found["proxycommand"].endswith("ssh --stdio '%n'")
    assert "proxycommand" not in resolved(user, "example.org")
    succeeds("ssh-config", "--remove")
    assert not user.exists()


def test_whose_sandboxes_are_reached_no_more_is_said(
    user: Path, places: Paths, capsys: pytest.CaptureFixture[str]
) -> None:
    user.parent.mkdir()
    user.write_text(with_include("Host web\n", Path("/home/me/other/ssh/config")))
    assert not ssh_config.is_installed(), "an editor would reach the other one's sandbox"
    succeeds("ssh-config", "--install")
    assert ssh_config.is_installed()
    assert f"of {places.data}, and no longer one of /home/me/other\n" in capsys.readouterr().err
    succeeds("ssh-config", "--install")
    assert "no longer" not in capsys.readouterr().err


def test_what_the_user_has_written_stays_as_it_was(user: Path, tmp_path: Path) -> None:
    mine = "Host *\n    User me\n\tProxyCommand none\r\n# caf\udce9"
    real = tmp_path / "dotfiles"
    real.write_text(mine, errors="surrogateescape")
    real.chmod(0o640)
    user.parent.mkdir(mode=0o700)
    user.symlink_to(real)
    before = real.read_bytes()
    succeeds("ssh-config", "--install")
    assert user.is_symlink() and stat.S_IMODE(real.stat().st_mode) == 0o640
    assert real.read_bytes().endswith(before)
    # Ours comes first, and the first value counts.
    assert resolved(user, "w.qs")["user"] == "default"
    succeeds("ssh-config", "--remove")
    assert real.read_bytes() == before


def test_a_dry_run_shows_the_change_and_writes_nothing(
    user: Path, places: Paths, capsys: pytest.CaptureFixture[str]
) -> None:
    succeeds("ssh-config", "--install", "--dry-run")
    assert f'+Include "{places.data}/ssh/config"' in capsys.readouterr().out
    assert not user.exists() and not (places.data / "ssh").exists()


def test_it_is_the_config_that_ssh_reads(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert ssh_config.user_config() == Path(pwd.getpwuid(os.getuid()).pw_dir) / ".ssh" / "config"


def test_options_that_exclude_each_other_are_refused() -> None:
    assert quicksand("ssh-config", "--install", "--remove").returncode == 2
    assert quicksand("ssh-config", "--dry-run").returncode == 2
    assert quicksand("ssh", "--stdio", "x", "command").returncode == 2


def test_only_what_is_certainly_ours_is_taken_out() -> None:
    torn = f"{BEGIN}\nHost mine\n    User me\n"
    assert without_include(torn) == "Host mine\n    User me\n"
    ours = 'Include "/elsewhere/ssh/config"'
    twice = f"{BEGIN}\n{ours}\n{END}\n" * 2 + "Host mine\n"
    assert without_include(twice) == "Host mine\n"
    for mine in ("Include mine\n", 'Host mine\n    Include "/my/own"\n'):
        assert without_include(f"{BEGIN}\n{mine}{END}\n") == mine
        assert without_include(f"{BEGIN}\n{ours}\n{mine}{END}\n") == mine


def test_a_config_of_ours_that_is_no_text_is_written_anew(places: Paths) -> None:
    file = prepare_files()
    file.write_bytes(b"\xff\xfe")
    prepare_files()
    assert file.read_text() == config_text(places)


def test_a_sandbox_that_is_called_as_a_host_of_ours_is_reached(
    places: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    called: list[list[str]] = []
    monkeypatch.setattr("os.execv", lambda _, words: called.append(words))
    registry = Registry(places)
    for name in ("foo", "foo.qs"):
        record = Record(
            id=new_id(),
            name=name,
            config=SandboxConfig("debian"),
            image_digest="d" * 64,
            chain=("/images/debian/disk.qcow2",),
            created=1.0,
            committed=True,
            discard=False,
        )
        os.close(registry.create(record))
        run(("ssh", name))
        assert called.pop()[-1] == f"{name}.qs"


def test_printed_it_can_be_used_at_once(places: Paths) -> None:
    printed = quicksand("ssh-config")
    assert (
        printed.stdout.decode()
        == (places.data / "ssh" / "config").read_text()
        == config_text(places)
    )
    assert (places.data / "ssh" / "known_hosts").read_text().startswith("quicksand ssh-ed25519 ")
    assert stat.S_IMODE((places.data / "ssh" / "host_key").stat().st_mode) == 0o600


def test_processes_that_make_the_key_at_the_same_time_end_up_with_one(places: Paths) -> None:
    code = "from quicksand_tui.cli.ssh.ssh_config import prepare_files; prepare_files()"

    def make(_: int) -> str:
        subprocess.run([sys.executable, "-c", code], check=True)
        return (places.data / "ssh" / "host_key").read_text()

    with ThreadPoolExecutor(4) as pool:
        assert len(set(pool.map(make, range(8)))) == 1
    known = (places.data / "ssh" / "known_hosts").read_text().split()
    derived = subprocess.run(
        ["ssh-keygen", "-y", "-f", places.data / "ssh" / "host_key"],
        capture_output=True,
        check=True,
    )
    assert derived.stdout.decode().split()[:2] == known[1:3]
    assert sorted(os.listdir(places.data / "ssh")) == ["config", "host_key", "known_hosts"]


def test_a_key_that_is_none_is_reported_and_not_replaced(places: Paths) -> None:
    prepare_files()
    (places.data / "ssh" / "host_key").write_text("nonsense")
    (places.data / "ssh" / "known_hosts").unlink()
    failed = quicksand("ssh-config")
    assert failed.returncode == 1
    assert "host_key is no private key" in failed.stderr.decode()
    assert (places.data / "ssh" / "host_key").read_text() == "nonsense"


def test_names_that_a_shell_could_act_on_have_no_proxy_command(user: Path) -> None:
    succeeds("ssh-config", "--install")
    assert "proxycommand" not in resolved(user, "x';id;'.qs")


def test_places_that_are_named_by_variables_are_found_by_every_ssh(
    places: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = config_text(places)
    assert f" QUICKSAND_DATA_DIR={places.data} " in text
    assert f" QUICKSAND_RUNTIME_DIR={places.runtime} " in text
    # Also by one in whose environment another place is named, or none.
    for name in ("QUICKSAND_DATA_DIR", "QUICKSAND_RUNTIME_DIR", "QUICKSAND_CACHE_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", "/tmp/elsewhere")
    assert config_text(places) == text
    assert f"QUICKSAND_DATA_DIR={paths().data} " in config_text(paths())


def test_a_runtime_directory_with_a_long_path_has_no_masters(tmp_path: Path) -> None:
    far = Paths(runtime=tmp_path / ("x" * 60), data=tmp_path, cache=tmp_path)
    assert sockets_dir(far) is None
    assert "ControlMaster" not in config_text(far)


def test_sandboxes_of_one_name_in_two_data_directories_share_no_master(
    places: Paths, tmp_path: Path
) -> None:
    """ssh tells masters apart by the name of the host alone."""
    paths = set()
    for name in ("one", "two"):
        each = replace(places, data=tmp_path / name)
        (tmp_path / "config").write_text(config_text(each))
        paths.add(Path(resolved(tmp_path / "config", "web.qs")["controlpath"]).parent)
    assert len(paths) == 2
    for path in paths:
        path.mkdir(parents=True)
    assert ours_beside_sandboxes(places.runtime) == {path.name for path in paths}, "doctor knows"
    for path in paths:
        path.rmdir()


def test_percent_signs_in_paths_are_no_tokens(tmp_path: Path) -> None:
    odd = Paths(runtime=Path("/tmp/100%"), data=tmp_path / "50%n", cache=tmp_path)
    (tmp_path / "config").write_text(config_text(odd))
    found = resolved(tmp_path / "config", "w.qs")
    assert found["userknownhostsfile"].endswith("50%n/ssh/known_hosts")
    assert found["controlpath"].startswith("/tmp/100%/ssh-")
