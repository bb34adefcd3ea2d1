"""A reader of ext4 (Linux: Documentation/filesystems/ext4; jbd2: journal.rst there).

Checksums are not verified: this is no fsck. Everything else is bounded, for a guest that is root
writes to its disk what it likes. Bad contents raise `bounds.Malformed`.
"""
