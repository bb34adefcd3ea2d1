"""What going back to a checkpoint would lose, as the app shows it. All text is sanitised."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from quicksand_tui.model.diffs import ChangedPath

PLACES = 3
"""How many directories are named."""
DEPTH = 2
"""Names of a path by which files are counted together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Losing:
    """What there is now and was not then, or the other way round."""

    added: int = 0
    changed: int = 0
    removed: int = 0
    """Paths that were added, changed, removed since."""
    places: tuple[tuple[str, int], ...] = ()
    """Where most of them are: directories, each with how many."""
    ending: tuple[str, ...] = ()
    """Commands of the terminals that were opened since."""
    staying: tuple[str, ...] = ()
    """Commands of the terminals that were open then already."""
    read: float = 0.0
    """Unix time of the look."""


def places_of(paths: Iterable[ChangedPath]) -> tuple[tuple[str, int], ...]:
    """Return the directories in which most paths differ, the most first."""
    found = Counter(
        "/" + "/".join(path.names[:-1][:DEPTH]) for path in paths if not path.is_directory
    )
    return tuple(found.most_common(PLACES))
