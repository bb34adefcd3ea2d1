"""Disks as files: images, overlays, their merging and reading (`images`), images that come as
packages (`packages`), and what differs between two disks, file by file (`diff`). qcow2 and ext4 are
read by this code, before any QEMU sees them.

Nothing here needs a running machine.
"""
