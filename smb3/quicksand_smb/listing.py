"""A directory search under way."""

from quicksand_smb import fscc
from quicksand_smb.minimal_stdlib import Iterator
from quicksand_smb.store_types import Entry, Stat


class Listing:
    """A directory search under way."""

    __slots__ = ("cost", "dots", "entries", "has_told", "held", "is_busy", "is_over", "pattern")

    def __init__(
        self,
        pattern: str,
        cost: int,
        entries: Iterator[Entry | None],
        dots: Iterator[tuple[str, Stat]],
    ) -> None:
        self.pattern = pattern
        self.cost = cost
        """The bytes that the search has taken from the ledger."""
        self.entries = entries
        """The entries. None among them means that nothing matched for a while."""
        self.is_busy = False
        """A request searches without the lock."""
        self.is_over = False
        self.dots = dots
        """The directory itself and its parent, which come first."""
        self.held: tuple[str, fscc.View] | None = None
        """An entry that did not fit into the last answer."""
        self.has_told = False

    def end(self) -> None:
        """Close the directory. A request that is searching closes it instead."""
        self.is_over = True
        close = getattr(self.entries, "close", None)
        if close and not self.is_busy:
            close()
