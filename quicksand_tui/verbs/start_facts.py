"""The facts that `--json` tells of a sandbox that was just started."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from quicksand.sandbox import Sandbox


def start_facts(sandbox: Sandbox) -> dict[str, Any]:
    """Returns the fields of `--json` for a sandbox that this process has started."""
    timing = sandbox.boot_timing
    return {
        "name": sandbox.name,
        "id": sandbox.id,
        "accel": sandbox.accelerator,
        "network": sandbox.config.network_mode.value,
        "ports": [{"host": h, "guest": g} for g, h in sandbox.port_forwards.items()],
        "udp_ports": [{"host": h, "guest": g} for g, h in sandbox.udp_port_forwards.items()],
        "agent_url": sandbox.agent_url,
        "boot_s": round(timing.total_s, 3) if timing is not None else None,
        "boot_mode": timing.mode if timing is not None else None,
        "boot_note": (timing.note or None) if timing is not None else None,
        "notices": list(sandbox.notices),
    }
