"""Saves, and what lies in the trash: what is known of each on any machine, and how it is shown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field
from enum import StrEnum

from quicksand.things.fact import shown, shown_of
from quicksand.things.frozen import frozen

FileKey = tuple[int, int]
"""Device and inode."""

SharedFiles = Mapping[FileKey, tuple[int, int, int]]
"""Files with links elsewhere, by key: (bytes, number of links, links counted here)."""

NOTE_MAX = 60
"""The most characters of a note in a list."""

AT = "@"
"""Stands between a name or an id and the name of its machine. No sandbox or save has it in its
name."""


class BaseState(StrEnum):
    """Whether the image below a save is on its machine."""

    HERE = "here"
    OTHER = "another version"
    """An image of its name is here, but another version."""
    MISSING = "missing"
    UNKNOWN = "unknown"
    """The save cannot be read."""


@frozen
class Verification:
    """The result of verifying a save."""

    deep: bool
    """Every byte was read, not only the files' metadata."""
    when: float
    """Unix time."""
    problems: tuple[str, ...] = ()


@frozen
class KeptFacts:
    """The facts that saves and the contents of the trash have in common. Texts are those of the
    machine itself; the app's are sanitised, but for the path."""

    name: str = shown("", head="NAME", json="name")
    """Its name; in a list of several machines, with the name of its machine (`AT`)."""
    path: str = shown("", json="path")
    """Its path on its machine. It is sent back, and never shown as it is."""
    host: str = ""
    """The name of its machine; "" is this one."""
    away: bool = False
    """Its machine does not answer now: all this is the last known state."""
    shared_files: SharedFiles = field(default_factory=dict, repr=False, hash=False)

    @property
    def key(self) -> str:
        """Its path among those of all machines."""
        return key_at(self.path, self.host)

    @property
    def short_name(self) -> str:
        """Its name among those of its machine."""
        return self.name.removesuffix(f"{AT}{self.host}") if self.host else self.name


@frozen
class SaveFacts(KeptFacts):
    """The facts of one save."""

    own: int = shown(0, head="OWN", kind="bytes", json="own")
    """Bytes that deleting it would free."""
    shared: int = shown(0, head="SHARED", kind="size", json="shared")
    """Bytes of files that it shares with other saves or sandboxes."""
    base: str = shown("", head="BASE", drawn="base_text", json="base.name")
    """The name of the image below it."""
    base_version: str = shown("", json="base.version")
    base_digest: str = shown("", json="base.digest")
    """The image store's digest of that image."""
    base_state: BaseState = shown(BaseState.HERE, json="base.state")
    created: float = shown(0.0, head="AGE", kind="age", json="created")
    """Unix time; if the save does not record it, the time of its last change; 0 if unknown."""
    parent: str = shown("", head="PARENT", json="parent.name")
    """The save that its sandbox was started from."""
    parent_id: str = shown("", json="parent.id", empty="")
    children: tuple[str, ...] = shown((), head="CHILDREN", kind="names", json="children")
    """Saves of sandboxes that were started from it; they do not need it."""
    place: str = shown("", head="FROM", drawn="origin", json="from")
    """"user"; "workspace" for the current directory's store; "here" for the directory itself; else
    the directory of the store."""
    is_own: bool = shown(True, json="made_here")
    """Whether this user made it on its machine; only then are all its options accepted."""
    left_out: tuple[str, ...] = shown((), json="left_out")
    """Its options that are withheld from sandboxes which start with it."""
    note: str = shown("", head="NOTE", drawn="remark", json="note", empty="")
    above: tuple[str, ...] = shown((), json="above")
    """Saves that lie on it and cannot be used without it; only those of the published packages lie
    on others."""
    sandboxes: tuple[str, ...] = shown((), json="sandboxes")
    """Sandboxes that started with it."""
    problems: tuple[str, ...] = shown(
        (), head="PROBLEM", rare=True, drawn="problem", json="problems"
    )
    """The problems in sentences."""
    id: str = shown("", json="id", only="is_readable")
    arch: str = shown("", json="arch", empty="", only="is_readable")
    layers: int | None = shown(None, json="layers", only="is_readable")
    is_readable: bool = True
    """Its manifest can be read, and its files are there."""
    memory: int | None = None
    """Bytes of memory of a sandbox that starts from it, as `cpus`, `network` and `ports` are of
    such a sandbox."""
    cpus: int = 0
    network: str = ""
    ports: str = ""
    """As they are typed: "8080:80, 0:22"."""
    frozen: bool = False
    """The guest's file systems were frozen while it was saved."""
    unsynced: bool = False
    """The guest could not flush its memory to the disk before."""
    volatile: tuple[str, ...] = ()
    """Guest paths that were only in memory, and so are not saved."""
    address: str = ""
    """The word for it in commands of its machine: its name, or its path if another save has that
    name."""
    verdict: Verification | None = None
    """The result of the last verification by this app."""

    @property
    def size(self) -> int:
        """Bytes on disk, including shared files."""
        return self.own + self.shared

    @property
    def base_text(self) -> str:
        """Name and version of the image below it."""
        return f"{self.base} {self.base_version}".strip()

    @property
    def origin(self) -> str:
        """Its place, and whether it was made there."""
        if self.is_own:
            return self.place
        return f"{self.place}, {'imported' if self.place == 'user' else 'not made here'}"

    @property
    def remark(self) -> str:
        return self.note[:NOTE_MAX]

    @property
    def problem(self) -> str:
        return "; ".join(self.problems)

    @property
    def trouble(self) -> str:
        """The problem in one or two words; "" if there is none."""
        if not self.is_readable:
            return "damaged"
        return "no base" if self.base_state in (BaseState.OTHER, BaseState.MISSING) else ""


@frozen
class TrashFacts(KeptFacts):
    """The facts of a save or a sandbox in the trash."""

    path: str = ""
    """The path of its entry on its machine, as that of a save."""
    root: str = shown("", json="path")
    """The path of the save or the sandbox itself."""
    kind: str = shown("save", head="WHAT", json="kind")
    """"save" or "sandbox"."""
    removed: float = shown(0.0, head="REMOVED", kind="age", json="removed")
    """Unix time."""
    until: float | None = shown(None, head="UNTIL", kind="until", json="until")
    """Unix time after which it may be removed for good; None for other things than saves, which
    stay until they are removed."""
    own: int = shown(0, head="FREES", kind="bytes", json="frees")
    """Bytes that removing it for good would free."""
    shared: int = 0
    """Bytes of files that others use as well."""
    id: str = shown("", head="ID", json="id")
    """The word for it in commands."""
    note: str = shown("", head="NOTE", drawn="remark", json="note", empty="")
    """The note of a save, or why a sandbox was removed."""
    instant: str = shown("", json="instant", only="is_sandbox")
    """The id of the checkpoint that keeps a sandbox's last instant; "" if it did not run."""
    error: str = shown("", json="error")
    """The reason why it cannot be used."""

    @property
    def is_sandbox(self) -> bool:
        return self.kind == "sandbox"

    @property
    def remark(self) -> str:
        return self.error or self.note[:NOTE_MAX]


SAVE, TRASHED = shown_of(SaveFacts), shown_of(TrashFacts)
"""How the facts of saves and of the trash are shown."""


def key_at(path: str, host: str) -> str:
    """The key, among those of all machines, of a path on one machine."""
    return f"{host}:{path}" if host else path


def own_key(key: str, host: str) -> str:
    """The path that `key_at` has made the key of."""
    return key[len(host) + 1 :] if host else key


def freed_together(things: Iterable[SaveFacts | TrashFacts]) -> int:
    """The bytes that removing all of these would free, with files that only they share."""
    freed = 0
    left: dict[tuple[str, FileKey], int] = {}
    for one in things:
        freed += one.own
        for key, (allocated, links, seen) in one.shared_files.items():
            there = (one.host, key)
            left[there] = left.get(there, links) - seen
            if left[there] == 0:
                freed += allocated
    return freed


def total_size(saves: Iterable[SaveFacts]) -> int:
    """The bytes of all these, counting each file once."""
    shared_files: dict[FileKey, int] = {}
    own = 0
    for one in saves:
        own += one.own
        shared_files |= {key: allocated for key, (allocated, _, _) in one.shared_files.items()}
    return own + sum(shared_files.values())
