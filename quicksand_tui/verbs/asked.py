"""The data of a verb's form, by which the app asks for its parameters."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from quicksand_tui.model.shown_sandboxes import SandboxView


class Choice(NamedTuple):
    """One of the values that a form offers."""

    value: str
    label: str
    note: str = ""


class Asked(NamedTuple):
    """The field of the app's form that asks for a parameter."""

    label: str
    hint: str = ""
    """The text shown while the field is empty."""
    limit: int | Callable[[], int] = 200
    """The most characters that can be typed."""
    choices: tuple[Choice, ...] = ()
    """The values to choose from; without them, the value is typed."""
    remarks: tuple[str, str] = ("", "")
    """The meaning of a flag if it is not given, and if it is."""
    of: Callable[[SandboxView], bool] | None = None
    """Whether the form of a sandbox has the field; None means always."""


class Form(NamedTuple):
    """The app's form for the parameters of a verb that have `Parameter.asked`."""

    title: str
    """The title, with {} for the name of the verb's subject."""
    button: str
    does: str
    """The effect of Enter, as in "takes the checkpoint"."""
