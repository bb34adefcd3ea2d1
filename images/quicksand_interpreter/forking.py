"""Getting kernels from the zygote, which is started with the first one."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
from collections.abc import Sequence

from quicksand_interpreter.contexts import KernelGoneError

ANSWER_MAX = 64
FORK_S = 120.0
"""Seconds for the first kernel, which waits for all modules, on a host that emulates."""


class Process:
    """A kernel's process, which is not our child."""

    def __init__(self, pid: int, fd: int) -> None:
        self._pid, self._fd = pid, fd
        self.gone = asyncio.Event()
        """Set when the process has ended."""
        asyncio.get_running_loop().add_reader(fd, self._note_end)

    def _note_end(self) -> None:
        asyncio.get_running_loop().remove_reader(self._fd)
        os.close(self._fd)
        self.gone.set()

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to it and to its child processes."""
        if not self.gone.is_set():  # so the number is still its own
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._pid, number)


class Zygote:
    """Starts kernels, one at a time."""

    def __init__(self, argv: Sequence[str]) -> None:
        self._argv = argv
        self._lock = asyncio.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None

    async def fork(self, connection: str, cwd: str) -> Process:
        """Fork a kernel. Raises KernelGoneError."""
        work = asyncio.create_task(self._fork(connection, cwd))
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            work.add_done_callback(_kill)  # nobody wants it any more; the others live on
            raise

    async def _fork(self, connection: str, cwd: str) -> Process:
        request = json.dumps({"connection": connection, "cwd": cwd}).encode()
        loop = asyncio.get_running_loop()
        async with self._lock:
            try:
                ours = self._require()
                async with asyncio.timeout(FORK_S):
                    await loop.sock_sendall(ours, request)
                    answer = await loop.sock_recv(ours, ANSWER_MAX)
                pid = int(answer)
            except (OSError, ValueError) as error:  # a timeout is one of these
                self.close()
                raise KernelGoneError(f"it cannot be forked: {error}") from error
        try:
            return Process(pid, os.pidfd_open(pid))
        except ProcessLookupError as error:
            raise KernelGoneError("it has ended at once") from error

    def _require(self) -> socket.socket:
        if self._socket is None:
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            ours.setblocking(False)
            self._socket = ours
            with theirs:
                self._process = subprocess.Popen(self._argv, stdin=theirs.fileno())
        return self._socket

    def close(self) -> None:
        """End it, and its kernels with it."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


def _kill(work: asyncio.Task[Process]) -> None:
    if not work.cancelled() and work.exception() is None:
        work.result().signal(signal.SIGKILL)
