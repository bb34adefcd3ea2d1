"""The type, permissions and, of small files, data of a path on each of two disks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from quicksand.disks.diff.changes import FileChange, FileType
from quicksand.disks.diff.ext4.filesystem import FileSystem, Finder, content
from quicksand.disks.diff.lines import Hunk, Steps, compare_lines, hunks, split

TEXT_MAX = 256 * 1024
"""Bytes of the largest file whose lines are compared to be shown or counted."""

COUNTED_MAX = 64 * 1024 * 1024
"""Bytes that are read in all to count lines."""

COUNTED_FILES = 5_000
"""Files whose lines are counted; hardly anybody looks through a view of more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """A path as it is on one disk."""

    type: FileType
    mode: int
    """The permission bits."""
    size: int
    """In bytes."""
    data: bytes | None
    """The contents of a file or the target of a symbolic link; None for every other type, and if it
    is larger than requested."""

    @property
    def is_text(self) -> bool:
        return self.data is not None and b"\0" not in self.data


@dataclass(frozen=True, slots=True, kw_only=True)
class FileVersions:
    """A path before and after a change; None where it did not exist."""

    path: str
    """Absolute; see `FileChange.path`."""
    before: Version | None
    after: Version | None

    @property
    def is_text(self) -> bool:
        """Whether both are texts, as far as they exist."""
        return all(side.is_text for side in (self.before, self.after) if side is not None)

    def hunks(
        self, check: Callable[[], None] = lambda: None, steps: Steps | None = None
    ) -> list[Hunk]:
        """The hunks of a unified diff; none if the contents are equal, or not texts. The parameters
        are those of `compare_lines`."""
        if not self.is_text:
            return []
        a, b = (
            split(side.data) if side is not None and side.data is not None else []
            for side in (self.before, self.after)
        )
        return list(hunks(a, b, compare_lines(a, b, check, steps)))


class VersionReader:
    """Reads paths of two disks."""

    def __init__(self, a: FileSystem, b: FileSystem) -> None:
        self._finders = Finder(a), Finder(b)

    def read(self, path: str, *, most: int) -> FileVersions:
        """Read a path, with files of at most ``most`` bytes. Raises Malformed, ImageError."""
        before, after = (_read(finder, path, most) for finder in self._finders)
        return FileVersions(path=path, before=before, after=after)


def _read(finder: Finder, path: str, most: int) -> Version | None:
    inode = finder.find(path)
    if inode is None:
        return None
    kind, data, size = inode.type, None, 0
    if kind is FileType.FILE:
        size = inode.size
        data = content(finder.filesystem, inode, most) if size <= most else None
    elif kind is FileType.SYMLINK:
        data = finder.filesystem.target(inode)
        size = len(data)
    return Version(type=kind, mode=inode.mode, size=size, data=data)


def count_lines(
    reader: VersionReader,
    changes: Iterable[FileChange],
    check: Callable[[], None] = lambda: None,
) -> Iterator[tuple[str, tuple[int, int]]]:
    """Yield the path of each small text that differs, and how many lines were added and removed. It
    ends after COUNTED_MAX bytes or COUNTED_FILES files. Raises Malformed, ImageError."""
    left, files, steps = COUNTED_MAX, COUNTED_FILES, Steps()
    for change in changes:
        sizes = [size for size in (change.size_before, change.size_after) if size is not None]
        if not _is_countable(change) or max(sizes, default=0) > TEXT_MAX:
            continue
        left, files = left - sum(sizes), files - 1
        if left < 0 or files < 0 or steps.left <= 0:
            return
        found = reader.read(change.path, most=TEXT_MAX)
        if found.is_text:
            signs = [sign for hunk in found.hunks(check, steps) for sign, _ in hunk.lines]
            yield change.path, (signs.count("+"), signs.count("-"))


def _is_countable(change: FileChange) -> bool:
    types = {change.type_before, change.type_after} - {None}
    return types == {FileType.FILE} and (not change.differs or "content" in change.differs)
