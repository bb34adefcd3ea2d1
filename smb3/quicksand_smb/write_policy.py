"""What a guest may change in a share, and which of its changes somebody is told of."""

from quicksand_smb.minimal_stdlib import Callable
from quicksand_smb.names import Names
from quicksand_smb.store_errors import Reason, StoreError
from quicksand_smb.store_types import FileKind
from quicksand_smb.triggers import KNOWN, Triggers

_HARMLESS = (".sample", ".lock")
"""How names end that git makes with each repository and runs only once they are renamed, which is
told."""


class WritePolicy:
    """Stands before everything that changes something in a share.

    `protected` are patterns (triggers.py): nothing is changed there. Where the guest changes
    something that is one of `KNOWN`, `tell` is called with its name. `within` are the names that
    lead to the share: the share itself may be a `.git`, or in one.
    """

    def __init__(
        self,
        *,
        read_only: bool,
        protected: tuple[str, ...] = (),
        tell: "Callable[[Names], None] | None" = None,
        within: Names = (),
    ) -> None:
        self.read_only = read_only
        self._within = within
        self._protected = Triggers(protected) if protected else None
        self._known = Triggers(KNOWN) if tell is not None and not read_only else None
        self._tell = tell

    @property
    def is_selective(self) -> bool:
        """Whether it depends on the name and the kind of file what may be changed or is told."""
        return self._protected is not None or self._known is not None

    def is_frozen(self, names: Names, *, directory: bool) -> bool:
        """Whether a file, or a directory, is not to be changed."""
        if self.read_only or self._protected is None:
            return self.read_only
        return self._protected.has((*self._within, *names), directory=directory)

    def check(self, names: Names, *, directory: bool) -> None:
        """Before anything is made or removed at a name. Raises READ_ONLY."""
        if self.is_frozen(names, directory=directory):
            raise StoreError(Reason.READ_ONLY)

    def check_name(self, names: Names, kind: FileKind) -> None:
        """Before something of this kind gets or loses a name. Raises READ_ONLY."""
        is_directory = kind is FileKind.DIRECTORY
        self.check(names, directory=is_directory)
        leads = self._protected is not None and self._protected.leads((*self._within, *names))
        if leads and (is_directory or kind is FileKind.SYMLINK):
            raise StoreError(Reason.READ_ONLY)

    def report(self, names: Names, kind: FileKind) -> None:
        """After something of this kind was written, or got a name."""
        if self._known is None or self._tell is None:
            return
        whole = (*self._within, *names)
        if whole and whole[-1].casefold().endswith(_HARMLESS):
            return
        found = self._known.has(whole)
        if kind in (FileKind.DIRECTORY, FileKind.SYMLINK):
            found = found or self._known.leads(whole)
        if found:
            self._tell(names)
