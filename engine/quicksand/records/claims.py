"""Claims on this machine's memory for sandboxes that do not run yet.

A claim is a file that its process holds locked, so it ends with that process at the latest. All are
made under one lock: if two clients want the last of the memory, one gets it. Once the sandbox
exists, the registry counts it, and its claim no longer counts.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from quicksand.base.error_text import size_text
from quicksand.base.errors import MemoryBudgetError, StateError
from quicksand.base.files import (
    give_back,
    is_locked,
    lock_within,
    map_os_errors,
    read_json,
    try_named_lock,
    write_json,
)
from quicksand.base.memory import OVERHEAD
from quicksand.base.paths import Paths, make_private_dir
from quicksand.records.fleet_files import HEX32, claims_dir
from quicksand.records.memory_budget import Use, read_use
from quicksand.records.registry import Registry

LOCK_WAIT_S = 10.0
"""Seconds to wait for others that make a claim."""
CLAIMS_MAX = 5000


class Held(NamedTuple):
    """A claim that this process holds."""

    id: str
    descriptor: int


class Claims:
    """The claims on the memory of one data directory. All methods block."""

    def __init__(self, paths: Paths) -> None:
        self._registry = Registry(paths)
        self.place = claims_dir(paths)

    def take(self, id_: str, memory_bytes: int) -> Held:
        """Claim the memory of a guest, and QEMU's own. ``id_`` is 32 hex digits. Raises
        MemoryBudgetError, StateError if there is such a claim, HostError."""
        wanted = memory_bytes + OVERHEAD
        with map_os_errors(self.place), self._alone():
            use, claimed = self.look()
            free = max(0, use.free - sum(claimed.values()))
            if wanted > free:
                raise MemoryBudgetError(
                    f"the sandbox wants {size_text(memory_bytes)} of memory (and QEMU "
                    f"{size_text(OVERHEAD)}), but {size_text(free)} are left for it",
                    hint="ask for less with memory= or --memory, or stop another sandbox",
                )
            descriptor = try_named_lock(self._lock(id_))
            if descriptor is None:
                raise StateError(f"there is a claim {id_} already")
            try:
                write_json(self._file(id_), {"bytes": wanted, "sandbox": ""}, durable=False)
            except BaseException:
                give_back(self._lock(id_), descriptor)
                raise
        return Held(id_, descriptor)

    def bind(self, id_: str, sandbox_id: str) -> None:
        """Note the sandbox of a claim, if there is such a claim. Raises HostError."""
        if HEX32.fullmatch(id_) and (found := self._read(id_)) is not None:
            write_json(self._file(id_), {**found, "sandbox": sandbox_id}, durable=False)

    def drop(self, held: Held) -> None:
        """Give a claim up."""
        with contextlib.suppress(OSError):
            self._file(held.id).unlink()
        give_back(self._lock(held.id), held.descriptor)

    def look(self) -> tuple[Use, dict[str, int]]:
        """Return the memory of the sandboxes, and by the id of each claim the bytes to be added to
        that: 0 once its sandbox exists. Claims whose process has ended are removed. Raises OSError,
        ConfigError."""
        # Sandboxes last: one that appears meanwhile counts twice, but never not at all.
        claims = list(self._list())
        use = read_use(self._registry)
        return use, {id_: 0 if sandbox in use.running else size for id_, size, sandbox in claims}

    def _list(self) -> Iterator[tuple[str, int, str]]:
        for id_ in sorted(path.stem for path in self.place.glob("*.json"))[:CLAIMS_MAX]:
            if not HEX32.fullmatch(id_):
                continue
            if not is_locked(self._lock(id_)):
                with contextlib.suppress(OSError):
                    self._file(id_).unlink()
            elif (found := self._read(id_)) is not None:
                yield id_, found["bytes"], found["sandbox"]

    def _read(self, id_: str) -> dict[str, Any] | None:
        try:
            found = read_json(self._file(id_))
        except (OSError, ValueError):
            return None
        match found:
            case {"bytes": int(), "sandbox": str()}:
                return found
        return None

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        make_private_dir(self.place)
        descriptor = lock_within(self.place / ".lock", LOCK_WAIT_S)
        if descriptor is None:
            raise StateError("others have been claiming memory for long", hint="try again")
        try:
            yield
        finally:
            os.close(descriptor)

    def _file(self, id_: str) -> Path:
        return self.place / f"{id_}.json"

    def _lock(self, id_: str) -> Path:
        return self.place / f"{id_}.lock"
