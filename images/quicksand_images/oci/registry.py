"""Fetches an image from a registry into an OCI layout (OCI distribution specification)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

from quicksand.base.arch import Architecture
from quicksand.base.capacity import check_space
from quicksand.base.errors import ConfigError, ImageError, ImageNotFound, UnreachableError
from quicksand.base.files import map_os_errors
from quicksand.base.progress import Progress
from quicksand.base.regular import create
from quicksand.disks.packages.sources import Web
from quicksand_wheels.links import Link, is_loopback
from quicksand_wheels.web import PAUSE_S

from quicksand_images.oci.credentials import RegistryAuth, docker_config, find_login, names_helper
from quicksand_images.oci.documents import (
    INDEXES,
    MANIFESTS,
    Descriptor,
    choose,
    parse_config,
    parse_document,
    parse_index,
    parse_manifest,
    refuse,
    sha256,
)
from quicksand_images.oci.layers import TOTAL_MAX
from quicksand_images.oci.places import blob_name
from quicksand_images.oci.reference import Reference
from quicksand_images.oci.source import DEPTH_MAX

ACCEPTED = ", ".join((*INDEXES, *MANIFESTS))


async def fetch(
    reference: Reference,
    target: Path,
    arch: Architecture,
    *,
    plain_http: bool = False,
    progress: Progress | None = None,
    pause: float = PAUSE_S,
) -> None:
    """Fetch the image for guests of ``arch`` into the new directory ``target``, as an OCI layout
    with this one image.

    Files with another digest or size than given are refused, and so is a config for another
    machine, before any layer is fetched. ``pause`` is in seconds (`Web`). Raises ImageNotFound,
    ImageError, UnreachableError, DiskSpaceError, PathError, HostError, and ConfigError if
    ``plain_http`` is asked of another host than this one.
    """
    config = docker_config()
    if plain_http and not _is_here(reference):
        raise ConfigError(
            f"{reference.registry} is not on this host, so it is asked with TLS only",
            hint="leave --plain-http away",
        )
    login = await asyncio.to_thread(find_login, reference.registry, config)
    auth = RegistryAuth(reference, login)
    with map_os_errors(target):
        (target / "blobs" / "sha256").mkdir(parents=True, mode=0o700)
        async with Web(auth=auth, may_ask=_may_ask(plain_http), pause=pause) as web:
            pull = _Pull(web, reference, target, plain_http, progress)
            try:
                await pull.all(arch)
            except UnreachableError as error:
                if login is None and names_helper(reference.registry, config):
                    error.hint = error.hint or (
                        f"{config} keeps passwords in a program of its own, which is not run here"
                    )
                raise


def _may_ask(plain_http: bool) -> Callable[[str], bool]:
    def may_ask(url: str) -> bool:
        try:
            parts = urlsplit(url)
            host = parts.hostname or ""
            parts.port  # noqa: B018 - raises for a number that is none
        except ValueError:
            return False
        return parts.scheme == "https" or (
            plain_http and parts.scheme == "http" and is_loopback(host)
        )

    return may_ask


def _is_here(reference: Reference) -> bool:
    try:
        return is_loopback(urlsplit(f"//{reference.host}").hostname or "")
    except ValueError:
        return False


class _Pull:
    """One image that is being fetched."""

    def __init__(
        self,
        web: Web,
        reference: Reference,
        target: Path,
        plain_http: bool,
        progress: Progress | None,
    ) -> None:
        self._web = web
        self._reference = reference
        self._target = target
        self._progress = progress
        scheme = "http" if plain_http else "https"
        self._base = f"{scheme}://{reference.host}/v2/{reference.name}"

    async def all(self, arch: Architecture) -> None:
        """Fetch the documents, then the layers."""
        body, kind, what = await self._first()
        for _ in range(DEPTH_MAX):
            document = parse_document(body, what)
            if kind not in INDEXES and "manifests" not in document:
                break
            chosen = choose(parse_index(document, what), arch, str(self._reference))
            what = f"{chosen.digest[:12]}… of {self._reference}"
            body, kind = await self._manifest(f"sha256:{chosen.digest}", what), chosen.kind
            self._require(body, chosen.digest, chosen.size, what)
        else:
            refuse(str(self._reference), "its indexes lead to indexes only")
        manifest = parse_manifest(document, what)
        config = await self._small_blob(manifest.config)
        parse_config(config, arch, f"the config of {self._reference}")
        total = sum(layer.size for layer in manifest.layers)
        if total > TOTAL_MAX:
            refuse(str(self._reference), f"its layers have {total} bytes")
        check_space(self._target, total)
        for layer in dict.fromkeys(manifest.layers):
            await self._layer(layer)
        await asyncio.to_thread(self._write_layout, body, config, manifest.config.digest)

    async def _first(self) -> tuple[bytes, str, str]:
        version, what = self._reference.version, str(self._reference)
        page = await self._web.page(f"{self._base}/manifests/{version}", ACCEPTED)
        if page is None:
            raise ImageNotFound(f"the registry has no image {what}")
        if self._reference.digest:
            self._require(page.body, version.removeprefix("sha256:"), len(page.body), what)
        return page.body, page.kind, what

    async def _manifest(self, version: str, what: str) -> bytes:
        page = await self._web.page(f"{self._base}/manifests/{version}", ACCEPTED)
        if page is None:
            raise ImageError(f"{what} is not in the registry, though its index names it")
        return page.body

    async def _small_blob(self, one: Descriptor) -> bytes:
        what = f"the config of {self._reference}"
        page = await self._web.page(f"{self._base}/blobs/sha256:{one.digest}", "*/*")
        if page is None:
            raise ImageError(f"{what} is not in the registry")
        self._require(page.body, one.digest, one.size, what)
        return page.body

    async def _layer(self, layer: Descriptor) -> None:
        link = Link(
            file=f"layer {layer.digest[:12]}…",
            url=f"{self._base}/blobs/sha256:{layer.digest}",
            sha256=layer.digest,
            size=layer.size,
            source=str(self._reference),
        )
        await self._web.fetch(link, self._target / blob_name(layer.digest), self._progress)

    @staticmethod
    def _require(body: bytes, digest: str, size: int, what: str) -> None:
        if (len(body), sha256(body)) != (size, digest):
            refuse(
                what,
                f"it has {len(body)} bytes with the SHA-256 {sha256(body)[:12]}…, and {size} with "
                f"{digest[:12]}… were said",
            )

    def _write_layout(self, manifest: bytes, config: bytes, config_digest: str) -> None:
        digest = sha256(manifest)
        entry = {
            "mediaType": MANIFESTS[0],
            "digest": f"sha256:{digest}",
            "size": len(manifest),
        }
        index = json.dumps({"schemaVersion": 2, "manifests": [entry]}).encode()
        blobs = {digest: manifest, config_digest: config}
        files = {blob_name(name): data for name, data in blobs.items()} | {"index.json": index}
        for name, data in files.items():
            with create(self._target / name) as file:
                file.write(data)
