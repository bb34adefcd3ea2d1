"""Checks an open as far as no disk access is needed."""

from quicksand_smb import names, posix, streams
from quicksand_smb.access_rights import ALL_ACCESS, DELETE, READ_ACCESS, WRITE_ATTRIBUTES
from quicksand_smb.connection import Connection
from quicksand_smb.messages import create as wire
from quicksand_smb.messages.create import CreateRequest
from quicksand_smb.messages.negotiate import POSIX_TAG
from quicksand_smb.minimal_stdlib import Final
from quicksand_smb.names import Names
from quicksand_smb.shares import Share
from quicksand_smb.status import Refusal, Status

SUPERSEDE, OPEN, CREATE, OPEN_IF, OVERWRITE, OVERWRITE_IF = range(6)
EMPTYING: Final = (SUPERSEDE, OVERWRITE, OVERWRITE_IF)
MAXIMUM_ALLOWED: Final = 0x02000000
_UNKNOWN_ACCESS: Final = 0x0CE0FE00
_AUDITS: Final = 0x01000000
"""Access to audit lists, which requires a privilege."""
_UNKNOWN_ATTRIBUTES: Final = 0xFFFF8048
_UNKNOWN_OPTIONS: Final = 0xFF000000
_REFUSED_OPTIONS: Final = 0x00102080
_GENERIC: Final = (
    (0x10000000, ALL_ACCESS),
    (0x20000000, 0x1200A0),
    (0x40000000, 0x120116),
    (0x80000000, 0x120089),
)
_CHANGING: Final = 0x0D0156
"""Accesses that a read-only share refuses: to write data, attributes, children and owners, and to
delete."""


class Plan:
    """An open that has passed all checks that need no disk access."""

    __slots__ = ("access", "is_posix", "lease", "mode", "names", "stream", "wanted")

    def __init__(
        self,
        wanted: CreateRequest,
        names: Names,
        stream: str,
        access: int,
        mode: int | None,
        lease: wire.LeaseRequest | None,
    ) -> None:
        self.wanted = wanted
        self.names = names
        self.stream = stream
        """The named stream of the file; "" means the file itself."""
        self.access = access
        self.mode = mode
        """The Unix permissions of the POSIX context, or None if the client sent none."""
        self.is_posix = mode is not None
        self.lease = lease
        """The lease that the client asks for, if leases are enabled."""


def plan_open(connection: Connection, wanted: CreateRequest, share: Share) -> Plan:
    """Check everything that can be checked without disk access. Raises Refusal."""
    if wanted.impersonation > 3:
        raise Refusal(Status.BAD_IMPERSONATION_LEVEL)
    options = wanted.options
    if wanted.contexts and any(name in wanted.contexts for name in wire.NOT_KEPT):
        raise Refusal(Status.OBJECT_NAME_NOT_FOUND)
    if wanted.access & _AUDITS:
        raise Refusal(Status.PRIVILEGE_NOT_HELD)
    if wanted.access & _UNKNOWN_ACCESS or not wanted.access:
        raise Refusal(Status.ACCESS_DENIED)
    if (
        wanted.disposition > OVERWRITE_IF
        or wanted.sharing > 7
        or wanted.attributes & _UNKNOWN_ATTRIBUTES
    ):
        raise Refusal(Status.INVALID_PARAMETER)
    if options & wire.DIRECTORY and (
        options & wire.NON_DIRECTORY or wanted.disposition in EMPTYING
    ):
        raise Refusal(Status.INVALID_PARAMETER)
    if options & _UNKNOWN_OPTIONS:
        raise Refusal(Status.INVALID_PARAMETER)
    if options & _REFUSED_OPTIONS:
        raise Refusal(Status.NOT_SUPPORTED)
    mode = None
    negotiated = connection.conversation.negotiated
    if negotiated.has_posix and POSIX_TAG in wanted.contexts:
        mode = posix.decode_create(wanted.contexts[POSIX_TAG])
    found, stream = _find_names(wanted, is_posix=mode is not None)
    access = access_for(wanted.access, share, found)
    if options & wire.DELETE_ON_CLOSE:
        if not access & DELETE:
            raise Refusal(Status.ACCESS_DENIED)
        if share.is_read_only:
            raise Refusal(Status.MEDIA_WRITE_PROTECTED)
    return Plan(
        wanted, found, stream, access, mode, _find_lease(wanted) if negotiated.has_leases else None
    )


def _find_lease(wanted: CreateRequest) -> wire.LeaseRequest | None:
    data = wanted.contexts.get(wire.LEASE_NAME)
    return None if data is None else wire.decode_lease(data)


def _find_names(wanted: CreateRequest, *, is_posix: bool) -> tuple[Names, str]:
    """Split a path into the names of a file and the name of its stream ("" if it names none)."""
    if wanted.name[:1] in ("\\", "/"):
        raise Refusal(Status.INVALID_PARAMETER)
    if is_posix:
        return parse(wanted.name.removesuffix("/"), is_posix=True), ""
    path, stream = streams.split(wanted.name.removesuffix("\\"))
    if ":" in wanted.name and wanted.options & wire.DIRECTORY:
        raise Refusal(Status.NOT_A_DIRECTORY)
    return parse(path, is_posix=False), stream


def parse(path: str, *, is_posix: bool) -> Names:
    """Split a path into names. With the POSIX extensions "/" separates them."""
    if not is_posix and ".." in path.split("\\"):
        raise Refusal(Status.OBJECT_PATH_SYNTAX_BAD)
    return names.from_wire(path, posix=is_posix, separator="/" if is_posix else "\\")


def access_for(wanted: int, share: Share, names: Names) -> int:
    changes = share.host_changes
    if share.is_read_only and changes is not None and changes.was_told(names):
        wanted &= ~WRITE_ATTRIBUTES  # such a request changes nothing (`set_info._is_touch`)
    most = READ_ACCESS if share.is_read_only else ALL_ACCESS
    found = wanted & ALL_ACCESS
    for generic, meaning in _GENERIC:
        if wanted & generic:
            found |= meaning
    if wanted & MAXIMUM_ALLOWED:
        found |= most
    elif share.is_read_only and found & _CHANGING:
        raise Refusal(Status.MEDIA_WRITE_PROTECTED)
    return found & most
