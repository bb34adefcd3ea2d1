"""Portable snapshots: the disk of a sandbox as one qcow2 file that says itself what it lies on."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quicksand.errors import ImageError, QuicksandError, SaveError, SaveNotFoundError
from quicksand.host.files import map_os_errors, sync_dir
from quicksand.host.paths import Paths
from quicksand.images.qcow2 import check_qcow2
from quicksand.images.resolve import ResolvedImage
from quicksand.images.store import ImageStore, StoredImage, sha256_file
from quicksand.saves.manifest import SavedLayer, SaveManifest
from quicksand.saves.store import Save
from quicksand.saves.trailer import read_metadata, sidecar, write_metadata
from quicksand.snapshots.records import new_id

if TYPE_CHECKING:
    from quicksand.sandbox import Sandbox
    from quicksand.saves.saving import Report

VARIABLE = "QUICKSAND_BASE_DIR"
"""Environment: a directory in which the images of snapshots are looked for first."""

SCAN_MAX = 2000
"""Directories that are looked into for an image."""


class Snapshot:
    """A file that new sandboxes can begin with, any number of them; it is never changed."""

    def __init__(self, path: Path, manifest: SaveManifest, base_dir: Path | None) -> None:
        self.path = path
        self.manifest = manifest
        self._base_dir = base_dir

    @classmethod
    def load(cls, path: str | Path, *, base_dir: str | Path | None = None) -> Snapshot:
        """The snapshot in the file ``path``; its image is looked for in ``base_dir`` first.

        Raises SaveNotFoundError, SaveError for a file that is none or is damaged.
        """
        found = Path(path).absolute()
        return cls(found, check_portable(found), Path(base_dir) if base_dir else None)

    async def resume(self, **options: Any) -> Sandbox:
        """Start a new sandbox that begins with this disk; ``options`` as for `Sandbox`. It is the
        caller's to stop. Raises as `Sandbox.start`."""
        from quicksand.sandbox import Sandbox

        sandbox = Sandbox(image=str(self.path), base_dir=self._base_dir, **options)
        await sandbox.start()
        return sandbox

    def delete(self) -> None:
        """Remove the file and what lies beside it. Sandboxes that began with it stay as they are.
        Raises PathError."""
        with map_os_errors(self.path):
            self.path.unlink(missing_ok=True)
            sidecar(self.path).unlink(missing_ok=True)


def check_portable(path: Path) -> SaveManifest:
    """Look at a snapshot file from outside. Raises SaveNotFoundError, SaveError."""
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
    """The snapshot in the file ``path`` as a save; None for any other qcow2 file. Raises SaveError
    for one that is damaged."""
    if not path.is_file():
        return None
    with contextlib.suppress(ImageError):
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
    report: Report | None,
) -> SaveManifest:
    """Write the disk that ``layers`` make over ``image`` as one file; returns what it says of
    itself. A file that was there is replaced in one instant.

    Raises DiskSpaceError, PathError, ImageError; nothing is left then.
    """
    from dataclasses import replace

    from quicksand.images.merge import write_merged

    assert manifest.base is not None
    place = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
    made = place / target.name
    with map_os_errors(target):
        place.mkdir(mode=0o700)
    try:
        write_merged(
            layers,
            made,
            # Of no use to anybody but people: on other hosts it is elsewhere.
            backing=Path(f"{manifest.base.name}-{manifest.base.digest[:12]}.qcow2"),
            base=image.chain,
            compress=compress,
            progress=(lambda done, total: report("write", done, total)) if report else None,
        )
        layer = SavedLayer(id=new_id(), size=made.stat().st_size, sha256=sha256_file(made))
        manifest = replace(manifest, layers=(layer,))
        write_metadata(made, manifest.to_json())
        with map_os_errors(target):
            # The file has it all; what lies beside it is for when that is lost.
            sidecar(made).replace(sidecar(target))
            made.replace(target)
            sync_dir(target.parent)
    finally:
        shutil.rmtree(place, ignore_errors=True)
    return manifest


def find_image(digest: str, paths: Paths, near: Sequence[Path]) -> StoredImage | None:
    """The image of that digest: in the directories ``near``, in VARIABLE's, in the store, or
    anywhere below these."""
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
    with contextlib.suppress(QuicksandError):
        image = ImageStore.load(directory)
        if image.digest == digest and not image.errors:
            return image
    return None


def _below(root: Path) -> Iterator[Path]:
    for directory, names, _ in os.walk(root):
        names[:] = sorted(name for name in names if not name.startswith("."))
        yield Path(directory)
