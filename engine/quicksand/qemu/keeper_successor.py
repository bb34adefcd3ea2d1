"""Replacing a keeper that was killed: the next client starts a new one, which adopts the running
QEMU. The keeper is the parent process of a sandbox's QEMU (qemu/keeper.py)."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import time
from dataclasses import replace

from quicksand.base.arch import Architecture
from quicksand.base.errors import QuicksandError
from quicksand.base.files import is_locked
from quicksand.base.threads import in_thread_to_the_end
from quicksand.records.layout import RuntimeDir, SandboxDir, runtime_dir, sandbox_dir
from quicksand.records.registry import Registry, publish_state
from quicksand.records.sandboxes import Record, RunState

PATIENCE_S = 30.0
"""Seconds between two attempts to replace a keeper."""


async def ensure_keeper(registry: Registry, record: Record) -> bool:
    """Start a new keeper for a running sandbox if its own was killed. Returns False if that is not
    possible (on systems other than Linux, for instance); calls that need a keeper fail then.
    """
    runtime = runtime_dir(registry.paths, record.id)
    if not runtime.keeper_lock.exists() or is_locked(runtime.keeper_lock):
        return True
    entry = registry.inspect(record.id)
    if entry is None or entry.run is None:
        return True
    run = entry.run
    return await in_thread_to_the_end(lambda: _adopt(registry, record, runtime, run))


class KeeperCheck:
    """Calls `ensure_keeper` for a client that makes many requests. Looking for the keeper costs
    next to nothing; failed attempts to replace it are made at most every PATIENCE_S."""

    def __init__(self) -> None:
        self._not_before = 0.0

    async def ensure(self, registry: Registry, record: Record) -> None:
        """See `ensure_keeper`."""
        if time.monotonic() >= self._not_before and not await ensure_keeper(registry, record):
            self._not_before = time.monotonic() + PATIENCE_S


def _adopt(registry: Registry, record: Record, runtime: RuntimeDir, run: RunState) -> bool:
    """Start a keeper that adopts the QEMU of ``run``; returns whether there is a keeper now."""
    from quicksand.qemu.backlog import widen_backlogs
    from quicksand.qemu.binaries import find_binaries
    from quicksand.qemu.process import LAUNCH_TIMEOUT_S, LEAN, LINE_MAX, keeper_environment

    try:
        arch = Architecture.parse(record.config.arch or Architecture.host().value)
        env = {**LEAN, **find_binaries(arch.value).env}
    except QuicksandError:
        return False
    argv = _plan(sandbox_dir(registry.paths, record.id), runtime, record, run, env)
    with subprocess.Popen(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=keeper_environment(),
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        words: list[bytes] = []
        if select.select([process.stdout], [], [], LAUNCH_TIMEOUT_S)[0]:
            words = os.read(process.stdout.fileno(), LINE_MAX).split()
    if words[:1] == [b"started"]:
        widen_backlogs(run.qemu_pid, run.forwarded)
        publish_state(runtime.current(), replace(run, keeper_pid=int(words[1])))
    return is_locked(runtime.keeper_lock)


def _plan(
    place: SandboxDir, runtime: RuntimeDir, record: Record, run: RunState, env: dict[str, str]
) -> list[str]:
    from quicksand.qemu.command import forward_rules
    from quicksand.qemu.process import KEEPER

    return [
        *(sys.executable, "-I", "-S", str(KEEPER), "--adopt"),
        *(str(place.root), str(runtime.root)),
        "discard" if record.discard else "keep",
        str(run.qemu_pid),
        " ".join(forward_rules(run.forwards, run.http_port)),
        *(f"{name}={value}" for name, value in env.items()),
    ]
