"""The form of a new sandbox: the machine of the host where it runs, its image or save, and its own
machine."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from quicksand.records.machine_options import NO, YES
from quicksand.things.save import SaveFacts

from quicksand_tui.forms.form_fields import (
    PORTS,
    Field,
    Form,
    Option,
    Values,
    find_problems,
    look_at_origin,
    look_at_ports,
    suggest_name,
)
from quicksand_tui.forms.presets import (
    AS_SAVED,
    FILE,
    IMAGE,
    LAST,
    MORE,
    OWN,
    SAVE,
    Last,
    as_path,
    as_suggested,
    begins_with_save,
    machine_at_first,
    machine_of,
    parse_begin,
    preset_options,
    shows_more,
    shows_option,
    values_that_follow,
)
from quicksand_tui.forms.verb_forms import PATH_MAX, complete_file, complete_mounts
from quicksand_tui.model.amounts import size_text
from quicksand_tui.model.specs import NewSpec
from quicksand_tui.model.text import clip
from quicksand_tui.model.world import HERE, MachineState, MachineView
from quicksand_tui.verbs.launching import machine_records, run_command
from quicksand_tui.views.machine_groups import name_of
from quicksand_tui.views.save_rows import left_out_text, path_text, trouble_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from quicksand.records.machine_options import MachineOption
    from quicksand.things.image_info import ImageInfo

    from quicksand_tui.model.shown_saves import SavesView
    from quicksand_tui.model.world import World


HOST = "on_host"
"""The id of the field; its value is the name of the machine, "" for this one."""
THERE = "directories and ports are its own"
"""The note of another machine."""


def with_machine(
    form: Form,
    spec_of: Callable[[Values], NewSpec],
    command_of: Callable[[NewSpec], str],
    world: World,
    chosen: str,
) -> tuple[Form, Callable[[Values], NewSpec]]:
    """Returns the form with a field for the machine, with ``chosen`` at first, and a function that
    makes a spec of its values. All else in the form is about the chosen machine then."""

    def spec_there(values: Values) -> NewSpec:
        return replace(spec_of(values), host=values[HOST])

    def react(was: Values, now: Values) -> Mapping[str, str]:
        if was[HOST] == now[HOST]:
            return form.react(was, now)
        begin = _field(form, "begin")
        assert begin.options is not None
        there = [one.value for one in _origins(begin, world, now)]
        if now["begin"] in there or not there:
            return {}
        changed = {"begin": there[0]}
        return {**changed, **form.react(was, {**now, **changed})}

    def problems(values: Values, now: World) -> Mapping[str, str]:
        machine = now.machine(values[HOST])
        if machine is not None and machine.state is not MachineState.THERE:
            return {HOST: f"{machine.name} cannot be reached now"}
        return form.problems(values, now.at(values[HOST]))

    def remarks(values: Values, now: World) -> Mapping[str, str]:
        return form.remarks(values, now.at(values[HOST]))

    look = form.look
    asking = Field(
        id=HOST,
        label="Machine",
        value=chosen,
        options=lambda now, _: tuple(map(_option, (HERE, *now.machines))),
    )
    whole = replace(
        form,
        fields=(asking, *(_about_machine(field) for field in form.fields)),
        command=lambda values: command_of(spec_there(values)),
        problems=problems,
        remarks=remarks,
        react=react,
        look=None if look is None else lambda values: {} if values[HOST] else look(values),
    )
    return whole, spec_there


def _option(machine: MachineView) -> Option:
    return Option(value=machine.name, label=name_of(machine), note=THERE if machine.name else "")


def _field(form: Form, name: str) -> Field:
    return next(field for field in form.fields if field.id == name)


def _origins(begin: Field, world: World, values: Values) -> tuple[Option, ...]:
    """Returns the origins for a sandbox on the chosen machine: a file must be on this one."""
    assert begin.options is not None
    found = begin.options(world.at(values[HOST]), values)
    return tuple(one for one in found if not values[HOST] or one.value != FILE)


def _about_machine(field: Field) -> Field:
    """Returns a field that knows only of the chosen machine."""
    suggest, options = field.suggest, field.options
    if suggest is not None:
        inner = suggest
        field = replace(field, suggest=lambda now, values: inner(now.at(values[HOST]), values))
    if options is not None:
        if field.id == "begin":
            begin = field
            return replace(field, options=lambda now, values: _origins(begin, now, values))
        given = options
        field = replace(field, options=lambda now, values: given(now.at(values[HOST]), values))
    return field


MOUNTS = "mounts"
FILE_NETWORK = "as the file says, but not full"
ENDINGS = (".quicksand", ".qcow2")
"""Endings of the files by which a path is completed."""
USUAL_IMAGE = "debian"
NOTE_CELLS = 60


class _Origins:
    """The images and saves for a new sandbox, listed anew only when they have changed."""

    def __init__(self, last: Last) -> None:
        self._last = last
        self._of: tuple[tuple[ImageInfo, ...], SavesView] | None = None
        self._options: tuple[Option, ...] = ()
        self._addresses: dict[str, str] = {}

    def options(self, world: World) -> tuple[Option, ...]:
        of = (world.images, world.saves)
        if self._of is None or any(now is not then for now, then in zip(of, self._of, strict=True)):
            self._of = of
            saves = [save for save in world.saves.saves if not trouble_of(save)[0]]
            if not world.saves.loaded and self._last.begin.startswith(SAVE):
                # Until the saves have been read, the save used last is assumed to exist.
                _, key = parse_begin(self._last.begin)
                saves = [SaveFacts(path=key, name=self._last.image, address=self._last.image)]
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
        kind, key = parse_begin(begin)
        images = self._of[0] if self._of is not None and kind == IMAGE else ()
        return next((image.machine for image in images if image.name == key), {})


_FILE_OPTION = Option(
    value=FILE, label="a file", note="a bundle (.quicksand) or a disk, by its path"
)


def _image_option(image: ImageInfo) -> Option:
    note = f"image {image.version}".strip() if image.is_built else "image, not built yet"
    return Option(value=f"{IMAGE}{image.name}", label=image.name, note=note)


def _save_option(save: SaveFacts) -> Option:
    kind = "save" if save.is_own else "save from elsewhere"
    note = f"{kind}: {clip(save.note, NOTE_CELLS)}" if save.note else kind
    return Option(value=f"{SAVE}{save.key}", label=save.address, note=note)


def with_usual(spec: NewSpec, usual: Mapping[str, str]) -> NewSpec:
    """Returns the spec with the ``usual`` options where it has none; they are for this machine."""
    if not usual or spec.host:
        return spec
    return replace(spec, machine={**usual, **spec.machine})


def new_form(
    world: World,
    *,
    begin: str = "",
    last: Last | None = None,
    usual: Mapping[str, str] | None = None,
    host: str = "",
) -> tuple[Form, Callable[[Values], NewSpec]]:
    """Returns the form, and a function that makes a spec of its values. ``begin`` is the first
    choice: `IMAGE` or `SAVE`, followed by a key. ``usual`` are the options of the machine for
    `with_usual`. ``host`` is the machine that is chosen at first, if there are others."""
    usual = usual or {}
    form, spec_of = _form_of_one(world.at(host), begin, last, usual)
    if not world.machines:
        return form, spec_of
    return with_machine(
        form, spec_of, lambda spec: run_command(with_usual(spec, usual)), world, host
    )


def _form_of_one(
    world: World, begin: str, last: Last | None, usual: Mapping[str, str]
) -> tuple[Form, Callable[[Values], NewSpec]]:
    """Returns the form and the function for the one machine that ``world`` is about."""
    before = last or Last()
    origins = _Origins(before)
    chosen = _first_choice(world, origins, (begin, before.begin, f"{IMAGE}{USUAL_IMAGE}"))
    at_first = machine_at_first(chosen, last, chosen == before.begin)
    if last is None or chosen != before.begin:
        at_first |= as_suggested({}, origins.suggested(chosen), {"begin": chosen, **at_first})

    def spec_of(values: Values) -> NewSpec:
        kind, key = parse_begin(values["begin"])
        suggested = origins.suggested(values["begin"])
        if kind == FILE:
            key = as_path(values["file"])
        return NewSpec(
            image=origins.address(key) if kind == SAVE else key,
            save=key if kind == SAVE else "",
            is_file=kind == FILE,
            name=values["name"],
            machine={**_declined(values, suggested), **machine_of(values)},
            suggested=suggested,
        )

    def react(was: Values, now: Values) -> Mapping[str, str]:
        ours, theirs = origins.suggested(now["begin"]), origins.suggested(was["begin"])
        if was["begin"] != now["begin"] and (ours or theirs):
            is_other_kind = begins_with_save(was) != begins_with_save(now)
            kind = values_that_follow(was, now, last) if is_other_kind else {}
            return {**kind, **as_suggested(theirs, ours, {**now, **kind})}
        return values_that_follow(was, now, last)

    form = Form(
        title="New sandbox",
        does="starts it",
        button="Start",
        fields=(
            *_fields_of_origin(origins, chosen),
            _field_of_name(spec_of),
            *_fields_of_machine(at_first, last, usual),
        ),
        first="name",
        command=lambda values: run_command(with_usual(spec_of(values), usual)),
        problems=lambda values, now: find_problems(spec_of(values), now),
        look=_look,
        remarks=_remarks,
        react=react,
        shows_saves=True,
    )
    return form, spec_of


def _field_of_name(spec_of: Callable[[Values], NewSpec]) -> Field:
    return Field(
        id="name",
        label="Name",
        suggest=lambda now, values: suggest_name(_stem(spec_of(values)), now),
        limit=63,
    )


def _first_choice(world: World, origins: _Origins, wishes: Sequence[str]) -> str:
    """Returns the first wish that can be met, else the first origin, or ""."""
    known = [option.value for option in origins.options(world)]
    return next((wish for wish in (*wishes, *known[:1]) if wish in known), "")


def _fields_of_origin(origins: _Origins, chosen: str) -> tuple[Field, ...]:
    return (
        Field(
            id="begin",
            label="Start from",
            value=chosen,
            options=lambda now, _: origins.options(now),
        ),
        Field(
            id="file",
            label="File",
            hint="the path of a disk image, a save or a bundle",
            limit=PATH_MAX,
            complete=lambda typed: complete_file(typed, ENDINGS),
            is_shown=lambda values: values["begin"] == FILE,
        ),
    )


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
            options=lambda _, values: preset_options(values, last),
            is_short=True,
        ),
        *(_machine_field(record, at_first, hints) for record in usual),
        Field(id=MORE, label="More", value=at_first[MORE], choices=(NO, YES), is_short=True),
        *(_machine_field(record, at_first, hints) for record in others),
    )


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
    """Makes the field of an option; ``hints`` are the values that count if none is typed."""
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
        is_shown=None if record.is_usual else partial(shows_option, record),
    )


def _choices(record: MachineOption, values: Values) -> tuple[Option, ...]:
    """Returns the choices of an option, the default first. The value "" means not given."""
    names, default = [str(choice) for choice in record.choices], record.default_text
    options = [Option(value=name, label=name) for name in names]
    if begins_with_save(values):
        return (Option(value="", label=AS_SAVED), *options)
    if record.is_usual:
        at = names.index(default)
        return (*options[at:], *options[:at])
    usual = Option(value="", label=default or record.hint)
    return (usual, *(option for option in options if option.value != default))


def _declined(values: Values, suggested: Mapping[str, str]) -> dict[str, str]:
    """Returns the choices for which the user takes the usual value instead of the image's
    suggestion. The engine would take a missing value from the image."""
    records = machine_records()
    return {
        keyword: records[keyword].default_text
        for keyword in suggested
        if records[keyword].choices and shows_more(values)
    }


def _remarks(values: Values, world: World) -> Mapping[str, str]:
    is_save, save = begins_with_save(values), _save_of(values, world)
    remarks = {
        keyword: _machine_remark(record, values[keyword], is_save=is_save)
        for keyword, record in machine_records().items()
    }
    if is_save and not values["network_mode"]:
        is_file = values["begin"] == FILE
        remarks["network_mode"] = FILE_NETWORK if is_file else _saved_network(save)
    if (here := world.host.cpus) and not remarks["cpus"]:
        remarks["cpus"] = f"the host has {here}"
    if (free := world.host.free_for_new) is not None and not remarks["memory"]:
        remarks["memory"] = f"{size_text(free)} free"
    if save and save.ports and not values[PORTS]:
        remarks[PORTS] = f"as saved: {save.ports}"
    return {
        **remarks,
        "begin": _origin_remark(save),
        "preset": _preset_remark(values),
        MORE: "" if shows_more(values) else "disk size, processor, QEMU arguments …",
    }


def _machine_remark(record: MachineOption, text: str, *, is_save: bool) -> str:
    if record.choices:
        return record.choices.get(text or ("" if is_save else record.default_text), "")
    if text or record.split is not None:
        return ""
    return "as saved" if is_save else record.hint


def _save_of(values: Values, world: World) -> SaveFacts | None:
    kind, key = parse_begin(values["begin"])
    saves = world.saves.saves if kind == SAVE else ()
    return next((save for save in saves if save.key == key), None)


def _origin_remark(save: SaveFacts | None) -> str:
    """Returns the origin of a save in words if this user has not made it."""
    if save is None or save.is_own:
        return ""
    origin = "imported" if save.place == "user" else f"from {clip(path_text(save), NOTE_CELLS)}"
    if not save.left_out:
        return origin
    return f"{origin}; left out unless chosen below: {clip(left_out_text(save), NOTE_CELLS)}"


def _saved_network(save: SaveFacts | None) -> str:
    """Returns the meaning of "as saved" for the network."""
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
