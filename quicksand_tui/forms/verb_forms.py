"""The forms that ask for the parameters of a verb: made from these, or by hand where a form says
more (mounts, ports, packages); and the calls made from typed words."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from quicksand.base.errors import ConfigError, MountError
from quicksand.base.paths import paths
from quicksand.mounts.directories import check_directory
from quicksand.records.mount import CIFS, Mount, parse_mount
from quicksand.records.port_forwards import PortForward, Protocol, parse_forward
from quicksand.remote.destination import Destination

from quicksand_tui.forms.form_fields import (
    PUBLISHED,
    Field,
    Form,
    Option,
    Values,
    find_package_problem,
    find_port_owner,
    find_save_name_problem,
    find_tag_problem,
    look_at_ports,
    look_at_wheel,
    suggest_save_name,
)
from quicksand_tui.model.remedy_words import text_of
from quicksand_tui.model.specs import MountSpec
from quicksand_tui.model.text import TITLE_CELLS, clip, sanitise
from quicksand_tui.verbs import packages
from quicksand_tui.verbs.call import command_about
from quicksand_tui.verbs.mounts import mount
from quicksand_tui.verbs.ports import address_of, forward, suffix
from quicksand_tui.verbs.verb import Kind

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from quicksand_tui.forms.form_fields import Suggest
    from quicksand_tui.model.shown_sandboxes import SandboxView
    from quicksand_tui.model.world import MachineView, World
    from quicksand_tui.verbs.call import Call
    from quicksand_tui.verbs.verb import AnyVerb, Parameter


PATH_MAX = 1000
"""The longest path that can be typed, in characters."""
CANDIDATES_MAX = 50
LOOKED_AT_MAX = 5000
"""The most entries of a directory that are searched for a completion."""
READ_ONLY, PROTECT = "ro", "protect"
MODES = (
    Option(value="", label="read and write"),
    Option(value=READ_ONLY, label="read-only", note="not even root there can change anything"),
    Option(
        value=PROTECT,
        label="protect hooks",
        note="read and write, except files that programs of the host run, such as git's hooks",
    ),
)


def mount_form(sandbox: SandboxView) -> Form:
    """Makes the form of a mount in a running sandbox."""

    def problems(values: Values, now: World) -> Mapping[str, str]:
        found = find_mount_problems(mount_spec(values), now.sandbox(sandbox.id) or sandbox)
        if sandbox.host and not values["host"].startswith(("/", "~")):
            return {**found, "host": f"write its whole path on {sandbox.host}"}
        return found

    def look(values: Values) -> Mapping[str, str]:
        problem = look_at_directory(mount_spec(values))
        return {"host": problem} if problem else {}

    return Form(
        title=f"Mount a directory in {sandbox.name}",
        does="mounts it",
        button="Mount",
        fields=(
            Field(
                id="host",
                label="Host",
                hint=f"a directory of {sandbox.host or 'this host'}",
                limit=PATH_MAX,
                complete=None if sandbox.host else complete_directory,
            ),
            Field(
                id="guest",
                label="Guest",
                hint="its path in the sandbox",
                limit=PATH_MAX,
                suggest=lambda _, values: suggest_guest(values.get("host", "")),
            ),
            Field(id="mode", label="Mode", options=lambda world, values: MODES),
        ),
        command=lambda values: mount_of(values).command_for(sandbox.name),
        problems=problems,
        look=None if sandbox.host else look,
    )


def mount_spec(values: Values) -> MountSpec:
    host = values["host"]
    return MountSpec(
        host=host.rstrip("/") or host[:1],
        guest=values["guest"],
        readonly=values["mode"] == READ_ONLY,
        protect=values["mode"] == PROTECT,
    )


def mount_of(values: Values) -> Call[None]:
    """Returns what the form asks for."""
    return mount(mount=mount_spec(values))


def read_spec(word: str) -> MountSpec:
    """Reads HOST:GUEST[:ro|:protect]. Raises ConfigError, which is a ValueError."""
    read = parse_mount(word)
    if read.type != CIFS:
        raise ConfigError(f"{read.type} mounts are possible at a start only")
    return MountSpec(host=read.host, guest=read.guest, readonly=read.readonly, protect=read.protect)


def find_mount_problem(word: str, sandbox: SandboxView) -> str:
    """Returns the problem of HOST:GUEST that is seen without the disk, which could take long; "" if
    there is none."""
    try:
        spec = read_spec(word)
    except ConfigError as error:
        return str(error)
    return "; ".join(find_mount_problems(spec, sandbox).values())


def suggest_guest(host: str) -> str:
    """Suggests a place in the guest for a directory of this host."""
    name = os.path.basename(os.path.abspath(host)) if host else ""  # noqa: PTH100, PTH119 - no look
    return f"/mnt/{name}" if name else ""


def find_mount_problems(spec: MountSpec, sandbox: SandboxView) -> dict[str, str]:
    """Returns the problems of a mount, by field, seen without the disk. The checks are the
    engine's."""
    problems: dict[str, str] = {}
    for field, places in {"host": (spec.host, "/mnt/x"), "guest": ("/", spec.guest)}.items():
        try:
            checked = Mount(*places)
        except ConfigError as error:
            problems[field] = sanitise(text_of(error))
            continue
        there = sandbox.mount_at(checked.guest)
        if field == "guest" and there is not None and there.state.is_now:
            problems[field] = f"{there.host} is mounted there already"
    return problems


def look_at_directory(spec: MountSpec) -> str:
    """Returns why a directory of this host cannot be mounted; "" if it can. Waits for the disk."""
    try:
        check_directory(Mount(spec.host, "/mnt/x", spec.readonly), paths())
    except ConfigError:
        return ""  # told by `find_mount_problems`
    except MountError as error:
        return sanitise(text_of(error))
    return ""


def complete_directory(typed: str) -> tuple[str, ...]:
    """Returns the directories whose paths begin with the typed text, each with a slash at its end;
    hidden ones only if the text has a dot. Waits for the disk."""
    return complete_file(typed, ())


def complete_file(typed: str, endings: tuple[str, ...]) -> tuple[str, ...]:
    """Does the same as `complete_directory`, with files that end in one of ``endings``, too. Waits
    for the disk."""
    if typed == "~":
        return ("~/",)
    head, slash, begin = typed.rpartition("/")
    try:
        place = Path(f"{head}{slash}" or ".").expanduser()
        names = sorted(_entries(place, begin, endings))
    except (OSError, RuntimeError, ValueError):
        return ()
    return tuple(f"{head}{slash}{name}" for name in names[:CANDIDATES_MAX])


def complete_mounts(typed: str) -> tuple[str, ...]:
    """Returns the continuations of a list of mounts, with words as in a shell: the last word goes
    on as a directory of this host. Names to be quoted are not offered. Waits for the disk."""
    before, space, word = typed.rpartition(" ")
    if not word or ":" in word or any(mark in word for mark in "'\"\\"):
        return ()
    return tuple(
        f"{before}{space}{path}"
        for path in complete_directory(word)
        if shlex.quote(path.removeprefix("~")) == path.removeprefix("~")
    )


def _entries(place: Path, begin: str, endings: tuple[str, ...]) -> list[str]:
    """Returns the names of directories that can be typed, each with a slash, and of files that end
    in one of ``endings``. Raises OSError."""
    found = []
    with os.scandir(place) as entries:
        for number, entry in enumerate(entries):
            if number == LOOKED_AT_MAX:
                break
            name = entry.name
            is_wanted = name.startswith(begin) and (begin != "" or not name.startswith("."))
            if not is_wanted or not name.isprintable():
                continue
            if entry.is_dir():
                found.append(f"{name}/")
            elif name.endswith(endings) and entry.is_file():
                found.append(name)
    return found


NO_PORT = "a number from 1 to 65535"
DIGITS = 5
PORT = "port"
PROTOCOL = "protocol"


def forward_form(sandbox: SandboxView) -> Form:
    """Makes the form of a forward to a running sandbox."""
    return Form(
        title=f"Forward a port to {sandbox.name}",
        does="forwards it",
        button="Forward",
        fields=(
            Field(id="guest", label="Guest", hint="a port of the sandbox, as 80", limit=DIGITS),
            Field(id="host", label="Host", hint="a port of this host; any if empty", limit=DIGITS),
            Field(id=PROTOCOL, label="Protocol", value=Protocol.TCP, choices=tuple(Protocol)),
        ),
        command=lambda values: forward_of(values).command_for(sandbox.name),
        problems=_problems,
        look=_look,
    )


def forward_of(values: Values) -> Call[list[PortForward]]:
    """Returns what the form asks for. What is no port counts as not typed."""
    host, guest = _port(values["host"]), _port(values["guest"]) or "GUEST"
    word = f"{host}:{guest}" if host else str(guest)
    return forward(ports=[f"{word}{suffix(values[PROTOCOL])}"])


def _port(text: str) -> int:
    return int(text) if _is_port(text) else 0


def _is_port(text: str) -> bool:
    return text.isascii() and text.isdigit() and 1 <= int(text) <= 65535


def _problems(values: Values, world: World) -> Mapping[str, str]:
    problems = {}
    if not _is_port(values["guest"]):
        problems["guest"] = NO_PORT
    if values["host"]:
        problems["host"] = (
            find_taken(_port(values["host"]), world, Protocol(values[PROTOCOL]))
            if _is_port(values["host"])
            else NO_PORT
        )
    return {field: problem for field, problem in problems.items() if problem}


def find_taken(host: int, world: World, protocol: Protocol = Protocol.TCP) -> str:
    """Returns that a port of this host leads to a sandbox already, or ""."""
    found = find_port_owner(PortForward(host, 1, protocol), world)
    return f"it leads to {found.name} already" if found else ""


def _look(values: Values) -> Mapping[str, str]:
    host = _port(values["host"])
    problem = look_at_ports(PortForward(host, 1, Protocol(values[PROTOCOL])).word) if host else ""
    return {"host": problem} if problem else {}


def find_forward_problem(word: str, world: World) -> str:
    """Returns the problem of HOST:GUEST that is seen without asking the system; or ""."""
    try:
        wanted = parse_forward(word)
    except ConfigError as error:
        return str(error)
    taken = find_taken(wanted.host, world, wanted.protocol) if wanted.host else ""
    return f"port {wanted.host}: {taken}" if taken else ""


def find_unforward_problem(word: str, sandbox: SandboxView) -> str:
    """Returns why there is no such forward to end, or "". A port alone is this host's."""
    try:
        given = parse_forward(word)
    except ConfigError as error:
        return str(error)
    port = given.host or given.guest
    made = sandbox.forwards if given.protocol is Protocol.TCP else sandbox.udp_forwards
    if any(port == host for host, _ in made):
        return ""
    shown = f"{port}{suffix(given.protocol)}"
    return f"port {shown} is not forwarded to {sandbox.name}, or it is so since its start"


def unforward_form(sandbox: SandboxView) -> Form:
    """Makes the form that asks which forward to end."""
    return Form(
        title=f"End a forward to {sandbox.name}",
        does="ends it, with its connections",
        button="End it",
        fields=(_port_field(sandbox, _made),),
        command=lambda values: unforward_of(values).command_for(sandbox.name),
        problems=_has_ended,
    )


def _port_field(sandbox: SandboxView, of: Callable[[SandboxView], tuple[Option, ...]]) -> Field:
    return Field(id=PORT, label="Port", options=lambda world, _: of(_now(sandbox, world)))


def unforward_of(values: Values) -> Call[list[PortForward]]:
    """Returns what the form asks for."""
    return forward(ports=[values[PORT]], remove=True)


class Copied(NamedTuple):
    """The text copied for a forwarded port, and the message about that."""

    text: str
    """The text; "" if no address leads there from here."""
    told: str


def copy_of(chosen: str, machine: MachineView | None) -> Copied:
    """Returns an address that leads to a port of a ``machine``, None for this one. ``chosen`` is as
    in the form. A port of another machine belongs to its loopback, so ssh brings it here."""
    port, _, protocol = chosen.partition("/")
    address = address_of(int(port))
    if machine is None or not machine.has_own_loopback:
        return Copied(address, f"Copied {address}, if the terminal allows it")
    if protocol:
        return Copied(
            "", f"{address}{suffix(protocol)} is {machine.name}'s: ssh brings no UDP here"
        )
    command = Destination.parse(machine.address).tunnel(int(port))
    told = f"{address} is {machine.name}'s: copied the command that brings it here, {command}"
    return Copied(command, f"{told}, if the terminal allows it")


def copy_port_form(sandbox: SandboxView) -> Form:
    """Makes the form that asks which address to copy."""
    return Form(
        title=f"Copy a forwarded port of {sandbox.name}",
        does="copies it, if the terminal allows it",
        button="Copy",
        fields=(_port_field(sandbox, _all),),
        command=lambda values: command_about("forward", sandbox.name),
        problems=_has_ended,
    )


def _made(view: SandboxView) -> tuple[Option, ...]:
    return (*_options(view.forwards), *_options(view.udp_forwards, Protocol.UDP))


def _all(view: SandboxView) -> tuple[Option, ...]:
    return (*_options(view.ports), *_options(view.udp_ports, Protocol.UDP))


def _options(
    ports: tuple[tuple[int, int], ...], protocol: Protocol = Protocol.TCP
) -> tuple[Option, ...]:
    spoken = suffix(protocol)
    return tuple(
        Option(value=f"{host}{spoken}", label=f"{address_of(host)} → {guest}{spoken}")
        for host, guest in ports
    )


def _now(sandbox: SandboxView, world: World) -> SandboxView:
    return world.sandbox(sandbox.id) or sandbox


def _has_ended(values: Values, world: World) -> Mapping[str, str]:
    return {} if values[PORT] else {PORT: "it has ended"}


NO, YES = "no", "yes"


def form_of(
    verb: AnyVerb,
    sandbox: SandboxView | None = None,
    *,
    given: Mapping[str, object] | None = None,
    first: Mapping[str, str] | None = None,
    about: str = "",
    call: Callable[[Values], Call[Any]] | None = None,
) -> Form:
    """Makes the form that asks for the parameters of a verb, on a sandbox if it is about one.
    ``given`` are the values of others, ``first`` the texts of fields at first, and ``about`` names
    the thing it is about if that is not the sandbox. ``call`` makes the call of a mere command."""
    assert verb.form is not None, f"{verb} has no form"
    name = sandbox.name if sandbox is not None else ""
    asked = [
        one
        for one in verb.asked
        if one.asked and (not one.asked.of or (sandbox is not None and one.asked.of(sandbox)))
    ]

    def problems(values: Values, now: World) -> Mapping[str, str]:
        there = sandbox and (now.sandbox(sandbox.id) or sandbox)
        found = {one.name: find_problem(one, values[one.name], there, now) for one in asked}
        return {name: problem for name, problem in found.items() if problem}

    def look(values: Values) -> Mapping[str, str]:
        found = {one.name: look_at_wheel(values[one.name]) for one in packaged}
        return {name: problem for name, problem in found.items() if problem}

    packaged = [one for one in asked if one.kind is Kind.PACKAGE]
    make = call or (lambda values: call_of(verb, values, given))
    return Form(
        title=verb.form.title.format(clip(about or name, TITLE_CELLS)),
        does=verb.form.does,
        button=verb.form.button,
        fields=tuple(_field(one, first or {}, sandbox) for one in asked),
        command=lambda values: make(values).command_for(name),
        problems=problems,
        look=look if packaged else None,
        remarks=lambda values, _: {one.name: _remark(one, values[one.name]) for one in asked},
        shows_saves=any(one.kind is Kind.NEW_SAVE for one in asked),
    )


def call_of(verb: AnyVerb, values: Values, given: Mapping[str, object] | None = None) -> Call[Any]:
    """Returns the call of a verb with typed values, by the names of its parameters, and with the
    other values that are ``given``."""
    call: Call[Any] = verb(**typed_values(verb, values), **(given or {}))
    return call


def typed_values(verb: AnyVerb, values: Values) -> dict[str, Any]:
    return {name: read_value(verb.parameter(name), text) for name, text in values.items()}


def read_value(parameter: Parameter, text: str) -> Any:
    """Returns the typed value; an empty text, or one that is no number, counts as not typed. Raises
    ConfigError for a text that is no mount."""
    if parameter.kind is Kind.FLAG:
        return text == YES
    if parameter.kind is Kind.COUNT:
        return int(text) if text.isascii() and text.isdigit() else parameter.default
    if not text:
        return "" if parameter.required else parameter.default
    if parameter.kind is Kind.MOUNT:
        return read_spec(text)
    return [text] if parameter.repeatable else text


def find_problem(parameter: Parameter, text: str, sandbox: SandboxView | None, world: World) -> str:
    """Returns the problem of a typed value of a verb, on a sandbox if it is about one, that is seen
    without a look at the host; "" if there is none."""
    finders: dict[Kind, Callable[[], str]] = {
        Kind.COUNT: lambda: _find_count_problem(parameter, text),
        Kind.PACKAGE: lambda: find_package_problem(text),
        Kind.FORWARD: lambda: find_forward_problem(text, world),
    }
    if sandbox is not None:
        finders |= {
            Kind.NEW_TAG: lambda: find_tag_problem(text, sandbox.tree),
            Kind.NEW_SAVE: lambda: find_save_name_problem(text, world.at(sandbox.host)),
            Kind.MOUNT: lambda: find_mount_problem(text, sandbox),
        }
    return finders[parameter.kind]() if parameter.kind in finders else ""


def _find_count_problem(parameter: Parameter, text: str) -> str:
    least, most = int(parameter.least or 0), parameter.limit
    if text.isascii() and text.isdigit():
        count = int(text[:6])
        if least <= count and (most is None or count <= most):
            return ""
    return f"a number from {least} to {most}"


def _field(parameter: Parameter, first: Mapping[str, str], sandbox: SandboxView | None) -> Field:
    asked = parameter.asked
    assert asked is not None
    options = tuple(Option(value=v, label=label, note=note) for v, label, note in asked.choices)
    if parameter.kind is Kind.CHOICE and not options:
        own = [Option(value=value, label=value) for value in parameter.all_choices]
        options = (Option(value="", label=asked.hint), *own)
    names = PUBLISHED if parameter.kind is Kind.PACKAGE else ()
    is_flag = parameter.kind is Kind.FLAG
    default = NO if is_flag else str(parameter.default or "")
    return Field(
        id=parameter.name,
        label=asked.label,
        value=first.get(parameter.name, default),
        hint=asked.hint,
        limit=asked.limit() if callable(asked.limit) else asked.limit,
        choices=(NO, YES) if is_flag else (),
        options=(lambda world, values: options) if options else None,
        suggest=_suggesting(sandbox) if sandbox and parameter.kind is Kind.NEW_SAVE else None,
        complete=_completing(asked.endings, names) if asked.endings else None,
    )


def _completing(
    endings: tuple[str, ...], names: Collection[str]
) -> Callable[[str], tuple[str, ...]]:
    """Returns the completion by some names, and by files with these endings. It waits for the
    disk."""

    def complete(typed: str) -> tuple[str, ...]:
        known = (name for name in names if typed and name.startswith(typed))
        return (*known, *complete_file(typed, endings))

    return complete


def _suggesting(sandbox: SandboxView) -> Suggest:
    return lambda now, _: suggest_save_name(sandbox.short_name, now.at(sandbox.host))


def _remark(parameter: Parameter, text: str) -> str:
    assert parameter.asked is not None
    return parameter.asked.remarks[text not in ("", NO)]


def install_form(package: str = "") -> Form:
    """Makes the form that asks for a package to install, with its known facts."""
    return form_of(packages.INSTALL, first={"names": package}, call=install_of)


def install_of(values: Values) -> Call[Any]:
    """Returns what the form asks for."""
    typed = typed_values(packages.INSTALL, values)
    return packages.install(
        values["names"], sources=typed["sources"] or (), arch=typed["arch"] or None
    )
