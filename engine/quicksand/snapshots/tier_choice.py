"""Choosing the tier for a checkpoint, and saying why no better one is possible."""

from __future__ import annotations

from dataclasses import dataclass, replace

from quicksand.base.errors import HostError
from quicksand.base.hypervisor import Features
from quicksand.base.settings import TIER, require_one
from quicksand.qemu.features import FEATURES
from quicksand.records.nodes import Node
from quicksand.snapshots import comparing, internal, paged
from quicksand.snapshots.capture import Way

VARIABLE = TIER.variable
"""Environment variable: the tier to use, for tests and troubleshooting."""

UNCHECKED = f"{comparing.VARIABLE} compares nothing, since QEMU itself writes the memory"

WAYS = (paged.WAY, internal.WAY)
"""All tiers that have memory, the best first; the last one needs nothing special of the host."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The chosen way to take checkpoints on this host."""

    way: Way
    note: str
    """The reason why no better way is used; "" for the best."""
    hint: str = ""
    """A hint on how to make a better one possible; "" if unknown."""

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


def choose_tier(
    pid: int | None = None, *, asked: str | None = None, features: Features = FEATURES
) -> Choice:
    """The tier for checkpoints of the QEMU ``pid``, or of any QEMU of this user, by what its
    hypervisor can do. If ``asked`` or the environment variable names a tier, that one is used.

    Raises ConfigError for an unknown tier, HostError for one that is not possible here.
    """
    wanted = asked or TIER.read()
    if wanted:
        why = "it was asked for" if asked else f"{VARIABLE} is set"
        return _with_check(_require(wanted, pid, why, features))
    note = hint = ""
    for way in WAYS:
        refusal, cure = _refusal(way, pid, features)
        if not refusal:
            return _with_check(Choice(way=way, note=note or way.note(pid), hint=hint))
        note, hint = note or refusal, hint or cure
    raise HostError(f"checkpoints are not possible: {note}", hint=hint)


def _refusal(way: Way, pid: int | None, features: Features) -> tuple[str, str]:
    """Return why a tier is not possible, and a hint; see `Way.refusal`."""
    if not way.fits(features):
        return f"the hypervisor does not have what the tier {way.tier.name!r} needs", ""
    return way.refusal(pid)


def _with_check(choice: Choice) -> Choice:
    """Return the choice, with a note if a check was requested that its tier does not have."""
    if choice.way is paged.WAY or not comparing.is_on():
        return choice
    return replace(choice, note=f"{choice.note}; {UNCHECKED}")


def _require(name: str, pid: int | None, why: str, features: Features) -> Choice:
    names = [way.tier.name for way in WAYS]
    require_one(name, names, f"there is no tier {name!r} of checkpoints")
    way = WAYS[names.index(name)]
    refusal, hint = _refusal(way, pid, features)
    if refusal:
        raise HostError(f"checkpoints of the tier {name!r} are not possible: {refusal}", hint=hint)
    return Choice(way=way, note=way.note(pid) if way is WAYS[0] else why)
