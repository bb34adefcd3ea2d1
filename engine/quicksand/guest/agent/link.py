"""A sandbox's link to its agent: takes a port, connects, and reconnects when the session broke."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from functools import partial
from typing import Any

from quicksand.base.errors import (
    AgentError,
    AgentUnreachableError,
    QuicksandError,
    RevertedError,
    StateError,
)
from quicksand.base.files import read_json
from quicksand.base.lease import Lease, take_lease
from quicksand.base.remedies import Words
from quicksand.guest.agent.session import Session, connect, dial
from quicksand.records.layout import AGENT_PORTS, MachineDir, RuntimeDir
from quicksand.records.paused import find_pause

ATTEMPT_S = 3.0
"""Seconds for one attempt. A running agent answers within milliseconds. A hello can get lost if
another client has just left the port, so it is repeated on a new connection."""

LEASE_TIMEOUT_S = 30.0


class AgentLink:
    """Hands out the live session. Each Sandbox object has one; it is safe for concurrent use."""

    def __init__(
        self,
        name: str,
        runtime: RuntimeDir,
        token: str,
        *,
        why_gone: Callable[[], QuicksandError | None],
        set_clock: bool = True,
    ) -> None:
        """``name`` is the sandbox's. ``why_gone`` returns the error to raise if the machine itself
        is gone, else None. ``set_clock`` is as in `Session.handshake`."""
        self._name = name
        self._runtime = runtime
        self._token = token
        self._why_gone = why_gone
        self._set_clock = set_clock
        self._lock = asyncio.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        """The event loop of the session and the lock."""
        self._session: Session | None = None
        self._lease: Lease | None = None
        self._machine: MachineDir | None = None
        """The machine of the session."""
        self._closings = 0
        """The number of closings: an attempt to connect that began before one is given up."""

    async def session(self, *, timeout: float = 15.0) -> Session:
        """Return the live session, connecting if there is none.

        Raises what ``why_gone`` returns, StateError if all ports are taken, AgentUnreachableError
        after ``timeout`` seconds without an answer or if this is closed meanwhile,
        AgentRefusedError for a wrong token. On another event loop than before it connects anew;
        StateError while that one still runs.
        """
        self._move_to(asyncio.get_running_loop())
        closings = self._closings
        async with self._lock:
            if closings == self._closings:
                self.move_on()  # another client may have reverted the sandbox just now
                if self._session is not None and not self._session.closed.is_set():
                    return self._session
                self._drop()
                self._session = await self._connect(timeout)
                self._session.guest.why_paused = self._why_paused
                if closings == self._closings:
                    return self._session
                self._drop()
        raise AgentUnreachableError("the connection to the guest's agent was closed")

    def _move_to(self, loop: asyncio.AbstractEventLoop) -> None:
        """Leave the event loop of earlier calls, which has ended. Raises StateError."""
        before, self._loop = self._loop or loop, loop
        if before is loop:
            return
        if before.is_running():
            self._loop = before
            raise used_elsewhere()
        self._drop()
        self._lock = asyncio.Lock()

    async def request(self, method: str, params: dict[str, Any], timeout: float) -> dict[str, Any]:
        """Ask the agent on the live session. Raises as `session` and `Session.request`."""
        return await (await self.session()).request(method, params, timeout=timeout)

    async def dial(self, machine: MachineDir, port: int) -> Session:
        """Connect to a port of ``machine`` before its agent runs. After the caller's handshake this
        is the live session. Raises StateError, AgentUnreachableError."""
        self._move_to(asyncio.get_running_loop())
        self._lease = await take_lease(
            [machine.agent_socket(port)], what="agent ports", timeout=LEASE_TIMEOUT_S
        )
        self._session = await dial(self._lease.socket, partial(self._why_broken, machine))
        self._session.guest.why_paused = self._why_paused
        self._machine = machine
        return self._session

    def adopt(self, machine: MachineDir, session: Session, lease: Lease) -> bool:
        """Go on with the session that a revert has made with ``machine``, which has taken over.
        Returns whether that is possible: not while this link connects by itself, or once it has."""
        if self._lock.locked() or self._machine == machine:
            return False
        self.move_on()
        session.explain(partial(self._why_broken, machine))
        session.guest.why_paused = self._why_paused
        self._machine, self._session, self._lease = machine, session, lease
        self._loop = session.loop
        return True

    def move_on(self) -> None:
        """End the session with a machine that another one has replaced; calls that wait get
        RevertedError. The next request connects to the new one."""
        if self._machine != self._runtime.current():
            if self._session is not None:
                self._session.leave()
            self._drop()

    async def _connect(self, timeout: float) -> Session:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        failure: AgentUnreachableError | None = None
        while (left := deadline - loop.time()) > 0:
            machine = self._runtime.current()
            sockets = [machine.agent_socket(n) for n in range(AGENT_PORTS)]
            try:
                lease = await take_lease(sockets, what="agent ports", timeout=LEASE_TIMEOUT_S)
            except StateError as error:
                raise self._why_gone() or error from error
            try:
                session = await connect(
                    lease.socket,
                    self._find_token(machine),
                    timeout=min(ATTEMPT_S, left),
                    why_broken=partial(self._why_broken, machine),
                    set_clock=self._set_clock,
                )
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
            if self._runtime.current() != machine:
                # Reverted meanwhile: the guest may not know that this client came.
                session.close()
                lease.release()
                continue
            self._lease, self._machine = lease, machine
            return session
        if self._runtime.current().unfinished.exists():
            raise StateError(
                "the last revert of the sandbox is not finished",
                hint="try it again later; if nobody is at it, revert the sandbox again, or stop it "
                "and start it at a checkpoint",
            ) from failure
        raise failure or AgentUnreachableError("the guest's agent does not answer")

    def _find_token(self, machine: MachineDir) -> str:
        """Return the token of the guest in ``machine``: a checkpoint has the token of its time."""
        with contextlib.suppress(OSError, ValueError):
            return str(read_json(machine.state)["token"])
        return self._token

    def _why_broken(self, machine: MachineDir) -> AgentError | None:
        """Return RevertedError if another QEMU has taken over from ``machine``, else None."""
        current = self._runtime.current()
        if current == machine:
            return None
        with contextlib.suppress(OSError, ValueError):
            origin = str(read_json(current.state)["origin"])
            return RevertedError(f"the sandbox was reverted to {origin!r}")
        return None

    def _why_paused(self) -> Words | None:
        pause = find_pause(self._runtime.current())
        if pause is None:
            return None
        said = f"{pause.said(self._name)}; what waits for it goes on when it does ("
        return Words(said, pause.remedy(self._name), ")")

    def renew_token(self, token: str) -> None:
        """Use ``token`` from the next session on."""
        self._token = token

    @property
    def connected(self) -> Session | None:
        """The live session, or None."""
        session = self._session
        if session is None or session.closed.is_set() or session.loop.is_closed():
            return None
        return session

    def close(self) -> None:
        """Close the connection and release the port; an attempt to connect gets
        AgentUnreachableError. The next `session` connects anew. Idempotent."""
        self._closings += 1
        self._drop()

    def _drop(self) -> None:
        if self._session is not None:
            self._session.close()
            self._session = None
        if self._lease is not None:
            self._lease.release()
            self._lease = None


def used_elsewhere() -> StateError:
    """Return the error for an object that another running event loop uses."""
    return StateError(
        "the sandbox is in use on another event loop, which still runs",
        hint="use it there, or have a `Sandbox.attach` of its own for each loop",
    )
