"""An SMB3 file server for one guest, with the standard library only.

It shares directories of the host with a guest that is taken to be hostile. One half knows files and
nothing of SMB: `names` (what a guest may call a file), `walk` (from names to descriptors), `store`
(a share), `confine` (what the process may do at all). The other half knows SMB and opens no file.
"""

HANG_UP = b"\xff\0\0\0"
"""A frame of a type that does not exist (RFC 1002, 4.3.1): a Linux client opens a new connection at
once (fs/smb/client/connect.c, is_smb_response), instead of waiting for answers that will not
come."""
