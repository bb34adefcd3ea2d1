"""The public facts of a kept sandbox, for people and programs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from quicksand.extending import Paths

from quicksand_fleet.keeping.book import Book, Kept, Phase
from quicksand_fleet.keeping.running import is_running


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptSandbox:
    """A sandbox that is started elsewhere if its machine is lost."""

    name: str
    host: str
    """The machine where it is; "" while it has none."""
    id: str
    epoch: int
    """1 at first, and one more with each restart."""
    is_starting: bool
    """Whether it is being started, or is about to be."""
    saved_at: float | None
    """Unix time of the save from which it would be started elsewhere; None if there is none."""
    saved_on: Sequence[str]
    """The other machines that have that save."""
    restarted: str
    """When and from what it was restarted last, in words; "" if never."""
    older_on: Sequence[str]
    """Machines that were lost with an earlier epoch, and have not yet been told that it is an
    earlier one."""
    trouble: str
    """Why a save or a restart failed last."""
    is_coordinated: bool
    """Whether somebody renews its lease now."""


def list_kept(paths: Paths) -> Sequence[KeptSandbox]:
    """Return all kept sandboxes, by name. Blocks. Raises OSError."""
    is_coordinated = is_running(paths)
    found = Book(paths).read_all().values()
    return [_describe(kept, is_coordinated) for kept in found if kept.phase is not Phase.ENDED]


def _describe(kept: Kept, is_coordinated: bool) -> KeptSandbox:
    return KeptSandbox(
        name=kept.name,
        host=kept.host,
        id=kept.id,
        epoch=kept.epoch,
        is_starting=kept.phase is Phase.STARTING,
        saved_at=None if kept.exported is None else kept.exported.at,
        saved_on=() if kept.exported is None else tuple(kept.exported.hosts),
        restarted=kept.restarted,
        older_on=tuple(old.host for old in kept.older),
        trouble=kept.trouble,
        is_coordinated=is_coordinated,
    )
