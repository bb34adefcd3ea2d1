"""The table of other machines in the config: read, and changed without touching the rest."""

from __future__ import annotations

from pathlib import Path

import pytest

from quicksand_tui.home.config_file import parse_config
from quicksand_tui.home.host_file import HostsError, add_host, read_hosts, remove_host
from tests.each import each

BOX = "ssh://me@box:2222"

WRITTEN = """\
# My config
theme = "nord"  # dark

[keys]
stop = "E"
"""


def test_machines_are_a_table_of_the_config() -> None:
    loaded = parse_config(f'[hosts]\nbox = "{BOX}"\n')
    assert not loaded.problems
    assert loaded.config.hosts == {"box": BOX}


@each(
    ("line", "problem"),
    [
        ('local = "ssh://box"', "is not local"),
        ('"a b" = "ssh://box"', "letters"),
        ('box = "box"', "no address"),
        ("box = 7", "no address"),
        ('box = "ssh://\\u001b[2J"', "no address"),
    ],
)
def test_what_is_wrong_with_one_is_told_with_its_line(line: str, problem: str) -> None:
    loaded = parse_config(f'[hosts]\n{line}\ngood = "{BOX}"\n')
    assert loaded.config.hosts == {"good": BOX}
    (found,) = loaded.problems
    assert problem in found.text
    assert found.line in (0, 2)


def test_a_list_of_machines_is_no_table() -> None:
    (found,) = parse_config('hosts = ["ssh://box"]\n').problems
    assert "this is no table" in found.text


def test_adding_and_removing_leaves_the_rest_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text(WRITTEN)
    path.chmod(0o640)
    add_host(path, "box", BOX)
    add_host(path, "other", "ssh://other")
    assert path.read_text().startswith(WRITTEN)
    assert read_hosts(path) == {"box": BOX, "other": "ssh://other"}
    assert parse_config(path.read_text()).config.theme == "nord"
    assert path.stat().st_mode & 0o777 == 0o640
    remove_host(path, "other")
    remove_host(path, "box")
    assert read_hosts(path) == {}
    assert path.read_text().startswith(WRITTEN)


def test_a_config_is_made_if_there_is_none_and_a_link_stays_one(tmp_path: Path) -> None:
    path = tmp_path / "link.toml"
    path.symlink_to(tmp_path / "dotfiles" / "config.toml")
    add_host(path, "box", BOX)
    assert path.is_symlink()
    assert read_hosts(path) == {"box": BOX}


@each(
    "text",
    [
        f'hosts = {{ box = "{BOX}" }}\n',
        f'hosts.box = "{BOX}"\n',
        f'[hosts]\n"box"\\t= """{BOX}"""\n'.replace("\\t", "\t").replace('"box"', "'b''ox'"),
        "[hosts\n",
    ],
)
def test_a_table_that_is_written_otherwise_is_left_to_its_user(tmp_path: Path, text: str) -> None:
    path = tmp_path / "config.toml"
    path.write_text(text)
    with pytest.raises(HostsError):
        add_host(path, "other", "ssh://other")
    assert path.read_text() == text
    assert list(tmp_path.iterdir()) == [path]


def test_line_breaks_stay_as_they_are(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    before = WRITTEN.replace("dark", "dark\x85\u2028still").replace("\n", "\r\n").encode()
    path.write_bytes(before)
    add_host(path, "box", BOX)
    add_host(path, "other", "ssh://other")
    assert path.read_bytes() == (
        before + f'\r\n[hosts]\r\nother = "ssh://other"\r\nbox = "{BOX}"\r\n'.encode()
    )
    remove_host(path, "box")
    remove_host(path, "other")
    assert path.read_bytes() == before + b"\r\n[hosts]\r\n"


def test_an_empty_config_gets_the_table_alone(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.touch()
    add_host(path, "box", BOX)
    assert path.read_text() == f'[hosts]\nbox = "{BOX}"\n'
