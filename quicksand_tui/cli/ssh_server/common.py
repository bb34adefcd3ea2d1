"""What the servers on a pipe and on a port have in common."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any, Final

from quicksand.base.errors import AgentUnreachableError, QuicksandError, RevertedError
from quicksand.sandbox import Sandbox

from quicksand_tui.cli.runner import why_gone

TELL_S = 0.2
"""Seconds for the sessions to tell their clients that the guest is gone."""

REASON_S = 0.5
"""Seconds to find out how a sandbox has ended. The connection is to end at once."""

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
"""Options of asyncssh. Its line editor would take keys away, and its forwarding lead to this
host."""


async def wait_gone(sandbox: Sandbox) -> QuicksandError:
    """Waits for the end of the guest that a client was let into, and returns how it has ended: a
    revert ends what was there, too. Raises QuicksandError if it cannot be reached at all."""
    error: QuicksandError = await sandbox.wait_disconnected()
    if isinstance(error, AgentUnreachableError) and not isinstance(error, RevertedError):
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(REASON_S):
                error = await why_gone(sandbox, error)
    return error
