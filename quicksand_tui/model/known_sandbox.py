"""The app's knowledge of a sandbox besides its records: its shells, and what it did there."""

from __future__ import annotations

from quicksand.things.frozen import frozen


@frozen
class Glance:
    """The last lines of a shell. All text is sanitised."""

    title: str
    lines: tuple[str, ...]


@frozen
class EventView:
    """An event of a sandbox."""

    when: float
    """Unix time."""
    text: str
    took: str = ""
    """The time that it took, or its outcome."""
    role: str = ""


@frozen
class ChangedPlace:
    """A file that differs, or a directory's files that differ in the same way."""

    letter: str
    """A for added, M for changed, D for removed files."""
    path: str
    files: int = 1
    size: int | None = None
    """Their present bytes, or the last ones if they were removed."""


@frozen
class Changes:
    """The differences between a checkpoint and another one, or the present disk."""

    places: tuple[ChangedPlace, ...] = ()
    why: str = ""
    """The reason why they are not known."""
    asked: bool = False
    """The answer is on its way."""


@frozen
class Known:
    """The parts of a sandbox's overview besides its facts."""

    shells: tuple[str, ...] = ()
    """Titles of the open shells."""
    glance: Glance | None = None
    events: tuple[EventView, ...] = ()
    """The last events, newest first."""
    changes: Changes | None = None


NOTHING_KNOWN = Known()
