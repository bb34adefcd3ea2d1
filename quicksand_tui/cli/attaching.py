"""Getting hold of a sandbox, and saying why it is gone."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from quicksand.errors import (
    AgentUnreachableError,
    MachineError,
    QuicksandError,
    RevertedError,
    StateError,
)
from quicksand.host.paths import paths
from quicksand.registry import Registry, Status

if TYPE_CHECKING:
    from quicksand.sandbox import Sandbox

END_WAIT_S = 2.0
"""A connection breaks a moment before its machine's processes are gone."""

END_POLL_S = 0.02


@contextlib.contextmanager
def attached(name: str) -> Iterator[Sandbox]:
    """The running sandbox ``name``; let go of at the end.

    Raises SandboxNotFoundError, or StateError for one that cannot answer now.
    """
    from quicksand.sandbox import Sandbox

    entry = Registry(paths()).find(name)
    if entry.status is Status.PAUSED:
        raise StateError(
            f"the sandbox {entry.name!r} is paused",
            hint=f"`quicksand-tui resume {entry.name}` lets it go on",
        )
    sandbox = Sandbox.attach(entry.id)
    try:
        yield sandbox
    finally:
        sandbox.close()


@contextlib.contextmanager
def opened(name: str, *, hint: str) -> Iterator[Sandbox]:
    """The sandbox ``name``, running or paused; let go of at the end.

    Raises SandboxNotFoundError, or StateError with ``hint`` for one that does not run.
    """
    from quicksand.sandbox import Sandbox

    entry = Registry(paths()).find(name)
    sandbox = Sandbox.open(entry.id)
    try:
        if not entry.is_live:
            raise StateError(f"the sandbox {entry.name!r} is not running", hint=hint)
        yield sandbox
    finally:
        sandbox.close()


async def why_gone(sandbox: Sandbox, error: AgentUnreachableError) -> QuicksandError:
    """What to tell when the connection broke: how the machine ended, or ``error`` if it lives."""
    if isinstance(error, RevertedError):
        return RevertedError(str(error), hint="what ran in it has never been")
    registry = Registry(paths())
    loop = asyncio.get_running_loop()
    deadline = loop.time() + END_WAIT_S
    while True:
        entry = registry.inspect(sandbox.id)
        if entry is None:
            return MachineError(f"the sandbox {sandbox.name!r} was stopped and removed")
        if entry.status is Status.CRASHED:
            return MachineError(
                f"the sandbox {entry.name!r} crashed: {entry.error}",
                hint=f"`quicksand-tui logs {entry.name}` shows its console",
            )
        if not entry.is_live:
            return MachineError(f"the sandbox {entry.name!r} was stopped")
        if loop.time() > deadline:
            return error
        await asyncio.sleep(END_POLL_S)
