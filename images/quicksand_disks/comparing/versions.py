"""The type, permissions and, of small files, data of a path on each of two disks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from quicksand_disks.changes import FileChange, FileType
from quicksand_disks.comparing.lines import Hunk, Steps, compare_lines, hunks, split
from quicksand_disks.ext4.filesystem import FileSystem, Finder, content

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
        """Read a path, with files of at most ``most`` bytes. Raises DisksError."""
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
    ends after COUNTED_MAX bytes or COUNTED_FILES files. Raises DisksError."""
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


FILE_MAX = 1024 * 1024
"""Bytes of the largest file that gets into a patch."""

PATCH_MAX = 64 * 1024 * 1024
"""Bytes of the largest patch."""

DEV_NULL = b"/dev/null"
_NO_END = b"\\ No newline at end of file\n"
_ESCAPES = {7: b"a", 8: b"b", 9: b"t", 10: b"n", 11: b"v", 12: b"f", 13: b"r", 34: b'"', 92: b"\\"}
_MODES = {FileType.FILE: 0o100000, FileType.SYMLINK: 0o120000}


@dataclass(frozen=True, slots=True, kw_only=True)
class Patch:
    """A patch, and the changes that are not in it."""

    data: bytes
    left_out: tuple[tuple[str, str], ...]
    """Each path and the reason."""


def make_patch(files: Iterable[FileVersions], check: Callable[[], None] = lambda: None) -> Patch:
    """Write what changed in ``files``, which are sorted by path. ``check`` may raise."""
    removed: list[bytes] = []
    written: list[bytes] = []
    left_out: list[tuple[str, str]] = []
    size, steps = 0, Steps()
    for found in files:
        if why := _why_not(found):
            left_out.append((found.path, why))
            continue
        parts = _parts(found, check, steps)
        size += sum(map(len, parts))
        if size > PATCH_MAX:
            left_out.append((found.path, "the patch is too large"))
            size -= sum(map(len, parts))
            continue
        # A file may take the place of a directory, a link that of a file: removals come first.
        for part in parts:
            (removed if b"\ndeleted file mode " in part[: _head_end(part)] else written).append(
                part
            )
    notes = [
        b"# left out: %s: %s\n" % (quoted(_bytes(path)), why.encode()) for path, why in left_out
    ]
    return Patch(data=b"".join([*notes, *reversed(removed), *written]), left_out=tuple(left_out))


def _head_end(part: bytes) -> int:
    end = part.find(b"\n--- ")
    return end if end >= 0 else len(part)


def _why_not(found: FileVersions) -> str:
    """Return why a path is not in a patch; "" if it is, or if nothing needs to be said of it."""
    sides = [side for side in (found.before, found.after) if side is not None]
    for side in sides:
        if side.type is FileType.DIRECTORY:
            continue
        if side.type not in _MODES:
            return f"it is a {side.type.value.replace('-', ' ')}"
        if side.data is None:
            return f"it has {side.size} bytes"
        if not side.is_text:
            return "it is binary"
    return ""


def _parts(found: FileVersions, check: Callable[[], None], steps: Steps) -> list[bytes]:
    """Return the patches of one path: of a changed type or target, its removal and its addition."""
    before, after = (
        side if side is not None and side.type in _MODES else None
        for side in (found.before, found.after)
    )
    is_link = FileType.SYMLINK in {side.type for side in (before, after) if side is not None}
    if before is not None and after is not None and is_link:
        sides: list[tuple[Version | None, Version | None]] = [(before, None), (None, after)]
    else:
        sides = [(before, after)]
    return [part for one, other in sides if (part := _part(found.path, one, other, check, steps))]


def _part(
    path: str,
    before: Version | None,
    after: Version | None,
    check: Callable[[], None],
    steps: Steps,
) -> bytes:
    name = _bytes(path).lstrip(b"/")
    a, b = quoted(b"a/" + name), quoted(b"b/" + name)
    lines = [b"diff --git %s %s\n" % (a, b)]
    if before is not None and after is not None:
        if _mode(before) != _mode(after):
            lines += [b"old mode %s\nnew mode %s\n" % (_mode(before), _mode(after))]
    elif after is not None:
        lines.append(b"new file mode %s\n" % _mode(after))
    elif before is not None:
        lines.append(b"deleted file mode %s\n" % _mode(before))
    else:
        return b""
    hunks = FileVersions(path=path, before=before, after=after).hunks(check, steps)
    if hunks:
        lines.append(b"--- %s%s\n" % ((DEV_NULL, b"") if before is None else (a, _end(a))))
        lines.append(b"+++ %s%s\n" % ((DEV_NULL, b"") if after is None else (b, _end(b))))
    for hunk in hunks:
        lines.append(hunk.head.encode() + b"\n")
        for sign, line in hunk.lines:
            lines += [sign.encode(), line]
            if not line.endswith(b"\n"):
                lines += [b"\n", _NO_END]
    return b"".join(lines) if len(lines) > 1 else b""


def _mode(side: Version) -> bytes:
    """Return the mode as in git, which only knows whether the owner may execute a file."""
    bits = _MODES[side.type]
    if side.type is FileType.FILE:
        bits |= 0o755 if side.mode & 0o100 else 0o644
    return b"%o" % bits


def _bytes(path: str) -> bytes:
    return path.encode("utf-8", "surrogateescape")


def quoted(name: bytes) -> bytes:
    """Return a name as git quotes it: as in C, if it has characters that need quoting."""
    if all(32 <= byte < 127 and byte not in b'"\\' for byte in name):
        return name
    escaped = b"".join(
        b"\\" + _ESCAPES[byte]
        if byte in _ESCAPES
        else bytes([byte])
        if 32 <= byte < 127
        else b"\\%03o" % byte
        for byte in name
    )
    return b'"' + escaped + b'"'


def _end(name: bytes) -> bytes:
    """Return the end of a name: a tab, without which `patch` ends it at the first space."""
    return b"\t" if b" " in name and not name.startswith(b'"') else b""
