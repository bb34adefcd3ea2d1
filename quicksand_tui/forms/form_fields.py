"""The data of a form: its fields, and the suggestions for them and checks of their values that many
forms share. `quicksand_tui.screens.form` shows it."""

from __future__ import annotations

import re
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quicksand.base.errors import ConfigError, QuicksandError
from quicksand.base.paths import expand
from quicksand.disks.images.resolve import is_bundle
from quicksand.disks.packages.names import PUBLISHED
from quicksand.disks.packages.wanted import parse_wanted
from quicksand.qemu.bundled import QEMU_PACKAGE
from quicksand.records.config import SandboxConfig, check_name
from quicksand.records.machine_options import parse_memory
from quicksand.records.nodes import check_tag
from quicksand.saves.bundle.unpacked import read_head, require_startable
from quicksand.saves.save_manifest import check_save_name
from quicksand_wheels.wheel import is_wheel

from quicksand_tui.actions.reasons import NO_IMAGE
from quicksand_tui.model.amounts import size_text
from quicksand_tui.model.remedy_words import hint_of, text_of
from quicksand_tui.model.text import sanitise
from quicksand_tui.model.world import World
from quicksand_tui.verbs.launching import machine_records
from quicksand_tui.verbs.ports import TCP
from quicksand_tui.views.save_rows import trouble_of

if TYPE_CHECKING:
    from quicksand.records.port_forwards import PortForward
    from quicksand.things.save import SaveFacts

    from quicksand_tui.model.shown_sandboxes import CheckpointTree, SandboxView
    from quicksand_tui.model.specs import NewSpec


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


__all__ = ["PUBLISHED"]

ENDING = ".quicksand"


def suggest_save_name(sandbox: str, world: World) -> str:
    """Suggests the sandbox's name, with the first free number behind it if it is taken."""
    taken = _saves_taken(world)
    if sandbox not in taken:
        return sandbox
    number = 2
    while f"{sandbox}-{number}" in taken:
        number += 1
    return f"{sandbox}-{number}"


def _saves_taken(world: World) -> set[str]:
    """Returns the names of the user's own saves, as far as they are known, and of images."""
    saves = {save.name for save in world.saves.saves if save.place == "user"}
    return saves | {image.name for image in world.images}


def find_save_name_problem(name: str, world: World) -> str:
    """Returns the problem of a new save's name; "" if none is known."""
    try:
        check_save_name(name)
    except ConfigError as error:
        return sanitise(hint_of(error) or text_of(error))
    if world.image(name) is not None:
        return f"{name} is an image: the save would hide it"
    if name in _saves_taken(world):
        return f"there is a save {name} already"
    return ""


def suggest_file(save: SaveFacts) -> str:
    """Suggests the name of a file to export a save to."""
    stem = re.sub(r"[^A-Za-z0-9_.-]+", "-", save.name).strip("-.") or "save"
    return f"{stem}{ENDING}"


def look_at_target(file: str, *, replace: bool) -> str:
    """Returns the problem of a file to be written; "" if there is none. Waits for the disk."""
    if not file:
        return "a file's name"
    try:
        target = Path(file).expanduser().absolute()
        if target.is_dir():
            return "that is a directory"
        if not target.parent.is_dir():
            return f"there is no directory {sanitise(str(target.parent))}"
        if target.exists() and not replace:
            return "this file exists already"
    except (OSError, RuntimeError, ValueError) as error:
        return sanitise(str(error))
    return ""


def look_at_source(file: str) -> str:
    """Returns the problem of a file to be imported; "" if there is none. Waits for the disk."""
    return look_at_file(file) if file else "name a file written by export"


def look_at_origin(file: str) -> str:
    """Returns the problem of a file that a sandbox is to start from, as far as its manifest tells;
    "" if there is none. Waits for the disk."""
    if not file:
        return ""
    if problem := look_at_file(file):
        return problem
    try:
        if is_bundle(file):
            require_startable(read_head(expand(file).absolute()))
    except QuicksandError as error:
        return sanitise(text_of(error))
    return ""


def find_package_problem(name: str) -> str:
    """Returns the problem of a package to be installed; "" if none is known."""
    if not name:
        return "the name of an image, or of a .whl"
    if is_wheel(name):
        return ""  # told by `look_at_wheel`
    try:
        wanted = parse_wanted(name)
    except ConfigError as error:
        return sanitise(text_of(error))
    if wanted.package == QEMU_PACKAGE:
        return "no image: `quicksand-tui install qemu` gets QEMU"
    return ""


def look_at_wheel(name: str) -> str:
    """Returns the problem of the path of a wheel; "" if there is none. Waits for the disk."""
    return look_at_file(name) if is_wheel(name) else ""


def look_at_file(file: str) -> str:
    """Returns why a file cannot be read; "" if it is there. Waits for the disk."""
    try:
        source = Path(file).expanduser().absolute()
        if source.is_dir():
            return "that is a directory"
        if not source.exists():
            return "there is no such file"
    except (OSError, RuntimeError, ValueError) as error:
        return sanitise(str(error))
    return ""


PORTS = "port_forwards"
"""The keyword of the option whose value may conflict with this host and other sandboxes."""


def suggest_name(image: str, world: World) -> str:
    """Suggests the first free name of image-1, image-2 and so on."""
    stem = re.sub(r"[^A-Za-z0-9_.-]+", "-", image.rsplit("/", 1)[-1]).strip("-._")[:50] or "sandbox"
    taken = _taken(world)
    number = 1
    while f"{stem}-{number}" in taken:
        number += 1
    return f"{stem}-{number}"


def _taken(world: World) -> set[str]:
    """Returns the names that no new sandbox can have."""
    beginning = {job.name for job in world.jobs if job not in world.save_jobs}
    return beginning | {name for view in world.sandboxes for name in (view.name, view.id)}


def find_name_problem(name: str, world: World) -> str:
    """Returns the problem of a new sandbox's name; "" if there is none."""
    try:
        check_name(name)
    except ConfigError as error:
        return sanitise(hint_of(error) or text_of(error))
    return f"{name} is taken" if name in _taken(world) else ""


def parse_ports(text: str) -> Sequence[PortForward]:
    """Reads port forwards as typed. Raises ConfigError, which is a ValueError."""
    forwards: Sequence[PortForward] = machine_records()[PORTS].parse_text(text)
    return forwards


def find_problems(spec: NewSpec, world: World) -> dict[str, str]:
    """Returns the problems by field; empty if the sandbox can be started. The checks are those of
    the engine, so it accepts what the form accepts."""
    problems = _find_machine_problems(spec)
    if problem := _find_origin_problem(spec, world):
        problems["begin"] = problem
    if spec.is_file and not spec.image:
        problems["file"] = "the path of a file"
    if problem := find_name_problem(spec.name, world):
        problems["name"] = problem
    memory, free = spec.machine.get("memory"), world.host.free_for_new
    if memory and free is not None and "memory" not in problems and parse_memory(memory) > free:
        problems["memory"] = f"the host has {size_text(free)} free"
    if PORTS not in problems and (problem := _find_taken_port(spec, world)):
        problems[PORTS] = problem
    return problems


def _find_machine_problems(spec: NewSpec) -> dict[str, str]:
    """Returns the engine's complaints by field: for each option alone, and with those before it."""
    problems: dict[str, str] = {}
    good: dict[str, Any] = {"image": "x"}
    for keyword, record in machine_records().items():
        if not (text := spec.machine.get(keyword)):
            continue
        try:
            value = record.parse_text(text)
            SandboxConfig.parse({**good, keyword: value})
            good[keyword] = value
        except ConfigError as error:
            message = hint_of(error) or text_of(error)
            if record.split is not None and error.hint:  # which of several options is wrong
                message = f"{error}: {hint_of(error)}"
            problems[keyword] = sanitise(message)
    return problems


def _find_origin_problem(spec: NewSpec, world: World) -> str:
    if spec.is_file:
        return ""  # told at the field of the file
    if not spec.image:
        return "choose an image or a save" if world.usable_images else NO_IMAGE
    if spec.save:
        save = next((save for save in world.saves.saves if save.key == spec.save), None)
        if save is None:
            return "this save is gone" if world.saves.loaded else ""
        trouble, problems = trouble_of(save)
        return problems[0] if problems else trouble
    if any(save.address == spec.image for save in world.saves.saves):
        return f"a save has the name {spec.image}, too, and would be used"
    image = world.image(spec.image)
    return image.error if image is not None else ""


def _find_taken_port(spec: NewSpec, world: World) -> str:
    for wanted in parse_ports(spec.machine.get(PORTS, "")):
        if found := find_port_owner(wanted, world):
            return f"port {wanted.host} leads to {found.name} already"
    return ""


def find_port_owner(wanted: PortForward, world: World) -> SandboxView | None:
    """Finds the sandbox to which a port of this host leads already."""
    for view in world.sandboxes:
        ports = view.ports if wanted.protocol == TCP else view.udp_ports
        if wanted.host and view.is_live and any(wanted.host == host for host, _ in ports):
            return view
    return None


def look_at_ports(text: str) -> str:
    """Returns why ports of this host cannot be used; "" if they can. Asks the system, so it is to
    be called in a thread."""
    try:
        ports = parse_ports(text)
    except ValueError:
        return ""
    for port, is_tcp in ((one.host, one.protocol == TCP) for one in ports if one.host):
        kind = socket.SOCK_STREAM if is_tcp else socket.SOCK_DGRAM
        with socket.socket(type=kind) as asked:
            if is_tcp:  # a port that was just closed counts as free, as it does for the engine
                asked.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                asked.bind(("127.0.0.1", port))
            except PermissionError:
                return f"port {port} is reserved for root: choose one from 1024 on"
            except OSError:
                return f"another program has port {port} of this host"
    return ""


def find_tag_problem(tag: str, tree: CheckpointTree) -> str:
    """Returns the problem of a new checkpoint's tag; "" if there is none."""
    if any(checkpoint.tag == tag for checkpoint in tree.checkpoints):
        return f"the tag {tag} is taken"
    try:
        if tag:
            check_tag(tag)
    except ConfigError as error:
        return sanitise(hint_of(error) or text_of(error))
    return ""
