"""A save on disk: its ``manifest.json``, compatible with the published quicksand packages, and a
check of its files, sizes and qcow2 headers, which reads no data.

Those packages write ``version``, ``config`` and ``arch``; all other fields are additions of this
engine. Unknown fields are kept as they are.
"""

from __future__ import annotations

import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from quicksand.base.arch import Architecture
from quicksand.base.errors import ConfigError, ImageError, SaveError, SaveNotFoundError
from quicksand.base.fields import JsonRecord, later, read_by
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
class Base(JsonRecord):
    """The image below a save."""

    WHAT = "base"

    name: str
    version: str = field(default="", metadata=later(""))
    digest: str = field(default="", metadata=later(""))
    """The image store's digest of all its files; "" for an image outside of the store."""

    def __str__(self) -> str:
        parts = [repr(self.name)]
        if self.version:
            parts.append(f"version {self.version}")
        if self.digest:
            parts.append(f"digest {self.digest[:12]}")
        return ", ".join(parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Parent(JsonRecord):
    """The save with which the saved sandbox had started."""

    WHAT = "parent"

    name: str
    id: str = field(metadata=later(""))


def _read_id(value: object) -> str:
    return _match(_ID, value, "an id")


def read_sha256(value: object) -> str:
    """Raises ValueError."""
    return _match(_SHA256, value, "a sha256")


def _read_size(value: object) -> int:
    if type(value) is not int or not 0 < value < 2**63:
        raise ValueError(f"a layer of {value!r:.80} bytes")
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedLayer(JsonRecord):
    """One file of a save's disk, ``overlays/<number>.qcow2``."""

    WHAT = "a layer"

    id: str = field(metadata=read_by(_read_id))
    """The layer's id, the same in every save and sandbox that shares it."""
    size: int = field(metadata=read_by(_read_size))
    """Bytes of the file."""
    sha256: str = field(metadata=read_by(read_sha256))


def _read_layers(value: object) -> tuple[SavedLayer, ...]:
    if not isinstance(value, list) or not 0 < len(value) <= LAYERS_MAX:
        raise ValueError("layers is no list of layers")
    layers = tuple(map(SavedLayer.from_json, value))
    if len({layer.id for layer in layers}) != len(layers):
        raise ValueError("two layers have the same id")
    return layers


def _read_already(value: Any) -> Any:
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class SaveManifest(JsonRecord):
    """The contents of a save's manifest."""

    WHAT = "bad manifest"

    version: int = VERSION
    config: SandboxConfig = field(metadata=read_by(_read_already))
    """The saved sandbox's config; ``config.image`` is the image's name."""
    arch: str
    id: str = field(default="", metadata=later("", **read_by(_read_id)))
    """The save's id. In published packages' saves this and all later fields have their defaults."""
    created: float = field(default=0.0, metadata=later(0.0))
    """Unix time."""
    note: str = field(default="", metadata=later("", **read_by(read_note)))
    engine: str = field(default="", metadata=later(""))
    frozen: bool = field(default=False, metadata=later(False))
    """The guest's file system was frozen at the moment of the save."""
    unsynced: bool = field(default=False, metadata=later(False))
    """Whether the guest was paused or did not answer, so that its unwritten data are missing."""
    volatile: tuple[str, ...] = field(default=(), metadata=later(()))
    """Paths in the guest whose files are only in memory (tmpfs) and so not in the save."""
    base: Base | None = field(default=None, metadata=later(None, **read_by(Base.from_json)))
    parent: Parent | None = field(default=None, metadata=later(None, **read_by(Parent.from_json)))
    layers: tuple[SavedLayer, ...] | None = field(
        default=None, metadata=later(None, **read_by(_read_layers))
    )
    """The lowest first; None if the manifest does not list them."""
    other: Mapping[str, Any] = field(default_factory=dict, metadata=read_by(_read_already))
    """Unknown fields."""
    other_config: Mapping[str, Any] = field(default_factory=dict, metadata=read_by(_read_already))
    """Unknown options of ``config``, and mounts of kinds that are not known here."""

    def to_json(self) -> dict[str, Any]:
        plain = JsonRecord.to_json(self)
        plain["config"] |= plain.pop("other_config")
        other = plain.pop("other")
        return {**other, **(plain if self.id else {name: plain[name] for name in _PUBLISHED})}

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
        ours = {one.name for one in fields(cls)} - {"other", "other_config"}
        wanted = ours if "id" in value else _PUBLISHED
        told = {
            **{name: found for name, found in value.items() if name in wanted},
            "config": config,
            "arch": arch or (config.arch or Architecture.host()).value,
            "other": {name: found for name, found in value.items() if name not in ours},
            "other_config": other_config,
        }
        return cls._read(told)


_PUBLISHED = ("version", "config", "arch")
"""The fields that published packages write."""


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


def is_sha256(value: str) -> bool:
    """Whether ``value`` has the form of a SHA-256 digest."""
    return _SHA256.fullmatch(value) is not None


def _match(pattern: re.Pattern[str], value: object, what: str) -> str:
    if not isinstance(value, str) or not pattern.fullmatch(value):
        raise ValueError(f"{what} is {value!r:.80}")
    return value


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
    return save  # pyright: ignore[reportPossiblyUnboundVariable]  # it was looked at once at least


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
