"""Differences between two disks of a sandbox, as the app shows them: by file, by directory, and as
the losses of going back. All text is sanitised."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from quicksand.things.frozen import frozen

if TYPE_CHECKING:
    from quicksand_tui.model.shown_sandboxes import ChangedPlace, CheckpointView, SandboxView


KINDS = {"A": "added", "M": "changed", "D": "removed", "T": "of another type"}
"""The words for the letters of changes of a path."""

PRESENT = "here"
IMAGE = "base image"
"""The words in place of a checkpoint's name."""


@frozen
class DiffSpec:
    """The two disks that are compared."""

    sandbox_id: str
    a: str
    """A checkpoint's id."""
    b: str | None = None
    """The later one's id; None for the present."""
    parent: bool = False
    """The parent of ``a`` is compared with ``a``."""
    names: tuple[str, str]
    """The names of the earlier and the later disk."""
    words: tuple[str, ...]
    """The arguments of the command that compares the same."""

    @property
    def title(self) -> str:
        return f"{self.names[0]} → {self.names[1]}"


@frozen
class ChangedPath:
    """One path that differs."""

    path: str
    """The path to ask for, as the engine has it, not sanitised."""
    names: tuple[str, ...]
    """The names on the way to the path, below the root; none for the root itself."""
    letter: str
    """A added, M changed, D removed, T of another type."""
    is_directory: bool = False
    size: int | None = None
    """The present size in bytes, or the last one."""
    added: int | None = None
    removed: int | None = None
    """Lines; None if they were not counted."""
    remark: str = ""
    """Another difference, such as that of the mode."""


PACKAGE_KINDS = {"A": "added", "M": "of another version", "D": "removed"}
"""The words for the letters of changes of a package."""


@frozen
class ChangedPackage:
    """One package of dpkg or apk that differs."""

    name: str
    letter: str
    """A added, M of another version, D removed."""
    versions: str
    """Its version, or both: "3.0.1 → 3.0.2"."""


@frozen
class ChangedPackages:
    """The packages of one database that differ."""

    path: str
    """The path of the database, as the engine has it."""
    packages: tuple[ChangedPackage, ...]
    """Sorted by name; there is at least one."""


@frozen
class DiffView:
    """All differences."""

    paths: tuple[ChangedPath, ...] = ()
    """Sorted by path."""
    packages: tuple[ChangedPackages, ...] = ()
    read: float = 0.0
    """Unix time when reading began."""
    is_live: bool = False
    is_synced: bool = False
    """The guest was asked just before to write out its memory (as `comparison.Difference` says)."""

    @property
    def counts(self) -> str:
        """The numbers of paths by kind of change."""
        return " · ".join(f"{count} {KINDS[letter]}" for letter, count in self._counted())

    @property
    def short_counts(self) -> str:
        return " ".join(f"{letter} {count}" for letter, count in self._counted())

    def _counted(self) -> list[tuple[str, int]]:
        letters = [path.letter for path in self.paths]
        return [(letter, count) for letter in KINDS if (count := letters.count(letter))]


@frozen
class TextDiff:
    """The differences within one path."""

    lines: tuple[tuple[str, str], ...] = ()
    """The sign of each line (" ", "+", "-", or "@" for a hunk's head) and its text."""
    why: str = ""
    """The words shown instead, such as that it is binary."""


def diff_specs(
    sandbox: SandboxView, checkpoint: CheckpointView, other: CheckpointView | None
) -> list[DiffSpec]:
    """Returns the comparisons of a checkpoint, the first choice first: with another one (the
    earlier of both is shown as the first), the present, its parent."""
    parent = sandbox.tree.find(checkpoint.parent)
    present = DiffSpec(
        sandbox_id=sandbox.id,
        a=checkpoint.id,
        names=(checkpoint.tag, PRESENT),
        words=(checkpoint.name,),
    )
    own = replace(
        present, parent=True, names=(parent.tag if parent is not None else IMAGE, checkpoint.tag)
    )
    if other is None or other.id == checkpoint.id:
        return [present, own]
    first, second = sorted((checkpoint, other), key=lambda each: each.created)
    pair = DiffSpec(
        sandbox_id=sandbox.id,
        a=first.id,
        b=second.id,
        names=(first.tag, second.tag),
        words=(first.name, second.name),
    )
    return [pair, present, own]


PLACES = 3
"""The number of directories that are named."""
DEPTH = 2
"""The number of names of a path by which files are counted together."""


@frozen
class Losing:
    """Everything that exists now and did not then, or the other way round."""

    added: int = 0
    changed: int = 0
    removed: int = 0
    """Paths that were added, changed, removed since."""
    places: tuple[tuple[str, int], ...] = ()
    """The directories that hold most of these paths, each with their number."""
    ending: tuple[str, ...] = ()
    """Commands of the terminals that were opened since."""
    staying: tuple[str, ...] = ()
    """Commands of the terminals that were open then already."""
    read: float = 0.0
    """Unix time of the look."""


def places_of(paths: Iterable[ChangedPath]) -> tuple[tuple[str, int], ...]:
    """Returns the directories in which most paths differ, the most first."""
    found = Counter(
        "/" + "/".join(path.names[:-1][:DEPTH]) for path in paths if not path.is_directory
    )
    return tuple(found.most_common(PLACES))


PLACES_MAX = 12
"""The most places that are told apart, if the tree allows it."""


def by_directory(files: Iterable[ChangedPlace], most: int = PLACES_MAX) -> tuple[ChangedPlace, ...]:
    """Returns single files, and directories in which several files differ in the same way. If there
    are more than ``most``, they are merged into the directories above them."""
    found = list(files)
    for depth in (64, 5, 4, 3, 2, 1):
        places = _grouped(found, depth)
        if len(places) <= most:
            break
    return places


def _grouped(files: Sequence[ChangedPlace], depth: int) -> tuple[ChangedPlace, ...]:
    """Groups files by letter, and by at most ``depth`` directories."""
    groups: dict[tuple[str, str], list[ChangedPlace]] = {}
    for file in files:
        parts = file.path.split("/")[1:-1][:depth]
        directory = "/".join(["", *parts, ""])
        groups.setdefault((file.letter, directory), []).append(file)
    places = []
    for (_, directory), members in groups.items():
        if len(members) == 1:
            places.append(members[0])
            continue
        sizes = [member.size for member in members if member.size is not None]
        size = sum(sizes) if sizes else None
        places.append(replace(members[0], path=directory, files=len(members), size=size))
    return tuple(sorted(places, key=lambda place: (place.path, place.letter)))
