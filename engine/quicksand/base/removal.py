"""The only module that deletes directories, and the mark that proves that one is ours.

Every directory that we will ever delete is made by `make_marked`, which puts a file with its id
into it. `remove` deletes nothing without that proof. It works with descriptors from the first check
to the last file, so that nobody can swap the directory meanwhile.

The keeper runs this module without the rest of the engine, so it imports only a little of the
standard library.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path

MARK = ".quicksand"
"""The file with a directory's id and, if the directory lies elsewhere, its owner."""

HEADER = "made by quicksand: "
ATTEMPTS = 5
"""The most attempts to empty a directory to which others still write."""

MARK_MAX = 8192
"""Bytes; a path has at most 4096 (PATH_MAX, linux/limits.h)."""

RECORD_MAX = 1 << 20
KEY_DIGITS = 32
"""Hexadecimal digits of a template's key."""

_ID = re.compile(r"[0-9a-f]{8,64}")
_NAME = re.compile(rf"(?:\.[a-z][a-z0-9.-]*-)?({_ID.pattern})")
"""A directory's name: its id, after a hidden prefix while it is being made or removed."""

OLDER = {"sandbox.json": "id", "trash.json": "removed", "manifest.json": "digest"}
"""The record, by file and key, of directories that are older than marks."""


class NotOursError(OSError):
    """Raised when a directory is not proven ours and was left as it is; ``why`` is the reason."""

    def __init__(self, path: str | os.PathLike[str], why: str) -> None:
        super().__init__(errno.EPERM, f"it is left alone, since {why}", os.fspath(path))
        self.why = why


def id_of(name: str) -> str | None:
    """Return the id in a directory's name, or None."""
    found = _NAME.fullmatch(name)
    return found[1] if found else None


def make_marked(path: Path, *, of: Path | None = None) -> Path:
    """Make the directory ``path``, whose name ends in an id, for this user only, and mark it as
    ours. ``of`` is its owner. Raises OSError and then leaves nothing."""
    path.mkdir(mode=0o700)
    try:
        mark(path, of=of)
    except OSError:
        path.rmdir()
        raise
    return path


def mark(path: Path, *, as_: str = "", of: Path | None = None) -> None:
    """Atomically mark a directory that we have made. ``as_`` is the name that it is about to get,
    if it differs. Raises OSError and then leaves the old mark."""
    id_ = id_of(as_ or path.name)
    assert id_ is not None, f"{as_ or path.name} has no id"
    text = HEADER + id_ + "\n" + ("" if of is None else f"{of}\n")
    temporary = path / f"{MARK}.{os.urandom(4).hex()}"
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    try:
        os.write(descriptor, os.fsencode(text))
        temporary.replace(path / MARK)
    except OSError:
        temporary.unlink()
        raise
    finally:
        os.close(descriptor)


def marked_id(path: Path) -> str | None:
    """Return the id in the mark of ``path``, whatever its present name; None without a valid
    mark."""
    try:
        descriptor = _open_directory(os.fspath(path), None)
    except OSError:
        return None
    try:
        return _parse_mark(_read_own(descriptor, MARK, MARK_MAX))[0] or None
    except NotOursError:
        return None
    finally:
        os.close(descriptor)


def belongs_to(path: Path) -> str:
    """Return the owner of the directory ``path``; "" if its mark names none or is not written yet.
    Raises NotOursError, FileNotFoundError."""
    with _Opened(path, or_empty=True) as found:
        return found.of


def require_ours(path: Path) -> None:
    """Raise NotOursError if `remove` would refuse ``path``."""
    with contextlib.suppress(FileNotFoundError), _Opened(path, or_empty=True):
        pass


def why_not_ours(path: Path) -> str:
    """Return why ``path`` is not proven to be a directory of ours; "" if it is, or is gone."""
    try:
        with _Opened(path):
            return ""
    except NotOursError as error:
        return error.why
    except FileNotFoundError:
        return ""


def remove(path: str | os.PathLike[str], *, part: str = "") -> None:
    """Delete the directory ``path`` with all below it, or only the directory ``part`` in it (a
    relative path). Does nothing if it does not exist.

    The proof: this user owns the parent directory, and nobody else can write to it; this user owns
    ``path``, on the same file system; neither is a link; the name holds an id, and the mark, a file
    of this user, holds the same. If the mark is damaged, the record beside it may prove the same.
    An empty directory needs no mark.

    Raises NotOursError without that proof, before touching anything, and OSError for what cannot be
    deleted, after deleting the rest. Mounts below it stay, with the directories that lead there.
    """
    try:
        with _Opened(path, or_empty=True) as found:
            if part:
                _remove_part(found.descriptor, part.split("/"), found.device)
                return
            _remove_all(found)
    except FileNotFoundError:
        return


def _remove_all(found: _Opened) -> None:
    """Delete an open directory that is proven ours. Another program may write to it at this very
    moment, such as a line of a log: then it is emptied once more."""
    for _ in range(ATTEMPTS - 1):
        _empty(found.descriptor, found.device, last=found.proof)
        try:
            os.rmdir(found.name, dir_fd=found.parent)
            return
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
    _empty(found.descriptor, found.device, last=found.proof)
    os.rmdir(found.name, dir_fd=found.parent)


class _Opened:
    """An open directory that is proven ours. Raises NotOursError, FileNotFoundError."""

    def __init__(self, path: str | os.PathLike[str], *, or_empty: bool = False) -> None:
        above, self.name = os.path.split(os.fspath(path))
        try:
            self.parent = open_own(above or ".")
        except NotOursError as error:
            raise NotOursError(path, error.why.replace("it", above, 1)) from None
        try:
            self.descriptor = _open_directory(self.name, self.parent)
        except BaseException:
            os.close(self.parent)
            raise
        try:
            self.proof, self.of = self._prove(or_empty)
        except NotOursError as error:
            self.close()
            raise NotOursError(path, error.why) from None
        except BaseException:
            self.close()
            raise

    def _prove(self, or_empty: bool) -> tuple[str, str]:
        """Return the file that proves it, and the directory's owner."""
        self.device = os.fstat(self.descriptor).st_dev
        if self.device != os.fstat(self.parent).st_dev:
            raise NotOursError(self.name, "another file system is mounted there")
        id_ = id_of(self.name)
        if id_ is None:
            raise NotOursError(self.name, f"{self.name!r} is not a name that quicksand gives")
        names = os.listdir(self.descriptor)
        if or_empty and all(_is_from_the_start(self.descriptor, name) for name in names):
            return "", ""
        why, damaged, said = f"it has no {MARK} of ours in it", False, ""
        if MARK in names:
            text = _read_own(self.descriptor, MARK, MARK_MAX)
            said, of = _parse_mark(text)
            if said == id_:
                return MARK, of
            why = f"its {MARK} is damaged, or not ours"
            if said:
                why = f"its {MARK} is that of {said!r}"
            damaged = True
        for name in OLDER.keys() & set(names):
            if _is_told_by(self.descriptor, name, id_, sure=damaged, other=bool(said)):
                return name, ""
        raise NotOursError(self.name, why)

    def close(self) -> None:
        os.close(self.descriptor)
        os.close(self.parent)

    def __enter__(self) -> _Opened:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def open_own(path: str | os.PathLike[str]) -> int:
    """Open a directory of this user to which others cannot write; return the descriptor. Raises
    NotOursError, FileNotFoundError, OSError."""
    descriptor = _open_directory(os.fspath(path), None)
    found = os.fstat(descriptor)
    # Debian and its relatives give each user a private group with the user's own number.
    of_group = found.st_mode & stat.S_IWGRP and found.st_gid != os.geteuid()
    if found.st_mode & stat.S_IWOTH or of_group:
        os.close(descriptor)
        mode = stat.S_IMODE(found.st_mode)
        raise NotOursError(path, f"it can be written to by others (mode {mode:o})")
    return descriptor


def _open_directory(name: str, parent: int | None) -> int:
    """Open a directory of this user, following no link. Raises NotOursError, OSError."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        descriptor = os.open(name, flags, dir_fd=parent)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR):
            raise NotOursError(name, "it is a link, or not a directory") from None
        if error.errno == errno.EACCES:
            raise NotOursError(name, "it cannot be opened") from None
        raise
    if os.fstat(descriptor).st_uid != os.geteuid():
        os.close(descriptor)
        raise NotOursError(name, "it belongs to another user")
    return descriptor


def _is_from_the_start(directory: int, name: str) -> bool:
    """Whether a file may be left from a maker that was killed before it marked the directory: an
    empty lock, an unfinished mark, or a mark whose contents were lost when the host went down."""
    empty = os.stat(name, dir_fd=directory, follow_symlinks=False).st_size == 0
    return name.startswith(MARK + ".") or (name in ("lock", "history.lock", MARK) and empty)


def _read_own(directory: int, name: str, limit: int) -> bytes:
    """Read a plain file of this user, following no link. Raises NotOursError."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        descriptor = os.open(name, flags, dir_fd=directory)
    except OSError as error:
        raise NotOursError(name, f"its {name} cannot be read: {error.strerror}") from None
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid():
            raise NotOursError(name, f"its {name} is not a file of ours")
        return os.read(descriptor, limit)
    finally:
        os.close(descriptor)


def _parse_mark(text: bytes) -> tuple[str, str]:
    """Return the id in a mark, "" if it is damaged, and the directory's owner."""
    first, _, of = os.fsdecode(text).partition("\n")
    said = first.removeprefix(HEADER)
    # An id becomes part of a path, so anything else is refused.
    if not first.startswith(HEADER) or not _ID.fullmatch(said):
        return "", ""
    return said, of.removesuffix("\n")  # a path may have line feeds, too


def _is_told_by(directory: int, name: str, id_: str, *, sure: bool, other: bool) -> bool:
    """Whether the file ``name`` is the record of this directory. That proves a directory that is
    older than marks; and, if the record names the directory (``sure``), one whose mark was damaged
    when the host went down. ``other``: the mark names another directory."""
    try:
        record = json.loads(_read_own(directory, name, RECORD_MAX))
        value, named = record[OLDER[name]], record.get("id")
    except (NotOursError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return False
    match name:
        case "sandbox.json":  # a template's directory is named after its key
            is_template = len(id_) == KEY_DIGITS and not other
            return isinstance(value, str) and (value == id_ or is_template)
        case "manifest.json":
            return isinstance(value, str) and value.startswith(id_)
        case _:
            return isinstance(value, float) and (named == id_ or not sure)


def _remove_part(directory: int, names: list[str], device: int) -> None:
    """Delete the directory at the path ``names``. Raises FileNotFoundError, OSError, and ValueError
    for a path that leaves ``directory``."""
    if not all(names) or {".", ".."} & {*names}:
        raise ValueError(f"{'/'.join(names)} is no part")
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    above = os.dup(directory)
    try:
        for name in names[:-1]:
            below = os.open(name, flags, dir_fd=above)
            os.close(above)
            above = below
        _remove_entry(above, names[-1], device)
    finally:
        os.close(above)


def _empty(directory: int, device: int, *, last: str = "") -> None:
    """Delete all entries of an open directory, ``last`` last, so that the proof outlives an
    interruption. Continues after an error and raises the first one."""
    failure: OSError | None = None
    for name in sorted(os.listdir(directory), key=lambda name: name == last):
        if name == last and failure is not None:
            break
        try:
            _remove_entry(directory, name, device)
        except FileNotFoundError:
            continue
        except OSError as error:
            failure = failure or error
    if failure is not None:
        raise failure


def _remove_entry(directory: int, name: str, device: int) -> None:
    found = os.stat(name, dir_fd=directory, follow_symlinks=False)
    if not stat.S_ISDIR(found.st_mode):
        os.unlink(name, dir_fd=directory)
        return
    if found.st_dev != device:
        raise NotOursError(name, "another file system is mounted there")
    if found.st_mode & stat.S_IRWXU != stat.S_IRWXU and found.st_uid == os.geteuid():
        os.chmod(name, stat.S_IRWXU, dir_fd=directory)  # unpacked trees contain such directories
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    below = os.open(name, flags, dir_fd=directory)
    try:
        if os.fstat(below).st_dev != device:
            raise NotOursError(name, "another file system is mounted there")
        _empty(below, device)
    finally:
        os.close(below)
    os.rmdir(name, dir_fd=directory)
