"""Whether the host has memory for a spare."""

from __future__ import annotations

from quicksand.base.capacity import OVERHEAD, available_memory
from quicksand.base.error_text import size_text
from quicksand.base.errors import MemoryBudgetError
from quicksand.base.remedies import Words
from quicksand.records.config import SandboxConfig


def check_room(config: SandboxConfig) -> None:
    """Raise MemoryBudgetError unless two such machines fit now: a spare must not take the memory
    that a start then lacks."""
    wanted = 2 * (config.memory_bytes + OVERHEAD)
    available = available_memory()
    if wanted > available:
        raise MemoryBudgetError(
            f"a spare with {size_text(config.memory_bytes)} of memory needs {size_text(wanted)}, "
            "twice its own (and QEMU's), because a start must still fit beside it, but this host "
            f"has {size_text(available)} available",
            hint=Words(
                "order machines with less memory",
                Words(" (--memory)", python=" (memory=)"),
                ", or stop a sandbox",
            ),
        )
