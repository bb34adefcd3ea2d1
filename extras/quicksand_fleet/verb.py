"""The verb for fleets: many machines as one."""

from __future__ import annotations

from quicksand_tui.plugins import JSON, Kind, argument, command, flag, option, part

# fmt: off
FLEET = command("fleet", "quicksand_fleet.command",
    "Bring up, show, drain and end a fleet of machines.",
    JSON,
    reads=True,
    parts=(
        part("fleet up",
              option("--local", Kind.COUNT, "N", "Make N nodes on this machine.", least=1),
              flag("--ray", "Have Ray keep the places of local nodes.")),
        part("fleet status", JSON, reads=True),
        part("fleet drain",
              argument("name", Kind.TEXT, "HOST",
                       completer="quicksand_fleet.command:complete_hosts"),
              flag("--off", "Place sandboxes there again.")),
        part("fleet down",
              flag("--yes", "Ask nothing.")),
    ),
    after="serve")
# fmt: on
