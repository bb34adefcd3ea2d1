"""The verb that forwards ports of this host to running sandboxes: `forward`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from quicksand.things.status import RUNS

from quicksand_tui.verbs import lazy_engine
from quicksand_tui.verbs.call import Call, Report, attach
from quicksand_tui.verbs.parameters import JSON, SANDBOX
from quicksand_tui.verbs.verb import Kind, argument, flag, verb

if TYPE_CHECKING:
    from collections.abc import Sequence

    from quicksand.records.port_forwards import PortForward
    from quicksand.sandbox import Sandbox

    from quicksand_tui.model.keymap import Keymap

LOOPBACK = "127.0.0.1"
TCP = "tcp"
"""The protocol that need not be named (`quicksand.records.port_forwards`)."""


def address_of(host: int) -> str:
    """Returns the address of a forwarded port of this host."""
    return f"{LOOPBACK}:{host}"


def suffix(protocol: str) -> str:
    """Returns the suffix of a port; nothing for TCP."""
    return "" if protocol == TCP else f"/{protocol}"


@verb("forward",
    SANDBOX,
    argument("ports", Kind.FORWARD, "[[HOST:]GUEST[/udp]]...", repeatable=True, required=False,
             on_line=True),
    flag("--remove", "End the forwards from these ports of the host."),
    JSON, module=".guests.mount_unmount",
    summary="Forward ports of this host to a running sandbox, or list them.",
    states=RUNS)  # fmt: skip
def forward(ports: Sequence[str], *, remove: bool = False) -> Call[list[PortForward]]:
    """Forward ports of this host to a running sandbox, or list them.

    8080:80 forwards port 8080 of this host (127.0.0.1 and ::1) to port 80 of the guest; what
    listens only on the guest's own 127.0.0.1 is reached, too. 80 alone is the guest's port: a free
    port of this host is chosen, and printed. 5353:53/udp forwards datagrams. Without ports, the
    forwards are listed. The sandbox needs no network. A forward lasts until the sandbox ends or
    --remove, also over reverts, which end its open connections.

    \b
    quicksand-tui forward web 8080:80
    quicksand-tui forward web                  lists them, those of `run --publish` too
    quicksand-tui forward web --remove 8080 5353/udp    by the ports of this host
    """

    async def act(sandbox: Sandbox, _: Report) -> list[PortForward]:
        wanted, made = [lazy_engine.parse_forward(word) for word in ports], []
        for one in wanted:
            if remove:
                # A port alone is the host's here; HOST:GUEST is taken, too.
                await sandbox.unforward(one.host or one.guest, protocol=one.protocol)
            else:
                made.append(await sandbox.forward(one.guest, one.host, protocol=one.protocol))
        return made

    def tell(name: str, made: list[PortForward], keymap: Keymap) -> str:
        if remove:
            return f"{LOOPBACK}:{', '.join(ports)} leads no longer to {name}"
        told = [f"{address_of(one.host)} leads to port {port_text(one)} of {name}" for one in made]
        return f"{'; '.join(told)}: {keymap.hint('copy_port')} copies it"

    doing = "ending the forward from" if remove else "forwarding"
    return Call(
        failed="The port is still forwarded" if remove else "The port is not forwarded",
        stage=f"{doing} port {', '.join(ports)}",
        open=attach,
        act=act,
        tell=tell,
        only_here=True,  # elsewhere it would lead from a port of this machine
    )


def port_text(one: PortForward) -> str:
    """Returns the guest's port of a forward."""
    return f"{one.guest}{suffix(one.protocol)}"
