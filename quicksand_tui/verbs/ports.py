"""Forwards ports of this host to running sandboxes: `forward`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from quicksand_tui.verbs.record import SandboxVerb, attach

if TYPE_CHECKING:
    from quicksand.records.port_forwards import PortForward

LOOPBACK = "127.0.0.1"


def address_of(host: int) -> str:
    """Returns the address of a forwarded port of this host."""
    return f"{LOOPBACK}:{host}"


def forward(guest: int, host: int = 0) -> SandboxVerb[PortForward]:
    """Forwards a port of this host, any that is free if it is 0, to one of a running sandbox."""
    return SandboxVerb(
        name="forward",
        values={"ports": [f"{host}:{guest}" if host else str(guest or "GUEST")]},
        failed="The port is not forwarded",
        stage=f"forwarding port {guest}",
        open=attach,
        act=lambda sandbox, _: sandbox.forward(guest, host),
        tell=lambda name, made, keymap: (
            f"{address_of(made.host)} leads to port {made.guest} of {name}: "
            f"{keymap.hint('copy_port')} copies it"
        ),
    )


def unforward(host: int) -> SandboxVerb[None]:
    """Ends the forward of a port of this host that `forward` has made."""
    return SandboxVerb(
        name="forward",
        flags=("remove",),
        values={"ports": [str(host)]},
        failed="The port is still forwarded",
        stage=f"ending the forward from port {host}",
        open=attach,
        act=lambda sandbox, _: sandbox.unforward(host),
        tell=lambda name, _, keymap: f"{address_of(host)} leads no longer to {name}",
    )
