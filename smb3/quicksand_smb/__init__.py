"""An SMB3 file server for one guest, written with the standard library only.

The server shares directories of the host with a guest that it takes to be hostile. One half of the
package knows files and nothing of SMB: `names` (names of files), `walk` (from names to
descriptors), `store` (a share), `confine` (the rights of the process). The other half knows SMB and
opens no file.
"""

HANG_UP = b"\xff\0\0\0"
"""A frame of a type that does not exist (RFC 1002, 4.3.1). A Linux client that receives it opens a
new connection at once (fs/smb/client/connect.c, is_smb_response) instead of waiting for answers
that will not come."""
