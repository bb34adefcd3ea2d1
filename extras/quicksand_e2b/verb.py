"""The verb that serves E2B's HTTP API."""

from __future__ import annotations

from quicksand_tui.plugins import DEFAULT_IMAGE, JSON, Kind, command, flag, option, part

# fmt: off
API = command("api", "quicksand_e2b.command",
    "Serve E2B's HTTP API, for programs that use its SDK.",
    option("--listen", Kind.TEXT, "ADDRESS", "Listen at this port, or HOST:PORT.",
           default="127.0.0.1:3000", shows_default=True),
    option("--tls", Kind.TEXT, "ADDRESS",
           "Listen here, too, with TLS, for names below qs.localhost."),
    option("--image", Kind.IMAGE, "", "What the template `base` stands for.",
           default=DEFAULT_IMAGE, shows_default=True),
    option("--memory", Kind.TEXT, "SIZE", "Memory of a sandbox.", default="512M",
           shows_default=True),
    option("--cpus", Kind.COUNT, "", "Processors of a sandbox.", default=1, least=1,
           shows_default=True),
    flag("--fleet", "Place sandboxes on the hosts of the fleet, not on this machine."),
    flag("--internet", "Let sandboxes have the internet, as their makers ask for."),
    option("--called", Kind.TEXT, "NAME", "Take requests to this name of this machine, too.",
           repeatable=True),
    after="ssh-gateway",
    parts=(
        part("api env",
              option("--listen", Kind.TEXT, "ADDRESS", "Where the server listens.",
                     default="127.0.0.1:3000", shows_default=True),
              option("--tls", Kind.TEXT, "ADDRESS", "Use the server by TLS, at this address."),
              option("--owner", Kind.TEXT, "OWNER", "Whose key.", default="default",
                     shows_default=True)),
        part("api keys",
              option("--add", Kind.TEXT, "OWNER", "Make a key for this owner."),
              option("--remove", Kind.TEXT, "OWNER", "Remove the key of this owner."),
              JSON),
    ))
# fmt: on
