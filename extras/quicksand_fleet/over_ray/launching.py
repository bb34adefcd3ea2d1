"""Runs `ray` with our words: ``python -m quicksand_fleet.over_ray.launching ADDRESS WORD...``.

Ray 2.60 turns 127.0.0.1 into the machine's own address (`resolve_ip_for_localhost`), so that all
its processes listen on every interface. Without that function they listen on loopback only. A Ray
that no longer has the function is not started: its ports execute code.
"""

from __future__ import annotations

import sys

from quicksand.extending import no_core_files
from ray._private import services
from ray.scripts.scripts import main as run_ray


def keep_address(address: str) -> None:
    """Make this process take ``address`` for its own. Raises RuntimeError if Ray has changed."""
    for name in ("resolve_ip_for_localhost", "get_node_ip_address"):
        if not callable(getattr(services, name, None)):
            raise RuntimeError(f"this version of Ray has no {name}: it might listen everywhere")
    services.resolve_ip_for_localhost = lambda host: host
    services.get_node_ip_address = lambda *_, **__: address


if __name__ == "__main__":
    no_core_files()
    keep_address(sys.argv[1])
    sys.argv = ["ray", *sys.argv[2:]]
    run_ray()
