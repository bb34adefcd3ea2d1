"""Forwards ports of this host to running sandboxes: `forward`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from quicksand_tui.verbs.record import SandboxVerb, attach

if TYPE_CHECKING:
    from quicksand.records.port_forwards import PortForward

LOOPBACK = "127.0.0.1"
TCP = "tcp"
"""The protocol that need not be named (`quicksand.records.port_forwards`)."""


def address_of(host: int) -> str:
    """Returns the address of a forwarded port of this host."""
    return f"{LOOPBACK}:{host}"


def suffix(protocol: str) -> str:
    """Returns what stands behind a port; nothing for TCP."""
    return "" if protocol == TCP else f"/{protocol}"


def forward(guest: int, host: int = 0, protocol: str = TCP) -> SandboxVerb[PortForward]:
    """Forwards a port of this host, any that is free if it is 0, to one of a running sandbox."""
    ports = f"{host}:{guest}" if host else str(guest or "GUEST")
    return SandboxVerb(
        name="forward",
        values={"ports": [f"{ports}{suffix(protocol)}"]},
        failed="The port is not forwarded",
        stage=f"forwarding port {guest}",
        open=attach,
        act=lambda sandbox, _: sandbox.forward(guest, host, protocol=protocol),
        tell=lambda name, made, keymap: (
            f"{address_of(made.host)} leads to port {made.guest}{suffix(protocol)} of {name}: "
            f"{keymap.hint('copy_port')} copies it"
        ),
    )


def unforward(host: int, protocol: str = TCP) -> SandboxVerb[None]:
    """Ends the forward of a port of this host that `forward` has made."""
    return SandboxVerb(
        name="forward",
        flags=("remove",),
        values={"ports": [f"{host}{suffix(protocol)}"]},
        failed="The port is still forwarded",
        stage=f"ending the forward from port {host}",
        open=attach,
        act=lambda sandbox, _: sandbox.unforward(host, protocol=protocol),
        tell=lambda name, _, keymap: (
            f"{address_of(host)}{suffix(protocol)} leads no longer to {name}"
        ),
    )
