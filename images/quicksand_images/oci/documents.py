"""The documents of an image: indexes, manifests, configs (OCI image specification; Docker's
"Image Manifest Version 2, Schema 2" has the same fields under other media types)."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NoReturn, TypeGuard

from quicksand.base.arch import Architecture
from quicksand.base.error_text import reason_of, size_text
from quicksand.base.errors import ImageError
from quicksand.base.fields import Fields

DOCUMENT_MAX = 4 * 1024 * 1024
"""Bytes of a document (OCI distribution specification, "Pushing Manifests")."""

LAYERS_MAX = 512
"""Layers of an image; overlay file systems of Docker allow 128."""

IMAGES_MAX = 1000
"""Entries of an index."""

SIZE_MAX = 64 * 1024**3
"""The most bytes of a stored layer."""

LIST_MAX = 4096
"""Words of a command, and variables."""

DEFAULTS_MAX = 48 * 1024
"""Bytes of an image's settings for commands; the agent reads 64 KiB (users/defaults.rs)."""

INDEXES = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
)
MANIFESTS = (
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
)
_CONFIGS = (
    "application/vnd.oci.image.config.v1+json",
    "application/vnd.docker.container.image.v1+json",
)
_OCI, _DOCKER = (
    "application/vnd.oci.image.layer.v1.tar",
    "application/vnd.docker.image.rootfs.diff.tar",
)
_LAYERS = {
    base + end for base in (_OCI, _DOCKER) for end in ("", "+gzip", ".gzip", "+zstd", ".zstd")
}
_FOREIGN = ("nondistributable", "foreign")
REF_NAME = "org.opencontainers.image.ref.name"
_CONTAINERD_NAME = "io.containerd.image.name"

_DIGEST = re.compile(r"sha256:([0-9a-f]{64})")


@dataclass(frozen=True, slots=True, kw_only=True)
class Descriptor:
    """A document's description of another one, or of a layer."""

    kind: str
    """Its media type."""
    digest: str
    """Its SHA-256, in hexadecimal."""
    size: int
    name: str = ""
    """The image's name, if given."""
    platform: str = ""
    """The platform, such as "linux/amd64"; "" if not given."""
    variant: str = ""
    """The variant of that architecture, such as "v3"; "" if not given."""

    @property
    def level(self) -> int:
        """The number of its variant: 1 on amd64 and 8 on arm64 for what every processor has, which
        is also the default."""
        digits = self.variant.removeprefix("v")
        return int(digits) if digits.isascii() and digits.isdigit() else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """The parts of an image."""

    config: Descriptor
    layers: tuple[Descriptor, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """The config of an image, as far as it matters here."""

    digest: str
    diff_ids: tuple[str, ...]
    """The SHA-256 of each unpacked layer, the lowest first."""
    entrypoint: tuple[str, ...]
    cmd: tuple[str, ...]
    env: tuple[str, ...]
    """``NAME=value``."""
    user: str
    """``USER`` or ``USER:GROUP``, by name or number; "" for root."""
    cwd: str
    created: int
    """Unix time at which the image was made; 0 if not given."""

    def defaults(self) -> dict[str, Any]:
        """Return the agent's settings for commands in the guest."""
        return {
            "entrypoint": list(self.entrypoint),
            "cmd": list(self.cmd),
            "env": list(self.env),
            "user": self.user,
            "cwd": self.cwd,
        }


def parse_document(data: bytes, what: str) -> dict[str, Any]:
    """Decode a document. Raises ImageError for an invalid one."""
    if len(data) > DOCUMENT_MAX:
        refuse(what, f"it has {size_text(len(data))}")
    try:
        found = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ImageError(f"{what} is refused: it is no JSON that can be read") from error
    if not isinstance(found, dict):
        refuse(what, "it is no JSON object")
    return found


def refuse(what: str, why: str) -> NoReturn:
    """Raise ImageError."""
    raise ImageError(f"{what} is refused: {why}")


def is_text(value: object) -> TypeGuard[str]:
    """Whether a value is text that can be written as UTF-8, without a null character. JSON may have
    half a surrogate pair, for which the agent would refuse all of an image's settings for commands;
    then commands would run as root."""
    if not isinstance(value, str) or "\0" in value:
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def digest_of(text: str, what: str) -> str:
    """Return the hexadecimal digits of a digest. Raises ImageError for another kind of digest."""
    found = _DIGEST.fullmatch(text)
    if found is None:
        refuse(what, f"the digest {text[:100]!r} is no SHA-256 in hexadecimal")
    return found[1]


def sha256(data: bytes) -> str:
    """Return a SHA-256 in hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def parse_index(document: Mapping[str, Any], what: str) -> list[Descriptor]:
    """Return the images of an index. Raises ImageError."""
    entries = _list(document.get("manifests"), what, "manifests", IMAGES_MAX)
    return [_descriptor(entry, what) for entry in entries]


def choose(images: Sequence[Descriptor], arch: Architecture, what: str) -> Descriptor:
    """Return the image for guests of ``arch``. An image without a platform counts, too: its config
    has one. Raises ImageError naming the available platforms."""
    wanted = f"linux/{arch.debian}"
    known = [one for one in images if one.kind in (*INDEXES, *MANIFESTS)]
    fitting = [one for one in known if one.platform == wanted]
    if fitting:
        # The one that runs on most processors.
        return min(fitting, key=lambda one: one.level)
    silent = [one for one in known if not one.platform]
    if len(silent) == 1:
        return silent[0]
    there = sorted({one.platform or "one that says none" for one in known} - {"unknown/unknown"})
    raise ImageError(
        f"{what} has no image for {wanted}; it has {', '.join(there) or 'none that is known here'}",
        hint=_other_arch(there),
    )


def _other_arch(platforms: Iterable[str]) -> str:
    """Return the remedy for an image that has only these platforms, "" if there is none."""
    names = (arch.debian for arch in Architecture if f"linux/{arch.debian}" in platforms)
    return " or ".join(f"--arch {name} builds it for guests of {name}" for name in names)


def parse_manifest(document: Mapping[str, Any], what: str) -> Manifest:
    """Check a manifest. Raises ImageError for one that cannot be used, naming why."""
    kind = document.get("mediaType", MANIFESTS[0])
    if document.get("schemaVersion") != 2 or kind not in MANIFESTS:
        refuse(what, f"it is of an unknown kind ({str(kind)[:100]!r}, version 2 is known)")
    config = _descriptor(document.get("config"), what)
    if config.kind not in _CONFIGS:
        refuse(what, f"it is no image to run, but has a config of the kind {config.kind[:100]!r}")
    layers = []
    for entry in _list(document.get("layers"), what, "layers", LAYERS_MAX):
        layer = _descriptor(entry, what)
        if any(word in layer.kind for word in _FOREIGN) or entry.get("urls"):
            refuse(what, "a layer of it lies elsewhere (a foreign layer), and is not fetched")
        if layer.kind not in _LAYERS:
            refuse(what, f"a layer of it is of the unknown kind {layer.kind[:100]!r}")
        layers.append(layer)
    if not layers:
        refuse(what, "it has no layers, so there is nothing to run")
    return Manifest(config=config, layers=tuple(layers))


def parse_config(data: bytes, arch: Architecture, what: str) -> Config:
    """Check the config of an image for guests of ``arch``. Raises ImageError."""
    document = parse_document(data, what)
    try:
        found = Fields(document, what)
        system, machine = found.text("os"), found.text("architecture")
        if (system, machine) != ("linux", arch.debian):
            raise ImageError(
                f"{what} is refused: it is for {system[:40]}/{machine[:40]}, and not for "
                f"linux/{arch.debian}",
                hint=_other_arch([f"{system}/{machine}"]),
            )
        ids = _list(document.get("rootfs", {}).get("diff_ids"), what, "diff_ids", LAYERS_MAX)
        run = Fields(document.get("config") or {}, what)
        config = Config(
            digest=sha256(data),
            diff_ids=tuple(digest_of(str(one), what) for one in ids),
            entrypoint=_words(run, "Entrypoint", what),
            cmd=_words(run, "Cmd", what),
            env=_variables(_words(run, "Env", what), what),
            user=_plain(run, "User", what),
            cwd=_directory(_plain(run, "WorkingDir", what), what),
            created=_time(document.get("created")),
        )
    except (ValueError, TypeError, AttributeError) as error:
        raise ImageError(f"{what} is refused: {reason_of(error)}") from error
    if len(json.dumps(config.defaults())) > DEFAULTS_MAX:
        refuse(what, f"its variables and commands take more than {size_text(DEFAULTS_MAX)}")
    return config


def _descriptor(entry: object, what: str) -> Descriptor:
    try:
        found = Fields(entry, what)
        size = found.whole("size")
        names = found.any("annotations", default={}) or {}
        name = names.get(_CONTAINERD_NAME) or names.get(REF_NAME) or ""
        if not is_text(name):
            refuse(what, "a name in it is no proper text")
        platform = found.any("platform", default=None)
        told = "" if platform is None else f"{platform['os']}/{platform['architecture']}"
        variant = "" if platform is None else str(platform.get("variant", ""))
        kind, digest = found.text("mediaType"), digest_of(found.text("digest"), what)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ImageError(f"{what} is refused: {reason_of(error)}") from error
    if not 0 <= size <= SIZE_MAX:
        refuse(what, f"{digest[:12]}… is said to have {size} bytes")
    return Descriptor(
        kind=kind,
        digest=digest,
        size=size,
        name=name[:512],
        platform=told[:100],
        variant=variant[:16],
    )


def _list(value: object, what: str, name: str, most: int) -> list[Any]:
    if not isinstance(value, list):
        refuse(what, f"{name} is no list")
    if len(value) > most:
        refuse(what, f"it has {len(value)} {name}, and {most} are possible")
    return value


def _words(run: Fields, name: str, what: str) -> tuple[str, ...]:
    given = run.any(name, default=None)
    words = _list([] if given is None else given, what, name, LIST_MAX)
    if not all(is_text(word) for word in words):
        refuse(what, f"{name} has something that is no word of a command")
    return tuple(words)


def _plain(run: Fields, name: str, what: str) -> str:
    given = run.any(name, default=None)
    value = "" if given is None else given
    if not is_text(value) or len(value) > 4096:
        refuse(what, f"{name} is no proper text")
    return value


def _time(text: object) -> int:
    """Return a time of RFC 3339 as Unix time, and 0 for anything else."""
    try:
        found = datetime.fromisoformat(str(text))
        return max(0, int(found.replace(tzinfo=found.tzinfo or UTC).timestamp()))
    except (ValueError, OverflowError):
        return 0


def _variables(items: tuple[str, ...], what: str) -> tuple[str, ...]:
    for item in items:
        if item.partition("=")[0] == "" or "=" not in item:
            refuse(what, f"{item[:100]!r} is no variable")
    return items


def _directory(path: str, what: str) -> str:
    if path and not path.startswith("/"):
        refuse(what, f"its working directory {path[:100]!r} is no absolute path")
    return path
