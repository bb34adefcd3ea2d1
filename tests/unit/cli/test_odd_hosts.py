"""Hosts and users that are not as usual: other encodings, no home directory, directories of another
user, places with colons."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from quicksand.base import paths
from quicksand.base.errors import HostError, PathError
from quicksand.base.paths import Paths
from quicksand.qemu.binaries import loader_env
from quicksand_images.toolbox import _unpacked_tool

from quicksand_tui.cli.main import run
from quicksand_tui.home import state
from tests.unit.cli.histories import add, history_of, stand_at
from tests.unit.cli.run_cli import MODULE, make_stopped

NOTE = "vor dem Update 你好 → …"
ENCODINGS = ["latin-1", "ascii", "cp437", "utf-8:strict"]


def run_as(encoding: str, *words: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [*MODULE, *words],
        env={**os.environ, "PYTHONIOENCODING": encoding, "PYTHONUTF8": "0"},
        capture_output=True,
        timeout=120,
        check=False,
    )


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_a_text_beyond_the_encoding_of_stdout_is_written_similarly(
    places: Paths, encoding: str
) -> None:
    record = make_stopped(places, "web")
    history = history_of(places, record)
    add(history, 1, note=NOTE)
    stand_at(history, 1)
    done = run_as(encoding, "tree", "web")
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"vor dem Update" in done.stdout
    there = NOTE if encoding.startswith("utf-8") else "\\u4f60\\u597d"
    assert there.encode() in done.stdout


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_doctor_and_helps_are_written_in_every_encoding(places: Paths, encoding: str) -> None:
    for words in (["doctor"], ["--help"], ["run", "--help"], ["ps", "-a"], ["nosuch"]):
        done = run_as(encoding, *words)
        assert b"Traceback" not in done.stderr and b"UnicodeEncodeError" not in done.stderr, words
        assert done.stdout or done.stderr


def test_a_name_that_is_no_unicode_is_escaped_and_ends_nothing(places: Paths) -> None:
    done = run_as("utf-8:strict", "ps", b"\xff".decode("utf-8", "surrogateescape"))
    assert b"Traceback" not in done.stderr and b"(\\xff)" in done.stderr


@pytest.fixture
def homeless(monkeypatch: pytest.MonkeyPatch) -> None:
    """A user without an entry in passwd and without HOME."""

    def unknown(_: object) -> None:
        raise KeyError("getpwuid(): uid not found")

    monkeypatch.setattr("pwd.getpwuid", unknown)
    monkeypatch.setattr("pwd.getpwnam", unknown)
    for name in ("HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name in ("DATA", "CACHE", "STATE"):
        monkeypatch.delenv(f"QUICKSAND_{name}_DIR", raising=False)


HOMELESS = """
import pwd, sys
def unknown(_):
    raise KeyError("uid not found")
pwd.getpwuid = pwd.getpwnam = unknown
from quicksand_tui.cli.main import run
sys.exit(run(sys.argv[1:]))
"""


def test_without_a_home_the_commands_say_what_to_set(homeless: None) -> None:
    for line in ("ps", "images", "saves", "info", "run debian --detach", "config"):
        # A process of its own: a command that fails gives its standard output up.
        argv = [sys.executable, "-c", HOMELESS, *line.split()]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode != 0, line
        assert "this user has no home directory" in done.stderr and "set HOME" in done.stderr, line
    with pytest.raises(OSError, match="set HOME"):
        state.memory()


def test_who_names_all_places_needs_no_home(
    homeless: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("DATA", "CACHE", "STATE", "RUNTIME"):
        monkeypatch.setenv(f"QUICKSAND_{name}_DIR", str(tmp_path / name.lower()))
    assert run(["ps"]) == 0
    assert paths.paths().data == tmp_path / "data"
    with pytest.raises(PathError, match="~nobody-here/x"):
        paths.expand("~nobody-here/x")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make directories of other users")
def test_a_session_directory_of_another_user_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("QUICKSAND_RUNTIME_DIR", raising=False)
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    for place in (theirs, ours):
        place.mkdir(mode=0o700)
    os.chown(theirs, 54321, 54321)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(ours))
    assert paths.paths().runtime == ours / "quicksand"
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(theirs))
    found = paths.paths().runtime
    assert not found.is_relative_to(theirs)
    assert paths.make_private_dir(found) == found


def test_the_loader_finds_libraries_in_a_place_with_a_colon(tmp_path: Path) -> None:
    usual, odd = tmp_path / "usual", tmp_path / "a:b;c"
    for root in (usual, odd):
        for part in ("usr/bin", "usr/lib/x86_64-linux-gnu", "lib/x86_64-linux-gnu"):
            (root / part).mkdir(parents=True)
    assert loader_env(usual)["LD_LIBRARY_PATH"].split(":") == [
        str(usual / "lib/x86_64-linux-gnu"),
        str(usual / "usr/lib/x86_64-linux-gnu"),
    ]
    assert loader_env(odd)["LD_LIBRARY_PATH"].split(":") == [
        "$ORIGIN/../../lib/x86_64-linux-gnu",
        "$ORIGIN/../lib/x86_64-linux-gnu",
    ]


@pytest.mark.skipif(sys.platform != "linux", reason="it is about glibc's loader")
def test_a_program_in_a_place_with_a_colon_gets_the_library_beside_it(tmp_path: Path) -> None:
    """With the real loader: a library that only the list names is opened there."""
    root = tmp_path / "a:b"
    libraries = root / "usr" / "lib" / "x86_64-linux-gnu"
    libraries.mkdir(parents=True)
    program = root / "usr" / "bin" / "true"
    program.parent.mkdir()
    program.write_bytes(Path("/bin/true").resolve().read_bytes())
    program.chmod(0o755)
    done = subprocess.run(
        [program],
        env={**loader_env(root), "LD_DEBUG": "libs"},
        capture_output=True,
        timeout=60,
        check=False,
    )
    searched = done.stderr.decode("utf-8", "replace")
    if "trying file" not in searched:
        pytest.skip("/bin/true is linked statically here")
    assert f"{root}/usr/bin/../lib/x86_64-linux-gnu/" in searched


def test_a_tool_that_cannot_be_in_PATH_says_so(tmp_path: Path) -> None:
    root = tmp_path / "a:b"
    (root / "usr" / "bin").mkdir(parents=True)
    (root / "usr" / "bin" / "mkfs").touch()
    with pytest.raises(HostError, match=r"does not run in .*a:b"):
        _unpacked_tool(root, "mkfs", "e2fsprogs")


def test_an_exit_code_is_ours_though_the_terminal_has_gone() -> None:
    """Textual leaves some bytes for stderr, which nobody can write any more."""
    code = """
import sys
from quicksand_tui.cli import main
def dispatch(argv):
    sys.stderr.write("x")
    return 129
main._dispatch = dispatch
sys.exit(main.run([]))
"""
    with open("/dev/full", "wb") as gone:
        buffered = {**os.environ, "PYTHONUNBUFFERED": ""}
        done = subprocess.run([sys.executable, "-c", code], stderr=gone, env=buffered, check=False)
    assert done.returncode == 129
