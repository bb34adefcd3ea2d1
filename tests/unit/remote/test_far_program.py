"""A command line that our program carries out elsewhere: its words, streams, files and signals, and
what is said when ssh fails."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import shlex
import shutil
import signal
import string
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from quicksand.base.errors import (
    ConfigError,
    PathError,
    RemoteError,
    RemoteProtocolError,
    RemoteUnreachableError,
)
from quicksand.base.paths import Paths
from quicksand.remote.destination import Destination
from quicksand.remote.far_program import LINE_MAX, FarLine, run_line
from quicksand.remote.ssh import line_there

from tests.each import each
from tests.unit.remote.far import until, write_ssh

PROGRAM = """
import os, signal, sys, time
from quicksand.remote.far_program import carry_line_out

def run(argv):
    what, *rest = argv
    if what == "echo":
        print(os.fsencode(" ".join(rest)).hex(), os.environ.get("COLORTERM"), flush=True)
        print("error", file=sys.stderr)
        return 7
    if what == "stdin":
        print(sys.stdin.read(), os.isatty(0))
    if what == "files":
        for name in rest:
            print(name, len(open(name, "rb").read()), oct(os.stat(name).st_mode))
        print(sorted(os.listdir(".")), oct(os.stat(".").st_mode))
    if what == "until":
        def end(number, frame):
            open(rest[0], "w").close()
            os.write(1, f"{signal.Signals(number).name}\\n".encode())
            sys.exit(5)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, end)
        print("ready", flush=True)
        open(rest[0] + ".ready", "w").close()
        time.sleep(300)
    return 0

assert sys.argv[1:3] == ["serve", "--line"], sys.argv
sys.exit(carry_line_out(sys.argv[3], run))
"""

BOX = Destination.parse("ssh://box")


@dataclass
class Near:
    """This end, with an `ssh` of its own."""

    bin: Path
    send: Callable[[str], None] = field(default=lambda _: None)
    """Passes a signal on, while a line is carried out."""

    @contextlib.contextmanager
    def passed_on(self, send: Callable[[str], None]) -> Iterator[None]:
        self.send = send
        yield

    async def write(self, data: bytes) -> None:
        sys.stdout.write(data.decode())

    async def run(self, *argv: str, changes: bool = False, **more: Any) -> int:
        files = more.pop("files", ())
        return await run_line(
            BOX,
            FarLine(argv=argv, **more),
            files,
            asks=False,
            changes=changes,
            passed_on=self.passed_on,
            write=self.write,
        )

    def says(self, lines: str) -> None:
        """Have ssh do something else. ``$log`` is the file for its own words."""
        find = 'log=/dev/null; while [ $# -gt 0 ]; do [ "$1" = -E ] && log=$2; shift; done'
        (self.bin / "ssh").write_text(f"#!/bin/sh\n{find}\n{lines}\n")

    def cut(self) -> None:
        """Break the connection."""
        os.kill(int((self.bin / "ssh.pid").read_text()), signal.SIGKILL)


@pytest.fixture
def near(places: Paths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Near:
    there = tmp_path / "bin"
    there.mkdir()
    (there / "program.py").write_text(PROGRAM)
    program = there / "quicksand-tui"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} {there / "program.py"} "$@"\n')
    program.chmod(0o755)
    write_ssh(there, 'sh -c "$last"')
    monkeypatch.setenv("PATH", f"{there}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("QUICKSAND_HOST", "elsewhere")
    return Near(there)


WORDS = ("a b", "\udcff", "ü", "", "'\"\\!$x `id` ~ * {a,b}\n", "-x", "--", "=ls")


def test_a_line_is_one_word_that_no_shell_changes() -> None:
    line = FarLine(argv=WORDS, env={"TERM": "xterm"}, files=[("a b.toml", 7)], mark="")
    word = line.encode()
    assert set(word) <= {*string.ascii_letters, *string.digits, *"-_="}
    found = FarLine.decode(word)
    assert (*found.argv,) == WORDS
    assert (found.env, found.has_terminal) == ({"TERM": "xterm"}, True)
    assert found.files == [("a b.toml", 7)]


@pytest.mark.parametrize("shell", ["sh", "bash", "zsh", "fish", "csh", "tcsh", "dash"])
def test_every_login_shell_runs_it(near: Near, shell: str) -> None:
    if (found := shutil.which(shell)) is None:
        pytest.skip(f"this host has no {shell}")
    line = line_there(f"serve --line {FarLine(argv=('echo', *WORDS)).encode()}")
    with subprocess.Popen(
        [found, "-c", line],
        stdin=subprocess.PIPE,  # open until its end: that would be a SIGHUP
        stdout=subprocess.PIPE,
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        said = process.stdout.read()
    assert said.split()[2] == os.fsencode(" ".join(WORDS)).hex().encode()


@each(
    "parts",
    [
        [],
        [[], {}, [], ""],
        [["a\0"], {}, [], ""],
        [[1], {}, [], ""],
        [["a"], {"LD_PRELOAD": "x"}, [], ""],
        [["a"], {"TERM": "a\nb"}, [], ""],
        [["a"], {}, [["../x", 1]], ""],
        [["a"], {}, [["x", -1]], ""],
        [["a"], {}, [["x", 1]] * 65, ""],
        [["a"], {}, [], 1],
        [["a"], {}, [], "a b"],
    ],
)
def test_lines_that_make_no_sense_are_refused(parts: object) -> None:
    with pytest.raises(RemoteProtocolError, match="no line"):
        FarLine.decode(base64.urlsafe_b64encode(json.dumps(parts).encode()).decode())


def test_a_word_that_is_no_line_is_refused() -> None:
    for word in ("?", "AAAA", "ü", "[" * 5000):
        with pytest.raises(RemoteProtocolError, match="no line"):
            FarLine.decode(word)
    with pytest.raises(ConfigError, match=str(LINE_MAX)):
        FarLine(argv=["x" * LINE_MAX]).encode()


async def test_streams_stay_apart_and_the_exit_code_comes_back(
    near: Near, capfd: pytest.CaptureFixture[str]
) -> None:
    assert await near.run("echo", *WORDS, env={"COLORTERM": "truecolor"}) == 7
    found = capfd.readouterr()
    assert found.out == f"{os.fsencode(' '.join(WORDS)).hex()} truecolor\n"
    assert found.err == "error\n"


async def test_it_takes_no_input(near: Near, capfd: pytest.CaptureFixture[str]) -> None:
    """Or it would eat that of the script that calls it."""
    assert await near.run("stdin") == 0
    assert capfd.readouterr().out == " False\n"


async def test_files_are_in_its_directory_for_as_long_as_it_runs(
    near: Near, places: Paths, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a b.toml").write_bytes(os.urandom(700_000))
    (tmp_path / "-x.toml").write_bytes(b"")
    files = [tmp_path / "a b.toml", tmp_path / "-x.toml"]
    assert await near.run("files", "a b.toml", "file.toml", files=files) == 0
    first, second, listed = capfd.readouterr().out.splitlines()
    assert first == "a b.toml 700000 0o100600"
    assert second == "file.toml 0 0o100600"
    assert listed == "['a b.toml', 'file.toml'] 0o40700"
    assert not [one for one in (places.cache / "hosts").iterdir() if one.is_dir()]


async def test_what_is_no_file_is_not_sent(near: Near, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is no file"):
        await near.run("files", files=[tmp_path])
    with pytest.raises(PathError, match="cannot read"):
        await near.run("files", files=[tmp_path / "missing"])


@pytest.mark.parametrize("name", ["INT", "TERM", "HUP"])
async def test_signals_reach_it(
    near: Near, tmp_path: Path, capfd: pytest.CaptureFixture[str], name: str
) -> None:
    ended = tmp_path / "ended"
    running = asyncio.create_task(near.run("until", str(ended)))
    await until((tmp_path / "ended.ready").exists, "it to begin")
    near.send(name)
    assert await running == 5
    assert capfd.readouterr().out == f"ready\nSIG{name}\n"


async def test_it_ends_with_a_client_that_goes(near: Near, tmp_path: Path) -> None:
    running = asyncio.create_task(near.run("until", str(tmp_path / "ended")))
    await until((tmp_path / "ended.ready").exists, "it to begin")
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await until((tmp_path / "ended").exists, "it to end")


async def test_it_ends_with_the_connection(near: Near, tmp_path: Path) -> None:
    running = asyncio.create_task(near.run("until", str(tmp_path / "ended")))
    await until((tmp_path / "ended.ready").exists, "it to begin")
    near.cut()
    with pytest.raises(RemoteUnreachableError, match="was ended on this machine by SIGKILL"):
        await running
    await until((tmp_path / "ended").exists, "it to end")


@pytest.mark.parametrize("changes", [True, False])
async def test_whether_a_change_was_made_is_unknown_after_a_break(
    near: Near, *, changes: bool
) -> None:
    near.says('echo "Authenticated to box." >> "$log"; echo "Timeout, box" >> "$log"; exit 255')
    with pytest.raises(RemoteUnreachableError, match="broke; it printed:\nTimeout, box") as caught:
        await near.run("echo", changes=changes)
    assert ("is unknown" in str(caught.value)) == changes
    assert (caught.value.hint == "look at what is there before you do it again") == changes
    # Nothing is known of an ssh that says nothing.
    near.says("exit 255")
    with pytest.raises(RemoteUnreachableError, match="broke") as caught:
        await near.run("echo", changes=changes)
    assert ("is unknown" in str(caught.value)) == changes


@pytest.mark.parametrize("mark", ["abc", ""])
async def test_what_did_not_get_there_is_not_unknown(near: Near, mark: str) -> None:
    """In a terminal neither."""
    near.says('echo "ssh: connect to host box port 22: refused" >> "$log"; exit 255')
    with pytest.raises(RemoteUnreachableError, match="cannot connect to box; it printed:\nssh: c"):
        await near.run("echo", changes=True, mark=mark)


async def test_what_a_login_shell_prints_is_no_output(
    near: Near, capfd: pytest.CaptureFixture[str]
) -> None:
    write_ssh(near.bin, """sh -c "echo Welcome; printf quicksand-there; $last" """)
    assert await near.run("stdin") == 0
    assert capfd.readouterr().out == " False\n"


@pytest.mark.parametrize("noise", ["echo This is a git server", "exec yes"])
async def test_a_server_that_does_not_run_our_program_is_told(near: Near, noise: str) -> None:
    near.says(noise)
    with pytest.raises(RemoteError) as caught:
        await near.run("echo")
    assert ("only prints" if "yes" in noise else "git server") in str(caught.value)


async def test_a_machine_without_the_program_is_told(
    near: Near, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    write_ssh(near.bin, f'env -i PATH={shlex.quote(os.defpath)} HOME=/nowhere sh -c "$last"')
    with pytest.raises(RemoteError, match="there is no quicksand-tui on box"):
        await near.run("echo")
