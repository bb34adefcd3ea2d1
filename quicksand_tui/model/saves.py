"""Saves and the trash as the app shows them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field

from quicksand_tui.model.frozen import frozen

FileKey = tuple[int, int]
"""Device and inode."""

SharedFiles = Mapping[FileKey, tuple[int, int, int]]
"""Files with links elsewhere, by key: (bytes, number of links, links counted here)."""


@frozen
class VerdictView:
    """The result of verifying a save."""

    deep: bool
    """Every byte was read, not only the files' metadata."""
    when: float
    """Unix time."""
    problems: tuple[str, ...] = ()


@frozen
class SaveView:
    """One save. All text but ``key`` is sanitised."""

    key: str
    """Its path, not sanitised; never shown."""
    name: str
    address: str = ""
    """What commands call it: its name, or its path if another save has that name."""
    place: str = ""
    """"user"; "workspace" for the current directory's store; "here" for the directory itself."""
    is_own: bool = True
    """This user made it; otherwise it was imported or came with the directory."""
    path: str = ""
    id: str = ""
    created: float | None = None
    """Unix time."""
    note: str = ""
    own: int = 0
    """Bytes that deleting it would free."""
    shared: int = 0
    """Bytes of files that other saves or sandboxes also use."""
    shared_files: SharedFiles = field(default_factory=dict, repr=False, hash=False)
    base: str = ""
    """Name and version of the image below it."""
    base_digest: str = ""
    """The first hex digits of the image's digest."""
    parent: str = ""
    """The save that its sandbox was started from."""
    children: tuple[str, ...] = ()
    """Saves of sandboxes that were started from it."""
    above: tuple[str, ...] = ()
    """Saves that need it."""
    sandboxes: tuple[str, ...] = ()
    """Sandboxes that were started from it."""
    arch: str = ""
    layers: int | None = None
    machine: str = ""
    """The machine of a sandbox that starts from it, in words."""
    network: str = ""
    """The network mode of that machine."""
    ports: str = ""
    """Port forwards in the form that forms accept: "8080:80, 0:22"."""
    left_out: str = ""
    """Settings that it asks for and does not get, because this user did not make it."""
    frozen: bool = False
    """The guest's file systems were frozen while it was saved."""
    unsynced: bool = False
    """The guest could not flush its memory to the disk before."""
    volatile: tuple[str, ...] = ()
    """Guest paths that were only in memory, and so are not saved."""
    trouble: str = ""
    """The problem in one or two words; "" if there is none."""
    problems: tuple[str, ...] = ()
    """The problems in sentences."""
    verdict: VerdictView | None = None
    """The result of the last verification by this app."""
    words: str = field(default="", repr=False, compare=False)
    """The text that filters search, in lower case."""

    @property
    def size(self) -> int:
        """Bytes on disk, including shared files."""
        return self.own + self.shared


@frozen
class TrashedView:
    """A save or a sandbox in the trash."""

    key: str
    """Its path, not sanitised; never shown."""
    id: str
    """What commands call it."""
    name: str
    removed: float
    """Unix time."""
    until: float
    """Unix time after which it may be removed for good; infinite for what was not a save."""
    kind: str = "save"
    """"save" or "sandbox"."""
    own: int = 0
    shared: int = 0
    shared_files: SharedFiles = field(default_factory=dict, repr=False, hash=False)
    note: str = ""
    error: str = ""
    """Why it cannot be used."""


def freed_together(views: Iterable[SaveView | TrashedView]) -> int:
    """Returns the bytes that removing all of these would free, including files that only they
    share."""
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
    """Returns the bytes of all these, counting each file once."""
    shared: dict[FileKey, int] = {}
    own = 0
    for view in views:
        own += view.own
        shared |= {key: allocated for key, (allocated, _, _) in view.shared_files.items()}
    return own + sum(shared.values())


@frozen
class SavesView:
    """All saves at one moment."""

    loaded: bool = True
    """False until they have been read."""
    saves: tuple[SaveView, ...] = ()
    trash: tuple[TrashedView, ...] = ()
    """The most recently removed first."""
    error: str = ""
    """Why they cannot be read, or ""."""
    size: int = 0
    """Bytes of all saves, counting each file once."""
    trash_frees: int = 0
    """Bytes that emptying the trash frees."""


NO_SAVES = SavesView(loaded=False)
