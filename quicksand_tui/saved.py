"""Saves as the app shows them, and what can be done with them. No import of the engine here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

FileKey = tuple[int, int]
"""Device and inode."""

SharedFiles = Mapping[FileKey, tuple[int, int, int]]
"""Files that others have, too: bytes, how many links there are, and how many of these are here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VerdictView:
    """What a look at all of a save, or at every byte of it, has found."""

    deep: bool
    when: float
    """Unix time."""
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SaveView:
    """One save. All text is fit to be shown, but for the keys."""

    key: str
    """Its path, exactly; never shown."""
    name: str
    address: str = ""
    """What a command calls it: its name, or its path where the name leads to another one."""
    place: str = ""
    """"user", or "workspace" for that of the current directory."""
    path: str = ""
    id: str = ""
    created: float | None = None
    """Unix time."""
    note: str = ""
    own: int = 0
    """Bytes that deleting it would free."""
    shared: int = 0
    """Bytes of files that other saves or sandboxes have too."""
    shared_files: SharedFiles = field(default_factory=dict, repr=False, hash=False)
    base: str = ""
    """Name and version of the image that it lies on."""
    base_digest: str = ""
    """The first digits."""
    parent: str = ""
    """The save that its sandbox had begun with."""
    children: tuple[str, ...] = ()
    """Saves of sandboxes that began with it."""
    above: tuple[str, ...] = ()
    """Saves that cannot be used without it."""
    sandboxes: tuple[str, ...] = ()
    """That began with it."""
    arch: str = ""
    layers: int | None = None
    machine: str = ""
    """What a sandbox that begins with it gets, in words."""
    frozen: bool = False
    """The guest's file system stood still when it was saved."""
    unsynced: bool = False
    """Its guest could not write out what it had in memory."""
    volatile: tuple[str, ...] = ()
    """Paths of the guest that were in memory only."""
    trouble: str = ""
    """What is wrong, as one or two words; "" if nothing is."""
    problems: tuple[str, ...] = ()
    """What is wrong, in sentences."""
    verdict: VerdictView | None = None
    """Of the last time that this app has verified it."""
    words: str = field(default="", repr=False, compare=False)
    """What a filter looks in: lower case."""

    @property
    def size(self) -> int:
        return self.own + self.shared


@dataclass(frozen=True, slots=True, kw_only=True)
class TrashedView:
    """A save in the trash."""

    key: str
    """Its path, exactly; never shown."""
    id: str
    """What a command calls it."""
    name: str
    removed: float
    """Unix time."""
    until: float
    """Unix time after which it may go for good."""
    own: int = 0
    shared: int = 0
    shared_files: SharedFiles = field(default_factory=dict, repr=False, hash=False)
    note: str = ""
    error: str = ""
    """Why it could not be used."""


def freed_together(views: Iterable[SaveView | TrashedView]) -> int:
    """Bytes that would be free if all these were gone for good: also those of files that only
    they share."""
    freed = 0
    left: dict[FileKey, int] = {}
    for view in views:
        freed += view.own
        for key, (allocated, links, seen) in view.shared_files.items():
            left[key] = left.get(key, links) - seen
            if left[key] == 0:
                freed += allocated
    return freed


def total_size(views: Iterable[SaveView]) -> int:
    """Bytes of all these, each file counted once."""
    shared: dict[FileKey, int] = {}
    own = 0
    for view in views:
        own += view.own
        shared |= {key: allocated for key, (allocated, _, _) in view.shared_files.items()}
    return own + sum(shared.values())
