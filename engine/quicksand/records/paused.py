"""The reasons why a sandbox's guest is paused, in the words that all messages use: somebody has
paused it, the host's disk is full, or its QEMU has taken too much of the host's memory
(qemu/keeper_parts/bounds.py)."""

from __future__ import annotations

from quicksand.base.error_text import size_text
from quicksand.base.errors import StateError
from quicksand.base.files import is_locked, read_json
from quicksand.base.regular import open_file
from quicksand.base.remedies import Remedy, Words
from quicksand.records.layout import MachineDir, SandboxDir
from quicksand.things.frozen import frozen

MARK_MAX = 64
"""Bytes of the keeper's mark: a word and two numbers."""

DISK_FULL = "the host's disk is full; the sandbox resumes when there is space"
LEFT = "its last revert was interrupted; the next command has it finished"


def is_left(machine: MachineDir, place: SandboxDir) -> bool:
    """Whether a revert was begun and not finished, and nobody works on it: whoever does holds the
    history's lock. Blocks for I/O. Raises OSError."""
    return machine.unfinished.exists() and not is_locked(place.history_lock)


@frozen(kw_only=False)
class Pause:
    """A guest that is paused."""

    why: str = ""
    """The reason; "" if somebody has paused it."""
    wants_space: bool = False
    """Whether it goes on by itself when the host's disk has space."""
    by_keeper: bool = False
    """Whether its keeper has paused it, until somebody resumes it."""

    def said(self, name: str) -> str:
        """Return the sentence which says that the sandbox is paused, and why."""
        return f"the sandbox {name!r} is paused" + (f": {self.why}" if self.why else "")

    def remedy(self, name: str) -> Words:
        """Return the remedy: more space on the host, or a resume."""
        if self.wants_space:
            return Words("free some space on the host's disk")
        return Words(Remedy("resume", name=name), " resumes it")


def find_pause(machine: MachineDir) -> Pause | None:
    """Find out whether the guest of a machine is paused. None while it runs, or if its state cannot
    be read. Blocks for I/O."""
    try:
        paused = read_json(machine.state).get("paused") is True
    except (OSError, ValueError):
        paused = False
    return pause_of(machine, paused=paused)


def pause_of(machine: MachineDir, *, paused: bool) -> Pause | None:
    """As `find_pause`, for a machine whose state is known: whether somebody has ``paused`` it."""
    if why := why_oversized(machine):
        return Pause(why, by_keeper=True)
    if machine.disk_full.exists():
        return Pause(DISK_FULL, wants_space=True)
    return Pause() if paused else None


def refuse_paused(name: str, machine: MachineDir) -> None:
    """Raise StateError if the guest of a machine is paused: it would not answer."""
    if (pause := find_pause(machine)) is not None:
        raise StateError(pause.said(name), hint=pause.remedy(name))


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
