"""What a server keeps in memory for its clients, in bytes, as Python has it in memory: each kind of
thing has a limit of its own, but together they would be several times what a server may take.

Whoever keeps something that a client can have more of takes its bytes first, and gives them back
with it.
"""

from quicksand_smb.minimal_stdlib import Final
from quicksand_smb.status import Refusal, Status

MOST: Final = 32 << 20
"""Bytes. With requests that wait and replies that nobody hears (24 MiB each) and the interpreter
itself that is less than 128 MiB."""

# What things take, measured, with what malloc(3) adds
HANDLE_COST: Final = 2048
"""An open file, without its path."""
GRANT_COST: Final = 1024
GUARD_COST: Final = 1344
"""A guard of a file that is open for writing, with its watch."""
WRITTEN_COST: Final = 384
"""What is remembered of a file that was written to."""
LISTING_COST: Final = 36 << 10
"""A search under way, most of which the C library reads directories into."""
PATTERN_COST: Final = 256
"""A character of its pattern."""
TREE_COST: Final = 512
PENDING_COST: Final = 2048
"""A request that waits, without what it said."""
EVENT_COST: Final = 128
"""One of a watch, without its name."""
NAME_COST: Final = 80
"""One of a path that is kept name by name, without its characters."""


def price(path: bytes, *, keeps: bool) -> int:
    """Of an open file with this path; `keeps`: something is granted of it, or may be."""
    cost = HANDLE_COST + len(path)
    if keeps:
        # A directory that is kept is known by its names.
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
        """Whether there are so many, which are taken then."""
        if count > self.left:
            return False
        self.left -= count
        return True

    def take(self, count: int) -> int:
        """Take bytes, and return how many. Raises Refusal if there are too few."""
        if not self.try_take(count):
            raise Refusal(Status.INSUFFICIENT_RESOURCES)
        return count

    def give_back(self, count: int) -> None:
        self.left += count
