"""Access rights of handles ([MS-SMB2] 2.2.13.1) and the flags of ShareAccess ([MS-SMB2] 2.2.13)."""

from quicksand_smb.minimal_stdlib import Final

READ_DATA: Final = 0x1
WRITE_DATA: Final = 0x2
APPEND_DATA: Final = 0x4
READ_EA: Final = 0x8
WRITE_EA: Final = 0x10
EXECUTE: Final = 0x20
DELETE_CHILD: Final = 0x40
READ_ATTRIBUTES: Final = 0x80
WRITE_ATTRIBUTES: Final = 0x100
DELETE: Final = 0x10000
READ_CONTROL: Final = 0x20000
WRITE_DAC: Final = 0x40000
WRITE_OWNER: Final = 0x80000
ALL_ACCESS: Final = 0x1F01FF
READ_ACCESS: Final = 0x1200A9

SHARE_READ: Final = 1
SHARE_WRITE: Final = 2
SHARE_DELETE: Final = 4
