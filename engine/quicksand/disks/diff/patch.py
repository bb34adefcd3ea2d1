"""Writes the differences between two disks as a patch for `git apply` and `patch -p1`.

The paths are relative to the root of the disk. Changes that a patch cannot express (large or binary
files, devices, directories, owners) are named in comments, which both programs skip.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from quicksand.disks.diff.changes import FileType
from quicksand.disks.diff.lines import Steps
from quicksand.disks.diff.versions import FileVersions, Version

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
