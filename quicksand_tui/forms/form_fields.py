"""The data of a form: its fields and the checks of their values. `quicksand_tui.screens.form` shows
it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from quicksand_tui.model.world import World

Values = Mapping[str, str]
"""The typed texts by the names of their fields, without spaces around them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One choice of a field."""

    value: str
    """The field's value when the option is chosen. It is not shown."""
    label: str
    note: str = ""


Suggest = Callable[[World, Values], str]
Options = Callable[[World, Values], tuple[Option, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One line of a form."""

    id: str
    label: str
    value: str = ""
    """The text at first."""
    suggest: Suggest | None = None
    """Returns a suggested text, anew after each change, until the user types in the field."""
    hint: str = ""
    """The text shown while the field is empty."""
    limit: int = 200
    complete: Callable[[str], tuple[str, ...]] | None = None
    """Returns the continuations of the typed text. Called in a thread; Tab takes the first."""
    is_short: bool = False
    """Whether the field takes a few letters only and has a remark beside it."""
    choices: tuple[str, ...] = ()
    """The values to choose from; without them, the value is typed."""
    options: Options | None = None
    """Returns choices that depend on something. If there are many, typing filters them."""

    is_shown: Callable[[Values], bool] | None = None
    """Whether the field shows, by the values of other fields. The form itself must ignore the value
    of a field that does not show."""

    @property
    def is_chosen(self) -> bool:
        """Whether the value is chosen and not typed."""
        return bool(self.choices or self.options)


def _none(values: Values, world: World) -> Mapping[str, str]:
    return {}


def _no_reaction(before: Values, now: Values) -> Mapping[str, str]:
    return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """A form. Its functions are pure, except ``look``."""

    title: str
    does: str
    """The effect of Enter, as a verb, such as "saves"."""
    button: str
    fields: tuple[Field, ...]
    command: Callable[[Values], str]
    problems: Callable[[Values, World], Mapping[str, str]]
    """Returns the problems by field; empty if there are none."""
    look: Callable[[Values], Mapping[str, str]] | None = None
    """Returns, by field, problems that only the host can tell. Called in a thread."""
    remarks: Callable[[Values, World], Mapping[str, str]] = _none
    """Returns the meanings of the values, by field."""
    react: Callable[[Values, Values], Mapping[str, str]] = _no_reaction
    """Returns the values of further fields to change, given all values before and after a
    change."""
    first: str = ""
    """The field that has the focus at first, unless it is the first one."""
    shows_saves: bool = False
    """Whether the form needs the list of saves."""
