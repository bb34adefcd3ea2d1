"""The spares that fit a start."""

from __future__ import annotations

from quicksand.base.paths import Paths
from quicksand.disks.images.qcow2 import check_qcow2
from quicksand.qemu.planning import Parts
from quicksand.records.sandboxes import Record
from quicksand.warm.spares.spare import Fit, Spare, list_spares


def list_fitting(paths: Paths, record: Record, parts: Parts) -> list[Spare]:
    """List the spares that the first start of ``record`` can take over, the best first: those whose
    disk has the right size, then those whose disk can grow to it. Blocks for I/O. Raises
    ImageError."""
    found = list_spares(paths)
    if not found:
        return []
    fit = Fit.of(paths, record, parts)
    if fit.refusal:
        return []
    wanted = record.config.disk_size_bytes or 0
    found = [spare for spare in found if spare.key == fit.key and spare.disk <= wanted]
    if any(spare.disk < wanted for spare in found) and not _can_grow(record, parts):
        found = [spare for spare in found if spare.disk == wanted]
    return sorted(found, key=lambda spare: spare.disk != wanted)


def growth(spare: Spare, record: Record) -> int:
    """Return the size to which the disk of ``spare`` must grow, in bytes; 0 if it has that size."""
    wanted = record.config.disk_size_bytes or 0
    return wanted if wanted > spare.disk else 0


def _can_grow(record: Record, parts: Parts) -> bool:
    """Whether the requested disk of ``record`` is larger than its image's. The disk of a save is
    left as it is: only a start without a spare decides about its size."""
    if record.source is not None:
        return False
    base = check_qcow2(parts.image.chain[-1], allow_backing=len(parts.image.chain) > 1)
    return (record.config.disk_size_bytes or 0) > base.virtual_size
