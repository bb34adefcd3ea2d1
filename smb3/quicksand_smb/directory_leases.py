"""Directory leases: a client that holds one answers questions about the directory from its cache.

A client may cache what it has read of a directory ([MS-SMB2] 3.3.5.9.11, [MS-FSA] 2.1.4.12). The
server breaks the lease when a name in it comes, goes or changes. It never grants `HANDLE` or
`WRITE` there, so no request waits for an acknowledgement.

Clients know directories by their paths, so moving a parent breaks the lease, too.
"""

from quicksand_smb.leases import Grant
from quicksand_smb.minimal_stdlib import Callable, Final, Protocol
from quicksand_smb.names import Names

DEEPEST: Final = 32
"""The most names in the path of a leased directory. Each directory above it is watched, too."""


class LeasedDirectory(Protocol):
    """The part of an open directory or file that this module uses."""

    grants: list[Grant]
    unwatch: Callable[[], None] | None


class DirectoryLeases:
    """The leased directories of a share, by their paths. A change by the guest breaks leases before
    it is answered. `host_watch` reports the other changes."""

    def __init__(self) -> None:
        self._files: dict[Names, LeasedDirectory] = {}

    def __len__(self) -> int:
        return len(self._files)

    def is_at(self, names: Names, file: LeasedDirectory) -> bool:
        """Tell whether a directory is registered at this path. It may have had another path
        before."""
        return self._files.get(names) is file

    def add(self, names: Names, file: LeasedDirectory) -> None:
        """Register a directory. Its `unwatch`, called when the last handle closes, removes it
        again."""
        self._files[names] = file
        end_watch = file.unwatch

        def end() -> None:
            if self._files.get(names) is file:
                del self._files[names]
            if end_watch:
                end_watch()

        file.unwatch = end

    def changed_in(self, names: Names) -> None:
        """Break the leases on a directory in which a name came or went."""
        file = self._files.get(names)
        if file is not None:
            break_all(file)

    def moved(self, names: Names) -> None:
        """Break the leases on everything at or below a path that was moved or removed."""
        depth = len(names)
        for path, file in self._files.items():
            if path[:depth] == names:
                break_all(file)


def break_all(file: LeasedDirectory) -> None:
    """Break all leases and oplocks of a file."""
    for grant in list(file.grants):
        grant.break_to(0)
