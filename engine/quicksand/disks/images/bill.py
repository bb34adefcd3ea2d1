"""The packages named by an image's manifest, as a CycloneDX document (ECMA-424).

Equal images give equal documents: they have neither a date nor a random number.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote
from uuid import NAMESPACE_URL, uuid5

from quicksand.base.arch import Architecture
from quicksand.base.errors import ImageError
from quicksand.disks.images.image_store import read_manifest
from quicksand.disks.images.stored_image import StoredImage

SPEC_VERSION = "1.5"


def packages_of(manifest: Mapping[str, Any], key: str) -> dict[str, str]:
    """Return the versions of the packages that a manifest names: "packages" of its distribution, or
    "python". Values that are no text are left out."""
    found = manifest.get(key)
    if not isinstance(found, Mapping):
        return {}
    return {str(name): version for name, version in found.items() if isinstance(version, str)}


def bill_of(image: StoredImage) -> dict[str, Any]:
    """Return the bill of materials of an image. Raises ImageError if the manifest is damaged or
    names no packages, as for an image from elsewhere."""
    manifest = read_manifest(image)
    system, python = packages_of(manifest, "packages"), packages_of(manifest, "python")
    if not system and not python:
        raise ImageError(f"it is not known what is in the image {image.name!r}: no recipe made it")
    kind, more = _kind_of(manifest, Architecture.parse(image.arch))
    components = [
        *(_component(kind, n, v, more) for n, v in system.items()),
        *(_component("pypi", n, v, "") for n, v in python.items()),
    ]
    return {
        "bomFormat": "CycloneDX",
        "specVersion": SPEC_VERSION,
        "serialNumber": f"urn:uuid:{uuid5(NAMESPACE_URL, f'quicksand-image:{image.digest}')}",
        "version": 1,
        "metadata": {
            "component": {
                "type": "operating-system",
                "bom-ref": f"image:{image.name}",
                "name": image.name,
                "version": image.version,
                "hashes": [{"alg": "SHA-256", "content": image.digest}],
            }
        },
        "components": sorted(components, key=lambda found: str(found["purl"])),
    }


def _kind_of(manifest: Mapping[str, Any], arch: Architecture) -> tuple[str, str]:
    """Return the type and the namespace of the packages' URLs, and the suffix of a version
    (package-url specification: "apk", "deb")."""
    if manifest.get("packages_of") == "alpine":
        return "apk/alpine", f"?arch={arch.value}"
    told = manifest.get("system")
    distribution = str(told.get("distribution")) if isinstance(told, Mapping) else "debian"
    return f"deb/{distribution}", f"?arch={arch.debian}"


def _component(kind: str, name: str, version: str, more: str) -> dict[str, Any]:
    purl = f"pkg:{kind}/{quote(name, safe='')}@{quote(version, safe=':')}{more}"
    return {"type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl}
