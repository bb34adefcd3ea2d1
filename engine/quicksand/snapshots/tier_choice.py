"""Choosing the tier for a checkpoint, and saying why no better one is possible."""

from __future__ import annotations

from dataclasses import dataclass, replace

from quicksand.base.errors import HostError
from quicksand.base.settings import TIER, require_one
from quicksand.records.nodes import Node
from quicksand.snapshots import comparing, internal, paged
from quicksand.snapshots.capture import Way

VARIABLE = TIER.variable
"""Environment variable: the tier to use, for tests and troubleshooting."""

UNCHECKED = f"{comparing.VARIABLE} compares nothing, since QEMU itself writes the memory"

WAYS = (paged.WAY, internal.WAY)
"""All tiers that have memory, the best first; the last one is possible everywhere."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """How checkpoints are taken on this host."""

    way: Way
    note: str
    """Why no better way is used; "" for the best."""
    hint: str = ""
    """How to make a better one possible; "" if unknown."""

    @property
    def name(self) -> str:
        return self.way.tier.name

    @property
    def copied(self) -> str:
        """The memory that a pause copies, in words for people."""
        return self.way.copied(self.note)


def way_of(node: Node) -> Way:
    """The way of a checkpoint that has memory."""
    return next(way for way in WAYS if way.tier is node.tier)


def choose_tier(pid: int | None = None, *, asked: str | None = None) -> Choice:
    """The tier for checkpoints of the QEMU ``pid``, or of any QEMU of this user. If ``asked`` or
    the environment variable names a tier, that one is used.

    Raises ConfigError for an unknown tier, HostError for one that is not possible here.
    """
    wanted = asked or TIER.read()
    if wanted:
        why = "it was asked for" if asked else f"{VARIABLE} is set"
        return _with_check(_require(wanted, pid, why))
    note = hint = ""
    for way in WAYS:
        refusal, cure = way.refusal(pid)
        if not refusal:
            break
        note, hint = note or refusal, hint or cure
    return _with_check(Choice(way=way, note=note or way.note(pid), hint=hint))


def _with_check(choice: Choice) -> Choice:
    """The choice, with a note if a check was asked for that its tier does not have."""
    if choice.way is paged.WAY or not comparing.is_on():
        return choice
    return replace(choice, note=f"{choice.note}; {UNCHECKED}")


def _require(name: str, pid: int | None, why: str) -> Choice:
    names = [way.tier.name for way in WAYS]
    require_one(name, names, f"there is no tier {name!r} of checkpoints")
    way = WAYS[names.index(name)]
    refusal, hint = way.refusal(pid)
    if refusal:
        raise HostError(f"checkpoints of the tier {name!r} are not possible: {refusal}", hint=hint)
    return Choice(way=way, note=way.note(pid) if way is WAYS[0] else why)
