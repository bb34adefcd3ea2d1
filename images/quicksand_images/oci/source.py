"""An image among the files of a place: its documents, verified, and its layers."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from quicksand.base.arch import Architecture
from quicksand.base.errors import ImageError
from quicksand.base.files import JSON_MAX

from quicksand_images.oci.documents import (
    DOCUMENT_MAX,
    IMAGES_MAX,
    INDEXES,
    LAYERS_MAX,
    Config,
    Descriptor,
    choose,
    is_text,
    parse_config,
    parse_document,
    parse_index,
    parse_manifest,
    refuse,
    sha256,
)
from quicksand_images.oci.layers import Blob, pieces_of
from quicksand_images.oci.places import Place, blob_name

DEPTH_MAX = 4
"""Indexes within each other."""

_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """A layer that is here."""

    blob: Blob
    digest: str
    """Its stored SHA-256, in hexadecimal; "" if not given."""
    diff_id: str
    """Its SHA-256 when unpacked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundImage:
    """An image whose documents were verified. Its layers were not."""

    name: str
    """Its name there, such as "example/app:1.0"; "" if not given."""
    config: Config
    layers: tuple[Layer, ...]


def find_image(place: Place, arch: Architecture, *, pick: str = "") -> FoundImage:
    """Find the image for guests of ``arch``: the only one, or the one called ``pick``. Raises
    ImageError, OSError."""
    if (layout := place.file("index.json")) is not None:
        return _in_layout(place, layout, arch, pick)
    if (listing := place.file("manifest.json")) is not None:
        return _in_docker_archive(place, listing, arch, pick)
    raise ImageError(
        f"{place.what} has no container image: neither index.json (OCI) nor manifest.json "
        "(`docker save`) is in it",
        hint="`docker save NAME -o FILE.tar` writes one; `docker export` writes only the files",
    )


# --- OCI layouts


def _in_layout(place: Place, layout: Blob, arch: Architecture, pick: str) -> FoundImage:
    what = f"index.json of {place.what}"
    images = parse_index(parse_document(_read(layout, what), what), what)
    chosen = _picked(images, [one.name for one in images], place.what, pick, arch)
    name = chosen.name
    for _ in range(DEPTH_MAX):
        document = parse_document(_verified(place, chosen), _what(chosen))
        if chosen.kind not in INDEXES and "manifests" not in document:
            break
        chosen = choose(parse_index(document, _what(chosen)), arch, place.what)
    else:
        refuse(place.what, "its indexes lead to indexes only")
    manifest = parse_manifest(document, _what(chosen))
    config = parse_config(_verified(place, manifest.config), arch, "the image's config")
    blobs = [(_blob(place, layer), layer.digest) for layer in manifest.layers]
    return FoundImage(name=name, config=config, layers=_layers(blobs, config))


def _picked(
    images: list[Descriptor], names: list[str], what: str, pick: str, arch: Architecture
) -> Descriptor:
    index = _pick(names, what, pick)
    return choose(images, arch, what) if index is None else images[index]


def _pick(names: list[str], what: str, pick: str) -> int | None:
    """Return the number of the requested image; None if they may be one image for several
    platforms. Raises ImageError."""
    fits = [n for n, name in enumerate(names) if pick and _is_called(name, pick)]
    if pick and len(fits) != 1:
        there = ", ".join(sorted(filter(None, names))) or "none with a name"
        raise ImageError(f"{what} has no image {pick!r}; it has {there}")
    if fits:
        return fits[0]
    if not names:
        raise ImageError(f"{what} has no image in it")
    if len(set(names)) > 1:
        there = ", ".join(sorted(name or "(no name)" for name in names))
        raise ImageError(
            f"{what} has several images: {there}",
            hint="--pick NAME takes one of them",
        )
    return 0 if len(names) == 1 else None


def _is_called(name: str, pick: str) -> bool:
    """Whether an image is meant: by its whole name, or by its end after a slash or a colon."""
    return bool(name) and (name == pick or name.endswith((f"/{pick}", f":{pick}")))


# --- docker save, the old form


def _in_docker_archive(place: Place, listing: Blob, arch: Architecture, pick: str) -> FoundImage:
    what = f"manifest.json of {place.what}"
    entries = _parse_listing(_read(listing, what), what)
    names = [_tag_of(entry) for entry in entries]
    tags = [(n, tag) for n, entry in enumerate(entries) for tag in entry.get("RepoTags") or []]
    if pick and tags:
        chosen = entries[tags[_pick([tag for _, tag in tags], place.what, pick) or 0][0]]
    else:
        chosen = entries[_pick(names, place.what, pick) or 0]
    file = str(chosen.get("Config", ""))
    blob = place.file(file)
    if blob is None:
        refuse(what, f"it names the config {file[:100]!r}, which is not there")
    data = _read(blob, f"{file[:100]} of {place.what}")
    # docker save names it by its digest, others (crane, ko) put "sha256:" in front, or name it
    # config.json (jib).
    said = file.rpartition("/")[2].removesuffix(".json").removeprefix("sha256:")
    if _SHA256.fullmatch(said) and said != sha256(data):
        refuse(f"{file[:100]} of {place.what}", f"its SHA-256 is {sha256(data)[:12]}…")
    config = parse_config(data, arch, "the image's config")
    blobs = [(_named(place, str(layer), what), "") for layer in chosen.get("Layers") or []]
    return FoundImage(name=_tag_of(chosen), config=config, layers=_layers(blobs, config))


def _parse_listing(data: bytes, what: str) -> list[dict[str, Any]]:
    try:
        found = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ImageError(f"{what} is refused: it is no JSON that can be read") from error
    if not isinstance(found, list) or not found or len(found) > IMAGES_MAX:
        refuse(what, "it is no list of images")
    for entry in found:
        lists = ("Layers", "RepoTags") if isinstance(entry, dict) else ()
        if not lists or not all(_is_text_list(entry.get(name) or []) for name in lists):
            refuse(what, "an entry of it is no image")
        if len(entry.get("Layers") or []) > LAYERS_MAX:
            refuse(what, f"an image of it has more than {LAYERS_MAX} layers")
    return found


def _is_text_list(value: object) -> bool:
    return isinstance(value, list) and all(map(is_text, value))


def _tag_of(entry: dict[str, Any]) -> str:
    return str(next(iter(entry.get("RepoTags") or []), ""))


# --- files


def _layers(blobs: list[tuple[Blob, str]], config: Config) -> tuple[Layer, ...]:
    if not blobs:
        refuse("the image", "it has no layers, so there is nothing to run")
    if len(blobs) != len(config.diff_ids):
        refuse(
            "the image", f"it has {len(blobs)} layers, and its config says {len(config.diff_ids)}"
        )
    pairs = zip(blobs, config.diff_ids, strict=True)
    return tuple(Layer(blob=blob, digest=digest, diff_id=id_) for (blob, digest), id_ in pairs)


def _verified(place: Place, one: Descriptor) -> bytes:
    data = _read(_blob(place, one), _what(one))
    if sha256(data) != one.digest:
        refuse(_what(one), f"its SHA-256 is {sha256(data)[:12]}…")
    return data


def _blob(place: Place, one: Descriptor) -> Blob:
    blob = _named(place, blob_name(one.digest), place.what)
    if blob.size != one.size:
        refuse(_what(one), f"it has {blob.size} bytes, and {one.size} were said")
    return blob


def _named(place: Place, name: str, what: str) -> Blob:
    blob = place.file(name)
    if blob is None:
        refuse(what, f"it names {name[:100]!r}, which is not there")
    return blob


def _read(blob: Blob, what: str) -> bytes:
    if blob.size > min(DOCUMENT_MAX, JSON_MAX):
        refuse(what, "it is too large for a document")
    return b"".join(pieces_of(blob))


def _what(one: Descriptor) -> str:
    return f"{one.digest[:12]}… ({one.kind[:80]})"
