"""What the form of a new sandbox was last filled in with, for the next time."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from quicksand_tui.text import sanitise

if TYPE_CHECKING:
    from quicksand_tui.remembered import Remembered

NAME = "new_sandbox"
"""As `Remembered` has it."""
BEGIN_MAX = 4096
"""Characters: it may be a path."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Last:
    """What a sandbox was last started with, as typed."""

    begin: str = ""
    """As `quicksand_tui.new_form` has it."""
    image: str = ""
    """What a command calls that."""
    memory: str = ""
    cpus: str = ""
    network: str = ""
    ports: str = ""


def recall_last(remembered: Remembered) -> Last | None:
    """None if there is nothing of the kind; what is no text counts as not given."""
    kept = remembered.get(NAME)
    if not isinstance(kept, dict):
        return None
    values = {field.name: kept.get(field.name) for field in fields(Last)}
    texts = {key: value for key, value in values.items() if isinstance(value, str)}
    # A key is a path, exactly; the others are shown.
    begin = texts.pop("begin", "")[:BEGIN_MAX]
    return Last(begin=begin, **{k: sanitise(v, limit=200) for k, v in texts.items()})
