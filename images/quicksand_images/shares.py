"""How the time of a build is shared among its stages, so that the whole has one count.

Each figure is the seconds of a stage on one host: two processors of a busy cloud machine, no KVM, a
mirror that is near. `bench/builds.py` measures them. On another host only the proportions must fit:
most stages slow down alike on a slower processor. Downloads do not, and cached ones take no time,
so the time left is estimated from the count's recent growth (`quicksand_tui/model/pace.py`).
"""

from __future__ import annotations

from typing import Final

from quicksand.base.progress import Shares
from quicksand.qemu import provision

TOOLS: Final = provision.SHARES
"""The stages of getting the build's tools: QEMU, mmdebstrap, e2fsprogs."""

TOOLS_UNTIL: Final = 0.15
"""The share of the whole at which the tools are there, if they are needed: 12 of 73 seconds."""

BASE_UNTIL: Final = 0.4
"""The share of the whole at which the image below a layer is built."""

INSTALLING: Final[Shares] = TOOLS[2:]
"""The stages of installing the image below a layer."""

_DISK: Final[Shares] = (
    ("making kernel and initrd", 1.0),
    ("making the file system", 3.0),
    ("compressing the disk", 11.0),
)

IN_NAMESPACE: Final[Shares] = (
    ("fetching the lists of packages", 2.7),
    ("downloading packages", 0.9),
    ("unpacking the base system", 4.0),
    ("installing the base system", 11.0),
    ("installing packages", 21.0),
    ("configuring the system", 7.6),
    ("cleaning up", 0.2),
    *_DISK,
)
"""`debian` by mmdebstrap: 60 s, with packages in the cache or without."""

IN_VM: Final[Shares] = (
    ("fetching the lists of packages", 2.5),
    ("downloading packages", 8.4),
    ("unpacking packages", 12.0),
    ("making a disk to install on", 5.8),
    ("booting a VM", 5.6),
    ("installing the base system", 69.0),
    ("installing packages", 246.0),
    ("configuring the system", 33.0),
    ("taking the system out of the VM", 20.0),
    ("making kernel and initrd", 3.6),
    ("making the file system", 11.5),
    ("compressing the disk", 15.0),
)
"""`debian` in a VM: 432 s."""

OF_ALPINE: Final[Shares] = (
    ("fetching the lists of packages", 2.5),
    ("downloading packages", 4.0),
    ("unpacking packages", 3.0),
    ("making a disk to install on", 4.0),
    ("booting", 5.6),
    ("installing packages", 25.0),
    ("configuring the system", 15.0),
    ("taking the system out of the VM", 8.0),
    *_DISK,
)
"""Not measured, since no mirror of Alpine could be reached: `IN_VM`, scaled by its smaller size."""

OF_LAYER: Final[Shares] = (
    ("fetching the lists of packages", 4.3),
    ("downloading packages", 11.0),
    ("downloading Python packages", 1.3),
    ("making a disk to hand over", 1.4),
    ("booting the base", 4.2),
    ("looking at what is to be installed", 0.2),
    ("installing packages", 463.0),
    ("installing Python packages", 10.0),
    ("copying the files of the recipe", 0.1),
    ("running the steps of the recipe", 27.0),
    ("cleaning up", 0.9),
    ("ending the machine", 0.3),
    ("compressing the layer", 30.0),
)
"""`code-interpreter`, with 139 packages: 544 s. Kinds of files that it lacks are not measured:
packages of Python's own index."""

OF_CONTAINER: Final[Shares] = (
    ("taking the kernel", 3.7),
    ("downloading", 20.0),
    ("reading the image", 1.0),
    ("unpacking layers", 70.0),
    ("making the file system", 274.0),
    ("compressing the disk", 119.0),
)
"""An archive with 816 MB in one layer: 468 s beside much else; the download is not measured."""
