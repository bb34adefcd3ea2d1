"""Which files differ between two disks of a sandbox, read from the disks' layers.

::

    compare.py          walks two file systems side by side; same_content.py compares file data
    versions.py         a path on each disk; lines.py compares texts, patch.py writes them
    guest_packages.py   the packages that differ, by dpkg's and apk's databases
    ext4/               reads ext4, including its journal
    chain.py, layer.py  a disk made of qcow2 layers, and one layer
    ranges.py           the parts of a disk that may differ
    reading_limits.py   limits on what a hostile disk can make us do

Nothing here boots, mounts or writes anything, or runs a program. A guest wrote the disk, so its
contents are hostile: every number is checked and every loop is bounded.
"""
