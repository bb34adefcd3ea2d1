"""Removing a sandbox in any state: to the trash, or for good."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from quicksand.base.effort import best_effort
from quicksand.base.errors import MachineError, QuicksandError, SandboxNotFoundError, StateError
from quicksand.base.remedies import Remedy, Words
from quicksand.base.threads import in_thread_to_the_end
from quicksand.guest.agent.link import AgentLink
from quicksand.guest.agent.session import sync_guest
from quicksand.life.sandbox_trash import SandboxTrash
from quicksand.qemu.stopping import stop_machine
from quicksand.records.layout import runtime_dir, sandbox_dir
from quicksand.records.registry import Registry
from quicksand.records.sandboxes import Entry
from quicksand.records.trash import TrashedSandbox
from quicksand.snapshots.last_checkpoint import end_with_checkpoint
from quicksand.things.status import Status

if TYPE_CHECKING:
    from quicksand.records.nodes import Node

LAST_CHECKPOINT_S = 30.0
"""Seconds that the last checkpoint of a running sandbox may take before the sandbox is removed."""

LAST_TAG = "before removal"


@dataclass(frozen=True, slots=True, kw_only=True)
class RemovedSandbox:
    """The result of removing a sandbox."""

    id: str
    name: str
    trashed: TrashedSandbox | None
    """Its entry in the trash; None if it is deleted for good."""
    ran: bool = False
    not_kept: str = ""
    """The reason why no last checkpoint of a running sandbox could be taken, so that only its disk
    is kept; "" if one was taken."""


async def remove_sandbox(
    registry: Registry, id_or_name: str, *, now: bool = False, stop: bool = False, why: str = ""
) -> RemovedSandbox:
    """Move a sandbox to the trash or, with ``now``, remove it for good. With ``stop`` a running
    sandbox is ended first; if possible, a last automatic checkpoint is taken. An ephemeral sandbox
    is always removed for good.

    Raises SandboxNotFoundError, StateError if it runs and ``stop`` is false, HistoryError,
    HostError, MachineError.
    """
    entry = registry.find(id_or_name)
    if entry.is_live and not stop:
        raise StateError(
            f"the sandbox {entry.name!r} is {entry.status.value}",
            hint=Words("stop it first, or ", Remedy("end_and_trash", name=entry.name)),
        )
    record = entry.record
    for_good = now or (record is not None and (record.discard or not record.committed))
    node: Node | None = None
    not_kept = ""
    if entry.is_live:
        assert entry.record is not None, "what cannot be read is broken, not live"
        if not for_good:
            node, not_kept = await _end_with_checkpoint(registry, entry)
        if node is None:
            # `stuck` below also removes it if only a program that is starting it holds its lock.
            log = sandbox_dir(registry.paths, entry.id).engine_log
            with best_effort("end the machine", log, MachineError):
                await stop_machine(registry, entry.record, None, entry.run, grace=0)
    trashed = None
    if for_good:
        with contextlib.suppress(SandboxNotFoundError):  # its keeper has removed it
            await in_thread_to_the_end(lambda: registry.remove(entry.id, stuck=stop))
    else:
        instant = "" if node is None else node.id
        trash = SandboxTrash(registry)
        trashed = await in_thread_to_the_end(
            lambda: trash.put(entry.id, why=why, instant=instant, stuck=stop)
        )
    return RemovedSandbox(
        id=entry.id, name=entry.name, trashed=trashed, ran=entry.is_live, not_kept=not_kept
    )


async def _end_with_checkpoint(registry: Registry, entry: Entry) -> tuple[Node | None, str]:
    """End the sandbox with a last checkpoint and return it; or return None and the reason, in which
    case the sandbox still runs."""
    assert entry.record is not None
    if entry.run is None:
        unreachable = entry.status is Status.UNREACHABLE
        return None, "it could not be reached" if unreachable else "it was still starting"
    await _sync_guest(registry, entry)
    try:
        node = await end_with_checkpoint(
            registry, entry.record, what=LAST_TAG, within_s=LAST_CHECKPOINT_S
        )
    except TimeoutError:
        return None, f"that took longer than {LAST_CHECKPOINT_S:g} s"
    except (QuicksandError, OSError) as error:
        return None, str(error)
    return node, ""


async def _sync_guest(registry: Registry, entry: Entry) -> None:
    """Have the guest flush its page cache, so that a start from the disk alone finds all files."""
    assert entry.run is not None
    if entry.run.paused:
        return
    link = AgentLink(
        entry.name, runtime_dir(registry.paths, entry.id), entry.run.token, why_gone=lambda: None
    )

    async def ask(method: str, params: dict[str, Any], timeout: float) -> dict[str, Any]:
        return await (await link.session()).request(method, params, timeout=timeout)

    try:
        await sync_guest(ask, sandbox_dir(registry.paths, entry.id).engine_log)
    finally:
        link.close()
