"""Portable snapshots: the disk of a sandbox as one qcow2 file with metadata that names its
image."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from quicksand.base.errors import ImageError, QuicksandError, SaveError, SaveNotFoundError
from quicksand.base.files import map_os_errors, sync_dir
from quicksand.base.paths import Paths
from quicksand.base.progress import Progress
from quicksand.disks.images.disk_headers import check_qcow2
from quicksand.disks.images.disk_layers import write_merged
from quicksand.disks.images.image_store import ImageStore
from quicksand.disks.images.resolve import ResolvedImage
from quicksand.disks.images.stored_image import StoredImage, sha256_file
from quicksand.records.nodes import new_id
from quicksand.saves.save_manifest import SavedLayer, SaveManifest
from quicksand.saves.store import Save
from quicksand.saves.trailer import read_metadata, sidecar, write_metadata

VARIABLE = "QUICKSAND_BASE_DIR"
"""Environment variable: a directory that is searched first for the images of snapshots."""

SCAN_MAX = 2000
"""Directories that are searched for an image, at most."""


def check_portable(path: Path) -> SaveManifest:
    """Check the header and metadata of a snapshot file. Raises SaveNotFoundError, SaveError."""
    if not path.exists():
        raise SaveNotFoundError(f"there is no snapshot {path}")
    try:
        check_qcow2(path, allow_backing=True)
        manifest = SaveManifest.from_json(read_metadata(path))
        if manifest.layers is None or len(manifest.layers) != 1 or manifest.base is None:
            raise ValueError("its metadata does not tell of one layer and an image")
    except (ImageError, ValueError) as error:
        raise SaveError(f"{path} is no usable snapshot: {error}") from error
    return manifest


def find_portable(path: Path) -> Save | None:
    """The snapshot in the file ``path`` as a `Save`; None if it is another kind of file. Raises
    SaveError if it is damaged."""
    if not path.is_file():
        return None
    with contextlib.suppress(ImageError):  # a file without metadata is no save
        read_metadata(path)
        return Save(name=path.stem, root=path, manifest=check_portable(path))
    return None


def write_portable(
    layers: Sequence[Path],
    target: Path,
    manifest: SaveManifest,
    image: ResolvedImage,
    *,
    compress: bool,
    report: Progress | None,
) -> SaveManifest:
    """Merge ``layers``, which lie over ``image``, into the one file ``target``; returns its
    manifest. An existing file is replaced atomically.

    Raises DiskSpaceError, PathError, ImageError; nothing is left then.
    """
    assert manifest.base is not None
    made = target.with_name(f".{secrets.token_hex(4)}.{target.name}")
    try:
        write_merged(
            layers,
            made,
            # Only a label for people: on other hosts the image has another path.
            backing=Path(f"{manifest.base.name}-{manifest.base.digest[:12]}.qcow2"),
            base=image.chain,
            compress=compress,
            progress=(lambda done, total: report("write", done, total)) if report else None,
        )
        layer = SavedLayer(id=new_id(), size=made.stat().st_size, sha256=sha256_file(made))
        manifest = replace(manifest, layers=(layer,))
        write_metadata(made, manifest.to_json())
        with map_os_errors(target):
            # The file contains the metadata; the copy beside it is used when that is lost.
            sidecar(made).replace(sidecar(target))
            made.replace(target)
            sync_dir(target.parent)
    finally:
        for left in (made, sidecar(made)):
            left.unlink(missing_ok=True)
    return manifest


def find_image(digest: str, paths: Paths, near: Sequence[Path]) -> StoredImage | None:
    """The image with that digest: in the directories ``near`` or VARIABLE's, in the store, or in
    any directory below the former; None if it is not found."""
    given = [*near]
    if variable := os.environ.get(VARIABLE):
        given.append(Path(variable))
    for root in given:
        if (found := _load(root, digest)) is not None:
            return found
    if (found := ImageStore(paths.images).find_version("", digest)) is not None:
        return found
    seen = 0
    for root in given:
        for directory in _below(root):
            seen += 1
            if seen > SCAN_MAX:
                return None
            if (found := _load(directory, digest)) is not None:
                return found
    return None


def _load(directory: Path, digest: str) -> StoredImage | None:
    with contextlib.suppress(QuicksandError):  # it is not there yet
        image = ImageStore.load(directory)
        if image.digest == digest and not image.errors:
            return image
    return None


def _below(root: Path) -> Iterator[Path]:
    for directory, names, _ in os.walk(root):
        names[:] = sorted(name for name in names if not name.startswith("."))
        yield Path(directory)
