"""The first connection to the agent of a guest that goes on from a checkpoint.

It is made before the devices' state is loaded: then the guest does not see the checkpoint's client
leave and another one come. For the guest it is the connection of the client that reverts it.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import NamedTuple

from quicksand.base.errors import AgentUnreachableError
from quicksand.base.hypervisor import Hypervisor
from quicksand.base.lease import take_at_once
from quicksand.guest.agent.link import ATTEMPT_S, AgentLink
from quicksand.guest.agent.session import Session, dial
from quicksand.records.layout import MachineDir
from quicksand.records.nodes import Node
from quicksand.records.sandboxes import Record
from quicksand.snapshots import restore


class Moments(NamedTuple):
    """The moments of a revert that its user notices, by `time.perf_counter`."""

    frozen_at: float
    """The guest was paused."""
    resumed_at: float
    """The guest ran again, from the checkpoint."""
    answered_at: float
    """The guest's agent had carried out the first request."""


class Awakening:
    """The connection to one guest. `dial` comes first, then `wake`; `close` in any case."""

    def __init__(self, machine: MachineDir, record: Record, node: Node) -> None:
        """``machine`` has the sockets."""
        self._machine = machine
        self._record = record
        self._node = node
        self._session: Session | None = None
        self._resumed_at = self._answered_at = 0.0

    async def dial(self) -> None:
        """Connect to the port that had a client at the checkpoint. No other client uses this
        machine yet, so no lease is needed. Raises AgentUnreachableError."""
        self._session = await dial(self._machine.agent_socket(self._node.port))

    async def wake(self, hypervisor: Hypervisor) -> str:
        """Resume the guest, and renew everything in it that must not be old or shared. Returns its
        agent's token. Raises MachineError, AgentError."""
        assert self._session is not None, "dial comes first"
        self._session, self._resumed_at = await restore.wake(
            self._session, self._again, self._node, hypervisor
        )
        token = await restore.repair_guest(self._session, self._record, self._node)
        self._answered_at = time.perf_counter()
        return token

    def moments(self, frozen_at: float) -> Moments:
        """The moments of the revert, once the guest is awake."""
        return Moments(frozen_at, self._resumed_at, self._answered_at)

    async def _again(self) -> Session:
        """Say hello anew, and repeat it: a hello can get lost (`ATTEMPT_S`)."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + restore.HELLO_S
        while True:
            session = await dial(self._machine.agent_socket(self._node.port))  # if QEMU lives
            try:
                await session.handshake(self._node.token, timeout=ATTEMPT_S)
                return session
            except AgentUnreachableError:
                session.close()
                if loop.time() >= deadline:
                    raise
            except BaseException:
                session.close()
                raise

    def hand_over(self, link: AgentLink | None) -> None:
        """Give the connection to ``link``: a new one would cost the guest another hundredth of a
        second. If another client already has the port, it waits for this session to end."""
        if link is None or self._session is None:
            return
        with contextlib.suppress(OSError):
            lease = take_at_once(self._machine.agent_socket(self._node.port))
            if lease is not None and link.adopt(self._machine, self._session, lease):
                self._session = None
            elif lease is not None:
                self._session.close()
                lease.release()

    def close(self) -> None:
        """Close the connection, unless it was handed over. Idempotent."""
        if self._session is not None:
            self._session.close()
            self._session = None
