"""Decides what a guest may change in a share, and which changes are reported."""

from quicksand_smb.minimal_stdlib import Callable
from quicksand_smb.names import Names
from quicksand_smb.store_errors import Reason, StoreError
from quicksand_smb.store_types import FileKind
from quicksand_smb.triggers import KNOWN, Triggers

_HARMLESS = (".sample", ".lock")
"""The endings of files that git makes in each repository. Git runs them only after a rename, which
is reported."""


class WritePolicy:
    """The policy that is asked before every change in a share.

    `protected` lists patterns (triggers.py) at which nothing is changed. `tell` is called with the
    name of each changed file that matches one of `known`. `within` is the path of the share, which
    may itself be a `.git` or lie in one.
    """

    def __init__(
        self,
        *,
        read_only: bool,
        protected: tuple[str, ...] = (),
        tell: "Callable[[Names], None] | None" = None,
        within: Names = (),
        known: tuple[str, ...] = KNOWN,
    ) -> None:
        self.read_only = read_only
        self._within = within
        self._protected = Triggers(protected) if protected else None
        self._known = Triggers(known) if tell is not None and not read_only else None
        self._tell = tell

    @property
    def is_selective(self) -> bool:
        """Whether the policy depends on the name and kind of a file."""
        return self._protected is not None or self._known is not None

    def is_frozen(self, names: Names, *, directory: bool) -> bool:
        """Tell whether a file or directory must not be changed."""
        if self.read_only or self._protected is None:
            return self.read_only
        return self._protected.has((*self._within, *names), directory=directory)

    def check(self, names: Names, *, directory: bool) -> None:
        """Check that a name may be made or removed. Raises READ_ONLY."""
        if self.is_frozen(names, directory=directory):
            raise StoreError(Reason.READ_ONLY)

    def check_name(self, names: Names, kind: FileKind) -> None:
        """Check that a file of this kind may get or lose a name. Raises READ_ONLY."""
        is_directory = kind is FileKind.DIRECTORY
        self.check(names, directory=is_directory)
        leads = self._protected is not None and self._protected.leads((*self._within, *names))
        if leads and (is_directory or kind is FileKind.SYMLINK):
            raise StoreError(Reason.READ_ONLY)

    def report(self, names: Names, kind: FileKind) -> None:
        """Report a file that was written or got a name, if it matches one of `known`."""
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
