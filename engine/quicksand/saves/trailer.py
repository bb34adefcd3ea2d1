"""What a portable snapshot says of itself: JSON behind the image in its file, and beside it.

::

    the qcow2 image, to the end of its last cluster
    JSON, with spaces up to a whole number of sectors
    the length of that, 8 bytes
    MAGIC

QEMU does not look behind an image, and drops what is there when it makes another file of it
(`qemu-img convert`) or lets it grow: then the same JSON in ``<file>.json`` counts.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import stat
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from quicksand.errors import ConfigError, ImageError
from quicksand.host.files import map_os_errors, write_json
from quicksand.images.qcow2 import check_qcow2
from quicksand.images.refcounts import is_used

MAGIC = b"QSNDMETA"
TRAILER_MAX = 1024 * 1024
"""Bytes, all in all."""

DEPTH_MAX = 64
"""Objects and lists in each other."""

_END = struct.Struct(">Q8s")
_TEXT_MAX = TRAILER_MAX - _END.size
_SECTOR = 512
"""The length of a file is for QEMU a number of these."""


def sidecar(path: Path) -> Path:
    """The file beside a snapshot file that holds its metadata too."""
    return path.with_name(f"{path.name}.json")


def write_metadata(path: Path, value: Mapping[str, Any]) -> None:
    """Give the qcow2 file ``path``, which nobody has open, metadata in place of what it has.

    A crash leaves the old or the new. So does an error: without old there is none then. Raises
    ConfigError for what cannot be kept, ImageError, DiskSpaceError, PathError.
    """
    trailer = _encode(value)
    cluster = 1 << check_qcow2(path, allow_backing=True).cluster_bits
    beside = sidecar(path)
    was_beside = beside.exists()
    with map_os_errors(path):
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        found = _find(descriptor, path)
        end = os.fstat(descriptor).st_size if found is None else found[0]
        try:
            # From here on it is the new metadata that counts when there is no trailer.
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
    """The metadata of the qcow2 file ``path``. Raises ImageError that says what is wrong."""
    check_qcow2(path, allow_backing=True)
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
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
    """Where the trailer begins, and the JSON in it. Raises ImageError if its length is wrong.

    What looks like one within the image was written by a guest, and is none.
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
        # Not to wait for a writer, should it be a FIFO.
        descriptor = os.open(beside, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise ImageError(f"{beside} is no file")
            text = os.pread(descriptor, _TEXT_MAX + 1, 0)
        finally:
            os.close(descriptor)
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
    """Raises ValueError."""
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
