"""References of images in registries, such as ``ghcr.io/example/app:1.0``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from quicksand.base.errors import ConfigError, ImageNotFound
from quicksand.base.paths import expand
from quicksand_wheels.links import is_loopback

DOCKER_HUB, DOCKER_API = "docker.io", "registry-1.docker.io"
"""The default registry, and the host that answers for it."""

_PREFIX = "docker://"
_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?)(:[0-9]{1,5})?")
_PART = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_NAME = re.compile(rf"{_PART}(?:/{_PART})*")
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
"""A digest (OCI distribution specification, "Pulling manifests")."""

NAME_MAX = 255
PORT_MAX = 65535


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """An image in a registry."""

    registry: str
    """Its host, with a port if one was given."""
    name: str
    tag: str
    digest: str
    """``sha256:…``, or "" if the tag decides."""

    @property
    def host(self) -> str:
        """The host that answers for the registry, with a port if one was given."""
        return DOCKER_API if self.registry == DOCKER_HUB else self.registry

    @property
    def version(self) -> str:
        """The tag or digest that the registry is asked for."""
        return self.digest or self.tag

    @property
    def short(self) -> str:
        """A name for the image: "app-1.0", or "app" for the latest."""
        last = self.name.rpartition("/")[2]
        if self.digest:
            return f"{last}-{self.digest.removeprefix('sha256:')[:12]}"
        return last if self.tag == "latest" else f"{last}-{self.tag}"

    def __str__(self) -> str:
        end = f"@{self.digest}" if self.digest else f":{self.tag}"
        return f"{self.registry}/{self.name}{end}"


def find_source(text: str) -> Path | Reference:
    """Return the source named by ``--from-oci``: an existing directory or archive, otherwise a
    reference. Raises ImageNotFound for a path where nothing is, ConfigError for anything else."""
    if text.startswith(_PREFIX):
        return parse_reference(text.removeprefix(_PREFIX))
    path = expand(text)
    if path.exists():
        return path
    if text.startswith(("/", "./", "../", "~")) or text.endswith((".tar", ".tar.gz", ".tgz")):
        raise ImageNotFound(f"there is no {text}")
    return parse_reference(text)


def parse_reference(text: str) -> Reference:
    """Parse ``[REGISTRY/]NAME[:TAG][@DIGEST]`` as Docker does: the first part is a registry if it
    has a dot or a port, or is "localhost". Raises ConfigError."""
    rest, at, digest = text.partition("@")
    first, slash, more = rest.partition("/")
    if slash and ("." in first or ":" in first or first == "localhost"):
        registry, rest = first, more
    else:
        registry = DOCKER_HUB
    name, colon, tag = rest.partition(":")
    if _normal(registry) in (DOCKER_HUB, f"index.{DOCKER_HUB}", DOCKER_API):
        registry, name = DOCKER_HUB, name if "/" in name else f"library/{name}"
    tag = tag if colon else ("" if digest else "latest")
    host = _HOST.fullmatch(registry)
    fits = host and int((host[2] or ":0")[1:]) <= PORT_MAX
    fits = fits and _NAME.fullmatch(name) and len(name) <= NAME_MAX
    if (
        not fits
        or ((colon or tag) and not _TAG.fullmatch(tag))
        or not (not at or _DIGEST.fullmatch(digest))
    ):
        raise ConfigError(
            f"{text[:300]!r} is neither a file, nor a reference of an image",
            hint="references look like docker.io/library/alpine:3.20 or "
            "ghcr.io/example/app@sha256:…",
        )
    return Reference(registry=_normal(registry), name=name, tag=tag, digest=digest)


def _normal(registry: str) -> str:
    """A registry as HTTP clients and Docker's config name it: in small letters, without the port of
    HTTPS. One on this host keeps it, since it may be asked without TLS."""
    host, _, port = registry.lower().rpartition(":")
    return host if port == "443" and not is_loopback(host.strip("[]")) else registry.lower()
