"""Words and limits of what both ends say of sandboxes (docs/internals/hosts.md)."""

CAPABILITY = "sandboxes"
SANDBOX_METHODS = ("call", "answered", "release", "sandboxes", "events", "logs")

GRACE_S = 30.0
"""Seconds without a client after which its sandboxes end, unless it says otherwise: enough for
another network, and no machine runs on for long for a script that was killed."""
GRACE_MAX_S = 3600.0

HELD_MAX = 1000
"""Sandboxes that one client uses at the same time."""

CALLS_MAX = 1000
"""Calls of one client that are under way, or whose answers it has not taken yet."""

ANSWER_MAX = 64 * 1024 * 1024
"""Bytes of an answer, as of a picture or of a list of what differs."""

REPORT_EVERY_S = 0.2
"""Seconds between two reports of progress."""

UNDO_S = 60.0
"""Seconds that a call which is cancelled has to undo what it has begun."""

SETTLE_S = 10.0
"""Seconds in which calls that came before its client let go of a sandbox may end."""

SAVE_METHODS = (
    *("save_open", "save_read", "save_expect", "save_put", "save_publish", "save_close"),
)

SAVES = "saves"
"""The capability of moving saves."""

SCREENS = "screens"
"""The capability of sending what sandboxes show, and taking keys and the pointer."""
SCREEN_METHODS = ("screen", "screen_size")

SCREENS_MAX = 32
"""Screens that are sent to one client at the same time, as many as QEMU has for one screen."""

PIECE = 1024 * 1024
"""Bytes of a save's file that are read in one step."""
