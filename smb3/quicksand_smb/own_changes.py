"""Records the server's own latest changes to the files of a share. They distinguish the host's
changes by the state in which the server has left a file, however many events were seen in
between."""

from _thread import allocate_lock

from quicksand_smb import kernel
from quicksand_smb.minimal_stdlib import Final
from quicksand_smb.names import Names
from quicksand_smb.store_types import Stat

MOST: Final = 8192
"""The most remembered files, while somebody asks for the host's changes. Changes to forgotten ones
may be reported as the host's."""
MOST_UNASKED: Final = 1024
"""The most remembered files while nobody asks. A client that begins to ask is told of the host's
latest changes, and must not hear of the guest's own."""
MOST_REMOVED: Final = 512
"""The most remembered names that were removed."""
COST: Final = 512 << 10
"""The bytes of memory that a record takes from the ledger while nobody asks."""


class OwnChanges:
    """The record. It may be used without the server's lock."""

    def __init__(self) -> None:
        self._lock = allocate_lock()
        self._states: dict[tuple[int, int], int] = {}
        self._most = MOST_UNASKED
        self._removed: dict[str, None] = {}
        """Whole paths as single strings, since a path may have 512 names."""

    def begin(self) -> None:
        """Remember more, and removed names, since somebody asks for the host's changes."""
        self._most = MOST

    def end(self) -> None:
        with self._lock:
            self._most = MOST_UNASKED
            self._removed.clear()
            while len(self._states) > MOST_UNASKED:
                del self._states[next(iter(self._states))]

    def record(self, descriptor: int) -> None:
        """Record the state of an open file after a change."""
        self.record_stat(kernel.stat_of(descriptor))

    def record_name(self, directory: int, name: bytes, names: Names) -> None:
        """Record a name that was made or replaced."""
        self.record_stat(kernel.stat_at(directory, name))
        self.record_made(names)

    def record_stat(self, stat: Stat) -> None:
        """Record a state, whoever has caused it."""
        with self._lock:
            self._states.pop((stat.device, stat.inode), None)
            self._states[stat.device, stat.inode] = stat.changed_ns
            if len(self._states) > self._most:
                del self._states[next(iter(self._states))]

    def record_made(self, names: Names) -> None:
        with self._lock:
            self._removed.pop("/".join(names), None)

    def record_removed(self, names: Names) -> None:
        with self._lock:
            if self._most == MOST_UNASKED:
                return
            self._removed["/".join(names)] = None
            if len(self._removed) > MOST_REMOVED:
                del self._removed[next(iter(self._removed))]

    def is_as_recorded(self, stat: Stat) -> bool:
        with self._lock:
            return self._states.get((stat.device, stat.inode)) == stat.changed_ns

    def has_removed(self, names: Names) -> bool:
        """Tell whether the server has removed this name. The answer is given once and then
        forgotten."""
        with self._lock:
            return self._removed.pop("/".join(names), False) is None
