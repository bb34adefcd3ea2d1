"""E2B's own packages, installed as their users do it, and a server for them."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import venv
from collections.abc import Iterator
from pathlib import Path

import pytest
from quicksand.base.paths import Paths
from quicksand.records.registry import Registry

PROGRAM = shlex.join([sys.executable, "-m", "quicksand_tui"])


def install(place: Path, package: str) -> Path:
    """The interpreter of a fresh virtual environment with the newest version of a package."""
    venv.create(place, with_pip=True)
    python = place / "bin" / "python"
    installed = subprocess.run(
        [python, "-m", "pip", "-q", "install", package], capture_output=True, check=False
    )
    assert installed.returncode == 0, installed.stderr.decode()
    return python


@pytest.fixture
def listening(places: Paths) -> Iterator[str]:
    """The address of a server, whose clients leave no sandbox."""
    server = subprocess.Popen(
        [*shlex.split(PROGRAM), "api", "--listen", "127.0.0.1:0"], stdout=subprocess.PIPE
    )
    assert server.stdout is not None
    with server.stdout:
        found = re.search(r"http://(\S+:\d+)", server.stdout.readline().decode())
        assert found is not None
        yield found[1]
        server.terminate()
        server.wait(60)
    assert not Registry(places).list(), "the SDK's `with` ends its sandbox"


def run_script(python: Path, script: Path, listening: str, within_s: float) -> str:
    """Run a script as a user does who has just read the guide; returns what it prints."""
    line = f'eval $({PROGRAM} api env --listen {listening}) && "{python}" "{script}"'
    environ = {name: text for name, text in os.environ.items() if not name.startswith("E2B_")}
    ran = subprocess.run(
        ["bash", "-c", line],
        env=environ, capture_output=True, text=True, timeout=within_s, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    return ran.stdout
