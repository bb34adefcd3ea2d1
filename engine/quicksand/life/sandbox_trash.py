"""Moving sandboxes to the trash, and bringing them back."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from quicksand.base.errors import DiskSpaceError, HistoryError, SandboxNotFoundError
from quicksand.base.files import lock_within, map_os_errors, sync_dir, write_json
from quicksand.base.paths import make_private_dir
from quicksand.base.remedies import Remedy, Words
from quicksand.records.config import check_name
from quicksand.records.layout import SandboxDir, sandbox_dir
from quicksand.records.registry import Registry
from quicksand.records.sandboxes import LOCK_WAIT_S, Entry, Record
from quicksand.records.trash import Trash, TrashedSandbox

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
