"""The form of a new sandbox: its image or save, its machine, and the values used last."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from quicksand.base.errors import ConfigError
from quicksand.records.machine_options import NO, YES

from quicksand_tui.forms.checks import (
    PORTS,
    find_problems,
    look_at_origin,
    look_at_ports,
    suggest_name,
)
from quicksand_tui.forms.form import Field, Form, Option, Values
from quicksand_tui.forms.mounts import PATH_MAX, complete_file, complete_mounts
from quicksand_tui.model.amounts import size_text
from quicksand_tui.model.saves import SaveView
from quicksand_tui.model.specs import NewSpec
from quicksand_tui.model.text import clip, sanitise
from quicksand_tui.verbs.starting import machine_records, run_command
from quicksand_tui.views.saves import trouble_of

if TYPE_CHECKING:
    from quicksand.records.machine_options import MachineOption

    from quicksand_tui.home.state import Remembered
    from quicksand_tui.model.sandboxes import ImageView
    from quicksand_tui.model.saves import SavesView
    from quicksand_tui.model.world import World


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
    anything beyond itself: each sandbox gets these by a word of the user."""


OLD_NAMES = {"memory": "memory", "cpus": "cpus", "network": "network_mode"}
"""The names under which older versions remembered options beside ``begin``, with the keywords."""


def recall_last(remembered: Remembered) -> Last | None:
    """Reads the last values; None if there are none. A value that is not text counts as not
    given, as does one that lets the guest reach anything, which older versions have written."""
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
    """Whether a typed value lets the guest reach anything, as far as one can know."""
    try:
        return bool(record.reaches(record.decode(record.parse_text(text))))
    except ConfigError:
        return True


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


PRESETS = {
    "small": {"memory": "512M", "cpus": "1"},
    "medium": {"memory": "1G", "cpus": "2"},
    "large": {"memory": "2G", "cpus": "4"},
}
LAST, OWN, AS_SAVED = "last", "own", "as saved"
MOUNTS = "mounts"
MORE = "more"
"""The switch for the options that are not usual. While it is off, those do not count."""
IMAGE, SAVE, FILE = "image:", "save:", "file:"
FILE_NETWORK = "as the file says, but not full"
ENDINGS = (".quicksand", ".qcow2")
"""Of the files that a path is completed with."""
USUAL_IMAGE = "debian"
NOTE_CELLS = 60


def last_of(spec: NewSpec) -> Last:
    """Returns the values to remember of a sandbox that was started: how it is made, and nothing of
    what it may reach."""
    begin = f"{SAVE}{spec.save}" if spec.save else f"{IMAGE}{spec.image}"
    if spec.is_file:
        begin = ""  # a path is typed anew
    return Last(begin=begin, image=spec.image, machine=_without_reach(spec.machine))


class _Origins:
    """The images and saves for a new sandbox, listed anew only when they have changed."""

    def __init__(self, last: Last) -> None:
        self._last = last
        self._of: tuple[tuple[ImageView, ...], SavesView] | None = None
        self._options: tuple[Option, ...] = ()
        self._addresses: dict[str, str] = {}

    def options(self, world: World) -> tuple[Option, ...]:
        of = (world.images, world.saves)
        if self._of is None or any(now is not then for now, then in zip(of, self._of, strict=True)):
            self._of = of
            saves = [save for save in world.saves.saves if not trouble_of(save)[0]]
            if not world.saves.loaded and self._last.begin.startswith(SAVE):
                # Until the saves have been read, the save used last is assumed to exist.
                _, key = _parse_begin(self._last.begin)
                saves = [SaveView(key=key, name=self._last.image, address=self._last.image)]
            self._options = (
                *(_image_option(image) for image in world.usable_images),
                *(_save_option(save) for save in saves),
                _FILE_OPTION,
            )
            self._addresses = {save.key: save.address for save in saves}
        return self._options

    def address(self, key: str) -> str:
        return self._addresses.get(key, "")

    def suggested(self, begin: str) -> Mapping[str, str]:
        """Returns the options of the machine that an image suggests; a save suggests nothing."""
        kind, key = _parse_begin(begin)
        images = self._of[0] if self._of is not None and kind == IMAGE else ()
        return next((image.machine for image in images if image.name == key), {})


_FILE_OPTION = Option(
    value=FILE, label="a file", note="a bundle (.quicksand) or a disk, by its path"
)


def _image_option(image: ImageView) -> Option:
    note = f"image {image.version}".strip() if image.is_built else "image, built first, in minutes"
    return Option(value=f"{IMAGE}{image.name}", label=image.name, note=note)


def _save_option(save: SaveView) -> Option:
    kind = "save" if save.is_own else "save from elsewhere"
    note = f"{kind}: {clip(save.note, NOTE_CELLS)}" if save.note else kind
    return Option(value=f"{SAVE}{save.key}", label=save.address, note=note)


def with_usual(spec: NewSpec, usual: Mapping[str, str]) -> NewSpec:
    """Returns the spec with the ``usual`` options of the machine that it does not have itself."""
    return replace(spec, machine={**usual, **spec.machine}) if usual else spec


def new_form(
    world: World,
    *,
    begin: str = "",
    last: Last | None = None,
    usual: Mapping[str, str] | None = None,
) -> tuple[Form, Callable[[Values], NewSpec]]:
    """Returns the form, and a function that makes a spec of its values. ``begin`` is the first
    choice: `IMAGE` or `SAVE`, followed by a key. ``usual`` are the options of the machine for
    `with_usual`."""
    before = last or Last()
    origins = _Origins(before)
    known = [option.value for option in origins.options(world)]
    wishes = (begin, before.begin, f"{IMAGE}{USUAL_IMAGE}", *known[:1])
    chosen = next((wish for wish in wishes if wish in known), "")
    at_first = _machine_at_first(chosen, last, chosen == before.begin)
    if last is None or chosen != before.begin:
        at_first |= _as_suggested({}, origins.suggested(chosen), {"begin": chosen, **at_first})

    def spec_of(values: Values) -> NewSpec:
        kind, key = _parse_begin(values["begin"])
        suggested = origins.suggested(values["begin"])
        if kind == FILE:
            key = as_path(values["file"])
        return NewSpec(
            image=origins.address(key) if kind == SAVE else key,
            save=key if kind == SAVE else "",
            is_file=kind == FILE,
            name=values["name"],
            machine={**_declined(values, suggested), **_machine_of(values)},
            suggested=suggested,
        )

    def react(was: Values, now: Values) -> Mapping[str, str]:
        ours, theirs = origins.suggested(now["begin"]), origins.suggested(was["begin"])
        if was["begin"] != now["begin"] and (ours or theirs):
            kind = _react(was, now, last) if _is_save(was) != _is_save(now) else {}
            return {**kind, **_as_suggested(theirs, ours, {**now, **kind})}
        return _react(was, now, last)

    begin_with = Field(
        id="begin",
        label="Begin with",
        value=chosen,
        options=lambda now, _: origins.options(now),
    )
    file = Field(
        id="file",
        label="File",
        hint="its path; it may come from anywhere",
        limit=PATH_MAX,
        complete=lambda typed: complete_file(typed, ENDINGS),
        is_shown=lambda values: values["begin"] == FILE,
    )
    named = Field(
        id="name",
        label="Name",
        suggest=lambda now, values: suggest_name(_stem(spec_of(values)), now),
        limit=63,
    )
    form = Form(
        title="New sandbox",
        does="starts it",
        button="Start",
        fields=(begin_with, file, named, *_fields_of_machine(at_first, last, usual or {})),
        first="name",
        command=lambda values: run_command(with_usual(spec_of(values), usual or {})),
        problems=lambda values, now: find_problems(spec_of(values), now),
        look=_look,
        remarks=_remarks,
        react=react,
        shows_saves=True,
    )
    return form, spec_of


def _fields_of_machine(
    at_first: Values, last: Last | None, hints: Mapping[str, str]
) -> tuple[Field, ...]:
    usual = [record for record in machine_records().values() if record.is_usual]
    others = [record for record in machine_records().values() if not record.is_usual]
    return (
        Field(
            id="preset",
            label="Preset",
            value=at_first["preset"],
            options=lambda _, values: _preset_options(values, last),
            is_short=True,
        ),
        *(_machine_field(record, at_first, hints) for record in usual),
        Field(id=MORE, label="More", value=at_first[MORE], choices=(NO, YES), is_short=True),
        *(_machine_field(record, at_first, hints) for record in others),
    )


def _parse_begin(value: str) -> tuple[str, str]:
    for kind in (IMAGE, SAVE, FILE):
        if value.startswith(kind):
            return kind, value.removeprefix(kind)
    return "", ""


def _is_save(values: Values) -> bool:
    """Whether options that are not given have the values of what the sandbox starts from."""
    return values["begin"].startswith((SAVE, FILE))


def as_path(typed: str) -> str:
    """Returns a typed path as the engine tells it from a name."""
    return typed if "/" in typed or not typed else f"./{typed}"


def _stem(spec: NewSpec) -> str:
    if spec.is_file:
        name = spec.image.rpartition("/")[2]
        return next((name.removesuffix(end) for end in ENDINGS if name.endswith(end)), name)
    return spec.image or (spec.save.rpartition("/")[2])


def _look(values: Values) -> Mapping[str, str]:
    problems = {PORTS: look_at_ports(values[PORTS])}
    if values["begin"] == FILE:
        problems["file"] = look_at_origin(as_path(values["file"]))
    return {field: problem for field, problem in problems.items() if problem}


# The machine


def _machine_field(
    record: MachineOption, at_first: Mapping[str, str], hints: Mapping[str, str]
) -> Field:
    """Makes the field of an option; ``hints`` are values that count if none is typed."""
    hint = hints.get(record.keyword, record.hint)
    return Field(
        id=record.keyword,
        label=record.label,
        value=at_first[record.keyword],
        # A short field has a remark beside it and needs no hint within.
        hint=hint if record.split is not None or hint is not record.hint else "",
        limit=record.limit,
        is_short=record.split is None,
        options=(lambda _, values: _choices(record, values)) if record.choices else None,
        complete=complete_mounts if record.keyword == MOUNTS else None,
        is_shown=None if record.is_usual else partial(_shows, record),
    )


def _shows_more(values: Values) -> bool:
    return values[MORE] == YES


def _shows(record: MachineOption, values: Values) -> bool:
    """Returns whether an option's field is shown."""
    if record.needs and values[record.needs] != YES:
        return False
    return record.is_usual or _shows_more(values)


def _choices(record: MachineOption, values: Values) -> tuple[Option, ...]:
    """Returns the choices of an option, the default first. The value "" means not given."""
    names, default = [str(choice) for choice in record.choices], record.default_text
    options = [Option(value=name, label=name) for name in names]
    if _is_save(values):
        return (Option(value="", label=AS_SAVED), *options)
    if record.is_usual:
        at = names.index(default)
        return (*options[at:], *options[:at])
    usual = Option(value="", label=default or record.hint)
    return (usual, *(option for option in options if option.value != default))


def _machine_of(values: Values) -> dict[str, str]:
    """Returns the options of the machine: what is typed in the fields that are shown."""
    return {
        keyword: values[keyword]
        for keyword, record in machine_records().items()
        if values[keyword] and _shows(record, values)
    }


def _declined(values: Values, suggested: Mapping[str, str]) -> dict[str, str]:
    """Returns the choices where the user takes the usual value and not what the image suggests. The
    engine would take a value that is not given from the image."""
    records = machine_records()
    return {
        keyword: records[keyword].default_text
        for keyword in suggested
        if records[keyword].choices and _shows_more(values)
    }


def _text_at_first(record: MachineOption, *, is_save: bool) -> str:
    """Returns the text of an option's field when nothing else was chosen."""
    return record.default_text if record.is_usual and not is_save else ""


# Presets


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


def _machine_at_first(begin: str, recent: Last | None, is_same: bool) -> dict[str, str]:
    is_save = begin.startswith(SAVE)
    preset = LAST if recent is not None and (is_same or not is_save) else "small"
    if is_save and preset != LAST:
        preset = AS_SAVED
    values = {k: _text_at_first(r, is_save=is_save) for k, r in machine_records().items()}
    given = _preset_values(preset, recent, is_save=is_save)
    return {**values, MORE: NO, "preset": preset, **given}


def _as_suggested(
    before: Mapping[str, str], now: Mapping[str, str], values: Values
) -> dict[str, str]:
    """Returns the values to change when an image that suggests ``now`` takes the place of an origin
    that suggested ``before``, whose suggestions go unless the user has changed them."""
    records = machine_records()
    given = {
        keyword: _text_at_first(records[keyword], is_save=_is_save(values))
        for keyword, text in before.items()
        if values[keyword] == text
    }
    given.update(now)
    if not given:
        return {}
    if any(not records[keyword].is_usual for keyword in now):
        given[MORE] = YES
    preset = next((p for p in PRESETS if _fits(p, {**values, **given}, None)), OWN)
    return {**given, "preset": AS_SAVED if _is_save(values) else preset}


def _preset_options(values: Values, recent: Last | None) -> tuple[Option, ...]:
    names = [AS_SAVED] if _is_save(values) else []
    names += [*PRESETS, *([LAST] if recent is not None else []), OWN]
    return tuple(Option(value=name, label=name) for name in names)


def _react(before: Values, now: Values, recent: Last | None) -> Mapping[str, str]:
    """Returns the values to change when another origin or preset is chosen. When a field of the
    machine changes, selects the preset that fits, or else `OWN`."""
    is_save = _is_save(now)
    if now["begin"] and _is_save(before) != is_save:
        return _as_its_kind(now, recent)
    if before["preset"] != now["preset"]:
        return _preset_values(now["preset"], recent, is_save=is_save)
    if _machine_of(before) == _machine_of(now):
        return {}
    names = (now["preset"], *([AS_SAVED] if is_save else []), *PRESETS)
    fitting = (name for name in names if _fits(name, now, recent))
    return {"preset": next(fitting, OWN)}


def _fits(preset: str, values: Values, recent: Last | None) -> bool:
    wanted = _preset_values(preset, recent, is_save=_is_save(values))
    there = {MORE: YES, **_machine_of(values)}
    return bool(wanted) and all(there.get(field, "") == text for field, text in wanted.items())


def _as_its_kind(values: Values, recent: Last | None) -> Mapping[str, str]:
    """Returns the usual values of the new kind of origin: those of the save, or those for an image.
    Values that the user chose are kept."""
    is_save = _is_save(values)
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


def _remarks(values: Values, world: World) -> Mapping[str, str]:
    is_save, save = _is_save(values), _save_of(values, world)
    remarks = {
        keyword: _machine_remark(record, values[keyword], is_save=is_save)
        for keyword, record in machine_records().items()
    }
    if is_save and not values["network_mode"]:
        is_file = values["begin"] == FILE
        remarks["network_mode"] = FILE_NETWORK if is_file else _saved_network(save)
    if (free := world.host.memory_free) is not None and not remarks["memory"]:
        remarks["memory"] = f"{size_text(free)} free"
    if save and save.ports and not values[PORTS]:
        remarks[PORTS] = f"as saved: {save.ports}"
    return {
        **remarks,
        "begin": _origin_remark(save),
        "preset": _preset_remark(values),
        MORE: "" if _shows_more(values) else "disk size, processor, QEMU arguments …",
    }


def _machine_remark(record: MachineOption, text: str, *, is_save: bool) -> str:
    if record.choices:
        return record.choices.get(text or ("" if is_save else record.default_text), "")
    if text or record.split is not None:
        return ""
    return "as saved" if is_save else record.hint


def _save_of(values: Values, world: World) -> SaveView | None:
    kind, key = _parse_begin(values["begin"])
    saves = world.saves.saves if kind == SAVE else ()
    return next((save for save in saves if save.key == key), None)


def _origin_remark(save: SaveView | None) -> str:
    """Describes where a save comes from if this user has not made it."""
    if save is None or save.is_own:
        return ""
    origin = "imported" if save.place == "user" else f"from {clip(save.path, NOTE_CELLS)}"
    if not save.left_out:
        return origin
    return f"{origin}; left out unless chosen below: {clip(save.left_out, NOTE_CELLS)}"


def _saved_network(save: SaveView | None) -> str:
    """Describes what "as saved" means for the network."""
    if save is None or not save.network:
        return "as in the save"
    note = machine_records()["network_mode"].choices.get(save.network, "")
    return f"{save.network}: {note}"


def _preset_remark(values: Values) -> str:
    if values["preset"] == AS_SAVED:
        return "the saved machine"
    if values["preset"] == LAST:
        return "used last, without network and mounts"
    return "as you type it" if values["preset"] == OWN else ""
