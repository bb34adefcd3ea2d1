"""`quicksand-tui ssh` before and beside ssh itself; no sandbox runs."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from quicksand.base.paths import Paths
from quicksand.records.host_sockets import ssh_masters

from quicksand_tui.cli.ssh.ssh_command import has_forwards
from tests.each import each
from tests.unit.cli.run_cli import MODULE


@each(
    "words",
    [
        ["-L", "8080:127.0.0.1:80"],
        ["-N", "-L8080:127.0.0.1:80"],
        ["-vN"],
        ["-o", "BatchMode=yes", "-4TD1080"],
        ["-p22", "-R", "9000:127.0.0.1:9000", "-N"],
        ["-o", "LocalForward=8080 127.0.0.1:80"],
        ["-vodynamicforward 1080", "true"],
    ],
)
def test_forwards_have_a_connection_of_their_own(words: list[str]) -> None:
    """With the shared one ssh would return at once, and they would end a minute later."""
    assert has_forwards(words)


@each(
    "words",
    [
        [],
        ["ls", "-L"],
        ["-t", "--", "-L"],
        ["-l", "-N", "true"],
        ["-oLogLevel=DEBUG", "true"],
        ["-S", "/run/mine", "-L", "8080:127.0.0.1:80"],
        ["-O", "forward", "-L", "8080:127.0.0.1:80"],
        ["-o", "ControlPath=/run/mine", "-o", "LocalForward 8080 127.0.0.1:80"],
        ["-p"],
    ],
)
def test_all_else_shares_one(words: list[str]) -> None:
    assert not has_forwards(words)


def test_no_compiler_runs_when_a_client_connects(tmp_path: Path, places: Paths) -> None:
    """Python has gcc and ld look for libraries that asyncssh could use."""
    mark = tmp_path / "mark"
    for name in ("gcc", "cc", "ld"):
        program = tmp_path / name
        program.write_text(f"#!/bin/sh\ntouch {mark}\nexit 1\n")
        program.chmod(0o755)
    env = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run(
        [*MODULE, "ssh", "--stdio", "x"],
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert done.stdout.startswith(b"SSH-2.0-quicksand"), done
    assert not mark.exists()
    ssh_masters(places).rmdir()  # for a client that would become a master
