"""Ending processes that nobody looks after: those of the sandbox, and nobody else's."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from quicksand.base.errors import AgentUnreachableError
from quicksand.base.paths import Paths
from quicksand.base.processes import MONITOR, list_processes, processes_of
from quicksand.qemu import stopping
from quicksand.qemu.stopping import end_strays, find_orphans
from quicksand.records.layout import sandbox_dir

from tests.conftest import fake_qemu, wait_for


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def start(stack: ExitStack, *words: str) -> subprocess.Popen[bytes]:
    """A stranger's process with these words behind its program."""
    process = subprocess.Popen(
        ["stranger", "-c", "input()", *words], executable=sys.executable, stdin=subprocess.PIPE
    )
    stack.enter_context(process)
    stack.callback(process.kill)
    cmdline = Path(f"/proc/{process.pid}/cmdline")
    wait_for(lambda: cmdline.read_bytes().startswith(b"stranger"), what="it to be executed")
    return process


def test_all_qemus_of_a_sandbox_are_ended_and_nothing_else(places: Paths, stack: ExitStack) -> None:
    mine, other = sandbox_dir(places, "a" * 12), sandbox_dir(places, "b" * 12)
    strays = [stack.enter_context(fake_qemu(mine.root)) for _ in range(2)]
    foreign = stack.enter_context(fake_qemu(other.root))
    editor = start(stack, "-name", str(mine.root))
    end_strays(mine, only=foreign.pid)
    end_strays(mine, but=strays[0].pid)
    assert strays[1].wait(60) == -9
    assert [p.poll() for p in (strays[0], editor, foreign)] == [None] * 3
    end_strays(mine)
    assert strays[0].wait(60) == -9
    assert [p.poll() for p in (editor, foreign)] == [None] * 2


@pytest.mark.parametrize(
    "words",
    [
        ["-name", "/home/me/vms/work"],
        ["-name", "/home/me/vms/work", "-chardev", f"{MONITOR}9"],
        ["-name", "/x/sandboxes/0123456789ab"],
        ["keeper.py", "/home/me/bees"],
        ["/home/me/keeper.py", "/x/sandboxes/0123456789ab"],
        ["quicksand/qemu/keeper.py", "/home/me/bees"],
        ["vim", "quicksand/qemu/keeper.py", "/home/me/notes"],
    ],
)
def test_a_stranger_s_process_is_none_of_ours_however_it_is_called(
    stack: ExitStack, words: list[str]
) -> None:
    """Otherwise `clean` would end it: the directory that it names holds no lock of ours."""
    process = start(stack, *words)
    assert process.pid not in [found.pid for found in list_processes()]
    assert process.pid not in [found.pid for found in find_orphans()]


def test_names_with_commas_and_newlines_are_found(stack: ExitStack, tmp_path: Path) -> None:
    place = tmp_path / "a, b\nc" / "sandboxes" / "0123456789ab"
    process = stack.enter_context(fake_qemu(place))
    assert [found.pid for found in processes_of(place)] == [process.pid]


class SlowGuest:
    """A guest that agrees to power down after some seconds; the link to it, too."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    async def session(self, *, timeout: float) -> SlowGuest:
        return self

    async def request(self, method: str, params: dict[str, Any], *, timeout: float) -> None:
        assert method == "shutdown"
        try:
            async with asyncio.timeout(timeout):
                await asyncio.sleep(self.seconds)
        except TimeoutError:
            raise AgentUnreachableError("no answer") from None


async def test_a_guest_that_a_busy_host_holds_up_has_all_of_its_grace(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """If it did not agree, it would be killed with what it has not written yet."""
    monkeypatch.setattr(stopping, "AGENT_TIMEOUT_S", 0.01)
    slow: Any = SlowGuest(0.1)
    assert await stopping._ask_guest(slow, 10.0, tmp_path / "log")
    assert not await stopping._ask_guest(slow, 0.02, tmp_path / "log")
