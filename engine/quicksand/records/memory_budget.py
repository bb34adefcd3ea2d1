"""How much memory all sandboxes of a data directory together may have.

Usually that is what the machine has, less a reserve. A node of a fleet that shares its machine with
others has a part of that, which `BUDGET` tells.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from quicksand.base.error_text import size_text
from quicksand.base.errors import ConfigError, MemoryBudgetError
from quicksand.base.memory import OVERHEAD, available_memory, physical_memory
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
