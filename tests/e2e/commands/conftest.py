"""The command line as a person uses it, on a real VM and in a real terminal.

One VM serves all tests of a module, since a boot takes seconds: a test leaves it as it found it.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import IO

import pytest
from quicksand.host.paths import Paths

from tests.conftest import fresh_places

IMAGE = "debian"
PROGRAM = (sys.executable, "-m", "quicksand_tui")


def quicksand(
    *arguments: str, stdin: bytes = b"", timeout: float = 120
) -> subprocess.CompletedProcess[bytes]:
    """Run one command; its streams are pipes."""
    return subprocess.run(
        [*PROGRAM, *arguments], input=stdin, capture_output=True, timeout=timeout, check=False
    )


def start_quicksand(*arguments: str, stdin: int | None = None) -> subprocess.Popen[bytes]:
    """Start one command and leave it running."""
    return subprocess.Popen(
        [*PROGRAM, *arguments], stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def pipe_of(stream: IO[bytes] | None) -> IO[bytes]:
    """A process's stream that is a pipe."""
    assert stream is not None
    return stream


@pytest.fixture(scope="module", autouse=True)
def places(prepared: Paths) -> Iterator[Paths]:
    """Places shared by a module's tests."""
    with fresh_places(prepared) as found:
        yield found


@pytest.fixture(scope="module")
def vm(places: Paths) -> Iterator[str]:
    """A running sandbox, started and ended by the commands themselves."""
    started = quicksand("run", IMAGE, "--name", "shared", "--detach")
    assert (started.returncode, started.stdout) == (0, b"shared\n"), started.stderr
    yield "shared"
    ended = quicksand("rm", "-f", "shared")
    assert ended.returncode == 0, ended.stderr
