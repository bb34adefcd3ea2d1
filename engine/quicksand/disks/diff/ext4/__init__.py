"""A reader of ext4 (Linux Documentation/filesystems/ext4; its journal.rst for jbd2).

Checksums are not verified: this is not fsck. Everything else is checked and bounded, because root
in the guest can write anything to its disk. Bad contents raise `bounds.Malformed`.
"""
