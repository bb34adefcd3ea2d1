"""Rebasing a save: moving it from its image to another one, by copying its whole disk."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

from quicksand.base.arch import Architecture
from quicksand.base.errors import SaveError
from quicksand.base.files import sync_dir, write_json
from quicksand.base.paths import Paths
from quicksand.base.progress import Progress
from quicksand.disks.images.disk_headers import check_qcow2
from quicksand.disks.images.disk_layers import write_merged
from quicksand.disks.images.resolve import ImageResolver
from quicksand.disks.images.stored_image import sha256_file
from quicksand.records.nodes import new_id
from quicksand.saves.boot_disk import find_base, save_files
from quicksand.saves.census import find_stored
from quicksand.saves.ownership import is_own, mark_imported, mark_made
from quicksand.saves.save_manifest import (
    MANIFEST,
    OVERLAYS,
    Base,
    Parent,
    Save,
    SavedLayer,
    SaveManifest,
)


def rebase(save: Save, image: str, paths: Paths, *, report: Progress | None = None) -> Save:
    """Replace a save by one with the same disk that lies on ``image``; the old one goes to the
    trash. Its guests boot with the new image's kernel and no longer need the old image.

    Raises SaveError if the old image is not here or the save lies on ``image`` already, ImageError,
    DiskSpaceError, PathError; the save is then unchanged. Blocks for I/O.
    """
    manifest, was_own = save.require(), is_own(save.root, paths)
    old = find_base(save, paths, trusted=was_own)
    new = ImageResolver(paths).resolve(image, Architecture.parse(manifest.arch))
    if old.digest and old.digest == new.digest:
        raise SaveError(f"the save {save.name!r} is based on that version of {image!r} already")
    store, _ = find_stored(save.root, paths)
    files = save_files(save, paths)
    with store.making() as made:
        disk = made / OVERLAYS / "0.qcow2"
        write_merged(
            [*old.chain, *files],
            disk,
            backing=new.chain[-1],
            size=max(_size(new.chain[-1]), _size(files[-1])),
            hide_base=True,
            progress=(lambda done, total: report("copy", done, total)) if report else None,
        )
        layer = SavedLayer(id=new_id(), size=disk.stat().st_size, sha256=sha256_file(disk))
        sync_dir(disk.parent)
        changed = replace(
            manifest,
            config=replace(manifest.config, image=new.name),
            id=new_id(),
            created=time.time(),
            base=Base(name=new.name, version=new.version, digest=new.digest),
            parent=Parent(name=save.name, id=manifest.id),
            layers=(layer,),
        )
        write_json(made / MANIFEST, changed.to_json(), read=SaveManifest.from_json)
        # The options are unchanged, so the new save is trusted exactly if the old one was.
        if was_own:
            mark_made(made, store.root / save.name, paths)
        else:
            mark_imported(made)
        return store.publish(made, save.name, replace=True)


def _size(disk: Path) -> int:
    return check_qcow2(disk, allow_backing=True).virtual_size
