"""The verbs that run something in a guest: `exec`, `shell`, `cp`."""

from __future__ import annotations

from quicksand_tui.verbs.parameters import DETACH_KEYS, IN_GUEST, JSON, SANDBOX
from quicksand_tui.verbs.verb import Kind, argument, command, flag, option

# Tables are formatted by hand: a parameter in a row or two.
# fmt: off
EXEC = command("exec", ".guests.exec", "Run a command in a running sandbox.",
    SANDBOX, *IN_GUEST)

SHELL = command("shell", ".guests.terminal", "Open a terminal in a sandbox, or return to one.",
    SANDBOX,
    option("--user", Kind.TEXT, "USER", "Open the terminal as this user.  "
           "[default: root, or what the image says]"),
    option("--session", Kind.TEXT, "S", "Return to this terminal; --list names them."),
    flag("--list", "List the sandbox's terminals instead.", name="listing"),
    DETACH_KEYS, JSON)

CP = command("cp", ".guests.copy", "Copy files into or out of a sandbox.",
    argument("source", Kind.COPIED),
    argument("target", Kind.COPIED),
    flag("-L --follow", "If SOURCE is a symlink, copy the file it points to."),
    flag("-y --yes", "Do not ask before a copy that may fill the disk here."))
# fmt: on
