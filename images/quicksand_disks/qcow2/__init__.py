"""A disk made of qcow2 layers (QEMU docs/interop/qcow2.txt): read, merged, and begun.

The backing files that headers name are never opened: the caller gives the layers, the lowest first.
"""

from quicksand_disks.qcow2.layers import Chain, Disk, Layer, Ranges, differing
from quicksand_disks.qcow2.merging import write_merged
from quicksand_disks.qcow2.writing import create_overlay

__all__ = [
    "Chain",
    "Disk",
    "Layer",
    "Ranges",
    "create_overlay",
    "differing",
    "write_merged",
]
