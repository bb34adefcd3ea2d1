"""An SMB3 file server for one guest, written with the standard library only.

The server shares directories of the host with a guest that it takes to be hostile. One half of the
package knows files and nothing of SMB: `names` (names of files), `walk` (from names to
descriptors), `store` (a share), `confine` (the rights of the process). The other half knows SMB and
opens no file.
"""

HANG_UP = b"\xff\0\0\0" * 16400
"""A frame of a type that does not exist (RFC 1002, 4.3.1). A Linux client that receives it opens a
new connection at once (fs/smb/client/connect.c, is_smb_response) instead of waiting for answers
that will not come.

It is more than once the 64 KiB that may be on their way to a guest without its having confirmed
them. QEMU's network forgets how many there are when it loads the state of a machine (libslirp's
`sbuf_tmp_post_load` calls `sbreserve`, which sets `sb_cc` to 0). After that it holds back as many
bytes, or sends old ones in front."""
