"""The disk that a start uses: a new one, that of the last run, of a checkpoint or of a save. A save
is only read; its layers become the sandbox's own."""

from __future__ import annotations

import contextlib
import hashlib
from dataclasses import replace
from pathlib import Path

from quicksand.base.arch import Architecture
from quicksand.base.capacity import check_space
from quicksand.base.errors import ImageError, ImageNotFound, SaveError
from quicksand.base.files import map_os_errors, read_json, sync_dir, write_word
from quicksand.base.paths import Paths
from quicksand.base.remedies import Remedy, Words
from quicksand.base.sharing import copy_sparse, share_file
from quicksand.disks.images.disk_headers import check_qcow2
from quicksand.disks.images.disk_layers import create_overlay
from quicksand.disks.images.resolve import ImageResolver, ResolvedImage, is_file
from quicksand.qemu.keeper_parts import FIRST
from quicksand.records.layout import SandboxDir, layer_name
from quicksand.records.machine_options import check_disk_size
from quicksand.records.nodes import BLANK, Head, Node, new_id
from quicksand.records.sandboxes import Record, SaveSource
from quicksand.saves.finding import is_path, store_at
from quicksand.saves.portable import check_portable, find_image
from quicksand.saves.resolving import find_meaning
from quicksand.saves.save_manifest import Save, SaveManifest, check_save, identity_of, overlay_paths
from quicksand.snapshots.history import History, lost_head, prune_automatic
from quicksand.snapshots.last_checkpoint import keep_left_behind
from quicksand.snapshots.layers import add_layer

STACK_MAX = 64

NAME_SHOWN = 200
"""Characters of a save's text in a message."""


def source_of(save: Save, paths: Paths) -> SaveSource:
    """The `SaveSource` for the record of a sandbox that starts with ``save``. Raises SaveError."""
    manifest = save.require()
    *below, _ = stack_of(save, paths)
    return SaveSource(
        path=str(save.root),
        below=tuple(str(lower.root) for lower in below),
        name=save.name,
        id=manifest.id,
        digest="" if below else layers_digest(manifest),
    )


def stack_of(save: Save, paths: Paths) -> list[Save]:
    """The saves below ``save`` and itself, the lowest first. A save of this engine has all its
    layers; one of the published packages may name another save as its image. Raises SaveError."""
    found = [save]
    while found[0].require().base is None and len(found) <= STACK_MAX:
        lower = _find_lower(found[0], paths)
        # A save with the same name as its image is based on the image, not on itself.
        if lower is None or lower.root in [known.root for known in found]:
            break
        found.insert(0, lower)
    return found


def _find_lower(save: Save, paths: Paths) -> Save | None:
    """Return the save below one of the published packages, if there is one. The save beside it,
    which came with it, is preferred to others of that name."""
    name = save.require().config.image
    beside = None if is_path(name) else store_at(save.root.parent).get(name)
    if beside is not None:
        beside.require()
        return beside
    return find_meaning(name, paths).save


def save_files(save: Save, paths: Paths) -> tuple[Path, ...]:
    """All files of the save's disk above the image, the lowest first. Raises SaveError."""
    return tuple(
        path for one in stack_of(save, paths) for path in overlay_paths(one.root, one.require())
    )


def layers_digest(manifest: SaveManifest) -> str:
    """One SHA-256 of all layers' digests; "" if the manifest does not list them."""
    if manifest.layers is None:
        return ""
    text = "\n".join(layer.sha256 for layer in manifest.layers)
    return hashlib.sha256(text.encode()).hexdigest()


def find_base(
    save: Save, paths: Paths, base_dir: Path | None = None, *, trusted: bool
) -> ResolvedImage:
    """The image below a save; ``base_dir`` is searched first. Raises SaveError if the image is not
    on this host, or if it is given as a path and the save is not ``trusted``: the guest could then
    read any file of this host through its disk."""
    manifest, resolver = stack_of(save, paths)[0].require(), ImageResolver(paths)
    arch = Architecture.parse(manifest.arch)
    base = manifest.base
    if base is not None and base.digest:
        stored = resolver.store.find_version(base.name, base.digest)
        if stored is None or base_dir is not None or save.root.is_file():
            near = [base_dir] if base_dir is not None else []
            stored = find_image(base.digest, paths, [*near, save.root.parent])
        if stored is not None:
            return resolver.resolve(str(stored.root), arch)
        there = resolver.store.get(base.name)
        has = f"; the one here has the digest {there.digest[:12]}" if there is not None else ""
        raise SaveError(
            f"the save {save.name!r} is based on the image {base}, which is not here{has}",
            hint=Words(
                f"bring that version of {base.name!r}, or ",
                Remedy("export_full"),
                " the save where it was made",
                python=f"bring that version of {base.name!r}, or export the save in full where it "
                "was made",
            ),
        )
    name = base.name if base is not None else manifest.config.image
    if not trusted and is_file(name):
        raise SaveError(
            f"the save {save.name!r} was not made here, and is based on a file of this host: "
            f"{name[:NAME_SHOWN]!r}",
            hint="if you know who made it, --trust (in Python trust=True) takes it all the same",
        )
    try:
        return resolver.resolve(name, arch)
    except ImageNotFound as error:
        raise SaveError(
            f"the save {save.name!r} is based on the image {name!r}, which is not here",
            hint=error.advice,
        ) from error
    except ImageError as error:
        message = Words(f"the save {save.name!r} cannot be used: ", error.words)
        raise SaveError(message, hint=error.advice) from error


def adopt(source: SaveSource, place: SandboxDir, image: ResolvedImage, size: int) -> Head:
    """Give a new sandbox the layers of a save and an empty one above them; returns its head.
    ``size``: the least size of the disk in bytes.

    Layers are hard-linked where the file system allows it. Those without digests (saves of the
    published packages) are copied, since their owner may change them. Raises SaveError if the save
    has changed since ``source`` was recorded, ConfigError if ``size`` is too small, ImageError,
    DiskSpaceError, PathError.
    """
    manifest = _check(Path(source.path))
    digest = "" if source.below else layers_digest(manifest)
    if (manifest.id, digest) != (source.id, source.digest):
        raise SaveError(f"the save at {source.path} has changed since the sandbox was made")
    ids: list[str] = []
    with map_os_errors(place.layers):
        for root in map(Path, (*source.below, source.path)):
            before = identity_of(root)
            ids += _adopt_one(root, _check(root), place)
            # If it was replaced meanwhile, the layers may come from both saves.
            if identity_of(root) != before:
                raise SaveError(f"the save at {root} was just being replaced; try again")
    lower = check_qcow2(place.layer(ids[-1]), allow_backing=True).virtual_size
    base = check_qcow2(image.chain[-1], allow_backing=len(image.chain) > 1).virtual_size
    # The size in the save's own config is not a request, so it is not checked.
    if size != (manifest.config.disk_size_bytes or 0):
        check_disk_size(size, max(lower, base), f"the save {Path(source.path).name!r}")
    head = Head(layers=tuple(ids), top=new_id(), machine=FIRST)
    top = place.layer(head.top)
    create_overlay(top, backing=layer_name(ids[-1]), size=max(lower, base, size))
    sync_dir(place.layers)
    return head


def _check(root: Path) -> SaveManifest:
    return check_portable(root) if root.is_file() else check_save(root)


def _adopt_one(root: Path, manifest: SaveManifest, place: SandboxDir) -> list[str]:
    ids = []
    known = manifest.layers
    paths = (root,) if root.is_file() else overlay_paths(root, manifest)
    for number, path in enumerate(paths):
        if known is None:
            ids.append(new_id())
            copy_sparse(path, place.layer(ids[-1]))
            continue
        ids.append(known[number].id)
        share_file(path, place.layer(ids[-1]))
        if not root.is_file():  # a snapshot file has metadata behind the disk, so another digest
            write_word(place.digest(ids[-1]), f"{known[number].sha256}\n")
    return ids


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
