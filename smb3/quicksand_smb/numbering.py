"""By which numbers directories are told to clients with POSIX extensions: by those of their inodes,
but by no number that Linux may know for a directory at another path.

Linux knows a directory until somebody there asks for it again, also when the host has moved or
removed it. Told of another path with that number, which is the same directory, or a new one that
was given the inode, it gives up the numbers of all files for as long as the share is mounted
(`cifs_iget` in fs/smb/client/inode.c, "Autodisabling the use of server inode numbers"): names of
one file become several, git takes all files for changed ones, and no event finds its file. In a
listing it compares nothing but the number. So a directory that is told at a second path has
another number there, which no inode has, and its own again where it was told first.

What clients themselves move and remove they know of.
"""

import sys

from quicksand_smb.ledger import Ledger
from quicksand_smb.light import Final

MOST: Final = 8192
"""Directories of which it is known where they were told; of more, the oldest are forgotten."""
MOST_MOVED: Final = 1024
"""Those told at several paths, which are forgotten last: then they are told by their own numbers,
and Linux takes them for others."""
MOST_PLACES: Final = 64
COST: Final = 4 << 20
"""Bytes that all this takes at most, of the ledger."""
OF_PLACE: Final = 320
"""Bytes of one path, without its characters."""
_SHIFT: Final = 55
"""Above the bits that file systems use for inodes, and below the sign."""
_NOWHERE: Final = "/"


class Numbering:
    """Of one share, in which two directories of one inode may be on two file systems."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._taken = 0
        self._places: dict[int, list[str]] = {}
        """By inode, the path at which it was told."""
        self._moved: dict[int, list[str]] = {}
        """The same for those with several; the first has the inode's own number."""

    def number(self, inode: int, path: str) -> int:
        """What number to tell of a directory. `path`: its names, joined by "/"."""
        places = self._places.get(inode) or self._moved.get(inode)
        if places is None:
            self._add(inode, path)
            return inode
        if places[0] == path:
            return inode
        return inode ^ self._place(inode, places, path) << _SHIFT

    def inode(self, number: int) -> int:
        """What a number stands for."""
        place = number >> _SHIFT
        inode = number ^ place << _SHIFT
        return inode if 0 < place < len(self._moved.get(inode, ())) else number

    def renamed(self, was: str, now: str) -> None:
        """A client has moved a directory: it goes on with the numbers of all that is in there."""
        below = f"{was}/"
        for known in (self._places, self._moved):
            for places in known.values():
                for at, path in enumerate(places):
                    if path == was or path.startswith(below):
                        self._give(path)
                        places[at] = now + path[len(was) :]
                        if not self._take(places[at]):
                            self.end()  # much longer paths by one rename: no client needs that
                            return

    def removed(self, inode: int, path: str) -> None:
        """A client has removed a directory; it knows the number no longer."""
        if self._places.get(inode) == [path]:
            self._forget(self._places, inode)
        elif path in (places := self._moved.get(inode, [])):
            self._give(path)
            self._take(_NOWHERE)  # no more than what was given
            places[places.index(path)] = _NOWHERE

    def end(self) -> None:
        self._places.clear()
        self._moved.clear()
        self._ledger.give(self._taken)
        self._taken = 0

    def _place(self, inode: int, places: list[str], path: str) -> int:
        """Which of a directory's paths this is; it is added if it is new."""
        if path in places:
            return places.index(path)
        if len(places) >= MOST_PLACES or not self._take(path):
            return MOST_PLACES + hash(path) % MOST_PLACES
        places.append(path)
        if len(places) == 2:
            del self._places[inode]
            self._moved[inode] = places
            if len(self._moved) > MOST_MOVED:
                self._forget(self._moved, next(iter(self._moved)))
        return len(places) - 1

    def _add(self, inode: int, path: str) -> None:
        known = self._places
        if len(known) >= MOST:
            self._forget(known, next(iter(known)))
        while not (is_paid := self._take(path)) and known:
            self._forget(known, next(iter(known)))
        if is_paid:
            known[inode] = [path]

    def _forget(self, known: dict[int, list[str]], inode: int) -> None:
        for path in known.pop(inode):
            self._give(path)

    def _take(self, path: str) -> bool:
        """Whether there are the bytes for a path, which are taken then."""
        cost = OF_PLACE + sys.getsizeof(path)
        if self._taken + cost > COST or not self._ledger.has(cost):
            return False
        self._taken += cost
        return True

    def _give(self, path: str) -> None:
        cost = OF_PLACE + sys.getsizeof(path)
        self._taken -= cost
        self._ledger.give(cost)
