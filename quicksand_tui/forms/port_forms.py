"""The forms for forwarded ports: a new one, the end of one, and which address to copy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from quicksand.base.errors import ConfigError
from quicksand.records.port_forwards import PortForward, Protocol, parse_forward
from quicksand.remote.destination import Destination

from quicksand_tui.forms.field_checks import find_port_owner, look_at_ports
from quicksand_tui.forms.form_fields import Field, Form, Option, Values
from quicksand_tui.verbs.ports import address_of, forward, suffix
from quicksand_tui.verbs.shown_commands import command_about

if TYPE_CHECKING:
    from quicksand_tui.model.shown_sandboxes import SandboxView
    from quicksand_tui.model.world import MachineView, World
    from quicksand_tui.verbs.call import Call

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
        fields=(
            Field(
                id=PORT,
                label="Port",
                options=lambda world, _: _made(_now(sandbox, world)),
            ),
        ),
        command=lambda values: unforward_of(values).command_for(sandbox.name),
        problems=_has_ended,
    )


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
        fields=(
            Field(
                id=PORT,
                label="Port",
                options=lambda world, _: _all(_now(sandbox, world)),
            ),
        ),
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
