"""Which files a guest has written that programs of the host run or obey (triggers.py), in a file
that others may read meanwhile.

The file is mapped by the supervisor, as the counters of `traffic` are: the confined server has no
descriptor of it, and telling takes no system call. In the machine's byte order it has a number of
64 bits that is odd while the rest is changed, and `ENTRIES` places of `ENTRY` bytes: the seconds
since 1970 as 64 bits, 0 for a place that is free, the length of the path as 16, and the path below
the share's root as the host has it.
"""

from _struct import Struct

from quicksand_smb.minimal_stdlib import TYPE_CHECKING, Final
from quicksand_smb.names import host_path
from quicksand_smb.traffic import mapped_file

if TYPE_CHECKING:
    from quicksand_smb.names import Names

SUFFIX: Final = ".told"
"""Of the file beside the socket."""
ENTRIES: Final = 31
"""Of more files, the one that was written longest ago is forgotten."""
ENTRY: Final = 512
_SIZE: Final = ENTRY * (1 + ENTRIES)
"""The number at the beginning has a place of its own."""
_NUMBER: Final = Struct("=Q")
_HEAD: Final = Struct("=QH")
PATH_MAX: Final = ENTRY - _HEAD.size
"""Bytes of a path; of a longer one the end is told, after dots."""


class TriggerReport:
    """The places, in memory until `map_to`."""

    def __init__(self) -> None:
        self._memory = memoryview(bytearray(_SIZE))
        self._places: dict[bytes, int] = {}
        """Paths, the one that was written longest ago first."""
        self._number = 0

    def map_to(self, path: str) -> None:
        """Tell it in a file, which begins anew; without such a file (the disk is full) nobody
        reads it."""
        self._memory = mapped_file(path, _SIZE)

    def resume(self) -> None:
        """Go on where another server has ended, perhaps in the midst of telling."""
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
        """The guest has written a file."""
        import time

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
