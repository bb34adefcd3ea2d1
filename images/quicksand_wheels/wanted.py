"""The versions of a package that a user or another package requests."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from packaging.markers import UndefinedComparison, UndefinedEnvironmentName
from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A requested package."""

    package: str
    """Its normalised name (PEP 503)."""
    versions: SpecifierSet = field(default_factory=SpecifierSet)
    """The acceptable versions."""

    def __str__(self) -> str:
        return f"{self.package}{self.versions}"


def find_requirement(requires: Iterable[str], package: str) -> Wanted | None:
    """Return the versions of another package that a package requires; None if it requires none, or
    not here."""
    for found in _requirements(requires):
        if canonicalize_name(found.name) == package and not found.url and _counts_here(found):
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
            continue  # no requirement that is known
