"""Byte-range locks, which live as long as the server ([MS-FSA] 2.1.5.7)."""

from quicksand_smb.minimal_stdlib import Final, NamedTuple

MOST: Final = 2048
"""The most locks on one file."""
MOST_OF_SHARE: Final = 8192
"""The most locks on all files of a share."""
END: Final = 1 << 64


class Lock(NamedTuple):
    owner: int
    """The id of the handle that holds the lock."""
    start: int
    end: int
    is_exclusive: bool


class Locks:
    """The locks on one file."""

    def __init__(self) -> None:
        self._held: list[Lock] = []

    def __bool__(self) -> bool:
        return bool(self._held)

    def __len__(self) -> int:
        return len(self._held)

    def add(self, wanted: Lock) -> bool:
        """Take a lock unless another one conflicts. A handle's own locks conflict with an exclusive
        lock, but not with a shared one."""
        owner, start, end, is_exclusive = wanted
        if start == end:
            return self._add_empty(wanted)
        # A loop without calls: a request may have 1024 elements, and a file 2048 locks.
        for other, begins, ends, excludes in self._held:
            # An empty lock conflicts only with ranges that contain it.
            is_met = begins < end and start < ends and (begins != ends or start < begins)
            if is_met and (is_exclusive or (excludes and other != owner)):
                return False
        self._held.append(wanted)
        return True

    def _add_empty(self, wanted: Lock) -> bool:
        owner, at, _, is_exclusive = wanted
        for other, begins, ends, excludes in self._held:
            if begins < at < ends and (is_exclusive or (excludes and other != owner)):
                return False
        self._held.append(wanted)
        return True

    def take_back(self, count: int) -> None:
        """Release the locks that were added last."""
        if count:
            del self._held[-count:]

    def remove(self, owner: int, start: int, end: int) -> bool:
        """Release a lock of exactly this range. Returns False if there is none."""
        for index, held in enumerate(self._held):
            if (held.owner, held.start, held.end) == (owner, start, end):
                del self._held[index]
                return True
        return False

    def remove_all(self, owner: int) -> bool:
        if not self._held:
            return False
        before = len(self._held)
        self._held = [held for held in self._held if held.owner != owner]
        return len(self._held) != before

    def forbids(self, owner: int, start: int, count: int, *, writing: bool) -> bool:
        """Tell whether a lock forbids to read or write a range."""
        if not count:
            return False
        end = start + count
        for held in self._held:
            if held.start >= end or held.end <= start:
                continue
            if held.is_exclusive and held.owner != owner:
                return True
            if writing and not held.is_exclusive:
                return True
        return False
