"""The manifest of a bundle, its first member: it describes the bundle and lists all other files.

It contains a digest of itself and of every file, so damage never goes unnoticed. (The digests do
not say who made the bundle.)
"""

from __future__ import annotations

import codecs
import hashlib
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NoReturn

from quicksand.base.arch import Architecture
from quicksand.base.fields import JsonRecord, each_by, later, read_by
from quicksand.disks.images.stored_image import layer_part
from quicksand.records.config import SandboxConfig
from quicksand.records.nodes import is_id
from quicksand.saves.save_manifest import OVERLAYS, SaveManifest, read_sha256

FORMAT = "quicksand-bundle"
VERSION, WITHOUT_LAYERS = 2, 1
"""The newest version, and that of bundles without an image of several layers, which older programs
know, too."""
MANIFEST = "manifest.json"
MANIFEST_MAX = 1024 * 1024
"""Bytes; enough for about 7000 files."""

IMAGE_FILES = {"image.qcow2": "disk", "image.kernel": "kernel", "image.initrd": "initrd"}
"""The names in a bundle (fixed by the specification), and the parts of an image in the store."""

_LAYER_FILE = re.compile(r"image\.(layer[1-9][0-9]?)\.qcow2")


def image_part(name: str) -> str | None:
    """Return the part of an image that a file of a bundle is; None if it is none."""
    layer = _LAYER_FILE.fullmatch(name)
    return layer[1] if layer else IMAGE_FILES.get(name)


def image_names(layers: int) -> list[str]:
    """Return the names in a bundle of an image's files, in their order, of how many layers its disk
    has."""
    disk, kernel, initrd = IMAGE_FILES
    return [disk, *(f"image.{layer_part(n)}.qcow2" for n in range(1, layers)), kernel, initrd]


CMDLINE_MAX = 4096
"""Characters of the kernel's command line."""

BYTE_ORDER_MARKS = (codecs.BOM_UTF8, codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
"""The refused byte order marks. UTF-32-LE's begins with UTF-16-LE's; UTF-32-BE is not UTF-8."""

NUMBER_MAX = 20
"""Digits of an integer; enough for any file's size."""

_IMAGE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,99}")


class BundleKind(StrEnum):
    """The kinds of bundles."""

    SAVE = "save"
    TREE = "tree"
    """A sandbox with its checkpoints, and with its disk if it was stopped."""
    IMAGE = "image"
    """An image. A bundle of one may also have the other manifest that the specification
    describes."""

    @property
    def named(self) -> str:
        """Its name with an article, for people."""
        return {"save": "a save", "tree": "a sandbox", "image": "an image"}[self.value]


_KEYS = {BundleKind.SAVE: "save", BundleKind.TREE: "sandbox"}
"""The keys of the content in the manifest, by the kind of the bundle."""


def check_image_name(name: object) -> str:
    """Return ``name`` if it can name an image. Raises ValueError."""
    if not isinstance(name, str) or not _IMAGE_NAME.fullmatch(name):
        raise ValueError(f"{str(name)[:100]!r} cannot be the name of an image")
    return name


def check_cmdline(text: object) -> str:
    """Return ``text`` if it can be a kernel's command line. Raises ValueError."""
    if not isinstance(text, str) or len(text) > CMDLINE_MAX or not text.isprintable():
        raise ValueError("the kernel's command line is too long, or cannot be printed")
    return text


def _read_size(value: object) -> int:
    if type(value) is not int or not 0 <= value < 2**63:
        raise ValueError(f"a file of {value!r:.80} bytes")
    return value


def _read_id(value: object) -> str:
    if not is_id(value):
        raise ValueError(f"{str(value)[:40]!r} is not an id")
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class Member(JsonRecord):
    """A file in a bundle."""

    WHAT = "a file"

    name: str
    size: int = field(metadata=read_by(_read_size))
    """Bytes."""
    sha256: str = field(metadata=read_by(read_sha256))


@dataclass(frozen=True, slots=True, kw_only=True)
class BundleBase(JsonRecord):
    """The image below a save or a sandbox."""

    WHAT = "base"

    name: str = field(metadata=read_by(check_image_name))
    version: str
    digest: str = field(metadata=read_by(read_sha256))
    """The digest in the image store: of all files, the command line and the recipe."""
    arch: str = field(metadata=read_by(lambda value: Architecture.parse(value).value))
    recipe: str = ""
    cmdline: str = field(default="", metadata=read_by(check_cmdline))
    about: dict[str, Any] = field(default_factory=dict, metadata=later({}))
    """The other fields of its manifest in the image store."""

    def __str__(self) -> str:
        version = f" version {self.version}" if self.version else ""
        return f"{self.name!r}{version}, digest {self.digest[:12]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class BundledSandbox(JsonRecord):
    """The sandbox in a bundle of the kind "tree"."""

    WHAT = "sandbox"

    id: str = field(metadata=read_by(_read_id))
    config: SandboxConfig = field(metadata=read_by(SandboxConfig.parse))
    layers: tuple[str, ...] = field(default=(), metadata=each_by(_read_id))
    """The frozen layers of its present disk, the lowest first."""
    top: str | None = field(default=None, metadata=later(None, **read_by(_read_id)))
    """The layer that its guest wrote to; None if the bundle lacks the present disk."""
    node: str | None = field(default=None, metadata=later(None, **read_by(_read_id)))
    """The id of the checkpoint that it stands on, or None."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bundle:
    """The contents of a bundle's manifest."""

    name: str
    """The name of the save or the sandbox."""
    created: float
    """Unix time of the save or of the latest checkpoint."""
    content: SaveManifest | BundledSandbox | None
    """None if it holds an image, which is its base."""
    base: BundleBase
    files: tuple[Member, ...]
    """All files that follow the manifest, in order."""

    @property
    def kind(self) -> BundleKind:
        if self.content is None:
            return BundleKind.IMAGE
        return BundleKind.SAVE if isinstance(self.content, SaveManifest) else BundleKind.TREE

    @property
    def is_full(self) -> bool:
        """Whether the bundle contains its base."""
        return bool(self.image_files)

    @property
    def image_files(self) -> tuple[Member, ...]:
        """The files of its base, if it contains them."""
        return tuple(file for file in self.files if image_part(file.name) is not None)

    @property
    def config(self) -> SandboxConfig | None:
        """The configuration of the save or sandbox."""
        return None if self.content is None else self.content.config

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.size for file in self.files)

    def encode(self) -> bytes:
        """Encode the manifest; equal bundles give equal bytes."""
        content = {} if self.content is None else {_KEYS[self.kind]: self.content.to_json()}
        plain = {
            "format": FORMAT,
            "version": VERSION if len(self.image_files) > len(IMAGE_FILES) else WITHOUT_LAYERS,
            "kind": self.kind.value,
            "name": self.name,
            "full": self.is_full,
            "created": self.created,
            **content,
            "base": self.base.to_json(),
            "files": [file.to_json() for file in self.files],
        }
        text = json.dumps({**plain, "sha256": _digest(plain)}, indent=1, allow_nan=False)
        return text.encode() + b"\n"

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Bundle:
        """Parse and check a manifest. Raises ValueError saying what is wrong, ConfigError."""
        version = value.get("version")
        if isinstance(version, bool) or not isinstance(version, int) or version < 1:
            raise ValueError(f"version {version!r} is not a version of a bundle")
        if version > VERSION:
            raise ValueError(
                f"its version {version} is newer than {VERSION}, the newest that this program knows"
            )
        plain = {key: found for key, found in value.items() if key != "sha256"}
        if value.get("format") != FORMAT or value.get("sha256") != _digest(plain):
            raise ValueError(f"{MANIFEST} is damaged: its digest does not fit")
        kind = BundleKind(str(value.get("kind")))
        content: SaveManifest | BundledSandbox | None = None
        if kind is BundleKind.SAVE:
            content = SaveManifest.from_json(value.get("save"))
        elif kind is BundleKind.TREE:
            content = BundledSandbox.from_json(value.get("sandbox"))
        created = value.get("created")
        if isinstance(created, bool) or not isinstance(created, int | float):
            raise ValueError("created is not a time")
        files = value.get("files")
        if not isinstance(files, list):
            raise ValueError("files is not a list")
        found = cls(
            name=_text(value, "name"),
            created=float(created),
            content=content,
            base=BundleBase.from_json(value.get("base")),
            files=tuple(Member.from_json(file) for file in files),
        )
        found._check(value)
        return found

    def _check(self, value: Mapping[str, Any]) -> None:
        """Raise ValueError unless all parts fit each other."""
        if not math.isfinite(self.created):
            raise ValueError("created is not a time")
        names = [file.name for file in self.files]
        if len(set(names)) != len(names):
            raise ValueError("two of its files have the same name")
        images = [file.name for file in self.image_files]
        whole = image_names(len(images) - len(IMAGE_FILES) + 1)
        if value.get("full") is not bool(images) or images not in ([], whole):
            raise ValueError("its manifest and its files disagree on whether it contains its base")
        if names[len(names) - len(images) :] != images:
            raise ValueError("the files of its base do not come last")
        if self.config is None:
            if not images or names != images:
                raise ValueError("its files are not those of an image")
        elif self.config.image != self.base.name:
            raise ValueError(f"its image is {self.config.image!r}, and its base is {self.base}")
        if isinstance(self.content, SaveManifest):
            self._check_save(self.content, names[: len(names) - len(images)])

    def _check_save(self, save: SaveManifest, names: list[str]) -> None:
        layers = save.layers or ()
        if save.base is None or save.base.digest != self.base.digest:
            raise ValueError("the save has another base")
        if save.base.name != self.base.name or save.arch != self.base.arch:
            raise ValueError("the save has another base")
        if not layers or names != [overlay_name(n) for n in range(len(layers))]:
            raise ValueError("its files are not the layers of the save")
        for layer, file in zip(layers, self.files, strict=False):
            if (layer.size, layer.sha256) != (file.size, file.sha256):
                raise ValueError(f"{file.name} is not the layer that the save lists")


def overlay_name(number: int) -> str:
    """Return the name in a bundle of a save's layer, counted from 0 at the lowest."""
    return f"{OVERLAYS}/{number}.qcow2"


def parse_json(data: bytes, what: str = MANIFEST) -> dict[str, Any]:
    """Parse an untrusted JSON object; errors call it ``what``. Raises ValueError."""

    def refuse(word: str) -> NoReturn:
        raise ValueError(f"{what} has the number {word[:24]}")

    def whole(word: str) -> int:
        return int(word) if len(word) <= NUMBER_MAX else refuse(word)

    def real(word: str) -> float:
        number = float(word)
        return number if math.isfinite(number) else refuse(word)

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            raise ValueError(f"{what} says something twice")
        return found

    if data.startswith(BYTE_ORDER_MARKS):
        raise ValueError(f"{what} begins with a byte order mark: another program has rewritten it")
    try:
        value = json.loads(
            data.decode("utf-8"),  # of bytes it would guess the encoding
            parse_constant=refuse,
            parse_int=whole,
            parse_float=real,
            object_pairs_hook=unique,
        )
    except RecursionError:
        raise ValueError(f"{what} is nested too deeply") from None
    except UnicodeDecodeError:
        raise ValueError(f"{what} is not a text") from None
    if not isinstance(value, dict):
        raise ValueError(f"{what} is not a JSON object")
    return value


def _digest(plain: Mapping[str, Any]) -> str:
    text = json.dumps(plain, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _text(value: Mapping[str, Any], name: str) -> str:
    found = value.get(name)
    if not isinstance(found, str):
        raise ValueError(f"{name} is not a text")
    return found
