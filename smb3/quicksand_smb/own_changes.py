"""What this server itself has last done to a share's files, so that changes of the host's can be
told from it: by the state in which it has left a file, whatever was heard in between."""

from _thread import allocate_lock

from quicksand_smb import kernel
from quicksand_smb.minimal_stdlib import Final
from quicksand_smb.names import Names
from quicksand_smb.store_types import Stat

MOST: Final = 8192
"""Files. Those before are forgotten, and may be told as the host's."""
MOST_REMOVED: Final = 512
"""Names that were removed."""


class OwnChanges:
    """May be used without the lock of the server."""

    def __init__(self) -> None:
        self._lock = allocate_lock()
        self._states: dict[tuple[int, int], int] = {}
        self._removed: dict[str, None] = {}
        """Whole paths, in one piece: names may be 512 deep."""

    def record(self, descriptor: int) -> None:
        """Something has just been done to an open file."""
        self.record_stat(kernel.stat_of(descriptor))

    def record_name(self, directory: int, name: bytes, names: Names) -> None:
        """A name was made, or replaced."""
        self.record_stat(kernel.stat_at(directory, name))
        self.record_made(names)

    def record_stat(self, stat: Stat) -> None:
        """The state is known, whoever has made it."""
        with self._lock:
            self._states.pop((stat.device, stat.inode), None)
            self._states[stat.device, stat.inode] = stat.changed_ns
            if len(self._states) > MOST:
                del self._states[next(iter(self._states))]

    def record_made(self, names: Names) -> None:
        with self._lock:
            self._removed.pop("/".join(names), None)

    def record_removed(self, names: Names) -> None:
        with self._lock:
            self._removed["/".join(names)] = None
            if len(self._removed) > MOST_REMOVED:
                del self._removed[next(iter(self._removed))]

    def is_as_recorded(self, stat: Stat) -> bool:
        with self._lock:
            return self._states.get((stat.device, stat.inode)) == stat.changed_ns

    def has_removed(self, names: Names) -> bool:
        """Asked once: then it is forgotten."""
        with self._lock:
            return self._removed.pop("/".join(names), False) is None
