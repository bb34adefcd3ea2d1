"""Status codes of replies ([MS-ERREF] 2.3.1), and the mapping from failures of a store."""

from quicksand_smb.minimal_stdlib import IntEnum
from quicksand_smb.store_errors import Reason, StoreError


class Status(IntEnum):
    SUCCESS = 0
    PENDING = 0x00000103
    NOTIFY_CLEANUP = 0x0000010B
    NOTIFY_ENUM_DIR = 0x0000010C
    BUFFER_OVERFLOW = 0x80000005
    NO_MORE_FILES = 0x80000006
    STOPPED_ON_SYMLINK = 0x8000002D
    INVALID_VIEW_SIZE = 0xC000001F
    UNSUCCESSFUL = 0xC0000001
    INVALID_INFO_CLASS = 0xC0000003
    INFO_LENGTH_MISMATCH = 0xC0000004
    INVALID_PARAMETER = 0xC000000D
    NO_SUCH_FILE = 0xC000000F
    INVALID_DEVICE_REQUEST = 0xC0000010
    END_OF_FILE = 0xC0000011
    MORE_PROCESSING_REQUIRED = 0xC0000016
    PRIVILEGE_NOT_HELD = 0xC0000061
    ACCESS_DENIED = 0xC0000022
    INTERNAL_ERROR = 0xC00000E5
    BUFFER_TOO_SMALL = 0xC0000023
    BAD_IMPERSONATION_LEVEL = 0xC00000A5
    OBJECT_NAME_INVALID = 0xC0000033
    OBJECT_NAME_NOT_FOUND = 0xC0000034
    OBJECT_NAME_COLLISION = 0xC0000035
    OBJECT_PATH_NOT_FOUND = 0xC000003A
    OBJECT_PATH_SYNTAX_BAD = 0xC000003B
    SHARING_VIOLATION = 0xC0000043
    NO_EAS_ON_FILE = 0xC0000052
    FILE_LOCK_CONFLICT = 0xC0000054
    LOCK_NOT_GRANTED = 0xC0000055
    DELETE_PENDING = 0xC0000056
    LOGON_FAILURE = 0xC000006D
    RANGE_NOT_LOCKED = 0xC000007E
    DISK_FULL = 0xC000007F
    INSUFFICIENT_RESOURCES = 0xC000009A
    MEDIA_WRITE_PROTECTED = 0xC00000A2
    FILE_IS_A_DIRECTORY = 0xC00000BA
    NOT_SUPPORTED = 0xC00000BB
    NETWORK_NAME_DELETED = 0xC00000C9
    BAD_NETWORK_NAME = 0xC00000CC
    REQUEST_NOT_ACCEPTED = 0xC00000D0
    NOT_SAME_DEVICE = 0xC00000D4
    INVALID_OPLOCK_PROTOCOL = 0xC00000E3
    UNEXPECTED_IO_ERROR = 0xC00000E9
    DIRECTORY_NOT_EMPTY = 0xC0000101
    NOT_A_DIRECTORY = 0xC0000103
    CANCELLED = 0xC0000120
    TOO_MANY_OPENED_FILES = 0xC000011F
    CANNOT_DELETE = 0xC0000121
    FILE_CLOSED = 0xC0000128
    FS_DRIVER_REQUIRED = 0xC000019C
    USER_SESSION_DELETED = 0xC0000203
    NOT_FOUND = 0xC0000225
    NOT_A_REPARSE_POINT = 0xC0000275
    IO_REPARSE_TAG_NOT_HANDLED = 0xC0000279
    NO_PREAUTH_INTEGRITY_HASH_OVERLAP = 0xC05D0000
    INVALID_LOCK_RANGE = 0xC00001A1


class Refusal(Exception):  # noqa: N818 - it is an answer, and no error of ours
    """A request is answered with an error status, and error data if there are any."""

    def __init__(self, status: Status, data: bytes = b"", *, contexts: int = 0) -> None:
        super().__init__(status.name)
        self.status = status
        self.data = data
        self.contexts = contexts
        """The number of error contexts in the data, of dialect 3.1.1."""


# Failures of our own never become ACCESS_DENIED. After a rename that is denied, a Linux client
# deletes the target and tries again (fs/smb/client/inode.c, cifs_rename2). No status means EPERM
# to it.
_OF_STORE: dict[Reason, Status] = {
    Reason.NOT_FOUND: Status.OBJECT_NAME_NOT_FOUND,
    Reason.NO_PATH: Status.OBJECT_PATH_NOT_FOUND,
    Reason.EXISTS: Status.OBJECT_NAME_COLLISION,
    Reason.IS_DIRECTORY: Status.FILE_IS_A_DIRECTORY,
    Reason.NOT_DIRECTORY: Status.NOT_A_DIRECTORY,
    Reason.NOT_EMPTY: Status.DIRECTORY_NOT_EMPTY,
    Reason.READ_ONLY: Status.MEDIA_WRITE_PROTECTED,
    Reason.DENIED: Status.ACCESS_DENIED,
    Reason.NO_SPACE: Status.DISK_FULL,
    Reason.TOO_LARGE: Status.DISK_FULL,
    Reason.BAD_NAME: Status.OBJECT_NAME_INVALID,
    Reason.LOOP: Status.STOPPED_ON_SYMLINK,
    Reason.BUSY: Status.SHARING_VIOLATION,
    Reason.GONE: Status.FILE_CLOSED,
    Reason.UNSUPPORTED: Status.NOT_SUPPORTED,
    Reason.IO: Status.UNEXPECTED_IO_ERROR,
    Reason.TOO_MANY: Status.TOO_MANY_OPENED_FILES,
    Reason.CROSS_DEVICE: Status.NOT_SAME_DEVICE,
    Reason.INVALID: Status.INVALID_PARAMETER,
}


def of_store(error: StoreError) -> Status:
    return _OF_STORE.get(error.reason, Status.UNEXPECTED_IO_ERROR)
