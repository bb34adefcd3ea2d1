"""The verbs about other machines."""

from __future__ import annotations

from quicksand_tui.verbs.parameters import JSON
from quicksand_tui.verbs.verb import Kind, argument, command, flag, part

# fmt: off
HOSTS = command("hosts", ".hosts.hosts", "List, add, remove and check other machines, for --host.",
    JSON,
    reads=True,
    parts=(
        part("hosts list", JSON, reads=True),
        part("hosts add", argument("name"), argument("address", Kind.TEXT, "ssh://[USER@]HOST")),
        part("hosts rm", argument("name", Kind.HOST)),
        part("hosts check",
              argument("names", Kind.HOST, "[NAME|ssh://…]...", repeatable=True,
                       required=False),
              JSON, reads=True),
    ))

SERVE = command("serve", ".hosts.serve",
    "Carry out commands that another machine asks for over ssh.",
    flag("--stdio", "Answer on stdin and stdout; ssh calls this."))
# fmt: on
