"""Resuming a guest that stood still: greeting its agent, and renewing its clock and secrets."""

from __future__ import annotations

import asyncio
import base64
import secrets
import time
from pathlib import Path
from typing import Any

from quicksand.base.effort import best_effort
from quicksand.base.hypervisor import Hypervisor
from quicksand.guest.agent.link import AgentLink
from quicksand.guest.agent.session import Session
from quicksand.guest.agent.values import whole

FIRST_HELLO_S = 2.0
"""Seconds to wait for the agent's first answer. It takes a tenth of a second, or longer on a host
that swaps. It never comes if a client was in the middle of a request when the guest was stopped."""

ENTROPY_BYTES = 64

CLOCK_LATE_S = 0.02
"""Seconds by which a guest's clock may be late; a guest takes a millisecond to set it."""
CLOCK_TRIES_S = (CLOCK_LATE_S, CLOCK_LATE_S, CLOCK_LATE_S, 0.1, 0.1, 0.1)
"""Seconds by which the clock may be late after each try: a busy host gets more in the end."""

CLOCK_S = 2.0
"""Seconds for all tries together after a plain resume, where the guest also helps itself."""

IDENTITY_S = 120.0
"""Seconds to wait for ``set_identity``. It may make SSH host keys, and an RSA key takes half a
minute in an emulated guest."""


async def resume(
    session: Session, token: str, hypervisor: Hypervisor, *, patience: float | None = None
) -> float:
    """Resume a VM, and shake hands with its agent, to which ``session`` is already connected; the
    agent gets ``patience`` seconds for that (None: `FIRST_HELLO_S`). Returns when the VM ran again,
    by `time.perf_counter`. Raises MachineError, AgentError."""
    hello = asyncio.create_task(
        # The guest takes long for its first answer, and its clock would be late by that time.
        session.handshake(token, timeout=patience or FIRST_HELLO_S, set_clock=False),
        name="quicksand-hello",
    )
    try:
        await asyncio.sleep(0)  # so that it is sent
        await hypervisor.resume()
        resumed = time.perf_counter()
        await hello
    except BaseException:
        hello.cancel()
        await asyncio.wait((hello,))
        raise
    return resumed


async def renew(session: Session, names: dict[str, str], token: dict[str, str]) -> None:
    """Renew a guest's clock and its random generator's state, and change its ``names`` (parameters
    of ``set_identity``) and its ``token``, if any are given. Raises AgentError."""
    entropy = {"entropy_b64": base64.b64encode(secrets.token_bytes(ENTROPY_BYTES)).decode()}
    if session.can("renew"):
        now = {"unix_ns": time.time_ns()}
        all_of_it = {**now, **entropy, **names, **token}
        reply = await session.request("renew", all_of_it, timeout=IDENTITY_S)
        if _is_late(reply):
            await _set_clock(session)
    else:  # an older agent is in the checkpoint's memory
        await _set_clock(session)
        await session.request("reseed", entropy)
        if names:
            await session.request("set_identity", names, timeout=IDENTITY_S)
        if token:
            await session.request("rotate_token", token)


async def set_clock_soon(link: AgentLink, log: Path) -> None:
    """Set the clock of a resumed guest. A guest whose agent does not answer within `CLOCK_S`
    notices by itself that it has stood still, less exactly
    (guest-agent/src/machine/host_time.rs)."""
    with best_effort("set the guest's clock", log):
        async with asyncio.timeout(CLOCK_S):
            await _set_clock(await link.session())


def _is_late(reply: dict[str, Any]) -> bool:
    """Whether the clock that a guest reports is not that of the host."""
    try:
        late_s = (time.time_ns() - whole(reply.get("unix_ns"))) / 1e9
    except ValueError:
        return True
    return not 0 <= late_s <= CLOCK_LATE_S


async def _set_clock(session: Session) -> None:
    """Set the guest's clock. It is late by as long as the request took to arrive, so on a busy host
    it is set again. Raises AgentError."""
    for allowed in CLOCK_TRIES_S:
        asked = time.monotonic()
        await session.request("set_time", {"unix_ns": time.time_ns()})
        if time.monotonic() - asked <= allowed:
            return
