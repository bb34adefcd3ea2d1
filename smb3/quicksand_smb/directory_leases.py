"""Leases of directories: while a client has one, it does not ask for what is in there.

[MS-SMB2] 3.3.5.9.11 and [MS-FSA] 2.1.4.12: of a directory a client may keep what it has read. It is
asked back when a name in it comes, goes or changes. Nothing is kept that would have to be given
back first (`HANDLE`, `WRITE`), so nobody waits for an answer.

A client knows a directory by its path, so it must also hear when one above is moved.
"""

from quicksand_smb.leases import Grant
from quicksand_smb.minimal_stdlib import Callable, Final, Protocol
from quicksand_smb.names import Names

DEEPEST: Final = 32
"""Names in the path of a directory that is kept. Each directory above it is watched, too."""


class LeasedDirectory(Protocol):
    """What this module knows of an open directory, or of a file."""

    grants: list[Grant]
    unwatch: Callable[[], None] | None


class DirectoryLeases:
    """The directories of a share of which clients keep something, by their paths. What the guest
    changes is told at once, before the answer to the change; `hostwatch` tells the rest."""

    def __init__(self) -> None:
        self._files: dict[Names, LeasedDirectory] = {}

    def __len__(self) -> int:
        return len(self._files)

    def is_at(self, names: Names, file: LeasedDirectory) -> bool:
        """Whether a directory is watched at this path; it may have been at another one before."""
        return self._files.get(names) is file

    def add(self, names: Names, file: LeasedDirectory) -> None:
        """`file.unwatch` is called when its last handle is closed, and takes it away again."""
        self._files[names] = file
        end_watch = file.unwatch

        def end() -> None:
            if self._files.get(names) is file:
                del self._files[names]
            if end_watch:
                end_watch()

        file.unwatch = end

    def changed_in(self, names: Names) -> None:
        """A name in this directory came or went."""
        file = self._files.get(names)
        if file is not None:
            break_all(file)

    def moved(self, names: Names) -> None:
        """What was there, and all below, has another path now, or none."""
        depth = len(names)
        for path, file in self._files.items():
            if path[:depth] == names:
                break_all(file)


def break_all(file: LeasedDirectory) -> None:
    """Leave nobody anything of a file."""
    for grant in list(file.grants):
        grant.break_to(0)
