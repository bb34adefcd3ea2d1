"""`Sandbox.abandon`, with which `run -- COMMAND` ends: nobody waits, and nothing is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from quicksand import NetworkMode, PortForward, Sandbox
from quicksand.base.files import is_locked
from quicksand.base.paths import Paths
from quicksand.base.processes import ProcessKind, processes_of
from quicksand.records.layout import runtime_dir, sandbox_dir

from tests.conftest import wait_for

pytestmark = [pytest.mark.vm, pytest.mark.usefixtures("template")]

OWNER = """
import asyncio, os, signal
from quicksand import Sandbox

async def main():
    sandbox = Sandbox(image="debian")
    await sandbox.start()
    print(sandbox.id, flush=True)
    input()
    assert sandbox.abandon()
    os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""


SLOW_KEEPER = """
import asyncio, os, signal, sys
from quicksand import Sandbox
from quicksand.base.paths import paths
from quicksand.base.processes import ProcessKind, processes_of
from quicksand.records.layout import sandbox_dir

async def main():
    sandbox = Sandbox(image="debian")
    await sandbox.start()
    found = processes_of(sandbox_dir(paths(), sandbox.id).root)
    (keeper,) = (process.pid for process in found if process.kind is ProcessKind.KEEPER)
    os.kill(keeper, signal.SIGSTOP)
    print(sandbox.id, keeper, flush=True)
    assert sandbox.abandon()

asyncio.run(main())
"""


def await_nothing(places: Paths, id_: str) -> None:
    """Wait until no process, no runtime file and no file of the sandbox is left."""
    place, runtime = sandbox_dir(places, id_).root, runtime_dir(places, id_).root
    wait_for(
        lambda: not (processes_of(place) or place.exists() or runtime.exists()),
        what="the keeper to remove everything",
    )


async def test_its_keeper_removes_everything(places: Paths) -> None:
    sandbox = Sandbox(image="debian")
    await sandbox.start()
    assert sandbox.abandon()
    await_nothing(places, sandbox.id)
    assert not sandbox.abandon()
    await sandbox.stop()  # is no error


def test_kill_9_in_the_same_moment_leaves_nothing_either(places: Paths) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", OWNER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as owner:
        assert owner.stdout is not None
        id_ = owner.stdout.readline().strip()
        owner.communicate("\n")
    assert owner.returncode == -signal.SIGKILL
    await_nothing(places, id_)


def test_a_program_that_ends_before_the_keeper_has_closed_what_it_opened(places: Paths) -> None:
    words = [sys.executable, "-W", "error", "-c", SLOW_KEEPER]
    ended = subprocess.run(words, capture_output=True, text=True, check=True, timeout=120)
    id_, keeper = ended.stdout.split()
    os.kill(int(keeper), signal.SIGCONT)
    await_nothing(places, id_)
    assert ended.stderr == ""


@pytest.mark.parametrize(
    "options",
    [
        {"name": "named", "ephemeral": True},
        {"network_mode": NetworkMode.MOUNTS_ONLY, "port_forwards": [PortForward(0, 80)]},
        {"agent_http": True, "network_mode": NetworkMode.MOUNTS_ONLY},
        {"save": "kept"},
    ],
    ids=lambda options: next(iter(options)),
)
async def test_what_somebody_may_miss_is_stopped_in_the_usual_way(
    places: Paths, tmp_path: Path, options: dict[str, Any]
) -> None:
    sandbox = Sandbox(image="debian", workspace=tmp_path, **options)
    await sandbox.start()
    assert not sandbox.abandon()
    assert sandbox.is_running
    await sandbox.stop()
    await_nothing(places, sandbox.id)


async def test_with_a_mount_its_guest_may_still_have_to_write(
    places: Paths, tmp_path: Path
) -> None:
    sandbox = Sandbox(image="debian")
    await sandbox.start()
    await sandbox.mount(tmp_path, "/mnt/here")
    assert not sandbox.abandon()
    await sandbox.unmount("/mnt/here")
    assert sandbox.abandon()
    await_nothing(places, sandbox.id)


async def test_without_a_keeper_nobody_would_remove_it(places: Paths) -> None:
    sandbox = Sandbox(image="debian")
    await sandbox.start()
    place = sandbox_dir(places, sandbox.id).root
    (keeper,) = (p.pid for p in processes_of(place) if p.kind is ProcessKind.KEEPER)
    os.kill(keeper, signal.SIGKILL)
    lock = runtime_dir(places, sandbox.id).keeper_lock
    wait_for(lambda: not is_locked(lock), what="the keeper's death")
    assert not sandbox.abandon()
    await sandbox.stop()
    await_nothing(places, sandbox.id)
