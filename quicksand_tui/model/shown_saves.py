"""Saves and the trash as the app shows them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field, replace
from typing import TypeVar

from quicksand.things.frozen import frozen

from quicksand_tui.model.shown_sandboxes import AT, at_host

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
    """Its path, not sanitised; never shown. For another machine, made by `key_at`."""
    name: str
    """Its name; in `SavesView.saves`, made by `at_host`."""
    host: str = ""
    """The name of its machine; "" is this one."""
    away: bool = False
    """Its machine does not answer now: all this is the last known state."""
    address: str = ""
    """The word for it in commands of its machine: its name, or its path if another save has that
    name."""
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
    """The saves that need it."""
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
    """Settings that it asks for but does not get, because this user did not make it."""
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

    @property
    def own_key(self) -> str:
        """Its path on its machine."""
        return own_key(self.key, self.host)

    @property
    def short_name(self) -> str:
        """Its name among those of its machine."""
        return self.name.removesuffix(f"{AT}{self.host}") if self.host else self.name


@frozen
class TrashedView:
    """A save or a sandbox in the trash."""

    key: str
    """Its path, as the key of a save."""
    id: str
    """The word for it in commands."""
    name: str
    """Its name, made as that of a save."""
    removed: float
    """Unix time."""
    until: float | None = None
    """Unix time after which it may be removed for good; None for other things than saves, which
    stay until they are removed."""
    host: str = ""
    """The name of its machine; "" is this one."""
    away: bool = False
    kind: str = "save"
    """"save" or "sandbox"."""
    own: int = 0
    shared: int = 0
    shared_files: SharedFiles = field(default_factory=dict, repr=False, hash=False)
    note: str = ""
    error: str = ""
    """The reason why it cannot be used."""

    @property
    def own_key(self) -> str:
        """Its path on its machine."""
        return own_key(self.key, self.host)

    @property
    def short_name(self) -> str:
        """Its name among those of its machine."""
        return self.name.removesuffix(f"{AT}{self.host}") if self.host else self.name


Kept = TypeVar("Kept", SaveView, TrashedView)


def key_at(path: str, host: str) -> str:
    """Returns the key, among those of all machines, of a path on one machine."""
    return f"{host}:{path}" if host else path


def own_key(key: str, host: str) -> str:
    """Returns the path that `key_at` has made the key of."""
    return key[len(host) + 1 :] if host else key


def by_machine(views: Iterable[Kept]) -> Mapping[str, tuple[Kept, ...]]:
    """Groups saves or trash by the names of their machines."""
    every = list(views)
    names = dict.fromkeys(view.host for view in every)
    return {name: tuple(view for view in every if view.host == name) for name in names}


def freed_together(views: Iterable[SaveView | TrashedView]) -> int:
    """Returns the bytes that removing all of these would free, with files that only they share."""
    freed = 0
    left: dict[tuple[str, FileKey], int] = {}
    for view in views:
        freed += view.own
        for key, (allocated, links, seen) in view.shared_files.items():
            there = (view.host, key)
            left[there] = left.get(there, links) - seen
            if left[there] == 0:
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
    """False until those of this machine have been read."""
    saves: tuple[SaveView, ...] = ()
    trash: tuple[TrashedView, ...] = ()
    """The most recently removed first."""
    error: str = ""
    """The reason why those of this machine cannot be read, or ""."""
    size: int = 0
    """Bytes of all saves, counting each file once."""
    trash_frees: int = 0
    """Bytes that emptying the trash frees."""
    parts: Mapping[str, SavesView] = field(default_factory=dict, repr=False, hash=False)
    """If there are other machines, the saves of each by its name, "" for this one. Names in there
    are without their machine."""

    def of(self, host: str) -> SavesView:
        """Returns the saves of a machine."""
        return self.parts.get(host, self if not host else NO_SAVES)


NO_SAVES = SavesView(loaded=False)


def all_together(parts: Mapping[str, SavesView]) -> SavesView:
    """Returns the saves of all machines: those of this machine and, by their names, of others."""
    here = parts[""]
    saves = (_named(save) for part in parts.values() for save in part.saves)
    trash = (_named(found) for part in parts.values() for found in part.trash)
    return replace(
        here,
        saves=tuple(saves),
        trash=tuple(sorted(trash, key=lambda found: -found.removed)),
        size=sum(part.size for part in parts.values()),
        trash_frees=sum(part.trash_frees for part in parts.values()),
        parts=parts,
    )


def _named(view: Kept) -> Kept:
    return replace(view, name=at_host(view.name, view.host)) if view.host else view
