"""The form of a new sandbox: what it begins with, its machine, and what was used last."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from quicksand_tui.form import Field, Form, Option, Values
from quicksand_tui.last_used import Last
from quicksand_tui.saved import SaveView
from quicksand_tui.saves_view import trouble_of
from quicksand_tui.spec import (
    NETWORK_NOTES,
    NETWORKS,
    find_problems,
    look_at_ports,
    parse_ports,
    run_command,
    suggest_name,
)
from quicksand_tui.specs import NewSpec
from quicksand_tui.text import clip, size_text

if TYPE_CHECKING:
    from quicksand_tui.all_saves import SavesView
    from quicksand_tui.listed import ImageView
    from quicksand_tui.snapshot import Snapshot

PRESETS = {"small": ("512M", "1"), "medium": ("1G", "2"), "large": ("2G", "4")}
LAST, OWN, AS_SAVED = "last", "own", "as saved"
IMAGE, SAVE = "image:", "save:"
USUAL_IMAGE = "debian"
NOTE_CELLS = 60
MACHINE = ("memory", "cpus", "network", "ports")
"""Fields that presets set."""


def last_of(spec: NewSpec) -> Last:
    begin = f"{SAVE}{spec.save}" if spec.save else f"{IMAGE}{spec.image}"
    return Last(
        begin=begin,
        image=spec.image,
        memory=spec.memory,
        cpus=spec.cpus,
        network=spec.network,
        ports=spec.ports,
    )


class _Origins:
    """What a sandbox can begin with, made anew only when that has changed."""

    def __init__(self, last: Last) -> None:
        self._last = last
        self._of: tuple[tuple[ImageView, ...], SavesView] | None = None
        self._options: tuple[Option, ...] = ()
        self._addresses: dict[str, str] = {}

    def options(self, snapshot: Snapshot) -> tuple[Option, ...]:
        of = (snapshot.images, snapshot.saves)
        if self._of is None or any(now is not then for now, then in zip(of, self._of, strict=True)):
            self._of = of
            saves = [save for save in snapshot.saves.saves if not trouble_of(save)[0]]
            if not snapshot.saves.loaded and self._last.begin.startswith(SAVE):
                # Until they are read, the one of last time is taken on trust.
                _, key = _parse_begin(self._last.begin)
                saves = [SaveView(key=key, name=self._last.image, address=self._last.image)]
            self._options = (
                *(_image_option(image) for image in snapshot.usable_images),
                *(_save_option(save) for save in saves),
            )
            self._addresses = {save.key: save.address for save in saves}
        return self._options

    def address(self, key: str) -> str:
        return self._addresses.get(key, "")


def _image_option(image: ImageView) -> Option:
    return Option(
        value=f"{IMAGE}{image.name}", label=image.name, note=f"image {image.version}".strip()
    )


def _save_option(save: SaveView) -> Option:
    note = f"save: {clip(save.note, NOTE_CELLS)}" if save.note else "save"
    return Option(value=f"{SAVE}{save.key}", label=save.address, note=note)


def new_form(
    snapshot: Snapshot, *, begin: str = "", last: Last | None = None
) -> tuple[Form, Callable[[Values], NewSpec]]:
    """The form, and what makes a spec of its values. ``begin``: what is chosen at first, as
    `IMAGE` or `SAVE` and its key."""
    before = last or Last()
    origins = _Origins(before)
    known = [option.value for option in origins.options(snapshot)]
    wishes = (begin, before.begin, f"{IMAGE}{USUAL_IMAGE}", *known[:1])
    chosen = next((wish for wish in wishes if wish in known), "")
    ports = _free_ports(before.ports, snapshot)
    recent = replace(before, ports=ports) if last is not None else None
    machine = _machine_at_first(chosen, recent, chosen == before.begin)

    def spec_of(values: Values) -> NewSpec:
        kind, key = _parse_begin(values["begin"])
        network = values["network"]
        return NewSpec(
            image=origins.address(key) if kind == SAVE else key,
            save=key if kind == SAVE else "",
            name=values["name"],
            memory=values["memory"],
            cpus=values["cpus"],
            network="" if network == AS_SAVED else network,
            ports=values["ports"],
        )

    fields = (
        Field(
            id="begin",
            label="Begin with",
            value=chosen,
            options=lambda now, _: origins.options(now),
        ),
        Field(
            id="name",
            label="Name",
            suggest=lambda now, values: suggest_name(_stem(spec_of(values)), now),
            limit=63,
        ),
        Field(
            id="preset",
            label="Preset",
            value=machine["preset"],
            options=lambda _, values: _preset_options(values, recent),
            is_short=True,
        ),
        Field(id="memory", label="Memory", value=machine["memory"], limit=20, is_short=True),
        Field(id="cpus", label="CPUs", value=machine["cpus"], limit=4, is_short=True),
        Field(
            id="network",
            label="Network",
            value=machine["network"],
            options=lambda _, values: _network_options(values),
            is_short=True,
        ),
        Field(
            id="ports",
            label="Ports",
            value=machine["ports"],
            hint="host:guest, as in 8080:80, 0:22; host 0 takes a free one",
        ),
    )
    form = Form(
        title="New sandbox",
        does="starts it",
        button="Start",
        fields=fields,
        first="name",
        command=lambda values: run_command(spec_of(values)),
        problems=lambda values, now: find_problems(spec_of(values), now),
        look=lambda values: _look(values["ports"]),
        remarks=_remarks,
        react=lambda before, now: _react(before, now, recent),
        shows_saves=True,
    )
    return form, spec_of


def _parse_begin(value: str) -> tuple[str, str]:
    for kind in (IMAGE, SAVE):
        if value.startswith(kind):
            return kind, value.removeprefix(kind)
    return "", ""


def _is_save(values: Values) -> bool:
    return values["begin"].startswith(SAVE)


def _stem(spec: NewSpec) -> str:
    return spec.image or (spec.save.rpartition("/")[2])


def _look(ports: str) -> Mapping[str, str]:
    problem = look_at_ports(ports)
    return {"ports": problem} if problem else {}


def _free_ports(text: str, snapshot: Snapshot) -> str:
    """The ports of last time, but for those that lead to another sandbox now."""
    taken = {host for view in snapshot.sandboxes if view.is_live for host, _ in view.ports}
    try:
        ports = parse_ports(text)
    except ValueError:
        return ""
    return ", ".join(f"{host}:{guest}" for host, guest in ports if not host or host not in taken)


# Presets


def _preset_values(name: str, recent: Last | None, *, is_save: bool) -> dict[str, str]:
    """What a preset sets, by field."""
    if name == AS_SAVED:
        return {"memory": "", "cpus": "", "network": AS_SAVED, "ports": ""}
    if name == LAST and recent is not None:
        unset = {"memory": "", "cpus": "", "network": AS_SAVED}
        if not is_save:
            unset = {"memory": "512M", "cpus": "1", "network": NETWORKS[0]}
        return {
            "memory": recent.memory or unset["memory"],
            "cpus": recent.cpus or unset["cpus"],
            "network": recent.network if recent.network in NETWORKS else unset["network"],
            "ports": recent.ports,
        }
    if name in PRESETS:
        memory, cpus = PRESETS[name]
        return {"memory": memory, "cpus": cpus}
    return {}


def _machine_at_first(begin: str, recent: Last | None, is_same: bool) -> dict[str, str]:
    is_save = begin.startswith(SAVE)
    preset = LAST if recent is not None and (is_same or not is_save) else "small"
    if is_save and preset != LAST:
        preset = AS_SAVED
    network = AS_SAVED if is_save else NETWORKS[0]
    values = {"memory": "", "cpus": "", "network": network, "ports": "", "preset": preset}
    return values | _preset_values(preset, recent, is_save=is_save)


def _preset_options(values: Values, recent: Last | None) -> tuple[Option, ...]:
    names = [AS_SAVED] if _is_save(values) else []
    names += [*PRESETS, *([LAST] if recent is not None else []), OWN]
    return tuple(Option(value=name, label=name) for name in names)


def _network_options(values: Values) -> tuple[Option, ...]:
    names = [AS_SAVED, *NETWORKS] if _is_save(values) else NETWORKS
    return tuple(Option(value=name, label=name) for name in names)


def _react(before: Values, now: Values, recent: Last | None) -> Mapping[str, str]:
    """A preset sets the machine's fields; who types one of these has a preset of his own."""
    is_save = _is_save(now)
    if now["begin"] and _is_save(before) != is_save:
        return _as_its_kind(now, recent)
    if before["preset"] != now["preset"]:
        return _preset_values(now["preset"], recent, is_save=is_save)
    if all(before[field] == now[field] for field in MACHINE):
        return {}
    names = (now["preset"], *([AS_SAVED] if is_save else []), *PRESETS)
    fitting = (name for name in names if _fits(name, now, recent))
    return {"preset": next(fitting, OWN)}


def _fits(preset: str, values: Values, recent: Last | None) -> bool:
    wanted = _preset_values(preset, recent, is_save=_is_save(values))
    return bool(wanted) and all(values[field] == value for field, value in wanted.items())


def _as_its_kind(values: Values, recent: Last | None) -> Mapping[str, str]:
    """What begins with a save is as that was, and with an image as usual, unless something else
    was chosen."""
    is_save = _is_save(values)
    if values["preset"] not in (OWN, LAST):
        preset = AS_SAVED if is_save else "small"
        usual = {"preset": preset, "network": AS_SAVED if is_save else NETWORKS[0]}
        return usual | _preset_values(preset, recent, is_save=is_save)
    if is_save:
        return {}
    # An image has no values to inherit.
    small = _preset_values("small", recent, is_save=False)
    network = values["network"] if values["network"] in NETWORKS else NETWORKS[0]
    return {"network": network} | {field: values[field] or small[field] for field in small}


def _remarks(values: Values, snapshot: Snapshot) -> Mapping[str, str]:
    free = snapshot.host.memory_free
    memory = f"{size_text(free)} free" if free is not None else ""
    is_save = _is_save(values)
    return {
        "preset": _preset_remark(values),
        "memory": "as saved" if is_save and not values["memory"] else memory,
        "cpus": "as saved" if is_save and not values["cpus"] else "",
        "network": NETWORK_NOTES.get(values["network"], "what it had"),
    }


def _preset_remark(values: Values) -> str:
    if values["preset"] == AS_SAVED:
        return "the machine that was saved"
    if values["preset"] == LAST:
        return "what was used last"
    return "what you type" if values["preset"] == OWN else ""
