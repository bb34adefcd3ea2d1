"""What the app knows of a sandbox besides what the disk says: its shells, what it did there."""

from __future__ import annotations

from quicksand_tui.model.frozen import frozen


@frozen
class Glance:
    """The last lines of a shell. All text is sanitised."""

    title: str
    lines: tuple[str, ...]


@frozen
class EventView:
    """Something that happened to a sandbox."""

    when: float
    """Unix time."""
    text: str
    took: str = ""
    """How long it took, or how it ended."""
    role: str = ""


@frozen
class ChangedPlace:
    """A file that differs, or all that differ in a directory."""

    letter: str
    """A for added, M for changed, D for removed ones."""
    path: str
    files: int = 1
    size: int | None = None
    """Bytes of them now, or before if they were removed."""


@frozen
class Changes:
    """What differs between a checkpoint and another one, or the present disk."""

    places: tuple[ChangedPlace, ...] = ()
    why: str = ""
    """Why it is not known."""
    asked: bool = False
    """It is being found out."""


@frozen
class Known:
    """What the overview of a sandbox shows besides its facts."""

    shells: tuple[str, ...] = ()
    """Titles of the open shells."""
    glance: Glance | None = None
    events: tuple[EventView, ...] = ()
    """The last ones, newest first."""
    changes: Changes | None = None


NOTHING_KNOWN = Known()
