"""The common parts of several verbs: parameters, defaults and limits."""

from __future__ import annotations

from quicksand_tui.verbs import lazy_engine
from quicksand_tui.verbs.verb import Kind, Parameter, argument, flag, option

GRACE_S = 10.0
"""Seconds until a guest that does not power down is killed, unless `stop` is told otherwise."""

DEFAULT_KEYS = "ctrl-],d"
"""The keys that leave a terminal and let it run on."""

DEFAULT_IMAGE = "debian"
ARCHITECTURES = ("amd64", "arm64")

MOUSE_ACTIONS = ("move", "click", "double", "down", "up", "drag", "scroll", "where")

RECORD_SECONDS, RECORD_FPS = 600, 10
"""The seconds that `record` records, and its looks per second, unless it is told otherwise."""

# Limits of the engine, which is not imported before they are needed.


def clones_max() -> int:
    """Returns the most clones of one call."""
    return lazy_engine.CLONES_MAX


def spares_max() -> int:
    """Returns the most spares of one machine."""
    return lazy_engine.SPARES_MAX


def buttons() -> tuple[str, ...]:
    """Returns the buttons of a mouse."""
    return lazy_engine.BUTTONS


def concurrency_help() -> str:
    """Returns the help of `--concurrency`."""
    return (
        f"Start this many at a time.  [default: one per CPU, at most {lazy_engine.CLONES_AT_ONCE}]"
    )


# Parameters of several verbs. Tables are formatted by hand: a parameter in a row or two.
# fmt: off

SANDBOX = argument("name", Kind.SANDBOX, "NAME", on_line=True)
SANDBOXES = argument("names", Kind.SANDBOX, "NAME...", repeatable=True, on_line=True)
MAYBE_SANDBOXES = argument("names", Kind.SANDBOX, "NAME...", repeatable=True, required=False,
                            on_line=True)
TAG = argument("tag", Kind.CHECKPOINT)
TAGS = argument("tag", Kind.CHECKPOINT, "TAG...", repeatable=True)
"""Tags, each of which is a call of its own."""
FILE = argument("file", Kind.STREAM, "FILE")
IMAGE = argument("image", Kind.IMAGE, default=DEFAULT_IMAGE)
JSON = flag("--json", "Print JSON.", name="as_json")
NOTE = option("-m --note", Kind.TEXT, "NOTE", "Add a note to it.", default="")
LINE_NOTE = option("-m --note", Kind.TEXT, "NOTE", "Add a note to it.", default="",
                    on_line=True)
DRY_RUN = flag("--dry-run", "List what would be removed, and remove nothing.")
NOW = flag("--now", "Delete for good instead of moving to the trash.")
EMPTY = flag("--empty", "Delete all of it for good, or only these IDs.", changes=True)
EVERYWHERE = flag("-a --all", "Include saves of other workspaces.", name="everywhere")
NEW_NAME = option("--name --as", Kind.TEXT, "NEW", "Give it another name.", name="new_name")
_MOVED = (
    NEW_NAME,
    flag("--replace", "Move a save that has this name to the trash."),
    flag("--trust", "Accept the network, ports and QEMU arguments that it brings."),
)
SENT = (
    argument("name", Kind.SAVE),
    option("--to", Kind.TEXT, "HOST", "The machine: a name or an address.", required=True),
    *_MOVED,
)
FETCHED = (
    argument("name"),
    option("--from", Kind.TEXT, "HOST", "The machine: a name or an address.", required=True,
           name="source"),
    *_MOVED,
)
MACHINE = Parameter("machine", Kind.MACHINE)
BUILD = flag("--build/--no-build",
              "Build or install the image if it is missing.  "
              "[default: on a terminal, without --json]")
DETACH_KEYS = option("--detach-keys", Kind.TEXT, "KEYS",
                      "Keys that leave the terminal running; press the first twice to send it.",
                      default=DEFAULT_KEYS, shows_default=True)
IN_GUEST = (
    option("--timeout", Kind.NUMBER, "SECONDS",
           "End the command after this time and exit with 124.", least=0, above_least=True),
    option("--cwd", Kind.TEXT, "DIR", "Run the command in this directory of the guest."),
    option("--user", Kind.TEXT, "USER", "Run the command as this user.  "
           "[default: root, or what the image says]"),
    option("-e --env", Kind.ENV, "K=V",
           "Set an environment variable; K alone passes on yours. May be repeated.",
           repeatable=True),
    flag("--entrypoint",
         "Run the command of an image that was made of a container image."),
    flag("-t --tty", "Run the command in a terminal."),
    flag("-i --interactive", "Pass stdin on to the command."),
    argument("argv", Kind.ARGV, "[--] [COMMAND]...", repeatable=True, required=False),
    DETACH_KEYS,
    JSON,
)
"""The parameters that `run` and `exec` share."""
UNMOUNT_9P = flag("--unmount-9p", "Unmount 9p mounts for that moment.")
# fmt: on
