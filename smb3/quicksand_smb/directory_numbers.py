"""The numbers of directories for clients with POSIX extensions: those of their inodes, except where
Linux may know a number for a directory at another path.

Linux remembers a directory until somebody there asks for it again, even if the host has moved or
removed it. If it sees the number at another path (of the same directory, or of a new one with the
same inode), it ignores the numbers of all files for as long as the share is mounted (`cifs_iget` in
fs/smb/client/inode.c, "Autodisabling the use of server inode numbers"). Then the names of one file
become several files, git takes all files for changed ones, and events find no files. In a listing
Linux compares only the number. So a directory gets another number at a second path, which no inode
has, and its own number again at the first one. If it has been at more paths than there are numbers
for, the number of the oldest of the others goes to the newest.

Clients know of the directories that they move and remove themselves.
"""

import sys

from quicksand_smb.ledger import Ledger
from quicksand_smb.minimal_stdlib import Final

MOST: Final = 8192
"""The most directories whose paths are known. Of more, the oldest are forgotten."""
MOST_MOVED: Final = 1024
"""The most directories with several known paths, which are forgotten last. A forgotten one gets its
own number, and Linux takes it for another directory."""
MOST_PLACES: Final = 128
"""The most known paths of one inode. As many numbers again are for paths for which there are no
bytes."""
COST: Final = 4 << 20
"""The most bytes that the paths take from the ledger."""
PLACE_COST: Final = 320
"""The bytes of one path, without its characters."""
_SHIFT: Final = 55
"""The bits above those of inodes in file systems, and below the sign."""
_NOWHERE: Final = "/"


class DirectoryNumbers:
    """The numbers of one share. Two directories on two file systems may have one inode number."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._taken = 0
        self._places: dict[int, list[str]] = {}
        """The path of each inode with a single known path."""
        self._moved: dict[int, list[str]] = {}
        """The paths of each inode with several. The first one has the inode's own number."""
        self._oldest: dict[int, int] = {}
        """The oldest place but the first of each inode that has given one to another path."""

    def number(self, inode: int, path: str) -> int:
        """Return the number of a directory. `path` holds its names, joined by "/"."""
        places = self._places.get(inode) or self._moved.get(inode)
        if places is None:
            self._add(inode, path)
            return inode
        if places[0] == path:
            return inode
        return inode ^ self._place(inode, places, path) << _SHIFT

    def inode(self, number: int) -> int:
        """Return the inode of a number."""
        place = number >> _SHIFT
        inode = number ^ place << _SHIFT
        return inode if 0 < place < len(self._moved.get(inode, ())) else number

    def renamed(self, was: str, now: str) -> None:
        """Record a move by a client, which keeps the numbers of everything in the directory."""
        below = f"{was}/"
        for known in (self._places, self._moved):
            for places in known.values():
                for at, path in enumerate(places):
                    if path == was or path.startswith(below):
                        moved = now + path[len(was) :]
                        if moved in places:  # the host has moved it away from there
                            self._vacate(places, places.index(moved))
                        self._give(path)
                        places[at] = moved
                        if not self._take(moved):
                            self.end()  # much longer paths by one rename: no client needs that
                            return

    def removed(self, inode: int, path: str) -> None:
        """Record a removal by a client, which forgets the number."""
        if self._places.get(inode) == [path]:
            self._forget(self._places, inode)
        elif path in (places := self._moved.get(inode, [])):
            self._vacate(places, places.index(path))

    def end(self) -> None:
        self._places.clear()
        self._moved.clear()
        self._oldest.clear()
        self._ledger.give_back(self._taken)
        self._taken = 0

    def _place(self, inode: int, places: list[str], path: str) -> int:
        """Return the place of a path among those of its inode. A new path is added."""
        if path in places:
            return places.index(path)
        if len(places) >= MOST_PLACES or not self._take(path):
            return self._recycled(inode, places, path)
        places.append(path)
        if len(places) == 2:
            del self._places[inode]
            self._moved[inode] = places
            if len(self._moved) > MOST_MOVED:
                self._forget(self._moved, next(iter(self._moved)))
        return len(places) - 1

    def _recycled(self, inode: int, places: list[str], path: str) -> int:
        """Give the oldest place but the first to a new path. Returns another place if there are too
        few bytes for the path, which is not known then."""
        at = self._oldest.get(inode, 1)
        if at < len(places):
            self._give(places[at])
            if self._take(path):
                places[at] = path
                self._oldest[inode] = at % (len(places) - 1) + 1
                return at
            self._take(places[at])
        return MOST_PLACES + hash(path) % MOST_PLACES

    def _vacate(self, places: list[str], at: int) -> None:
        self._give(places[at])
        self._take(_NOWHERE)  # no more than what was given
        places[at] = _NOWHERE

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
        self._oldest.pop(inode, None)

    def _take(self, path: str) -> bool:
        """Take the bytes for a path. Returns False if there are too few."""
        cost = PLACE_COST + sys.getsizeof(path)
        if self._taken + cost > COST or not self._ledger.try_take(cost):
            return False
        self._taken += cost
        return True

    def _give(self, path: str) -> None:
        cost = PLACE_COST + sys.getsizeof(path)
        self._taken -= cost
        self._ledger.give_back(cost)
