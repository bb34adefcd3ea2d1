"""Removing a sandbox in any state, to the trash or for good, and bringing it back from there."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quicksand.base.effort import best_effort
from quicksand.base.errors import (
    DiskSpaceError,
    HistoryError,
    MachineError,
    QuicksandError,
    SandboxNotFoundError,
    StateError,
)
from quicksand.base.files import lock_within, map_os_errors, sync_dir, write_json
from quicksand.base.paths import make_private_dir
from quicksand.base.remedies import Remedy, Words
from quicksand.base.threads import in_thread_to_the_end
from quicksand.guest.agent.link import AgentLink
from quicksand.guest.agent.session import sync_guest
from quicksand.qemu.stopping import stop_machine
from quicksand.records.config import check_name
from quicksand.records.layout import SandboxDir, runtime_dir, sandbox_dir
from quicksand.records.registry import Registry
from quicksand.records.sandboxes import LOCK_WAIT_S, Entry, Record
from quicksand.records.trash import RemovedSandbox, Trash, TrashedSandbox
from quicksand.things.status import Status

if TYPE_CHECKING:
    from quicksand.records.nodes import Node


SCHEMA = 1


class SandboxTrash(Trash):
    """The trash of one registry, which can move sandboxes there and back."""

    def __init__(self, registry: Registry) -> None:
        super().__init__(registry.paths)
        self._registry = registry

    def put(
        self, id_: str, *, why: str = "", instant: str = "", stuck: bool = False
    ) -> TrashedSandbox:
        """Move a stopped sandbox to the trash. ``why`` and ``instant`` (the id of its last
        checkpoint) are noted; ``stuck`` as for `Registry.holding`.

        Raises StateError if it runs, HistoryError if another client works on its checkpoints,
        SandboxNotFoundError if it is gone, HostError. After an error it stays where it is.
        """
        place = sandbox_dir(self._registry.paths, id_)
        name = self._name_of(id_)
        with self._registry.holding(id_, stuck=stuck), _history_locked(place, name):
            about = {"name": name, "removed": time.time(), "why": why, "instant": instant}
            try:
                make_private_dir(self.root)
                write_json(place.trashed, {"schema_version": SCHEMA, "id": id_, **about})
            except DiskSpaceError as error:
                hint = Words(
                    Remedy("remove", name=name),
                    " removes it for good: that takes none",
                    python="free some space, then try again",
                )
                raise DiskSpaceError(str(error), hint=hint) from error
            self._move(place.root, self.root / id_)
            return self._look_at(id_)

    def _name_of(self, id_: str) -> str:
        entry = self._registry.inspect(id_)
        return id_ if entry is None else entry.name

    @staticmethod
    def _move(source: Path, target: Path) -> None:
        with map_os_errors(source):
            source.rename(target)
        # The new name is synced first, so that a power cut cannot lose both.
        sync_dir(target.parent)
        sync_dir(source.parent)

    def restore(self, id_or_name: str, name: str | None = None) -> Entry:
        """Bring a sandbox back, stopped, under its old name or ``name``. Raises
        SandboxNotFoundError, NameTakenError, StateError if another program works on it, ConfigError
        for a bad name, HostError."""
        found = self.find(id_or_name)
        name = check_name(name) if name is not None else found.name
        hint = Words(Remedy("restore_as", id=found.id), " gives it another name")
        with self._registry.giving_name(name, hint=hint), self.locked(found):
            place = SandboxDir(found.root)
            if found.record is not None and found.record.name != name:
                renamed = replace(found.record, name=name)
                write_json(place.record, renamed.to_json(), read=Record.from_json)
            self._move(found.root, sandbox_dir(self._registry.paths, found.id).root)
        entry = self._registry.inspect(found.id)
        if entry is None:
            raise SandboxNotFoundError(f"the sandbox {name!r} was removed just after its restore")
        return entry


@contextlib.contextmanager
def _history_locked(place: SandboxDir, name: str) -> Iterator[None]:
    """Lock the history, since other clients use its files by their paths."""
    with map_os_errors(place.history_lock):
        lock = lock_within(place.history_lock, LOCK_WAIT_S)
    if lock is None:
        raise HistoryError(
            f"another client is working on the checkpoints of {name!r}",
            hint=Words(
                "try again when it is done; ",
                Remedy("remove", name=name),
                " does not wait",
                python="try again when it is done",
            ),
        )
    try:
        yield
    finally:
        os.close(lock)


LAST_CHECKPOINT_S = 30.0
"""Seconds that the last checkpoint of a running sandbox may take before the sandbox is removed."""

LAST_TAG = "before removal"


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
    from quicksand.snapshots.last_checkpoint import end_with_checkpoint  # noqa: PLC0415

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
