"""The words and limits that both ends use for sandboxes (docs/internals/hosts.md)."""

CAPABILITY = "sandboxes"
SANDBOX_METHODS = ("call", "answered", "release", "sandboxes", "events", "logs", "note")

THINGS = {"things": True}
"""The ``open`` of calls about the things on the machine's disk: no sandbox is opened."""

GRACE_S = 30.0
"""Seconds without a client after which its sandboxes end, unless it says otherwise: enough for a
change of network, and a machine does not run on for long for a script that was killed."""
GRACE_MAX_S = 3600.0

HELD_MAX = 1000
"""The most sandboxes that one client uses at the same time."""

CALLS_MAX = 1000
"""The most calls of one client that are under way, or whose answers it has not taken yet."""

ANSWER_MAX = 64 * 1024 * 1024
"""The most bytes of an answer, such as a picture or a list of differences."""

REPORT_EVERY_S = 0.2
"""Seconds between two reports of progress."""

UNDO_S = 60.0
"""Seconds that a cancelled call has to undo its work."""

SETTLE_S = 10.0
"""Seconds in which earlier calls may end after the client let go of the sandbox."""

SAVE_METHODS = (
    *("save_open", "save_read", "save_expect", "save_put", "save_publish", "save_close"),
)

SAVES = "saves"
"""The capability of moving saves."""

FILES = "files"
"""The capability of exporting, importing and writing snapshots over the connection."""
FILES_METHODS = ("export", "import", "snapshot")

SCREENS = "screens"
"""The capability of sending the screens of sandboxes, and taking keys and the pointer."""
SCREEN_METHODS = ("screen", "screen_size")

SCREENS_MAX = 32
"""The most screens sent to one client at a time, which is also QEMU's limit for one screen."""

PIECE = 1024 * 1024
"""Bytes of a save's file read in one step."""

STANDING = "standing"
"""The capability of reporting which sandboxes there are, with each change, and of removing one."""
STANDING_METHODS = ("standing", "remove")
