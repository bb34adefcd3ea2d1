"""Searches of a share for `host_changes`: by inode, and for recent changes. They run in threads of
their own, without the server's lock."""

import os

from quicksand_smb import kernel
from quicksand_smb.minimal_stdlib import TYPE_CHECKING, Final, deque
from quicksand_smb.names import Names, from_host, host_path
from quicksand_smb.store_errors import Reason, StoreError

if TYPE_CHECKING:
    from quicksand_smb.store import Store

MOST_NAMES: Final = 200_000
"""The most names of a share that a search visits, those near the root first."""
MOST_DIRECTORIES: Final = 10_000
MOST_DEPTH: Final = 32
"""The limits of a search: directories, and names of a path."""
MOST_CHANGED: Final = 2048
"""The most changed names that a search returns."""


def find(store: "Store", inodes: set[int]) -> dict[int, tuple[Names, bool]]:
    """Find files by their inodes in the file system of the root. Returns their names, and whether
    each is a directory. Raises StoreError if the share is gone."""
    missing = set(inodes)
    found: dict[int, tuple[Names, bool]] = {}
    root = store.look(())
    if root.inode in missing:
        missing.discard(root.inode)
        found[root.inode] = (), True
    # Each directory refers to its parent's place in the list, since whole paths may be long.
    above: list[tuple[int, str]] = [(-1, "")]
    waiting = deque((0,))
    left = MOST_NAMES

    def names_of(at: int) -> Names:
        names: list[str] = []
        while at > 0:
            at, name = above[at]
            names.append(name)
        return tuple(reversed(names))

    def scan(descriptor: int) -> None:
        nonlocal left
        if kernel.stat_of(descriptor).device != root.device:
            return
        flags = os.O_RDONLY | kernel.O_DIRECTORY | kernel.O_ALWAYS
        directory = os.open(b".", flags, dir_fd=descriptor)
        try:
            with os.scandir(directory) as entries:
                for entry in entries:
                    left -= 1
                    if left < 0 or not missing:
                        return
                    name = from_host(os.fsencode(entry.name))
                    is_directory = entry.is_dir(follow_symlinks=False)
                    if entry.inode() in missing:
                        missing.discard(entry.inode())
                        found[entry.inode()] = (*names, name), is_directory
                    is_near = len(names) < MOST_DEPTH and len(above) < MOST_DIRECTORIES
                    if is_directory and is_near:
                        above.append((at, name))
                        waiting.append(len(above) - 1)
        finally:
            os.close(directory)

    while waiting and missing and left > 0:
        at = waiting.popleft()
        names = names_of(at)
        try:
            store.with_directory(names, scan)
        except StoreError as error:
            if error.reason is Reason.GONE:
                raise
    return found


class Lately:
    """A search for the changes since a time, in nanoseconds since 1970."""

    def __init__(self, store: "Store") -> None:
        self._store = store
        self._left, self._room = MOST_NAMES, MOST_CHANGED
        self.found: dict[Names, set[str]] = {}
        """The changed names of each directory."""

    def look(self, names: Names, since: int, *, is_directory: bool) -> None:
        """Look at a file, or at everything in a directory."""

        def work(descriptor: int) -> None:
            if is_directory:
                self._scan(descriptor, names, since)
            else:
                stat = kernel.stat_at(descriptor, host_path(names[-1:])[0])
                self._note(names[:-1], names[-1], stat.changed_ns, since)

        if not self._left or not self._room:
            return
        try:
            self._store.with_directory(names if is_directory else names[:-1], work)
        except StoreError:
            return  # it is gone meanwhile

    def _scan(self, descriptor: int, names: Names, since: int) -> None:
        flags = os.O_RDONLY | kernel.O_DIRECTORY | kernel.O_ALWAYS
        directory = os.open(b".", flags, dir_fd=descriptor)
        try:
            with os.scandir(directory) as entries:
                for entry in entries:
                    if not self._left or not self._room:
                        return
                    changed_ns = entry.stat(follow_symlinks=False).st_ctime_ns
                    self._note(names, from_host(os.fsencode(entry.name)), changed_ns, since)
        finally:
            os.close(directory)

    def _note(self, directory: Names, name: str, changed_ns: int, since: int) -> None:
        self._left -= 1
        if changed_ns >= since:
            self._room -= 1
            self.found.setdefault(directory, set()).add(name)
