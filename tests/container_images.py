"""Container images for tests, made as the tools make them: layers, OCI layouts, `docker save`."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from quicksand.base.arch import Architecture
from quicksand_disks import zstd

OCI = "application/vnd.oci.image"
MANIFEST, INDEX = f"{OCI}.manifest.v1+json", f"{OCI}.index.v1+json"
LAYER, CONFIG = f"{OCI}.layer.v1.tar", f"{OCI}.config.v1+json"
TIME = 1_700_000_000


@dataclass(kw_only=True)
class Entry:
    """A member of a layer: a file unless ``type`` says otherwise."""

    name: str
    data: bytes = b""
    type: bytes = tarfile.REGTYPE
    mode: int = 0o644
    uid: int = 0
    gid: int = 0
    mtime: int = TIME
    target: str = ""
    device: tuple[int, int] = (0, 0)
    pax: dict[str, str] = field(default_factory=dict)


def file(name: str, data: bytes | str = b"", **more: Any) -> Entry:
    return Entry(name=name, data=data.encode() if isinstance(data, str) else data, **more)


def directory(name: str, mode: int = 0o755, **more: Any) -> Entry:
    return Entry(name=name, type=tarfile.DIRTYPE, mode=mode, **more)


def symlink(name: str, target: str) -> Entry:
    return Entry(name=name, type=tarfile.SYMTYPE, target=target, mode=0o777)


def hardlink(name: str, target: str) -> Entry:
    return Entry(name=name, type=tarfile.LNKTYPE, target=target)


def tar(*entries: Entry) -> bytes:
    """A layer of these members."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for entry in entries:
            info = tarfile.TarInfo(entry.name)
            info.type, info.mode, info.mtime = entry.type, entry.mode, entry.mtime
            info.uid, info.gid, info.linkname = entry.uid, entry.gid, entry.target
            info.size, info.pax_headers = len(entry.data), dict(entry.pax)
            info.devmajor, info.devminor = entry.device
            archive.addfile(info, io.BytesIO(entry.data))
    return out.getvalue()


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def zstd_packed(data: bytes) -> bytes:
    out = bytearray()
    packer = zstd.Packer(out.extend)
    packer.feed(data)
    packer.finish()
    return bytes(out)


PACKINGS: dict[str, Callable[[bytes], bytes]] = {
    "": lambda data: data,
    "+gzip": lambda data: gzip.compress(data, 1, mtime=0),
    "+zstd": zstd_packed,
}


class Image:
    """A container image in memory. What is changed in its parts before it is written is what a
    hostile one has."""

    def __init__(
        self, layers: Iterable[bytes], *, packing: str = "+gzip", arch: str = "", **config: Any
    ) -> None:
        """``config`` has the fields of the config's "config", such as Cmd and Env."""
        self.plain = list(layers)
        self.packed = [PACKINGS[packing](layer) for layer in self.plain]
        self.config: dict[str, Any] = {
            "architecture": arch or Architecture.host().debian,
            "os": "linux",
            "config": config,
            "rootfs": {
                "type": "layers",
                "diff_ids": [f"sha256:{sha256(layer)}" for layer in self.plain],
            },
        }
        self.layers = [descriptor(LAYER + packing, layer) for layer in self.packed]
        self.manifest: dict[str, Any] = {"schemaVersion": 2, "mediaType": MANIFEST}
        self.blobs: dict[str, bytes] = {sha256(layer): layer for layer in self.packed}

    def manifest_bytes(self) -> bytes:
        """The manifest. Its config and its layers are those of now, unless it has others."""
        config = json.dumps(self.config).encode()
        self.blobs[sha256(config)] = config
        whole = {"config": descriptor(CONFIG, config), "layers": self.layers} | self.manifest
        data = json.dumps(whole).encode()
        self.blobs[sha256(data)] = data
        return data

    def platform(self) -> dict[str, str]:
        return {"os": self.config["os"], "architecture": self.config["architecture"]}

    def entry(self, name: str = "", **more: Any) -> dict[str, Any]:
        """An entry for an index."""
        found = {**descriptor(MANIFEST, self.manifest_bytes()), **more}
        if name:
            found["annotations"] = {"org.opencontainers.image.ref.name": name}
        return found


def descriptor(kind: str, data: bytes) -> dict[str, Any]:
    return {"mediaType": kind, "digest": f"sha256:{sha256(data)}", "size": len(data)}


def layout_files(*entries: tuple[Image, dict[str, Any]]) -> dict[str, bytes]:
    """The files of an OCI layout with images and their entries in its index."""
    files = {"oci-layout": b'{"imageLayoutVersion": "1.0.0"}'}
    files["index.json"] = json.dumps(
        {"schemaVersion": 2, "manifests": [entry for _, entry in entries]}
    ).encode()
    for image, _ in entries:
        files |= {f"blobs/sha256/{digest}": data for digest, data in image.blobs.items()}
    return files


def docker_files(*images: tuple[str, Image]) -> dict[str, bytes]:
    """The files of an old `docker save` archive, with the names of the images."""
    files, listing = {}, []
    for name, image in images:
        config = json.dumps(image.config).encode()
        files[f"{sha256(config)}.json"] = config
        names = []
        for number, layer in enumerate(image.plain):
            names.append(f"{sha256(layer + bytes([number]))}/layer.tar")
            files[names[-1]] = layer
        listing.append({"Config": f"{sha256(config)}.json", "RepoTags": [name], "Layers": names})
    files["manifest.json"] = json.dumps(listing).encode()
    return files


def write_directory(root: Path, files: dict[str, bytes]) -> Path:
    for name, data in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return root


def write_archive(path: Path, files: dict[str, bytes]) -> Path:
    path.write_bytes(tar(*(file(name, data) for name, data in sorted(files.items()))))
    return path
