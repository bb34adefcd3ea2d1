"""A sandbox's link to its agent: takes a port, connects, and connects anew when it broke."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from quicksand.agent.session import Session, connect
from quicksand.errors import AgentUnreachableError, QuicksandError, StateError
from quicksand.host.lease import Lease, take_lease
from quicksand.layout import AGENT_PORTS, RuntimeDir

ATTEMPT_S = 3.0
"""A running agent answers in milliseconds. A hello can be lost when its port was just given up by
another client, so one without an answer is said again on a new connection."""

LEASE_TIMEOUT_S = 30.0


class AgentLink:
    """Hands out the live session. One per Sandbox object; safe for concurrent use."""

    def __init__(
        self, runtime: RuntimeDir, token: str, *, why_gone: Callable[[], QuicksandError | None]
    ) -> None:
        """``why_gone`` returns the error to raise when the machine itself is gone, else None."""
        self._runtime = runtime
        self._token = token
        self._why_gone = why_gone
        self._lock = asyncio.Lock()
        self._session: Session | None = None
        self._lease: Lease | None = None

    async def session(self, *, timeout: float = 15.0) -> Session:
        """The live session, connected if need be.

        Raises what ``why_gone`` says, StateError when all ports are taken, AgentUnreachableError
        after ``timeout`` seconds without an answer, AgentRefusedError for a wrong token.
        """
        async with self._lock:
            if self._session is not None and not self._session.closed.is_set():
                return self._session
            self.close()
            self._session = await self._connect(timeout)
            return self._session

    async def _connect(self, timeout: float) -> Session:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        sockets = [self._runtime.agent_socket(n) for n in range(AGENT_PORTS)]
        failure: AgentUnreachableError | None = None
        while (left := deadline - loop.time()) > 0:
            try:
                lease = await take_lease(sockets, what="agent ports", timeout=LEASE_TIMEOUT_S)
            except StateError as error:
                raise self._why_gone() or error from error
            try:
                session = await connect(lease.socket, self._token, timeout=min(ATTEMPT_S, left))
            except AgentUnreachableError as error:
                lease.release()
                if (gone := self._why_gone()) is not None:
                    raise gone from error
                failure = error
                await asyncio.sleep(0.05)
                continue
            except BaseException:
                lease.release()
                raise
            self._lease = lease
            return session
        raise failure or AgentUnreachableError("the guest's agent does not answer")

    @property
    def connected(self) -> Session | None:
        """The live session if there is one."""
        session = self._session
        return session if session is not None and not session.closed.is_set() else None

    def close(self) -> None:
        """Close the connection and give the port back. Idempotent."""
        if self._session is not None:
            self._session.close()
            self._session = None
        if self._lease is not None:
            self._lease.release()
            self._lease = None
