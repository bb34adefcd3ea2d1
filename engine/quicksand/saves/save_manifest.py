"""A save on disk: its ``manifest.json``, compatible with the published quicksand packages, and a
check of its files, sizes and qcow2 headers, which reads no data.

Those packages write ``version``, ``config`` and ``arch``; all other fields are additions of this
engine. Unknown fields are kept as they are.
"""

from __future__ import annotations

import math
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from quicksand.base.arch import Architecture
from quicksand.base.errors import ConfigError, ImageError, SaveError, SaveNotFoundError
from quicksand.base.files import read_json
from quicksand.disks.images.disk_headers import check_qcow2
from quicksand.records.config import SandboxConfig
from quicksand.records.nodes import read_note

VERSION = 6
"""The version of the format (specification, "Saves")."""

MANIFEST = "manifest.json"
OVERLAYS = "overlays"

LAYERS_MAX = 4096
NAME_MAX = 200
"""Bytes. File systems allow 255, and temporary names are longer than the save's."""

_SHA256 = re.compile(r"[0-9a-f]{64}")
_ID = re.compile(r"[0-9a-f]{8,16}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Base:
    """The image below a save."""

    name: str
    version: str = ""
    digest: str = ""
    """The image store's digest of all its files; "" for an image outside of the store."""

    def __str__(self) -> str:
        parts = [repr(self.name)]
        if self.version:
            parts.append(f"version {self.version}")
        if self.digest:
            parts.append(f"digest {self.digest[:12]}")
        return ", ".join(parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Parent:
    """The save with which the saved sandbox had started."""

    name: str
    id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedLayer:
    """One file of a save's disk, ``overlays/<number>.qcow2``."""

    id: str
    """The layer's id, the same in every save and sandbox that shares it."""
    size: int
    """Bytes of the file."""
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SaveManifest:
    """The contents of a save's manifest."""

    config: SandboxConfig
    """The saved sandbox's config; ``config.image`` is the image's name."""
    arch: str
    version: int = VERSION
    id: str = ""
    """The save's id. In published packages' saves this and all later fields have their defaults."""
    created: float = 0.0
    """Unix time."""
    note: str = ""
    engine: str = ""
    base: Base | None = None
    parent: Parent | None = None
    layers: tuple[SavedLayer, ...] | None = None
    """The lowest first; None if the manifest does not list them."""
    frozen: bool = False
    """The guest's file system was frozen at the moment of the save."""
    unsynced: bool = False
    """Whether the guest was paused or did not answer, so that its unwritten data are missing."""
    volatile: tuple[str, ...] = ()
    """Paths in the guest whose files are only in memory (tmpfs) and so not in the save."""
    other: Mapping[str, Any] = field(default_factory=dict)
    """Unknown fields."""
    other_config: Mapping[str, Any] = field(default_factory=dict)
    """Unknown options of ``config``, and mounts of kinds that are not known here."""

    def to_json(self) -> dict[str, Any]:
        config = {**self.config.to_json(), **self.other_config}
        plain: dict[str, Any] = {"version": self.version, "config": config, "arch": self.arch}
        if self.id:
            plain |= {
                "id": self.id,
                "created": self.created,
                "note": self.note,
                "engine": self.engine,
                "frozen": self.frozen,
                "unsynced": self.unsynced,
                "volatile": list(self.volatile),
            }
            for name in ("base", "parent"):
                value = getattr(self, name)
                plain[name] = None if value is None else _plain(value)
            plain["layers"] = None if self.layers is None else [_plain(x) for x in self.layers]
        return {**self.other, **plain}

    @classmethod
    def from_json(cls, value: object) -> SaveManifest:
        """Parse a manifest. Raises ValueError naming what is wrong."""
        if not isinstance(value, dict):
            raise ValueError("it is no JSON object")
        version = value.get("version")
        if isinstance(version, bool) or not isinstance(version, int) or version < 1:
            raise ValueError(f"version {version!r} is no version of a save")
        if version > VERSION:
            raise ValueError(
                f"version {version} is newer than {VERSION}, the newest that this program knows"
            )
        config, other_config = _parse_config(value.get("config"))
        arch = Architecture.parse(value["arch"]).value if "arch" in value else ""
        known = {"version", "config", "arch"} | _OURS
        other = {name: found for name, found in value.items() if name not in known}
        common = cls(
            config=config,
            arch=arch or (config.arch or Architecture.host()).value,
            version=version,
            other=other,
            other_config=other_config,
        )
        return _add_ours(common, value) if "id" in value else common


_OURS = {
    *("id", "created", "note", "engine"),
    *("base", "parent", "layers"),
    *("frozen", "unsynced", "volatile"),
}


def _parse_config(value: object) -> tuple[SandboxConfig, dict[str, Any]]:
    if not isinstance(value, dict):
        raise ValueError("config is no JSON object")
    known = {f.name for f in fields(SandboxConfig)} - _unknown_mounts(value)
    try:
        config = SandboxConfig.parse({k: v for k, v in value.items() if k in known})
    except (ConfigError, TypeError) as error:
        raise ValueError(f"config: {error}") from error
    return config, {k: v for k, v in value.items() if k not in known}


def _unknown_mounts(config: Mapping[str, Any]) -> set[str]:
    """Return the name of the mounts in a config if some are not understood. Mounts are never made
    from a save, so it can be used anyway."""
    try:
        SandboxConfig.parse({"image": "x", "mounts": config.get("mounts")})
    except ConfigError:
        return {"mounts"}
    return set()


def _add_ours(common: SaveManifest, value: Mapping[str, Any]) -> SaveManifest:
    layers = value.get("layers")
    if layers is not None:
        if not isinstance(layers, list) or not 0 < len(layers) <= LAYERS_MAX:
            raise ValueError("layers is no list of layers")
        layers = tuple(_parse_layer(layer) for layer in layers)
        if len({layer.id for layer in layers}) != len(layers):
            raise ValueError("two layers have the same id")
    created = value.get("created", 0.0)
    if isinstance(created, bool) or not isinstance(created, int | float):
        raise ValueError("created is no time")
    try:
        created = float(created)
    except OverflowError:
        created = math.inf
    if not math.isfinite(created):
        raise ValueError("created is no time")
    volatile = value.get("volatile", [])
    if not isinstance(volatile, list) or not all(isinstance(path, str) for path in volatile):
        raise ValueError("volatile is no list of paths")
    for name in ("frozen", "unsynced"):
        if not isinstance(value.get(name, False), bool):
            raise ValueError(f"{name} is neither true nor false")
    return replace(
        common,
        id=_match(_ID, value["id"], "id"),
        created=created,
        note=read_note(value.get("note")),
        engine=_text(value, "engine"),
        base=_parse_part(Base, value.get("base"), "base"),
        parent=_parse_part(Parent, value.get("parent"), "parent"),
        layers=layers,
        frozen=value.get("frozen", False),
        unsynced=value.get("unsynced", False),
        volatile=tuple(volatile),
    )


def _parse_layer(value: object) -> SavedLayer:
    if not isinstance(value, dict):
        raise ValueError("a layer is no JSON object")
    size = value.get("size")
    if isinstance(size, bool) or not isinstance(size, int) or not 0 < size < 2**63:
        raise ValueError(f"a layer of {size!r} bytes")
    return SavedLayer(
        id=_match(_ID, value.get("id"), "a layer's id"),
        size=size,
        sha256=_match(_SHA256, value.get("sha256"), "a layer's sha256"),
    )


def _parse_part(kind: Any, value: object, what: str) -> Any:
    if value is None:
        return None
    names = {f.name for f in fields(kind)}
    if not isinstance(value, dict) or "name" not in value:
        raise ValueError(f"{what} is not understood")
    return kind(**{name: _text(value, name) for name in names})


def _text(value: Mapping[str, Any], name: str) -> str:
    found = value.get(name, "")
    if not isinstance(found, str):
        raise ValueError(f"{name} is no text")
    return found


def is_sha256(value: str) -> bool:
    """Whether ``value`` has the form of a SHA-256 digest."""
    return _SHA256.fullmatch(value) is not None


def _match(pattern: re.Pattern[str], value: object, what: str) -> str:
    if not isinstance(value, str) or not pattern.fullmatch(value):
        raise ValueError(f"{what} is {value!r}")
    return value


def _plain(value: Any) -> dict[str, Any]:
    return {f.name: getattr(value, f.name) for f in fields(value)}


def check_save_name(name: str) -> str:
    """Return ``name`` if it is a valid name for a save. Raises ConfigError."""
    if not isinstance(name, str) or not name.strip() or _bytes(name) > NAME_MAX:
        raise ConfigError(
            f"{str(name)[:NAME_MAX]!r} is no name for a save", hint=f"1 to {NAME_MAX} bytes"
        )
    if "/" in name or name.startswith(".") or not name.isprintable():
        raise ConfigError(
            f"{name!r} is no name for a save",
            hint="no slash, no dot at the beginning, nothing that cannot be printed",
        )
    return name


def _bytes(name: str) -> int:
    return len(name.encode("utf-8", "surrogatepass"))


def require_file(path: Path) -> Path:
    """Return ``path`` if it is a regular file. Raises ValueError for a link or a pipe (reading one
    could block), OSError."""
    if not stat.S_ISREG(path.lstat().st_mode):
        raise ValueError("it is no file")
    return path


def read_manifest(root: Path) -> SaveManifest:
    """The manifest of the save in the directory ``root``. Raises SaveNotFoundError if there is
    none, SaveError naming what is wrong with it."""
    path = root / MANIFEST
    try:
        return SaveManifest.from_json(read_json(require_file(path)))
    except FileNotFoundError:
        raise SaveNotFoundError(f"there is no save at {root}: it has no {MANIFEST}") from None
    except (OSError, ValueError, OverflowError) as error:
        raise SaveError(f"the save at {root} cannot be used: {MANIFEST}: {error}") from error


_LOOKS = 4
"""Attempts to read a save before it counts as damaged."""
_LOOKS_AT_OTHERS = 100
"""Attempts to read a save while each finds that another save has replaced it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Save:
    """A save on disk, usable or not."""

    name: str
    root: Path
    manifest: SaveManifest | None
    """None if it cannot be used."""
    error: str = ""
    """Why it cannot be used."""
    identity: tuple[int, int] | None = None
    """Device and inode of its directory when it was read."""

    def require(self) -> SaveManifest:
        """Its manifest. Raises SaveError if it cannot be used."""
        if self.manifest is None:
            raise SaveError(f"the save {self.name!r} cannot be used: {self.error}")
        return self.manifest


def load_save(root: Path, name: str | None = None) -> Save:
    """The save in the directory ``root``; if it cannot be used, its ``error`` says why."""
    for look in range(_LOOKS_AT_OTHERS):
        save = _load(root, name or root.name)
        # While a save is replaced or removed, its manifest and files do not match.
        is_same = identity_of(root) == save.identity
        if is_same and (save.error == "" or look >= _LOOKS - 1):
            break
    return save


def _load(root: Path, name: str) -> Save:
    identity = identity_of(root)
    try:
        return Save(name=name, root=root, manifest=check_save(root), identity=identity)
    except SaveError as error:
        return Save(name=name, root=root, manifest=None, error=str(error), identity=identity)


def identity_of(path: Path) -> tuple[int, int] | None:
    """Device and inode of what is at ``path``; None if nothing is."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def check_save(root: Path) -> SaveManifest:
    """Check a save's manifest, files, sizes and qcow2 headers; reads no data.

    Raises SaveNotFoundError if there is no manifest, SaveError naming what is wrong.
    """
    manifest = read_manifest(root)
    for number, path in enumerate(overlay_paths(root, manifest)):
        try:
            if path.is_symlink() or not path.is_file():
                raise SaveError(f"the save at {root} is incomplete: {path.name} is no file")
            if manifest.layers is not None:
                size, known = path.stat().st_size, manifest.layers[number].size
                if size != known:
                    raise SaveError(f"{path} has {size} bytes instead of {known}")
            check_qcow2(path, allow_backing=True)
        except ImageError as error:
            raise SaveError(str(error)) from error
        except OSError as error:
            raise SaveError(f"{path} cannot be read: {error.strerror}") from error
    return manifest


def overlay_paths(root: Path, manifest: SaveManifest) -> tuple[Path, ...]:
    """The files of a save's disk, the lowest first. Raises SaveError if one is missing."""
    directory = root / OVERLAYS
    if manifest.layers is not None:
        return tuple(directory / f"{n}.qcow2" for n in range(len(manifest.layers)))
    try:
        found = {p.stem for p in directory.iterdir() if p.suffix == ".qcow2"}
    except OSError as error:
        raise SaveError(f"the save at {root} has no {OVERLAYS}: {error.strerror}") from error
    if not found or found != {str(n) for n in range(len(found))}:
        raise SaveError(f"the overlays of the save at {root} are not 0.qcow2 to N.qcow2")
    return tuple(directory / f"{n}.qcow2" for n in range(len(found)))
