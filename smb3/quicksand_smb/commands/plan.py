"""What a request for an open comes to, before the disk is looked at."""

from quicksand_smb.light import Final
from quicksand_smb.messages.create import CreateRequest, LeaseRequest
from quicksand_smb.names import Names

SUPERSEDE, OPEN, CREATE, OPEN_IF, OVERWRITE, OVERWRITE_IF = range(6)
EMPTYING: Final = (SUPERSEDE, OVERWRITE, OVERWRITE_IF)


class Plan:
    """What a request for an open comes to, after all checks that need no disk."""

    __slots__ = ("access", "is_posix", "lease", "mode", "names", "stream", "wanted")

    def __init__(
        self,
        wanted: CreateRequest,
        names: Names,
        stream: str,
        access: int,
        mode: int | None,
        lease: LeaseRequest | None,
    ) -> None:
        self.wanted = wanted
        self.names = names
        self.stream = stream
        """Of a file's named streams that which is meant; "" is the file itself."""
        self.access = access
        self.mode = mode
        """The Unix permissions that a client asked for by the POSIX context; None if it sent
        none."""
        self.is_posix = mode is not None
        self.lease = lease
        """The lease it asks for, where there are any."""
