"""Refuses to be beside the published packages, whose files have the names of ours.

Installers keep one distribution of a name. What they do not see is the original in another
directory of Python's path, copied files, and the published packages with other names
(`quick-sandbox`, `quicksand-smb`) whose files are also those of quicksand-tui: the later one
overwrites the earlier one's without a word.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import Distribution, distributions
from importlib.util import find_spec
from pathlib import Path

NAME = "quicksand-core"
LABEL = "+quicksand.tui."
"""A part of this distribution's version. No version of the published one has it."""

ENGINE = "quicksand-tui"
PACKAGES = {"quick-sandbox": "quicksand", "quicksand-smb": "quicksand_smb"}
"""Published distributions, and their package that is also one of `ENGINE`."""

OURS = Path(__file__).parent


def require_alone() -> None:
    """Raise ImportError if a published package is here whose files could be taken for ours, or
    ours for them."""
    for one in distributions(name=NAME):
        if LABEL not in one.version:
            raise ImportError(
                f"the package quicksand_core of {ENGINE} ({OURS}) cannot be used beside the "
                f"published {NAME} {one.version} ({_place_of(one)}): both are the same modules. "
                f"Uninstall {NAME} until none is left (`pip uninstall {NAME}`, twice if both are "
                f"in one directory), then install the one that you want",
                name="quicksand_core",
                path=str(OURS),
            )
    for one, package in _others():
        raise ImportError(
            f"the package quicksand_core of {ENGINE} ({OURS}) cannot be used beside the published "
            f"{one.name} {one.version} ({_place_of(one)}): its package {package} has taken the "
            f"place of that of {ENGINE}. Uninstall it (`pip uninstall {one.name}`), then run `pip "
            f"install --force-reinstall --no-deps` with {ENGINE}, whose files are gone then",
            name="quicksand_core",
            path=str(OURS),
        )


def _others() -> Iterator[tuple[Distribution, str]]:
    """The published distributions whose package is where Python would take ours from."""
    for name, package in PACKAGES.items():
        spec = find_spec(package)
        if spec is None or spec.origin is None:
            raise ImportError(
                f"the package quicksand_core needs {ENGINE}, whose package {package} is not "
                f"here: install {ENGINE}",
                name=package,
            )
        taken = Path(spec.origin).resolve()
        for one in distributions(name=name):
            if Path(str(one.locate_file(f"{package}/__init__.py"))).resolve() == taken:
                yield one, package


def _place_of(distribution: Distribution) -> Path:
    return Path(str(distribution.locate_file("")))
