"""The files of an image in the store, by part: a disk, a kernel, an initrd and, if its disk has
several layers, each further one.

An image that was installed as an overlay has the files of the image below it as its own, as hard
links where possible. So it needs no other image, and no other image can change under it.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Any

from quicksand.base.fields import Fields

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
