"""Metadata of Windows that Unix files cannot store. It lives as long as the server."""

import os

from quicksand_smb import access, fscc
from quicksand_smb.ledger import Ledger
from quicksand_smb.minimal_stdlib import TYPE_CHECKING, Final
from quicksand_smb.store_types import FileKind, Stat
from quicksand_smb.wire import filetime

if TYPE_CHECKING:
    from quicksand_smb.access import Descriptor

MOST_REMEMBERED: Final = 4096
"""The most files of a share whose metadata is remembered."""


class FileMetadata:
    """The remembered metadata of one file."""

    __slots__ = ("as_of_ns", "attributes", "born_ns", "changed_ns", "security")

    def __init__(self) -> None:
        self.attributes = 0
        self.born_ns: int | None = None
        self.changed_ns = 0
        """The time of change that a client has set. It holds while the file's own time of change is
        `as_of_ns`."""
        self.as_of_ns = -1
        self.security = b""
        """The encoded security descriptor. Decoded it would take ten times the memory."""


class WindowsMetadata:
    """The metadata of the files of one share."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self.serial = int.from_bytes(os.urandom(4), "little")
        """The serial number of the volume."""
        self._remembered: dict[tuple[int, int], FileMetadata] = {}
        self.has_security = False
        """Whether a client has ever set a security descriptor."""

    def remember(self, stat: Stat) -> FileMetadata:
        """Return the metadata of a file to change it. The oldest entry makes room for a new one."""
        key = (stat.device, stat.inode)
        found = self._remembered.get(key)
        if found is None:
            if len(self._remembered) >= MOST_REMEMBERED:
                self.forget(next(iter(self._remembered)))
            found = self._remembered[key] = FileMetadata()
        return found

    def security_of(self, stat: Stat) -> "Descriptor | None":
        """Return the security descriptor that was set for a file, or None."""
        known = self._remembered.get((stat.device, stat.inode))
        if known is None or not known.security:
            return None
        return access.read_back(known.security)

    def protect(self, stat: Stat, security: "Descriptor") -> None:
        known = self.remember(stat)
        encoded = access.encode(security, access.OWNER | access.GROUP | access.DACL)
        self._ledger.take(len(encoded))
        self._ledger.give_back(len(known.security))
        known.security = encoded
        self.has_security = True

    def has_given_change(self, stat: Stat) -> bool:
        """Tell whether a client has set the file's time of change."""
        known = self._remembered.get((stat.device, stat.inode))
        return known is not None and known.as_of_ns == stat.changed_ns

    def forget(self, key: tuple[int, int]) -> None:
        known = self._remembered.pop(key, None)
        if known:
            self._ledger.give_back(len(known.security))

    def _known(self, stat: Stat) -> FileMetadata | None:
        return self._remembered.get((stat.device, stat.inode)) if self._remembered else None

    def attributes(self, stat: Stat) -> int:
        """Return the Windows attributes of a file."""
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
