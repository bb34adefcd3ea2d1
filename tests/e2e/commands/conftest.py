"""The command line as a person uses it, on a real VM and in a real terminal.

One VM serves all tests of a module, since a boot takes seconds: a test leaves it as it found it.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import IO

import pytest
from quicksand import Sandbox
from quicksand.base.paths import Paths
from quicksand.guest.execution import ExecuteResult

from quicksand_tui.cli import main
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
    """Start one command and leave it running. It hears a SIGHUP also where these tests do not, as
    under nohup."""
    ours = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    try:
        return subprocess.Popen(
            [*PROGRAM, *arguments], stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
    finally:
        signal.signal(signal.SIGHUP, ours)


def invoke(*arguments: str) -> subprocess.CompletedProcess[bytes]:
    """The same within this process, which saves the start of Python: for what a command does, and
    not how its process ends. `exec` and others that pass streams on need a process."""
    assert arguments[0] not in ("exec", "cp", "shell", "ssh") and "--" not in arguments
    streams = [io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2)]
    interrupted = signal.getsignal(signal.SIGINT)
    with contextlib.redirect_stdout(streams[0]), contextlib.redirect_stderr(streams[1]):
        try:
            code = main.run(arguments)
        finally:
            signal.signal(signal.SIGINT, interrupted)
    for stream in streams:
        stream.flush()
    out, err = (stream.buffer.getvalue() for stream in streams)
    return subprocess.CompletedProcess(arguments, code, out, err)


def succeed(*arguments: str) -> str:
    """What a command of ours that must succeed prints."""
    result = invoke(*arguments)
    assert result.returncode == 0, result
    return result.stdout.decode()


def execute(vm: str, command: str | list[str]) -> ExecuteResult:
    """Run a command in the VM, past the command line: what `exec` does is tested for itself,
    and starting it takes longer than most commands."""

    async def ask() -> ExecuteResult:
        sandbox = Sandbox.attach(vm)
        try:
            return await sandbox.execute(command, timeout=60)
        finally:
            sandbox.close()

    return asyncio.run(ask())


def in_vm(vm: str, script: str) -> str:
    """What a shell script in the VM prints."""
    result = execute(vm, script)
    assert result.exit_code == 0, result
    return result.stdout.strip()


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
    assert succeed("run", IMAGE, "--name", "shared", "--detach") == "shared\n"
    yield "shared"
    succeed("rm", "-f", "shared")
