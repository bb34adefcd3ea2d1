"""The findings of `doctor` about packages of this Python environment with files of our names."""

from __future__ import annotations

from importlib.metadata import packages_distributions
from typing import NamedTuple

from quicksand.disks.packages.names import normalised

OURS = ("quicksand", "quicksand_tui", "quicksand_images", "quicksand_smb", "quicksand_vt")
"""The top-level modules of our distribution."""

OWN = "quicksand-tui"


class Clash(NamedTuple):
    """A package of others that has a module of ours."""

    package: str
    modules: tuple[str, ...]


def find_clashes() -> list[Clash]:
    """Lists the packages of others that have modules of our names: the package that was installed
    last has overwritten the other's files. Blocks for the disk."""
    owners = packages_distributions()
    found: dict[str, set[str]] = {}
    for module in OURS:
        for package in owners.get(module, ()):
            if normalised(package) != OWN:
                found.setdefault(normalised(package), set()).add(module)
    return [Clash(package, tuple(sorted(modules))) for package, modules in sorted(found.items())]
