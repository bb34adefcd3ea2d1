"""What this server itself has last done to a share's files, so that changes of the host's can be
told from it: by the state in which it has left a file, whatever was heard in between."""

from _thread import allocate_lock

from quicksand_smb import kernel
from quicksand_smb.light import Final
from quicksand_smb.names import Names
from quicksand_smb.values import Stat

MOST: Final = 8192
"""Files. Those before are forgotten, and may be told as the host's."""
MOST_REMOVED: Final = 512
"""Names that were removed."""


class Own:
    """May be used without the lock of the house."""

    def __init__(self) -> None:
        self._lock = allocate_lock()
        self._left: dict[tuple[int, int], int] = {}
        self._removed: dict[str, None] = {}
        """Whole paths, in one piece: names may be 512 deep."""

    def left(self, descriptor: int) -> None:
        """Something has just been done to an open file."""
        self.left_as(kernel.stat_of(descriptor))

    def left_at(self, directory: int, name: bytes, names: Names) -> None:
        """A name was made, or replaced."""
        self.left_as(kernel.stat_at(directory, name))
        self.made(names)

    def left_as(self, stat: Stat) -> None:
        """The state is known, whoever has made it."""
        with self._lock:
            self._left.pop((stat.device, stat.inode), None)
            self._left[stat.device, stat.inode] = stat.changed_ns
            if len(self._left) > MOST:
                del self._left[next(iter(self._left))]

    def made(self, names: Names) -> None:
        with self._lock:
            self._removed.pop("/".join(names), None)

    def removed(self, names: Names) -> None:
        with self._lock:
            self._removed["/".join(names)] = None
            if len(self._removed) > MOST_REMOVED:
                del self._removed[next(iter(self._removed))]

    def is_as_left(self, stat: Stat) -> bool:
        with self._lock:
            return self._left.get((stat.device, stat.inode)) == stat.changed_ns

    def has_removed(self, names: Names) -> bool:
        """Asked once: then it is forgotten."""
        with self._lock:
            return self._removed.pop("/".join(names), False) is None
