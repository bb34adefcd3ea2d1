"""The disk that a start uses: a new one, that of the last run, or that of a checkpoint."""

from __future__ import annotations

import contextlib
from dataclasses import replace

from quicksand.base.capacity import check_space
from quicksand.base.files import map_os_errors, read_json
from quicksand.disks.images.disk_headers import check_qcow2
from quicksand.disks.images.disk_layers import create_overlay
from quicksand.disks.images.resolve import ResolvedImage
from quicksand.qemu.keeper_parts import FIRST
from quicksand.records.layout import SandboxDir
from quicksand.records.machine_options import check_disk_size
from quicksand.records.nodes import BLANK, Head, Node, new_id
from quicksand.records.sandboxes import Record
from quicksand.saves.resuming import adopt
from quicksand.snapshots.history import History, lost_head, prune_automatic
from quicksand.snapshots.last_checkpoint import keep_left_behind
from quicksand.snapshots.layers import add_layer

UNFINISHED = "starting"
"""The machine's name in a head whose start has not succeeded yet."""


def prepare_disk(
    record: Record, image: ResolvedImage, place: SandboxDir, at: Node | None = None
) -> Head:
    """Prepare the disk for a start, or for continuing from the checkpoint ``at``; returns the head.
    The caller holds the history's lock.

    Raises DiskSpaceError, PathError, ImageError, SaveError, HistoryError.
    """
    check_space(place.root)
    history = History(place)
    with map_os_errors(place.root):
        place.make()
    if at is not None:
        history.set_head_aside()
    head = _find_head(place, _last_machine(place))
    if head is None and at is None:
        _refuse_lost_disk(record, place)
        head = _first_disk(record, image, place)
    if at is not None:
        # Until the machine runs, the previous head counts, and a sweep must keep its layers.
        head = Head.going_on(at, machine=UNFINISHED, previous=head)
        add_layer(place, head.top, below=at.layers[-1])
    assert head is not None
    history.set_head(head)
    # Only now, since `_last_machine` needs exit.json.
    with map_os_errors(place.root):
        for log in (place.console_log, place.qemu_log, place.exit):
            log.unlink(missing_ok=True)
            log.with_name(log.name + ".1").unlink(missing_ok=True)
    return head


def _first_disk(record: Record, image: ResolvedImage, place: SandboxDir) -> Head:
    size = record.config.disk_size_bytes or 0
    if record.source is not None:
        return adopt(record.source, place, image, size)
    top = image.chain[-1]
    base_size = check_qcow2(top, allow_backing=len(image.chain) > 1).virtual_size
    check_disk_size(size, base_size, f"the image {record.config.image!r}")
    head = Head(layers=(), top=new_id(), machine=FIRST)
    create_overlay(place.layer(head.top), backing=top, size=max(base_size, size))
    return head


def _refuse_lost_disk(record: Record, place: SandboxDir) -> None:
    """Raise HistoryError if the sandbox had a disk before, which must not be replaced by an empty
    one."""
    if place.broken_head.exists():
        raise lost_head(place, f"it was set aside as {place.broken_head.name}")
    if record.committed and not place.head.exists() and any(place.layers.iterdir()):
        raise lost_head(place, "it is missing")


def _find_head(place: SandboxDir, ended: str) -> Head | None:
    """The head when the sandbox ended; None if it never ran. ``ended`` is the machine that ran
    last. Raises HistoryError."""
    if not place.head.exists():
        return None
    head = History(place).head()
    # After an unfinished hand-over or start the head before it counts.
    if head.machine == UNFINISHED or (head.previous is not None and head.machine != ended):
        if head.previous is None:
            return None
        head = head.previous
    return replace(head, run=None, memory=BLANK, machine=FIRST, previous=None)


def finish_start(place: SandboxDir, head: Head, at: Node) -> None:
    """Make ``head`` the sandbox's head, now that its machine, which continues from ``at``, runs.
    The earlier disk is kept as an automatic checkpoint.

    The caller holds the history's lock. Raises HostError; then the earlier head still counts.
    """
    history = History(place)
    if head.previous is not None:
        keep_left_behind(history, head.previous, at)
    history.set_head(replace(head, machine=FIRST, previous=None))
    prune_automatic(history)


def _last_machine(place: SandboxDir) -> str:
    """The machine that ran when the sandbox ended, from the keeper's exit.json; "" if unknown."""
    with contextlib.suppress(OSError, ValueError):
        return str(read_json(place.exit).get("machine", ""))
    return ""
