"""The common part of the servers on a pipe and on a port: what a connection runs, and its end."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine
from typing import Any, Final

from quicksand.base.errors import AgentUnreachableError, QuicksandError, RevertedError
from quicksand.sandbox import Sandbox

from quicksand_tui.cli.host_choice import LOCAL
from quicksand_tui.cli.runner import why_gone


class Tasks:
    """Runs coroutines beside each other. None of them may raise."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[None]] = set()
        self.is_ending = False
        """Whether the connection ends: long work is not begun any more."""

    def start(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """Runs a coroutine, and returns its task."""
        task = asyncio.create_task(work, name=f"quicksand-ssh-{name}")
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return task

    async def end(self, patience: float) -> None:
        """Waits so many seconds for all of them, then cancels those that are left."""
        self.is_ending = True
        loop = asyncio.get_running_loop()
        deadline = loop.time() + patience
        while self._running and (left := deadline - loop.time()) > 0:  # they may start others
            await asyncio.wait(self._running, timeout=left)
        for task in self._running:
            task.cancel()
        if self._running:
            await asyncio.wait(self._running)


TELL_S = 0.2
"""Seconds for the sessions to tell their clients that the guest is gone."""

REASON_S = 0.5
"""Seconds to find out the end of a sandbox. The connection is to end at once."""

OPTIONS: Final[dict[str, Any]] = {
    "encryption_algs": (
        "aes128-gcm@openssh.com",
        "aes256-gcm@openssh.com",
        "chacha20-poly1305@openssh.com",
    ),
    "compression_algs": None,
    "server_version": "quicksand",
    "encoding": None,
    "line_editor": False,
    "agent_forwarding": False,
    "x11_forwarding": False,
    "allow_scp": False,
    "tcp_keepalive": False,
    "password_auth": False,
    "kbdint_auth": False,
    "host_based_auth": False,
    "gss_host": None,
}
"""Options of asyncssh. Its line editor would take keys, and its forwarding lead to this host."""


async def wait_gone(sandbox: Sandbox) -> QuicksandError:
    """Waits for the end of the guest that a client was let into, and returns its reason: a revert
    is an end, too. Raises QuicksandError if the guest cannot be reached at all."""
    error: QuicksandError = await sandbox.wait_disconnected()
    if sandbox.host != LOCAL:  # the reason of the end is not seen from here
        return error
    if isinstance(error, AgentUnreachableError) and not isinstance(error, RevertedError):
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(REASON_S):
                error = await why_gone(sandbox, error)
    return error
