"""Ending QEMUs that nobody looks after: those of the sandbox, and nobody else's."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from quicksand.host.paths import Paths
from quicksand.layout import SandboxDir, sandbox_dir
from quicksand.qemu.command import machine_name
from quicksand.stopping import end_strays

SLEEP = "import time; print('up', flush=True); time.sleep(1000)"


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def run(stack: ExitStack, name: str, place: SandboxDir) -> subprocess.Popen[bytes]:
    """A process called ``name`` that has the sandbox's directory on its command line."""
    words = [name, "-c", SLEEP, machine_name(str(place.root))]
    process = subprocess.Popen(words, executable=sys.executable, stdout=subprocess.PIPE)
    stack.enter_context(process)
    stack.callback(process.kill)
    assert process.stdout is not None
    assert process.stdout.readline() == b"up\n"
    return process


def test_all_qemus_of_a_sandbox_are_ended_and_nothing_else(places: Paths, stack: ExitStack) -> None:
    mine, other = sandbox_dir(places, "mine"), sandbox_dir(places, "mine-too")
    strays = [run(stack, "/usr/bin/qemu-system-x86_64", mine) for _ in range(2)]
    editor = run(stack, "less", mine)
    foreign = run(stack, "/usr/bin/qemu-system-x86_64", other)
    end_strays(mine, only=foreign.pid)
    end_strays(mine, but=strays[0].pid)
    assert strays[1].wait(10) == -9
    assert [p.poll() for p in (strays[0], editor, foreign)] == [None] * 3
    end_strays(mine)
    assert strays[0].wait(10) == -9
    assert [p.poll() for p in (editor, foreign)] == [None] * 2
