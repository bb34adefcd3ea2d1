"""The memory that a server keeps for its clients, in bytes as Python uses it.

Each kind of object has a limit of its own, but all limits together would be several times what a
server may take. So every object that a client can multiply takes its bytes from the ledger first,
and gives them back at its end.
"""

from quicksand_smb.minimal_stdlib import Final
from quicksand_smb.status import Refusal, Status

MOST: Final = 32 << 20
"""The bytes of the ledger. With waiting requests and unsent replies (24 MiB each) and the
interpreter that is less than 128 MiB."""

# Measured costs in bytes, with the overhead of malloc(3)
HANDLE_COST: Final = 2048
"""An open file, without its path."""
GRANT_COST: Final = 1024
GUARD_COST: Final = 1344
"""A guard of a file that is open for writing, with its watch."""
WRITTEN_COST: Final = 384
"""The remembered state of a file that was written."""
LISTING_COST: Final = 36 << 10
"""A search under way. Most of it is the buffer with which the C library reads directories."""
PATTERN_COST: Final = 256
"""One character of a search pattern."""
TREE_COST: Final = 512
PENDING_COST: Final = 2048
"""A waiting request, without its message."""
EVENT_COST: Final = 128
"""One event of a watch, without its name."""
NAME_COST: Final = 80
"""One name of a path that is kept as names, without its characters."""


def price(path: bytes, *, keeps: bool) -> int:
    """Return the cost of an open file with this path. `keeps` means that it has a lease or oplock,
    or may get one."""
    cost = HANDLE_COST + len(path)
    if keeps:
        # A leased directory is kept as a tuple of names.
        names = path.count(b"/") + 1
        cost += GRANT_COST + names * NAME_COST + 4 * len(path)
    return cost


class Ledger:
    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self.left = most

    @property
    def is_scarce(self) -> bool:
        """Whether more than three quarters are taken."""
        return self.left < self._most // 4

    def try_take(self, count: int) -> bool:
        """Take bytes if there are enough. Returns False if not."""
        if count > self.left:
            return False
        self.left -= count
        return True

    def take(self, count: int) -> int:
        """Take bytes and return how many. Raises Refusal if there are too few."""
        if not self.try_take(count):
            raise Refusal(Status.INSUFFICIENT_RESOURCES)
        return count

    def give_back(self, count: int) -> None:
        self.left += count
