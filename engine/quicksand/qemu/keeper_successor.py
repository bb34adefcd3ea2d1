"""Starting a new keeper in place of one that was killed: it adopts the running QEMU."""

from __future__ import annotations

import os
import select
import subprocess
import sys
from dataclasses import replace

from quicksand.base.arch import Architecture
from quicksand.base.errors import QuicksandError
from quicksand.base.files import is_locked
from quicksand.qemu.backlog import widen_backlogs
from quicksand.qemu.binaries import find_binaries
from quicksand.qemu.command import forward_rules
from quicksand.qemu.process import KEEPER, LAUNCH_TIMEOUT_S, LEAN, LINE_MAX, keeper_environment
from quicksand.records.layout import RuntimeDir, SandboxDir, runtime_dir, sandbox_dir
from quicksand.records.registry import Registry, publish_state
from quicksand.records.sandboxes import Record, RunState


def start_successor(registry: Registry, record: Record, run: RunState) -> bool:
    """Start a keeper that adopts the QEMU of ``run``; returns whether there is a keeper now."""
    runtime = runtime_dir(registry.paths, record.id)
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
    return [
        *(sys.executable, "-I", "-S", str(KEEPER), "--adopt"),
        *(str(place.root), str(runtime.root)),
        "discard" if record.discard else "keep",
        str(run.qemu_pid),
        " ".join(forward_rules(run.http_port)),
        f"{run.owner_pid} {run.owner_started}" if run.owner_started else "",
        *(f"{name}={value}" for name, value in env.items()),
    ]
