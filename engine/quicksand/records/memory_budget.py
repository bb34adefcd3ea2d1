"""How much memory all sandboxes of a data directory together may have.

Usually that is what the machine has, less a reserve. A node of a fleet that shares its machine with
others has a part of that, which `BUDGET` tells.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from quicksand.base.capacity import OVERHEAD, available_memory, physical_memory
from quicksand.base.error_text import size_text
from quicksand.base.errors import ConfigError, MemoryBudgetError, StateError
from quicksand.base.files import (
    give_back,
    is_locked,
    lock_within,
    map_os_errors,
    read_json,
    try_named_lock,
    write_json,
)
from quicksand.base.paths import Paths, make_private_dir
from quicksand.records.fleet_files import HEX32, claims_dir
from quicksand.records.registry import Registry
from quicksand.records.sandboxes import Record

BUDGET = "QUICKSAND_MEMORY_BUDGET"
"""The variable with the bytes that all sandboxes may have, QEMU's own need included."""

CPUS = "QUICKSAND_CPU_BUDGET"
"""The variable with the processors that a node counts as its own; nothing enforces it."""

RESERVE = 2 * 1024**3
"""Bytes left to the machine itself; on a machine with little memory, an eighth."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """The memory of the sandboxes of a data directory, in bytes."""

    budget: int
    """Bytes that they may have in all."""
    taken: int
    """Bytes of the sandboxes that run or start, used or not, and of QEMU for them."""
    running: frozenset[str]
    """The ids of the sandboxes that run or start."""

    @property
    def free(self) -> int:
        """Return the bytes that new ones may have, by the budget and the available memory."""
        return max(0, min(self.budget - self.taken, available_memory()))


def budget() -> int:
    """The bytes that all sandboxes may have. Raises ConfigError."""
    said = os.environ.get(BUDGET, "")
    if not said:
        physical = physical_memory()
        return physical - min(RESERVE, physical // 8)
    if not (said.isascii() and said.isdecimal() and len(said) < 20):
        raise ConfigError(f"{BUDGET} must be a number of bytes, not {said!r:.80}")
    return int(said)


def cpus_for_sandboxes() -> int:
    """The processors that sandboxes share. Raises ConfigError."""
    said = os.environ.get(CPUS, "")
    if not said:
        return os.cpu_count() or 1
    if not (said.isascii() and said.isdecimal() and len(said) < 6):
        raise ConfigError(f"{CPUS} must be a number, not {said!r:.80}")
    return int(said)


def read_use(registry: Registry, *, without: str = "") -> Use:
    """Look at all sandboxes but the one with the id ``without``. Blocks for small files. Raises
    ConfigError."""
    live = {
        entry.id: entry.record.config.memory_bytes + OVERHEAD
        for entry in registry.list_live()
        if entry.record is not None and entry.id != without
    }
    return Use(budget=budget(), taken=sum(live.values()), running=frozenset(live))


def check_budget(registry: Registry, record: Record) -> None:
    """Raise MemoryBudgetError if a sandbox that is about to start exceeds this data directory's
    budget; without `BUDGET` there is none, and only the available memory counts."""
    if not os.environ.get(BUDGET):
        return
    use = read_use(registry, without=record.id)
    wanted = record.config.memory_bytes
    if use.taken + wanted + OVERHEAD > use.budget:
        left = size_text(max(0, use.budget - use.taken))
        raise MemoryBudgetError(
            f"the sandbox wants {size_text(wanted)} of memory (and QEMU {size_text(OVERHEAD)}), "
            f"but of the {size_text(use.budget)} that {BUDGET} allows, {left} are left",
            hint="ask for less with memory= or --memory, or stop another sandbox",
        )


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
