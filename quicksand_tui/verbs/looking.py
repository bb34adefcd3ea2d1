"""The verbs that show what is going on: `ps`, `logs`, `events`, `stats`, `du`."""

from __future__ import annotations

from quicksand_tui.verbs.parameters import JSON, MAYBE_SANDBOXES, SANDBOX
from quicksand_tui.verbs.verb import Kind, command, flag, option

# Tables are formatted by hand: a parameter in a row or two.
# fmt: off
PS = command("ps", ".this_host.ps", "List sandboxes.",
    flag("-a --all", "Include sandboxes that are not running.", name="everything"),
    flag("-q --quiet", "Print names only."),
    flag("--all-processes", "List all of our processes and their memory instead.",
         name="processes"),
    flag("-w --watch", "Show it again whenever something changes, until Ctrl-C."),
    JSON,
    reads=True)

LOGS = command("logs", ".this_host.ps", "Show a sandbox's console.",
    SANDBOX,
    flag("-f --follow", "Show new lines until the sandbox ends."),
    flag("--qemu", "Show QEMU's messages instead of the console."),
    option("-n --lines", Kind.COUNT, "N", "Show only the last N lines.", least=0),
    flag("--plain", "Write only text, line breaks and tabs, to files and pipes too."),
    reads=True)

EVENTS = command("events", ".this_host.events_stats",
    "Show what happens to sandboxes, for scripts too.",
    MAYBE_SANDBOXES,
    flag("-f --follow", "Show what happens from now on, until Ctrl-C."),
    option("-n --lines", Kind.COUNT, "N", "Show the last N of the past; with -f first.",
           least=0),
    option("--since", Kind.OWN_FILE, "FILE",
           "Go on where the reader before has ended; FILE keeps that place."),
    JSON,
    reads=True)

STATS = command("stats", ".this_host.events_stats",
    "Show how much sandboxes use, on the host and inside.",
    MAYBE_SANDBOXES,
    option("--watch", Kind.NUMBER, "S", "Show it again every S seconds.", least=0.2),
    JSON,
    reads=True)

DU = command("du", ".this_host.upkeep", "Show how much disk space each kind of thing takes.",
    flag("--each", "List each thing on a line, the largest first."),
    JSON,
    reads=True)
# fmt: on
