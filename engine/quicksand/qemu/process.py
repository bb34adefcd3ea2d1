"""Starting QEMU under its keeper, and knowing when it has ended."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from quicksand.errors import MachineError, QemuDiedError
from quicksand.host.files import tail
from quicksand.layout import AGENT_PORTS, QMP_MONITORS, RuntimeDir, SandboxDir
from quicksand.qemu import keeper
from quicksand.qemu.binaries import QemuBinaries
from quicksand.qemu.command import Inherited

LAUNCH_TIMEOUT_S = 20.0
"""The keeper needs milliseconds; a host that swaps may need seconds."""


class Listeners:
    """The Unix sockets that QEMU will serve, bound before it runs: no client ever polls for one."""

    def __init__(self, runtime: RuntimeDir) -> None:
        """Raises PathError when the socket paths are too long, OSError when one cannot be made."""
        runtime.check_length()
        self._sockets: list[socket.socket] = []
        try:
            qmp = [self._bind(runtime.qmp_socket(n)) for n in range(QMP_MONITORS)]
            agent = [self._bind(runtime.agent_socket(n)) for n in range(AGENT_PORTS)]
        except BaseException:
            self.close()
            raise
        self.inherited = Inherited(qmp=qmp, agent=agent)

    def _bind(self, path: Path) -> int:
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._sockets.append(listener)
        listener.bind(str(path))
        path.chmod(0o600)
        listener.listen(1)
        return listener.fileno()

    @property
    def descriptors(self) -> tuple[int, ...]:
        return (*self.inherited.qmp, *self.inherited.agent)

    def close(self) -> None:
        """Close this process's copies; QEMU's stay."""
        for listener in self._sockets:
            listener.close()


@dataclass(slots=True)
class OwnedProcess:
    """A QEMU that this process started. It dies when `lifeline` is closed, unless detached."""

    keeper: asyncio.subprocess.Process
    qemu_pid: int
    _lifeline: int | None

    def detach(self) -> None:
        """Let QEMU outlive this process."""
        if self._lifeline is not None:
            with contextlib.suppress(BrokenPipeError):
                os.write(self._lifeline, b"D")
            self.cut()

    def cut(self) -> None:
        """Close the lifeline: an attached QEMU is killed at once. Idempotent."""
        if self._lifeline is not None:
            os.close(self._lifeline)
            self._lifeline = None

    async def wait(self) -> None:
        """Return when QEMU has ended and the keeper has cleaned up."""
        await self.keeper.wait()


async def launch(
    binaries: QemuBinaries,
    arguments: Sequence[str],
    *,
    sandbox: SandboxDir,
    runtime: RuntimeDir,
    lock: int,
    listeners: Listeners,
    discard: bool,
) -> OwnedProcess:
    """Start QEMU under a keeper. On failure or cancellation nothing is left running.

    Raises QemuDiedError if the program cannot be executed.
    """
    argv = [sys.executable, "-I", "-S", keeper.__file__, str(sandbox.root), str(runtime.root)]
    argv += [str(lock), "discard" if discard else "keep", "--"]
    argv += ["/usr/bin/env", *(f"{k}={v}" for k, v in binaries.env.items())]
    argv += [str(binaries.system), *binaries.firmware_arguments, *arguments]
    read, write = os.pipe()
    try:
        process = await asyncio.create_subprocess_exec(
            *argv,
            stdin=read,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            pass_fds=(lock, *listeners.descriptors),
            env={"PATH": os.environ.get("PATH", os.defpath), "LANG": "C.UTF-8"},
            start_new_session=True,
            umask=0o077,
        )
    except BaseException:
        os.close(write)
        raise
    finally:
        os.close(read)
    owned = OwnedProcess(process, 0, write)
    try:
        owned.qemu_pid = await _await_started(process, binaries.system)
    except BaseException:
        owned.cut()
        await asyncio.shield(process.wait())
        raise
    return owned


async def _await_started(process: asyncio.subprocess.Process, program: Path) -> int:
    assert process.stdout is not None
    async with asyncio.timeout(LAUNCH_TIMEOUT_S):
        line = await process.stdout.readline()
    match line.split():
        case [b"started", pid]:
            return int(pid)
        case [b"failed", number]:
            reason = os.strerror(int(number))
            raise QemuDiedError(f"{program} cannot be executed: {reason}")
        case _:
            raise QemuDiedError("the process that looks after QEMU did not start")


def explain_death(sandbox: SandboxDir, *, doing: str) -> MachineError:
    """The error for a QEMU that ended by itself, with what it said last."""
    log = tail(sandbox.qemu_log, limit=2000)
    return QemuDiedError(f"QEMU ended while {doing}", log=log)
