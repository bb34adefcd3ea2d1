"""The origin of a new sandbox, as one value of its form: an image, a save or a file."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from quicksand_tui.forms.form_fields import Values

IMAGE, SAVE, FILE = "image:", "save:", "file:"


def parse_begin(value: str) -> tuple[str, str]:
    for kind in (IMAGE, SAVE, FILE):
        if value.startswith(kind):
            return kind, value.removeprefix(kind)
    return "", ""


def begins_with_save(values: Values) -> bool:
    """Whether options that are not given have the values of the sandbox's origin."""
    return values["begin"].startswith((SAVE, FILE))


def as_path(typed: str) -> str:
    """Returns a typed path in a form that the engine tells from a name."""
    return typed if "/" in typed or not typed else f"./{typed}"
