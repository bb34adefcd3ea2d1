"""What Windows knows of files and Unix has no place for, as long as the server runs."""

import os

from quicksand_smb import fscc
from quicksand_smb.ledger import Ledger
from quicksand_smb.minimal_stdlib import TYPE_CHECKING, Final
from quicksand_smb.store_types import FileKind, Stat
from quicksand_smb.wire import filetime

if TYPE_CHECKING:
    from quicksand_smb.access import Descriptor

MOST_REMEMBERED: Final = 4096
"""Files whose attributes of Windows are remembered, for each share."""


class Remembered:
    """What Windows knows of a file and Unix has no place for."""

    __slots__ = ("as_of_ns", "attributes", "born_ns", "changed_ns", "security")

    def __init__(self) -> None:
        self.attributes = 0
        self.born_ns: int | None = None
        self.changed_ns = 0
        """The time of change a client has set, true until the file's own is not `as_of_ns`."""
        self.as_of_ns = -1
        self.security = b""
        """Who may do what, if that was set: encoded, for it takes ten times as much decoded."""


class WindowsMetadata:
    """Of the files of one share."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self.serial = int.from_bytes(os.urandom(4), "little")
        """The number of the volume."""
        self._remembered: dict[tuple[int, int], Remembered] = {}
        self.has_security = False
        """Whether anybody has ever set who may do what."""

    def remember(self, stat: Stat) -> Remembered:
        """The place for what Unix does not keep of a file; the oldest is forgotten for it."""
        key = (stat.device, stat.inode)
        found = self._remembered.get(key)
        if found is None:
            if len(self._remembered) >= MOST_REMEMBERED:
                self.forget(next(iter(self._remembered)))
            found = self._remembered[key] = Remembered()
        return found

    def security_of(self, stat: Stat) -> "Descriptor | None":
        """Who may do what, if that was set."""
        known = self._remembered.get((stat.device, stat.inode))
        if known is None or not known.security:
            return None
        from quicksand_smb import access

        return access.read_back(known.security)

    def protect(self, stat: Stat, security: "Descriptor") -> None:
        from quicksand_smb import access

        known = self.remember(stat)
        encoded = access.encode(security, access.OWNER | access.GROUP | access.DACL)
        self._ledger.take(len(encoded))
        self._ledger.give_back(len(known.security))
        known.security = encoded
        self.has_security = True

    def has_given_change(self, stat: Stat) -> bool:
        """Whether the time of change is one that a client has set."""
        known = self._remembered.get((stat.device, stat.inode))
        return known is not None and known.as_of_ns == stat.changed_ns

    def forget(self, key: tuple[int, int]) -> None:
        known = self._remembered.pop(key, None)
        if known:
            self._ledger.give_back(len(known.security))

    def _known(self, stat: Stat) -> Remembered | None:
        return self._remembered.get((stat.device, stat.inode)) if self._remembered else None

    def attributes(self, stat: Stat) -> int:
        """Those of Windows."""
        known = self._known(stat)
        return fscc.attributes_of(stat, known.attributes if known else 0)

    def view(self, stat: Stat) -> fscc.View:
        known = self._known(stat)
        attributes = fscc.attributes_of(stat, known.attributes if known else 0)
        times = fscc.times_of(stat)
        if known:
            created, accessed, written, changed = times
            if known.born_ns is not None:
                created = filetime(known.born_ns)
            if known.as_of_ns == stat.changed_ns:
                changed = filetime(known.changed_ns)
            times = created, accessed, written, changed
        allocated = (
            0
            if stat.kind is FileKind.DIRECTORY
            else max(stat.allocated, -(-stat.size // 4096) * 4096)
        )
        return fscc.View(stat, attributes, times, allocated=allocated, serial=self.serial)

    def clear(self) -> None:
        for key in list(self._remembered):
            self.forget(key)
