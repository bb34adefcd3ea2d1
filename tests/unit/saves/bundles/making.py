"""Homes with an image and saves, and bundles of whatever content, made without any VM."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import secrets
import tarfile
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from quicksand.base.paths import Paths
from quicksand.disks.images.disk_layers import create_overlay
from quicksand.disks.images.image_store import ImageStore
from quicksand.disks.images.stored_image import StoredImage
from quicksand.records.registry import Registry
from quicksand.saves.bundle.exporting import export_save
from quicksand.saves.bundle.importing import import_bundle
from quicksand.saves.bundle.receiving import Imported, ImportOptions
from quicksand.saves.save_manifest import Base, Save
from quicksand.saves.store import SaveStore

from tests.unit.saves.making import MIB, make_save

NOTE = "a note of some length, so that flipping bytes finds it"
ZEROS = bytes(16 * MIB)


def places_in(root: Path) -> Paths:
    return Paths(runtime=root / "run", data=root / "data", cache=root / "cache")


@dataclass(frozen=True)
class Home:
    """Somebody's directories."""

    paths: Paths

    @classmethod
    def make(cls, root: Path) -> Home:
        (root / "data").mkdir(parents=True, exist_ok=True)
        return cls(places_in(root))

    @property
    def saves(self) -> SaveStore:
        return SaveStore(self.paths.saves)

    @property
    def images(self) -> ImageStore:
        return ImageStore(self.paths.images)

    @property
    def registry(self) -> Registry:
        return Registry(self.paths)

    def add_image(self, name: str = "debian", content: bytes = b"kernel") -> StoredImage:
        staging = self.paths.images / f".building-{secrets.token_hex(4)}"
        staging.mkdir(parents=True)
        create_overlay(staging / "disk.qcow2", backing=None, size=MIB)
        (staging / "kernel").write_bytes(content)
        (staging / "initrd").write_bytes(b"initrd")
        names = {"disk": "disk.qcow2", "kernel": "kernel", "initrd": "initrd"}
        manifest = {
            "name": name,
            "version": "13",
            "arch": "x86_64",
            "created": 1_700_000_000,
            "cmdline": "rootfstype=ext4",
            "recipe": "ab" * 32,
            "user": "quicksand",
            "files": {part: {"name": file} for part, file in names.items()},
        }
        return self.images.publish(staging, manifest)

    def add_save(self, name: str = "env", *contents: bytes, **facts: Any) -> Save:
        image = self.images.get("debian")
        assert image is not None
        base = Base(name="debian", version="13", digest=image.digest)
        contents = contents or (b"one" * 100, b"two" * 50)
        return make_save(self.saves, name, *contents, base=base, note=NOTE, **facts)

    def export(self, target: Path, name: str = "env", **options: Any) -> bytes:
        export_save(self.saves.find(name), target, self.paths, **options)
        return target.read_bytes()

    def import_(self, bundle: Path | bytes, **options: Any) -> Imported:
        source = io.BytesIO(bundle) if isinstance(bundle, bytes) else bundle
        return import_bundle(
            source, self.saves, self.images, self.registry, ImportOptions(**options)
        )


STORES = ("saves", "images", "sandboxes")
"""Directories that whoever looks for something makes."""


def contents(root: Path) -> dict[str, str]:
    """Every file, directory and link below ``root``, but for locks and what holds them."""
    found = {}
    for path in sorted(root.rglob("*")):
        name = str(path.relative_to(root))
        if path.name in (".lock", ".importing-lock", ".names.lock", "history.lock"):
            continue
        if path.name == "lock":
            found[name] = "lock"  # whoever holds it writes there what for
        elif path.is_symlink():
            found[name] = f"-> {os.readlink(path)}"
        elif path.is_file():
            found[name] = hashlib.sha256(path.read_bytes()).hexdigest()
        elif path.name not in STORES:
            found[name] = "directory"
    return found


def digests(save: Save) -> list[str]:
    """The content of a save's layers."""
    paths = sorted((save.root / "overlays").iterdir())
    return [hashlib.sha256(path.read_bytes()).hexdigest() for path in paths]


def members(bundle: bytes) -> dict[str, bytes]:
    """What is in a tar, in its order."""
    with tarfile.open(fileobj=io.BytesIO(bundle)) as tar:
        found = {}
        for info in tar:
            file = tar.extractfile(info)
            assert file is not None
            found[info.name] = file.read()
        return found


def pack(
    files: Mapping[str, bytes], change: Callable[[tarfile.TarInfo], None] | None = None
) -> bytes:
    """A tar by Python's own module; ``change`` is given each header."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            if change is not None:
                change(info)
            tar.addfile(info, io.BytesIO(data))
    return out.getvalue()


def gzipped(*parts: bytes | int) -> bytes:
    """``parts``, numbers being so many zeros, packed as gzip does, but for the checksum, which
    nobody may come to. Zeros are packed once and repeated: gigabytes of them take seconds."""
    packed = [gzip.compress(b"")[:10]]
    for part in parts:
        count, rest = divmod(part, len(ZEROS)) if isinstance(part, int) else (0, part)
        packed += [_block(ZEROS) * count] if count else []
        packed.append(_block(bytes(rest)))
    return b"".join((*packed, b"\x03\x00", bytes(8)))


def _block(data: bytes) -> bytes:
    """As part of a stream, wherever it stands in it."""
    packer = zlib.compressobj(1, zlib.DEFLATED, -zlib.MAX_WBITS)
    return packer.compress(data) + packer.flush(zlib.Z_FULL_FLUSH)


def sign(manifest: Mapping[str, Any]) -> bytes:
    """A manifest as its maker would send it: with the digest that fits."""
    plain = {key: value for key, value in manifest.items() if key != "sha256"}
    text = json.dumps(plain, sort_keys=True, separators=(",", ":"))
    return json.dumps({**plain, "sha256": hashlib.sha256(text.encode()).hexdigest()}).encode()


def forge(bundle: bytes, change: Callable[[dict[str, Any], dict[str, bytes]], None]) -> bytes:
    """A bundle by somebody who can do sums: ``change`` is given manifest and files; digests and
    sizes are those of what it leaves, where the manifest lists them."""
    files = members(bundle)
    manifest = json.loads(files.pop("manifest.json"))
    change(manifest, files)
    listed = {file["name"]: file for file in manifest["files"] if isinstance(file, dict)}
    for name, data in files.items():
        if name in listed:
            facts = {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
            old = listed[name].get("sha256")
            listed[name].update(facts)
            for layer in (manifest.get("save") or {}).get("layers") or ():
                if layer["sha256"] == old:
                    layer.update(facts)
    return pack({"manifest.json": sign(manifest), **files})
