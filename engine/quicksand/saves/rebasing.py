"""Bringing a save from the image that it lies on to another one: all of its disk is copied."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

from quicksand.errors import SaveError
from quicksand.host.arch import Architecture
from quicksand.host.files import sync_dir, write_json
from quicksand.host.paths import Paths
from quicksand.images.merge import write_merged
from quicksand.images.qcow2 import check_qcow2
from quicksand.images.resolve import ImageResolver
from quicksand.images.store import sha256_file
from quicksand.saves.keeping import find_stored
from quicksand.saves.manifest import MANIFEST, OVERLAYS, Base, Parent, SavedLayer
from quicksand.saves.resuming import find_base, save_files
from quicksand.saves.saving import Report
from quicksand.saves.store import Save
from quicksand.snapshots.records import new_id


def rebase(save: Save, image: str, paths: Paths, *, report: Report | None = None) -> Save:
    """Make a save of the same disk that lies on ``image``, in the place of the old one, which goes
    to the trash. Its guests boot with that image's kernel, and need the old image no more.

    Raises SaveError if the old image is not here or the save lies on ``image`` already, ImageError,
    DiskSpaceError, PathError: then the save is as it was. Blocks for I/O.
    """
    manifest = save.require()
    old = find_base(save, paths)
    new = ImageResolver(paths).resolve(image, Architecture.parse(manifest.arch))
    if old.digest and old.digest == new.digest:
        raise SaveError(f"the save {save.name!r} lies on that version of {image!r} already")
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
        write_json(made / MANIFEST, changed.to_json())
        return store.publish(made, save.name, replace=True)


def _size(disk: Path) -> int:
    return check_qcow2(disk, allow_backing=True).virtual_size
