"""Reports which files that programs of the host run or obey (triggers.py) a guest has written.

The supervisor maps the file of the report, as it does with the counters of `traffic`. So the
confined server has no descriptor of it, and reporting takes no system call. All numbers have the
machine's byte order. The file begins with a number of 64 bits that is odd while the rest changes.
`ENTRIES` places of `ENTRY` bytes follow. Each has the seconds since 1970 in 64 bits (0 for a free
place), the length of the path in 16 bits, and the host's path below the share's root.
"""

import time
from _struct import Struct

from quicksand_smb.minimal_stdlib import TYPE_CHECKING, Final
from quicksand_smb.names import host_path
from quicksand_smb.traffic import mapped_file

if TYPE_CHECKING:
    from quicksand_smb.names import Names

SUFFIX: Final = ".told"
"""The suffix of the file, which stands beside the socket."""
ENTRIES: Final = 31
"""The most files in the report. A further one replaces the one that was written longest ago."""
ENTRY: Final = 512
_SIZE: Final = ENTRY * (1 + ENTRIES)
"""The size of the file in bytes. The number at the beginning has a place of its own."""
_NUMBER: Final = Struct("=Q")
_HEAD: Final = Struct("=QH")
PATH_MAX: Final = ENTRY - _HEAD.size
"""The longest path in bytes. A longer one is replaced by dots and its end."""


class TriggerReport:
    """The report. It stays in private memory until `map_to`."""

    def __init__(self) -> None:
        self._memory = memoryview(bytearray(_SIZE))
        self._places: dict[bytes, int] = {}
        """The paths and their places, the oldest first."""
        self._number = 0

    def map_to(self, path: str) -> None:
        """Move the report to a new file. If it cannot be made (the disk is full), nobody reads
        it."""
        self._memory = mapped_file(path, _SIZE)

    def resume(self) -> None:
        """Continue the report of a server that has ended, perhaps in the middle of an entry."""
        found = []
        for place in range(1, ENTRIES + 1):
            start = place * ENTRY
            seconds, length = _HEAD.unpack_from(self._memory, start)
            if seconds and length <= PATH_MAX:
                path = bytes(self._memory[start + _HEAD.size : start + _HEAD.size + length])
                found.append((seconds, place, path))
        self._places = {path: place for _, place, path in sorted(found)}
        self._number = _NUMBER.unpack_from(self._memory)[0]
        self._number += self._number % 2
        _NUMBER.pack_into(self._memory, 0, self._number)

    def record(self, names: "Names") -> None:
        """Record a file that the guest has written."""
        path = b"/".join(host_path(names))
        if len(path) > PATH_MAX:
            path = b"..." + path[3 - PATH_MAX :]
        place = self._places.pop(path, None)
        if place is None:
            free = set(range(1, ENTRIES + 1)).difference(self._places.values())
            place = min(free) if free else self._places.pop(next(iter(self._places)))
        self._places[path] = place
        self._count()
        entry = _HEAD.pack(int(time.time()), len(path)) + path
        start = place * ENTRY
        self._memory[start : start + len(entry)] = entry
        self._count()

    def _count(self) -> None:
        self._number += 1
        _NUMBER.pack_into(self._memory, 0, self._number)
