"""One sandbox of another machine, as this program sees it."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from quicksand.base.errors import (
    AgentUnreachableError,
    MachineError,
    QuicksandError,
    RemoteError,
    RemoteProtocolError,
    RemoteRefusedError,
    StateError,
)
from quicksand.base.paths import paths
from quicksand.base.progress import Progress
from quicksand.guest.agent.link import used_elsewhere
from quicksand.guest.agent.session import Session
from quicksand.guest.execution import ExitStatus
from quicksand.hosted.calling import call, require_capability
from quicksand.hosted.codec import (
    METHODS,
    ForeignValueError,
    Known,
    decode,
    decode_error,
    encode,
    hints_of,
)
from quicksand.hosted.remote_host import RemoteHost
from quicksand.records.command_log import COMMAND_MAX
from quicksand.remote.agents import RelayedAgent
from quicksand.remote.connection import Sharing
from quicksand.remote.peer_link import Channel
from quicksand.things.sandbox_facts import SandboxStats

ENDS = frozenset({"stop", "trash"})
"""Methods after which no part of a sandbox may be in use."""

REVERTS = frozenset({"revert", "undo"})


class FarLife:
    """A sandbox of another machine: what is known of it, its handle there, and the connection to
    its guest's agent. It takes the place of `Life`."""

    base_dir: Path | None = None

    def __init__(
        self,
        host: RemoteHost | None,
        known: Known,
        opening: dict[str, Any],
        *,
        handle: str = "",
        progress: Progress | None = None,
    ) -> None:
        """``opening`` says how the other machine finds or makes the sandbox; ``handle`` is its name
        there if it is already held. Without ``host`` it has no place yet (`put_on`)."""
        self._host = host
        self.known = known
        self.progress = progress
        self._opening = opening
        self._handle = handle or os.urandom(16).hex()
        self._is_held = bool(handle)
        self._generation = 0
        self._shared: Sharing | None = None
        self._left: Sharing | None = None
        """The connection that was used last."""
        self._using = contextlib.ExitStack()
        self._agent: RelayedAgent | None = None
        self._agent_lock = asyncio.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        """The event loop of the connection, of the agent and of the lock."""
        if handle:
            self._generation = self._use().generation

    @property
    def host(self) -> RemoteHost:
        """Its machine. Raises StateError if it has no place yet."""
        if self._host is None:
            raise StateError("the sandbox has no place in the fleet yet: start it first")
        return self._host

    @property
    def where(self) -> str | None:
        """Return the name of its machine; None if it has none yet."""
        return None if self._host is None else self._host.address

    def put_on(self, host: RemoteHost | None, handle: str = "") -> None:
        """Have the sandbox, which must not exist yet, made on a machine, or on none."""
        self._let_go()
        self._host = host
        self._handle = handle or os.urandom(16).hex()

    # The connection

    @property
    def connection(self) -> Sharing:
        """Return the connection to its machine, and use it from now on."""
        return self._use()

    def _use(self) -> Sharing:
        self._move_to(asyncio.get_running_loop())
        if self._shared is None:
            self._shared = self.host.sharing()
            self._using.enter_context(self._shared.use())
        return self._shared

    def _move_to(self, loop: asyncio.AbstractEventLoop) -> None:
        """Leave the event loop of earlier calls, with which the connection has ended. Raises
        StateError if it still runs, MachineError if the sandbox has ended with the connection."""
        before, self._loop = self._loop or loop, loop
        if before is loop:
            return
        if before.is_running():
            self._loop = before
            raise used_elsewhere()
        was_held = self._is_held
        self._drop()
        if was_held and "make" in self._opening:
            self.known = replace(self.known, is_running=False)
            raise MachineError(
                f"the sandbox {self.name!r} on {self.host.name} has ended with the event loop that "
                "started it",
                hint="`detach` keeps it: it is found by its name then (`Sandbox.attach`)",
            )

    def _drop(self) -> None:
        """Forget the objects of an event loop that has ended."""
        self._using.pop_all()
        self._shared = self._left = self._agent = None
        self._agent_lock = asyncio.Lock()
        self._is_held = False

    def _let_go(self) -> None:
        """Stop using the connection; the next call uses it again."""
        if self._loop is not None and self._loop.is_closed():
            self._drop()
            return
        self.disconnect()
        if self._shared is not None and self._is_held:
            with contextlib.suppress(RemoteError):
                self._shared.present().open("release", handle=self._handle).close()
        self._is_held = False
        self._left, self._shared = self._shared or self._left, None
        self._using.close()

    async def leave(self) -> None:
        """Wait until the connection has ended, if this was its last user."""
        agent = self._agent
        self._let_go()
        if agent is not None:
            await agent.ended()
        if self._left is not None:
            await self._left.ended()

    # What the machine does

    async def call(self, name: str, *args: Any, wanted: Any = None, **keywords: Any) -> Any:
        """Have a method of `Sandbox` called there, and return its result, which has the type that
        the method declares, or ``wanted``. Raises the method's errors, and RemoteError."""
        words, named, report = without_callbacks(METHODS[name], args, keywords)
        shared = self._use()
        await require_capability(shared)
        self._require_known_there(shared)
        params = {
            **{"handle": self._handle, "open": self._opening, "name": name},
            **{"args": words, "keywords": named, "grace_s": self.host.grace},
        }
        self._is_held, self._generation = True, shared.generation
        try:
            answer = await call(shared, params, report or self.progress)
        except MachineError:
            self.known = replace(self.known, is_running=False)
            raise
        self.known = self._read(answer.get("known"), Known)
        if self._agent is not None:
            self._agent.look_again()
            if name in REVERTS:
                self._agent.session.leave()
                self.disconnect()
        if name in ENDS:
            if self.known.exists:
                self._opening = _by_name(self.known.id)
            self._let_go()
        found = answer.get("value")
        return self._read(found, hints_of(METHODS[name])["return"] if wanted is None else wanted)

    async def look(self) -> None:
        """Learn whether the sandbox is there, and which one it is. Raises as `call`."""
        await self.call("checkpoints")

    def _require_known_there(self, shared: Sharing) -> None:
        """Raise MachineError if the process there that held the sandbox for us is gone."""
        if self._is_held and self._generation != shared.generation:
            self._is_held = False
            if "make" in self._opening:
                raise MachineError(
                    f"the sandbox {self.known.name!r} on {self.host.name} has ended: the process "
                    "that held it for this program is gone"
                )

    def _read(self, found: Any, wanted: Any) -> Any:
        try:
            return decode(found, wanted)
        except ForeignValueError as error:
            raise RemoteProtocolError(
                f"{self.host.name} answered with a value that makes no sense: {error}"
            ) from error

    def new(self, found: Any) -> FarLife | QuicksandError:
        """Return the life of a clone that is described, or the error that kept it from starting."""
        match found:
            case {"known": known}:
                read = self._read(known, Known)
                return FarLife(self.host, read, _by_name(read.id), handle=read.id)
            case {"error": error}:
                return decode_error(error, self.host.name)
        raise RemoteProtocolError(f"{self.host.name} describes a clone in no way that is known")

    @property
    def is_there(self) -> bool:
        """Whether there may be such a sandbox: it is in use there, or was found by name."""
        return self._is_held or "make" not in self._opening

    # As `Life` has it

    @property
    def name(self) -> str:
        return self.known.name

    @property
    def can_answer(self) -> bool:
        return self.known.is_running

    @property
    def log(self) -> Path:
        return paths().engine_log

    async def start(self, at: str | None) -> None:
        await self.call("start", at=at)

    async def session(self) -> Session:
        """A session with the guest's agent. Raises StateError, AgentError, RemoteError."""
        self._move_to(asyncio.get_running_loop())
        async with self._agent_lock:
            if self._agent is not None and not self._agent.session.closed.is_set():
                await self._agent.refuse_paused()
                return self._agent.session
            if not self._is_held:
                await self.look()
            if not self.known.is_running:
                raise StateError(f"the sandbox {self.name!r} is not running")
            shared = self._use()
            link = await shared.link()
            self._require_known_there(shared)
            try:
                self._agent = await RelayedAgent.open(link, self.known.id)
            except RemoteRefusedError as error:
                await self.call("ping")  # if it fails, `open` fails with the reason
                raise AgentUnreachableError(str(error), hint=error.hint) from error
            return self._agent.session

    async def stats(self) -> SandboxStats:
        found: SandboxStats = await self.call("stats")
        return found

    def note_command(self, command: str | Sequence[str], status: ExitStatus) -> None:
        """See `Life.note_command`. A machine that is away is not told."""
        text = command if isinstance(command, str) else " ".join(command)
        params = {
            **{"sandbox": self.known.id, "command": text[:COMMAND_MAX]},
            **{"exit_code": status.exit_code, "seconds": status.duration_s},
            "timed_out": status.timed_out,
        }
        if self._shared is not None:
            with contextlib.suppress(RemoteError):
                self._shared.present().open("note", **params).close()

    async def open(self, method: str) -> Channel:
        """Send a request about the sandbox. Raises RemoteError."""
        if not self._is_held:
            await self.look()
        return (await self._use().link()).open(method, handle=self._handle)

    def disconnect(self) -> None:
        """See `Life.disconnect`."""
        if self._agent is not None:
            self._agent.close()
            self._agent = None

    def detach(self) -> None:
        """See `Life.detach`. Raises RemoteUnreachableError if the machine is away."""
        if not self.known.is_running or self._shared is None:
            raise StateError("the sandbox is not running")
        params = {
            **{"handle": self._handle, "open": self._opening, "name": "detach"},
            **{"args": [], "keywords": {}, "grace_s": self.host.grace},
        }
        # Whatever follows arrives after this, even the end of the connection.
        self._shared.present().open("call", once=os.urandom(16).hex(), **params).close()
        self._opening = _by_name(self.known.id)

    def close(self) -> None:
        """See `Life.close`."""
        self._let_go()


def _by_name(id_: str) -> dict[str, Any]:
    """Return how an existing sandbox is found."""
    return {"name": id_, "must_run": False, "to_end_it": False}


def without_callbacks(
    declared: Callable[..., Any], args: Sequence[Any], keywords: dict[str, Any]
) -> tuple[list[Any], dict[str, Any], Callable[..., Any] | None]:
    """Return the arguments as JSON, and the function among them, which is called here. Raises
    TypeError for arguments that the method does not take."""
    inspect.signature(declared).bind(None, *args, **keywords)
    report: Callable[..., Any] | None = None

    def coded(value: Any) -> Any:
        nonlocal report
        if callable(value):
            report = value
            return {"progress": True}
        return encode(value)

    words = [coded(one) for one in args]
    return words, {name: coded(value) for name, value in keywords.items()}, report
