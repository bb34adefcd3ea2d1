"""The losses of going back to a checkpoint, as the app shows them. All text is sanitised."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from quicksand_tui.model.diffs import ChangedPath

PLACES = 3
"""The number of directories that are named."""
DEPTH = 2
"""The number of names of a path by which files are counted together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Losing:
    """Everything that exists now and did not then, or the other way round."""

    added: int = 0
    changed: int = 0
    removed: int = 0
    """Paths that were added, changed, removed since."""
    places: tuple[tuple[str, int], ...] = ()
    """The directories that hold most of these paths, each with their number."""
    ending: tuple[str, ...] = ()
    """Commands of the terminals that were opened since."""
    staying: tuple[str, ...] = ()
    """Commands of the terminals that were open then already."""
    read: float = 0.0
    """Unix time of the look."""


def places_of(paths: Iterable[ChangedPath]) -> tuple[tuple[str, int], ...]:
    """Returns the directories in which most paths differ, the most first."""
    found = Counter(
        "/" + "/".join(path.names[:-1][:DEPTH]) for path in paths if not path.is_directory
    )
    return tuple(found.most_common(PLACES))
