"""Starting a new keeper in place of one that was killed: it adopts the running QEMU.

Its forwarded ports get a longer queue. QEMU's network listens with room for one (libslirp,
src/socket.c: `listen(s, 1)`). It takes one connection in each turn of its loop, and the kernel
drops others meanwhile: of a burst, many get neither data nor a reset. Whoever has the socket can
change the queue's length at any time (listen(2)).
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import subprocess
import sys
from collections.abc import Collection
from dataclasses import replace

from quicksand.base.arch import Architecture
from quicksand.base.borrowing import borrow
from quicksand.base.errors import QuicksandError
from quicksand.base.files import is_locked
from quicksand.base.processes import PROC
from quicksand.qemu.binaries import find_binaries
from quicksand.qemu.command import forward_rules
from quicksand.qemu.process import KEEPER, LAUNCH_TIMEOUT_S, LEAN, LINE_MAX, keeper_environment
from quicksand.records.layout import RuntimeDir, SandboxDir, runtime_dir, sandbox_dir
from quicksand.records.registry import Registry, publish_state
from quicksand.records.sandboxes import Record, RunState

ROOM = 1024
"""Connections; the kernel's own limit is 4096 (net.core.somaxconn, listen(2))."""

LISTENS = "0A"
"""The state TCP_LISTEN in /proc/net/tcp (proc_pid_net(5))."""


def widen_backlogs(pid: int, ports: Collection[int]) -> int:
    """Let ROOM connections wait at each of these ``ports``, at which the QEMU ``pid`` listens.
    Returns the number of ports where that worked: where the system has no such call, or refuses it,
    the queues stay as they are."""
    if not ports or not PROC.joinpath("self").exists() or not hasattr(os, "pidfd_open"):
        return 0
    try:
        pidfd = os.pidfd_open(pid)
    except OSError:
        return 0
    try:
        return sum(_widen(pidfd, number) for number in _listening(pid, ports))
    finally:
        os.close(pidfd)


def _listening(pid: int, ports: Collection[int]) -> list[int]:
    """Return the descriptors of ``pid`` that listen at these ports."""
    wanted, found = {f":{port:04X}" for port in ports}, []
    place = PROC / str(pid)
    with contextlib.suppress(OSError):
        rows = [line.split() for line in (place / "net" / "tcp").read_text("ascii").splitlines()]
        sockets = {
            f"socket:[{row[9]}]" for row in rows if row[1][-5:] in wanted and row[3] == LISTENS
        }
        for entry in (place / "fd").iterdir():
            with contextlib.suppress(OSError):  # closed meanwhile
                if str(entry.readlink()) in sockets:
                    found.append(int(entry.name))
    return found


def _widen(pidfd: int, number: int) -> bool:
    with (
        contextlib.suppress(OSError),
        socket.socket(fileno=borrow(pidfd, number)) as listener,
    ):
        listener.listen(ROOM)
        return True
    return False


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
