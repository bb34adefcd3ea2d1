"""Sandboxes that were paused because their QEMU has taken too much of the host's memory
(qemu/keeper_parts/memory.py)."""

from __future__ import annotations

from quicksand.base.regular import open_file
from quicksand.base.text import size_text
from quicksand.records.layout import MachineDir

MARK_MAX = 64
"""Bytes of the keeper's mark: a word and two numbers."""


def why_oversized(machine: MachineDir) -> str:
    """Return why the keeper has paused the machine's guest; "" if it has not."""
    try:
        with open_file(machine.oversized) as file:
            words = file.read(MARK_MAX).split()
    except FileNotFoundError:
        return ""
    except OSError:
        words = []  # it exists, and only that counts
    match words:
        case [kind, size, bound] if size.isdigit() and bound.isdigit():
            found = too_much(int(size), int(bound), "reserved" if kind == b"reserved" else "taken")
        case _:
            found = "its machine has too much of the host's memory"
    return (
        f"{found}; a checkpoint and a revert to it free what is too much, `resume` lets it have "
        "256 MiB more"
    )


def mark_of(machine: MachineDir) -> int | None:
    """A value that differs between two marks of the keeper; None if there is no mark."""
    try:
        return machine.oversized.stat().st_mtime_ns
    except OSError:
        return None


def forget_mark(machine: MachineDir, mark: int | None) -> None:
    """Remove the mark of a guest that has been resumed, as its keeper does when it learns of it: a
    keeper that was killed meanwhile, or has no monitor, does not."""
    if mark is not None and mark_of(machine) == mark:
        machine.oversized.unlink(missing_ok=True)


def too_much(size: int, bound: int, kind: str = "taken") -> str:
    """The words for a machine that has more memory than it may have."""
    return (
        f"its machine has {kind} {size_text(size)} of the host's memory and may have "
        f"{size_text(bound)}"
    )
