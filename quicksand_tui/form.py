"""What a form asks, and what is said of the answers: data for `quicksand_tui.screens.form`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from quicksand_tui.snapshot import Snapshot

Values = Mapping[str, str]
"""What is typed, by field, without spaces around it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One line of a form."""

    id: str
    label: str
    value: str = ""
    """What stands there at first."""
    suggest: Callable[[Snapshot], str] | None = None
    """Tells that anew as long as nobody has typed there."""
    hint: str = ""
    """Shown while it is empty."""
    limit: int = 200
    choices: tuple[str, ...] = ()
    """One of these, and not typed."""


def _none(values: Values) -> Mapping[str, str]:
    return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """A form. Pure functions of the values, but for ``look``."""

    title: str
    does: str
    """What Enter does, as a verb: "saves"."""
    button: str
    fields: tuple[Field, ...]
    command: Callable[[Values], str]
    problems: Callable[[Values, Snapshot], Mapping[str, str]]
    """What is wrong, by field; empty if nothing is."""
    look: Callable[[Values], Mapping[str, str]] | None = None
    """The same, of what only the disk can tell; called in a thread."""
    remarks: Callable[[Values], Mapping[str, str]] = _none
    """What a choice means, by field."""
    shows_saves: bool = False
    """It has to know of the saves that there are."""
