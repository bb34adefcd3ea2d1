"""Other programs that are connected to a guest while it is reverted in the running QEMU.

The guest of the checkpoint does not know what they have open. So their connections are ended from
outside, and the guest is told: while it is paused, QEMU does not notice clients coming to a port of
its agent or leaving it (hw/char/virtio-console.c, ``virtconsole_enable_backend``).
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Sequence
from pathlib import Path

from quicksand.base.effort import best_effort
from quicksand.base.files import map_os_errors
from quicksand.base.lease import Lease, take_at_once
from quicksand.mounts.shares import end_refusers, end_unknown, list_shares
from quicksand.qemu import disconnecting
from quicksand.records.layout import AGENT_PORTS, SHARES, MachineDir, RuntimeDir
from quicksand.records.sandboxes import RunState

TELL_S = 5.0
"""Seconds to connect to QEMU, which takes a client when it runs."""


def end_all(
    run: RunState, runtime: RuntimeDir, machine: MachineDir, ours: Lease | None
) -> list[str]:
    """End the connections of other programs to the guest of the paused ``machine``, and those of
    its network; viewers of the screen stay, and so does the client with the lease ``ours``. Returns
    the agent's ports that were in use, by their sockets' names. Blocks for I/O. Raises HostError,
    MachineError."""
    agents = {f"agent{port}.sock" for port in range(AGENT_PORTS)}
    if ours is not None:
        agents.remove(ours.socket.name)
    with map_os_errors(machine.root):
        end_unknown(machine)
        end_refusers(machine, range(SHARES))
    for share in list_shares(machine):
        share.end()  # it would come back
    streams = {f"smb{number}.sock" for number in range(SHARES)}
    ended = disconnecting.end_streams(run.qemu_pid, runtime.root, agents | streams)
    keep = {run.vnc_port} if run.vnc_port is not None else set()
    disconnecting.end_forwarded(run.qemu_pid, keep=keep)
    return [name for name in ended if name in agents]


def tell_of(ended: Sequence[Path], log: Path) -> None:
    """Tell a running guest that these sockets of its agent have no client any more: QEMU notices
    that a client comes and leaves. Blocks for I/O."""
    for path in ended:
        with contextlib.ExitStack() as stack:
            stack.enter_context(best_effort("tell the guest of a client that is gone", log))
            lease = take_at_once(path)
            if lease is None:
                continue  # the next client has come, and will leave
            stack.callback(lease.release)
            client = stack.enter_context(socket.socket(socket.AF_UNIX))
            client.settimeout(TELL_S)
            client.connect(str(path))
