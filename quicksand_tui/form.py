"""What a form asks, and what is said of the answers: data for `quicksand_tui.screens.form`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from quicksand_tui.snapshot import Snapshot

Values = Mapping[str, str]
"""What is typed, by field, without spaces around it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One of what can be chosen."""

    value: str
    """What it counts as; never shown."""
    label: str
    note: str = ""


Suggest = Callable[[Snapshot, Values], str]
Options = Callable[[Snapshot, Values], tuple[Option, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One line of a form."""

    id: str
    label: str
    value: str = ""
    """What stands there at first."""
    suggest: Suggest | None = None
    """Tells that anew as long as nobody has typed there."""
    hint: str = ""
    """Shown while it is empty."""
    limit: int = 200
    is_short: bool = False
    """A few letters, with a remark beside them."""
    choices: tuple[str, ...] = ()
    """One of these, and not typed."""
    options: Options | None = None
    """Likewise, where they depend on something; many can be filtered by typing."""

    @property
    def is_chosen(self) -> bool:
        return bool(self.choices or self.options)


def _none(values: Values, snapshot: Snapshot) -> Mapping[str, str]:
    return {}


def _no_reaction(before: Values, now: Values) -> Mapping[str, str]:
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
    """The same, of what only the host can tell; called in a thread."""
    remarks: Callable[[Values, Snapshot], Mapping[str, str]] = _none
    """What a value means, by field."""
    react: Callable[[Values, Values], Mapping[str, str]] = _no_reaction
    """What else a change changes, given the values before and after it."""
    first: str = ""
    """The field where typing begins, if it is not the first one."""
    shows_saves: bool = False
    """It has to know of the saves that there are."""
