"""The values that the form of a new sandbox begins with: those of a preset, of an image or a
save, and those used last; and the preset that fits the typed values."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from quicksand.base.errors import ConfigError
from quicksand.records.machine_options import NO, YES

from quicksand_tui.forms.form_fields import Option, Values
from quicksand_tui.model.text import sanitise
from quicksand_tui.verbs.launching import machine_records

if TYPE_CHECKING:
    from collections.abc import Mapping

    from quicksand.records.machine_options import MachineOption

    from quicksand_tui.home.state import Remembered
    from quicksand_tui.model.specs import NewSpec


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


PRESETS = {
    "small": {"memory": "512M", "cpus": "1"},
    "medium": {"memory": "1G", "cpus": "2"},
    "large": {"memory": "2G", "cpus": "4"},
}
LAST, OWN, AS_SAVED = "last", "own", "as saved"

MORE = "more"
"""The switch for the options that are not usual. While it is off, they do not count."""


def shows_more(values: Values) -> bool:
    return values[MORE] == YES


def shows_option(record: MachineOption, values: Values) -> bool:
    """Returns whether an option's field is shown."""
    if record.needs and values[record.needs] != YES:
        return False
    return record.is_usual or shows_more(values)


def machine_of(values: Values) -> dict[str, str]:
    """Returns the options of the machine: the values typed in visible fields."""
    return {
        keyword: values[keyword]
        for keyword, record in machine_records().items()
        if values[keyword] and shows_option(record, values)
    }


def _text_at_first(record: MachineOption, *, is_save: bool) -> str:
    """Returns the text of an option's field before anything else was chosen."""
    return record.default_text if record.is_usual and not is_save else ""


def _preset_values(name: str, recent: Last | None, *, is_save: bool) -> Mapping[str, str]:
    """Returns the values that a preset sets, by field."""
    if name == AS_SAVED:
        return dict.fromkeys(machine_records(), "")
    if name != LAST or recent is None:
        return PRESETS.get(name, {})
    values = {}
    for keyword, record in machine_records().items():
        text = recent.machine.get(keyword, "")
        if record.choices and text not in record.choices:
            text = ""
        values[keyword] = text or _text_at_first(record, is_save=is_save)
        if text and not record.is_usual:
            values[MORE] = YES
    return values


def machine_at_first(begin: str, recent: Last | None, is_same: bool) -> dict[str, str]:
    is_save = begin.startswith(SAVE)
    preset = LAST if recent is not None and (is_same or not is_save) else "small"
    if is_save and preset != LAST:
        preset = AS_SAVED
    values = {k: _text_at_first(r, is_save=is_save) for k, r in machine_records().items()}
    given = _preset_values(preset, recent, is_save=is_save)
    return {**values, MORE: NO, "preset": preset, **given}


def as_suggested(
    before: Mapping[str, str], now: Mapping[str, str], values: Values
) -> dict[str, str]:
    """Returns the values to change when an image that suggests ``now`` replaces an origin that
    suggested ``before``. Former suggestions go unless the user has changed them."""
    records = machine_records()
    given = {
        keyword: _text_at_first(records[keyword], is_save=begins_with_save(values))
        for keyword, text in before.items()
        if values[keyword] == text
    }
    given.update(now)
    if not given:
        return {}
    if any(not records[keyword].is_usual for keyword in now):
        given[MORE] = YES
    preset = next((p for p in PRESETS if _fits(p, {**values, **given}, None)), OWN)
    return {**given, "preset": AS_SAVED if begins_with_save(values) else preset}


def preset_options(values: Values, recent: Last | None) -> tuple[Option, ...]:
    names = [AS_SAVED] if begins_with_save(values) else []
    names += [*PRESETS, *([LAST] if recent is not None else []), OWN]
    return tuple(Option(value=name, label=name) for name in names)


def values_that_follow(before: Values, now: Values, recent: Last | None) -> Mapping[str, str]:
    """Returns the values to change when another origin or preset is chosen. When a field of the
    machine changes, selects the preset that fits, or else `OWN`."""
    is_save = begins_with_save(now)
    if now["begin"] and begins_with_save(before) != is_save:
        return _as_its_kind(now, recent)
    if before["preset"] != now["preset"]:
        return _preset_values(now["preset"], recent, is_save=is_save)
    if machine_of(before) == machine_of(now):
        return {}
    names = (now["preset"], *([AS_SAVED] if is_save else []), *PRESETS)
    fitting = (name for name in names if _fits(name, now, recent))
    return {"preset": next(fitting, OWN)}


def _fits(preset: str, values: Values, recent: Last | None) -> bool:
    wanted = _preset_values(preset, recent, is_save=begins_with_save(values))
    there = {MORE: YES, **machine_of(values)}
    return bool(wanted) and all(there.get(field, "") == text for field, text in wanted.items())


def _as_its_kind(values: Values, recent: Last | None) -> Mapping[str, str]:
    """Returns the usual values of the new kind of origin: those of the save, or those for an image.
    Values that the user chose are kept."""
    is_save = begins_with_save(values)
    if values["preset"] not in (OWN, LAST):
        preset = AS_SAVED if is_save else "small"
        chosen = {
            keyword: _text_at_first(record, is_save=is_save)
            for keyword, record in machine_records().items()
            if record.choices
        }
        return {**chosen, "preset": preset, **_preset_values(preset, recent, is_save=is_save)}
    if is_save:
        return {}
    # An image has no values to inherit.
    return {
        keyword: values[keyword] or _text_at_first(record, is_save=False)
        for keyword, record in machine_records().items()
    }


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
