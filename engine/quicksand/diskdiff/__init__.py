"""Which files differ between two disks of a sandbox, read from the disks' layers.

::

    checkpoints.py      which layers a checkpoint is made of; from there to a list of changes
    compare.py          walks two file systems side by side; contents.py compares their data
    ext4/               a reader of ext4, its journal included
    chain.py, layer.py  a disk made of qcow2 layers, and one layer
    ranges.py           parts of a disk that may differ
    bounds.py           limits on what a hostile disk can make us do

Nothing is booted, mounted or written, and no program is run. What is on the disk was written by a
guest and is hostile: all of it is bounded and checked.
"""
