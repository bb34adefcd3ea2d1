"""The values with which a sandbox was last started, and the parts of them to remember."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from quicksand.base.errors import ConfigError

from quicksand_tui.forms.origins import IMAGE, SAVE
from quicksand_tui.model.text import sanitise
from quicksand_tui.verbs.launching import machine_records

if TYPE_CHECKING:
    from quicksand.records.machine_options import MachineOption

    from quicksand_tui.home.state import Remembered
    from quicksand_tui.model.specs import NewSpec

NAME = "new_sandbox"
"""The key in `Remembered` under which the last values are kept."""
BEGIN_MAX = 4096
"""The most characters of `Last.begin`, which may contain a path."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Last:
    """The values with which a sandbox was last started, as typed."""

    begin: str = ""
    """The kind of its origin, `IMAGE` or `SAVE`, followed by a key."""
    image: str = ""
    """The name of the origin for a command."""
    machine: Mapping[str, str] = field(default_factory=dict)
    """Options of the machine by keyword, as in `NewSpec`, without those that let the guest reach
    anything beyond itself: the user grants these to each sandbox anew."""


OLD_NAMES = {"memory": "memory", "cpus": "cpus", "network": "network_mode"}
"""The names under which older versions remembered options beside ``begin``, with the keywords."""


def recall_last(remembered: Remembered) -> Last | None:
    """Reads the last values; None if there are none. A value that is not text counts as not given,
    as does a value that lets the guest reach anything, which older versions have written."""
    kept = remembered.get(NAME)
    if not isinstance(kept, dict):
        return None
    machine = kept.get("machine")
    if not isinstance(machine, dict):
        machine = {keyword: kept.get(name) for name, keyword in OLD_NAMES.items()}
    texts = {
        keyword: sanitise(_text(machine.get(keyword)), limit=record.limit)
        for keyword, record in machine_records().items()
    }
    return Last(
        # A key is an exact path and never shown; the other values are shown.
        begin=_text(kept.get("begin"))[:BEGIN_MAX],
        image=sanitise(_text(kept.get("image")), limit=200),
        machine=_without_reach(texts),
    )


def _without_reach(machine: Mapping[str, str]) -> dict[str, str]:
    """Returns the typed options that let the guest reach nothing beyond itself."""
    records = machine_records()
    return {k: text for k, text in machine.items() if text and not _reaches(records[k], text)}


def _reaches(record: MachineOption, text: str) -> bool:
    """Whether a typed value lets the guest reach anything, as far as that can be known."""
    try:
        return bool(record.reaches(record.decode(record.parse_text(text))))
    except ConfigError:
        return True


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def last_of(spec: NewSpec) -> Last:
    """Returns the values to remember of a sandbox that was started: how it is made, and nothing
    that it may reach."""
    begin = f"{SAVE}{spec.save}" if spec.save else f"{IMAGE}{spec.image}"
    if spec.is_file or (spec.save and spec.host):
        begin = ""  # a path is typed anew, and a save of another machine is none here
    return Last(begin=begin, image=spec.image, machine=_without_reach(spec.machine))
