"""Portable snapshots: the disk of a sandbox as one qcow2 file with metadata that names its image.

::

    the qcow2 image, to the end of its last cluster
    JSON, padded with spaces so that the file ends at a sector
    the length of the JSON with its padding, 8 bytes, big-endian
    MAGIC, 8 bytes

QEMU ignores what is behind an image, and drops it when it converts the file (`qemu-img convert`) or
lets it grow; then the copy in ``<file>.json`` is used.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import secrets
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from quicksand_disks import is_used

from quicksand.base.errors import (
    ConfigError,
    ImageError,
    QuicksandError,
    SaveError,
    SaveNotFoundError,
)
from quicksand.base.files import map_os_errors, sync_dir, write_json
from quicksand.base.paths import Paths
from quicksand.base.progress import Progress
from quicksand.base.regular import open_file, open_regular
from quicksand.disks.images.disk_headers import check_qcow2
from quicksand.disks.images.disk_layers import write_merged
from quicksand.disks.images.image_store import ImageStore
from quicksand.disks.images.resolve import ResolvedImage
from quicksand.disks.images.stored_image import StoredImage, sha256_file
from quicksand.records.nodes import new_id
from quicksand.saves.save_manifest import Save, SavedLayer, SaveManifest

MAGIC = b"QSNDMETA"
TRAILER_MAX = 1024 * 1024
"""Bytes of JSON, padding, length and magic together."""

DEPTH_MAX = 64
"""Levels of nested objects and lists."""

_END = struct.Struct(">Q8s")
_TEXT_MAX = TRAILER_MAX - _END.size
_SECTOR = 512
"""Bytes. QEMU counts the length of a file in sectors."""


def sidecar(path: Path) -> Path:
    """The path of the copy of a snapshot file's metadata beside it."""
    return path.with_name(f"{path.name}.json")


def write_metadata(path: Path, value: Mapping[str, Any]) -> None:
    """Write metadata to the qcow2 file ``path``, which no process may have open, in place of any
    that it has.

    After a crash or an error the file has the old metadata (or none, if it had none) or the new.
    Raises ConfigError for a value that cannot be stored, ImageError, DiskSpaceError, PathError.
    """
    trailer = _encode(value)
    cluster = 1 << check_qcow2(path, allow_backing=True).cluster_bits
    beside = sidecar(path)
    was_beside = beside.exists()
    with map_os_errors(path):
        descriptor = open_regular(path, os.O_RDWR)
    try:
        found = _find(descriptor, path)
        end = os.fstat(descriptor).st_size if found is None else found[0]
        try:
            # The copy is written first: it counts while there is no trailer.
            write_json(beside, value)
            with map_os_errors(path):
                os.ftruncate(descriptor, end)
                _write(descriptor, trailer, -(-end // cluster) * cluster)
                os.fsync(descriptor)
        except BaseException:
            if found is None:
                with contextlib.suppress(OSError):
                    os.ftruncate(descriptor, end)
                    if not was_beside:
                        beside.unlink(missing_ok=True)
            raise
    finally:
        os.close(descriptor)


def read_metadata(path: Path) -> dict[str, Any]:
    """The metadata of the qcow2 file ``path``. Raises ImageError saying what is wrong."""
    check_qcow2(path, allow_backing=True)
    try:
        descriptor = open_regular(path)
    except OSError as error:
        raise ImageError(f"cannot read {path}: {error.strerror}") from error
    try:
        found = _find(descriptor, path)
    finally:
        os.close(descriptor)
    source, text = (path, found[1]) if found is not None else _read_sidecar(path)
    try:
        return _parse(text)
    except ValueError as error:
        raise ImageError(f"the metadata of the snapshot in {source} is damaged: {error}") from error


def _find(descriptor: int, path: Path) -> tuple[int, bytes] | None:
    """The offset of the trailer and the JSON in it; None if there is none. Raises ImageError if its
    length is wrong.

    Bytes within the image that look like a trailer were written by a guest and are ignored.
    """
    try:
        size = os.fstat(descriptor).st_size
        length, magic = _END.unpack(os.pread(descriptor, _END.size, size - _END.size))
        if magic != MAGIC or is_used(descriptor, size - _END.size, size):
            return None
        if length > min(_TEXT_MAX, size - _END.size):
            raise ValueError(f"it claims to be {length} bytes long")
        start = size - _END.size - length
        if is_used(descriptor, start, size):
            return None
        return start, os.pread(descriptor, length, start)
    except OSError as error:
        raise ImageError(f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise ImageError(f"the metadata of the snapshot in {path} is damaged: {error}") from error


def _read_sidecar(path: Path) -> tuple[Path, bytes]:
    beside = sidecar(path)
    try:
        with open_file(beside) as file:
            text = file.read(_TEXT_MAX + 1)
    except FileNotFoundError as error:
        raise ImageError(
            f"{path} has no metadata of a snapshot, and there is no {beside.name} beside it",
            hint="it is no snapshot, or another program has rewritten it; put its .json beside it",
        ) from error
    except OSError as error:
        raise ImageError(f"cannot read {beside}: {error.strerror}") from error
    if len(text) > _TEXT_MAX:
        raise ImageError(f"{beside} is longer than the {_TEXT_MAX} bytes of metadata")
    return beside, text


def _encode(value: Mapping[str, Any]) -> bytes:
    try:
        # The same text as `write_json` writes.
        text = json.dumps(value, indent=1, allow_nan=False).encode("ascii") + b"\n"
        if len(text) > _TEXT_MAX:
            raise ValueError(f"{len(text)} bytes are more than {_TEXT_MAX}")
        _parse(text)
    except (TypeError, ValueError, RecursionError) as error:
        raise ConfigError(f"this is no metadata for a snapshot: {error}") from error
    text += b" " * (-(len(text) + _END.size) % _SECTOR)
    return text + _END.pack(len(text), MAGIC)


def _parse(text: bytes) -> dict[str, Any]:
    """Parse the JSON of a trailer. Raises ValueError."""
    try:
        value = json.loads(text.decode("utf-8"), parse_constant=_number, parse_float=_number)
    except json.JSONDecodeError as error:
        raise ValueError(f"it is not JSON ({error})") from None
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if not isinstance(value, dict):
        raise ValueError("it is not a JSON object")
    level: list[Any] = [value]
    for _ in range(DEPTH_MAX):
        level = [
            inner
            for outer in level
            for inner in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(inner, dict | list)
        ]
    if level:
        raise ValueError("it is nested too deeply")
    return value


def _number(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is not a number")
    return number


def _write(descriptor: int, data: bytes, place: int) -> None:
    left = memoryview(data)
    while left:
        written = os.pwrite(descriptor, left, place)
        left, place = left[written:], place + written


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
