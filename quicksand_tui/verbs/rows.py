"""Every verb, once: the commands of `quicksand-tui` with their arguments, options and limits.

The commands' parameters (`quicksand_tui.cli.commands`), the overview of `--help`, the `:` line and
its completion (`quicksand_tui.actions.line`), and the commands that the app shows
(`quicksand_tui.verbs.commands`) derive from these records. What a command does is described by
the docstring of its function.
"""

from __future__ import annotations

from quicksand_tui.verbs.row import Kind, Parameter, VerbRecord, argument, flag, option

GRACE_S = 10.0
"""Seconds until a guest that does not power down is killed, unless `stop` is told otherwise."""

DEFAULT_KEYS = "ctrl-],d"
"""The keys that leave a terminal and let it run on."""

DEFAULT_IMAGE = "debian"
STREAM_MB = 500
"""The megabytes that `benchmark` sends through a command."""

MOUSE_ACTIONS = ("move", "click", "double", "down", "up", "drag", "scroll", "where")

RECORD_SECONDS, RECORD_FPS = 600, 10
"""How long `record` records, and how often it looks, unless it is told."""

# Limits of the engine, which is not imported before they are needed.


def clones_max() -> int:
    """Returns the most clones of one call."""
    from quicksand.base.limits import CLONES_MAX

    return CLONES_MAX


def spares_max() -> int:
    """Returns the most spares of one machine."""
    from quicksand.base.limits import SPARES_MAX

    return SPARES_MAX


def buttons() -> tuple[str, ...]:
    """Returns the buttons of a mouse."""
    from quicksand.base.limits import BUTTONS

    return BUTTONS


def _concurrency_help() -> str:
    from quicksand.base.limits import CLONES_AT_ONCE

    return f"Start so many at a time.  [default: one a CPU, at most {CLONES_AT_ONCE}]"


# Parameters of several verbs. Tables are formatted by hand: a parameter in a row or two.
# fmt: off

_SANDBOX = argument("name", Kind.SANDBOX, "NAME", on_line=True)
_SANDBOXES = argument("names", Kind.SANDBOX, "NAME...", repeatable=True, on_line=True)
_MAYBE_SANDBOXES = argument("names", Kind.SANDBOX, "NAME...", repeatable=True, required=False,
                            on_line=True)
_TAG = argument("tag", Kind.CHECKPOINT)
_TAGS = argument("tags", Kind.CHECKPOINT, "TAG...", repeatable=True)
_FILE = argument("file", Kind.STREAM, "FILE")
_IMAGE = argument("image", Kind.IMAGE, default=DEFAULT_IMAGE)
_JSON = flag("--json", "Print JSON.", name="as_json")
_NOTE = option("-m --note", Kind.TEXT, "NOTE", "Write down what it is.", default="")
_LINE_NOTE = option("-m --note", Kind.TEXT, "NOTE", "Write down what it is.", default="",
                    on_line=True)
_DRY_RUN = flag("--dry-run", "Remove nothing, only list.")
_NOW = flag("--now", "For good, not to the trash.")
_EMPTY = flag("--empty", "Remove for good what is in it, or the IDs only.")
_EVERYWHERE = flag("-a --all", "Also those of other workspaces.", name="everywhere")
_NEW_NAME = option("--name --as", Kind.TEXT, "NEW", "Give it another name.", name="new_name")
_MACHINE = Parameter("machine", Kind.MACHINE)
_BUILD = flag("--build/--no-build",
              "Build an image that is not here yet.  [default: on a terminal, without --json]")
_DETACH_KEYS = option("--detach-keys", Kind.TEXT, "KEYS",
                      "Keys that leave the terminal running; the first one twice sends it.",
                      default=DEFAULT_KEYS, shows_default=True)
_IN_GUEST = (
    option("--timeout", Kind.NUMBER, "SECONDS", "End it after this time and exit with 124.",
           least=0, above_least=True),
    option("--cwd", Kind.TEXT, "DIR", "Run it in this directory of the guest."),
    option("--user", Kind.TEXT, "USER", "Run it as this user instead of root."),
    option("-e --env", Kind.ENV, "K=V",
           "Set an environment variable; K alone passes ours on. May be repeated.",
           repeatable=True),
    flag("-t --tty", "Run it in a terminal."),
    flag("-i --interactive", "Pass stdin on to the command."),
    argument("argv", Kind.ARGV, "[--] [COMMAND]...", repeatable=True, required=False),
    _DETACH_KEYS,
    _JSON,
)
"""The parameters that `run` and `exec` share."""
# fmt: on


def _section(title: str, *verbs: VerbRecord) -> tuple[VerbRecord, ...]:
    return tuple(verb._replace(section=title) for verb in verbs)


def _verb(
    name: str,
    module: str,
    summary: str,
    *parameters: Parameter,
    reads: bool = False,
    parts: tuple[VerbRecord, ...] = (),
) -> VerbRecord:
    return VerbRecord(name, parameters, module, "", summary, reads, parts)


def _part(name: str, *parameters: Parameter, reads: bool = False) -> VerbRecord:
    return VerbRecord(name, parameters, reads=reads)


# fmt: off
_USE = _section(
    "Use",
    _verb("run", "run", "Start a sandbox and run a command or a shell in it.",
        argument("image", Kind.SOURCE, on_line=True),
        option("--name", Kind.TEXT, "", "Name it: it can be started again, and its disk stays.",
               on_line=True, by_place=True),
        _MACHINE,
        flag("--trust",
             "Take over network, ports and QEMU arguments of a save that was not made here."),
        _BUILD,
        flag("--cold", "Boot it, though there is a template to go on from."),
        option("--save", Kind.TEXT, "SAVE", "Save its disk when it stops; `run SAVE` goes on."),
        flag("--detach -d", "Leave it running and print its name."),
        flag("--rm --ephemeral", "Remove it when it stops, though it has a name.", name="remove"),
        *_IN_GUEST),
    _verb("exec", "exec", "Run a command in a running sandbox.",
        _SANDBOX, *_IN_GUEST),
    _verb("shell", "shells", "Open a terminal in a sandbox, or come back to one.",
        _SANDBOX,
        option("--user", Kind.TEXT, "USER", "Open it as this user instead of root."),
        option("--session", Kind.TEXT, "S", "Come back to this terminal; --list names them."),
        flag("--list", "List the sandbox's terminals instead.", name="listing"),
        _DETACH_KEYS, _JSON),
    _verb("cp", "copy", "Copy files into or out of a sandbox.",
        argument("source", Kind.COPIED),
        argument("target", Kind.COPIED),
        flag("-L --follow", "If SOURCE is a symlink, copy what it leads to."),
        flag("-y --yes", "Ask nothing: copy as much as the disk here can hold.")),
    _verb("mount", "mounts", "Have a directory of this host in a running sandbox.",
        _SANDBOX,
        argument("mount", Kind.MOUNT, "HOST:GUEST[:ro|:protect]", on_line=True)),
    _verb("unmount", "mounts", "Take such a directory away again.",
        _SANDBOX,
        argument("guest", Kind.MOUNTED, "GUEST", on_line=True),
        flag("--force -f", "Also while programs use it: they get errors.")),
)

_UNMOUNT_9P = flag("--unmount-9p", "Unmount what is mounted by 9p for that moment.")

_SCREEN = _section(
    "See and drive the screen",
    _verb("screenshot", "display", "Take a picture of a sandbox's screen.",
        _SANDBOX, _FILE,
        option("--region", Kind.TEXT, "X,Y,W,H", "Only this part, in pixels."),
        option("--scale", Kind.NUMBER, "F", "So many times as large, as in 0.5.", least=0,
               above_least=True),
        option("--format", Kind.CHOICE, "",
               "How it is written.  [default: what FILE's suffix says, else png]",
               name="form", choices=("png", "ppm")),
        option("--at", Kind.CHECKPOINT, "TAG",
               "The small picture that this checkpoint has, not the screen as it is now."),
        reads=True),
    _verb("record", "recording", "Record a sandbox's screen into an animated picture.",
        _SANDBOX,
        argument("file", Kind.FILE, "FILE.{gif,png,webp}"),
        option("--seconds", Kind.NUMBER, "S", "End it after this time.  [default: 600]",
               default=RECORD_SECONDS, least=0, above_least=True),
        option("--fps", Kind.NUMBER, "N", "At most so many pictures a second.  [default: 10]",
               default=RECORD_FPS, least=0, above_least=True),
        option("--scale", Kind.NUMBER, "F", "So many times as large, as in 0.5.", default=1,
               least=0, above_least=True),
        flag("--force -f", "Replace FILE if there is one.", name="replace"),
        reads=True),
    _verb("type", "display", "Type a text on a sandbox's keyboard.",
        _SANDBOX,
        argument("text", Kind.TEXT, "TEXT|-")),
    _verb("key", "display", "Press keys on a sandbox's keyboard.",
        _SANDBOX,
        argument("chords", Kind.TEXT, "KEY[+KEY...]...", repeatable=True),
        option("--hold", Kind.NUMBER, "S", "Hold them for so many seconds.  [default: 0.02]",
               least=0)),
    _verb("mouse", "display", "Use a sandbox's mouse.",
        _SANDBOX,
        argument("action", Kind.CHOICE, "ACTION", choices=MOUSE_ACTIONS),
        argument("places", Kind.TEXT, "[X,Y|up|down|N]...", repeatable=True, required=False),
        option("-b --button", Kind.CHOICE, "", "Which button.  [default: left]", default="left",
               choices=buttons),
        flag("--absolute", "X and Y are from 0 to 32767, not pixels."),
        _JSON),
    _verb("vnc", "display", "Show where a VNC viewer finds a sandbox's screen.",
        _SANDBOX, _JSON,
        reads=True),
)

_LIVES = _section(
    "Lives",
    _verb("start", "life", "Start stopped sandboxes again.",
        _SANDBOXES,
        option("--at", Kind.CHECKPOINT, "TAG",
               "Go on from this checkpoint, with the processes that it had.", on_line=True)),
    _verb("clone", "clone", "Make more sandboxes of one, as it is this instant.",
        _SANDBOX,
        option("-n --count", Kind.COUNT, "N", "How many.  [default: 1]", default=1, least=1,
               most=clones_max, on_line=True, by_place=True),
        option("--at", Kind.CHECKPOINT, "TAG", "As it was at this checkpoint, not as it is now.",
               on_line=True),
        option("--name", Kind.TEXT, "NEW", "Name it; goes with one clone only.", name="new_name"),
        option("--mounts", Kind.CHOICE, "ro|rw",
               "With the directories that NAME has: read-only, or as they are there.  "
               "[default: without them]", choices=("ro", "rw")),
        option("--concurrency", Kind.COUNT, "C", _concurrency_help, least=1),
        _JSON),
    _verb("stop", "life", "Stop sandboxes: sync, power down.",
        _MAYBE_SANDBOXES,
        option("--grace", Kind.NUMBER, "S",
               "Seconds until a guest that does not power down is killed.", default=GRACE_S,
               shows_default=True, least=0),
        flag("--all", "All that run.", name="everything")),
    _verb("kill", "life", "Stop sandboxes at once, as pulling the plug would.", _SANDBOXES),
    _verb("pause", "life", "Freeze sandboxes where they are.", _SANDBOXES),
    _verb("resume", "life", "Let paused sandboxes go on.", _SANDBOXES),
    _verb("rm", "removal", "Move sandboxes to the trash, for a week.",
        _MAYBE_SANDBOXES,
        flag("--force -f", "Also those that run: end them first."),
        _NOW,
        flag("--all-stopped", "All that are stopped or crashed.")),
    _verb("trash", "removal", "List what was removed and can be brought back.",
        argument("ids", Kind.TRASHED, "[ID]...", repeatable=True, required=False),
        _EMPTY, _JSON,
        reads=True),
    _verb("restore", "removal", "Bring a sandbox or a save back from the trash.",
        argument("name", Kind.TRASHED, "NAME"),
        _NEW_NAME,
        flag("--start", "Start it, at its last instant if it ran.")),
)

_BACK = _section(
    "Go back",
    _verb("checkpoint", "checkpoints", "Keep an instant to come back to.",
        _SANDBOX,
        argument("tag", required=False, on_line=True),
        _LINE_NOTE,
        flag("--replace", "Take the place of the checkpoint with this tag."),
        option("--tier", Kind.CHOICE, "", "How to take it.  [default: the best that is possible]",
               choices=("pages", "internal")),
        _UNMOUNT_9P,
        _JSON,
        parts=(
            _part("checkpoint rm", _SANDBOX, _TAGS),
            _part("checkpoint pin", _SANDBOX, _TAGS),
            _part("checkpoint unpin", _SANDBOX, _TAGS),
            _part("checkpoint note", _SANDBOX, _TAG, argument("note")),
        )),
    _verb("revert", "checkpoints", "Go back to a checkpoint.",
        _SANDBOX,
        argument("tag", Kind.TARGET, on_line=True),
        flag("--discard", "Do not keep the present: there is no undo then."),
        _UNMOUNT_9P,
        _JSON),
    _verb("undo", "checkpoints", "Take the last revert back.",
        _SANDBOX, _UNMOUNT_9P, _JSON),
    _verb("tree", "checkpoints", "Show a sandbox's checkpoints and where it stands.",
        _SANDBOX, _JSON,
        reads=True),
    _verb("diff", "checkpoints", "List files that differ between two checkpoints.",
        _SANDBOX,
        argument("a", Kind.CHECKPOINT),
        argument("b", Kind.CHECKPOINT, required=False),
        _JSON,
        reads=True),
    _verb("save", "bundles", "Keep a sandbox's disk as a start for new ones.",
        _SANDBOX,
        argument("save", Kind.TEXT, "SAVE", on_line=True),
        _LINE_NOTE,
        flag("--compress", "Make it small: all layers in one, compressed."),
        flag("--replace", "What has that name goes to the trash."),
        flag("--freeze/--no-freeze",
             "Have the guest's file system stand still for the instant.  "
             "[default: if it is quick]"),
        flag("--delete-checkpoints", "Delete the sandbox's checkpoints."),
        option("--workspace", Kind.DIRECTORY, "DIR", "Save to DIR/SAVE instead of your own saves."),
        _JSON),
    _verb("snapshot", "bundles", "Write a sandbox's disk to a portable file.",
        _SANDBOX,
        argument("file", Kind.FILE, "FILE"),
        _NOTE,
        flag("--compress", "Make it small; takes longer."),
        flag("--replace", "Replace a FILE that is there."),
        _JSON),
    _verb("export", "bundles", "Write a save or a sandbox to one file.",
        argument("name", Kind.EXPORTED, "NAME"),
        _FILE,
        flag("--full", "With the image below it: FILE needs nothing else then."),
        flag("--tree", "NAME is a sandbox: all its checkpoints, memory included."),
        flag("--compress/--no-compress",
             "Compress it (Zstandard).  [default: with --tree, whose memory is mostly empty]"),
        _JSON),
    _verb("import", "bundles", "Take what such a file holds.",
        _FILE,
        option("--name", Kind.TEXT, "NEW", "Another name than it had."),
        flag("--replace", "A save of that name goes to the trash."),
        flag("--trust",
             "You know who made FILE: it may have a network, ports and QEMU arguments of its own."),
        _JSON),
)

_LOOK = _section(
    "Look",
    _verb("ps", "ps", "List sandboxes.",
        flag("-a --all", "Also those that do not run.", name="everything"),
        flag("-q --quiet", "Print names only."),
        flag("--all-processes", "Every process of ours and its memory instead.",
             name="processes"),
        _JSON,
        reads=True),
    _verb("view", "view", "Show a sandbox's screen in the terminal, with mouse and keys.",
        _SANDBOX,
        option("--graphics", Kind.CHOICE, "auto|kitty|sixel|half",
               "How the picture is drawn.", default="auto", shows_default=True,
               choices=("auto", "kitty", "sixel", "half")),
        option("--detach-keys", Kind.TEXT, "KEYS",
               "The prefix, and the key after it that leaves.", default=DEFAULT_KEYS,
               shows_default=True)),
    _verb("logs", "logs", "Show a sandbox's console.",
        _SANDBOX,
        flag("-f --follow", "Go on until the sandbox ends."),
        flag("--qemu", "What QEMU said instead of the guest."),
        option("-n --lines", Kind.COUNT, "N", "The last N lines.", least=0),
        flag("--plain", "Only text, line breaks and tabs, wherever it goes."),
        reads=True),
    _verb("stats", "stats", "Show what sandboxes use, of the host and inside.",
        _MAYBE_SANDBOXES,
        option("--watch", Kind.NUMBER, "S", "Again every S seconds.", least=0.2),
        _JSON,
        reads=True),
    _verb("mounts", "mounts", "List the directories of this host in sandboxes.",
        _MAYBE_SANDBOXES, _JSON,
        reads=True),
    _verb("images", "images", "List, build, warm up, inspect, remove images.",
        _JSON,
        reads=True,
        parts=(
            _part("images list", _JSON, reads=True),
            _part("images build", argument("name", default=DEFAULT_IMAGE), _JSON),
            _part("images warm", _IMAGE, _MACHINE,
                  option("--spares", Kind.COUNT, "N",
                         "From now on keep N machines ready for the next starts; 0 ends that.",
                         least=0, most=spares_max),
                  _BUILD, _JSON),
            _part("images inspect", argument("name", Kind.IMAGE), _JSON, reads=True),
            _part("images rm", argument("name", Kind.IMAGE)),
            _part("images prune", _DRY_RUN, _JSON),
        )),
    _verb("saves", "saves", "List, remove, restore, verify and prune saves.",
        _EVERYWHERE, _JSON,
        reads=True,
        parts=(
            _part("saves list", _EVERYWHERE, _JSON, reads=True),
            _part("saves rm", argument("names", Kind.SAVE, "NAME...", repeatable=True), _NOW),
            _part("saves restore", argument("name", Kind.TRASHED_SAVE, "NAME"), _NEW_NAME),
            _part("saves verify",
                  argument("names", Kind.SAVE, "[NAME]...", repeatable=True, required=False),
                  flag("--deep", "Read every byte of them and of their bases."), _JSON, reads=True),
            _part("saves prune",
                  option("--older-than", Kind.NUMBER, "DAYS",
                         "Only those that are older than this.", least=0),
                  option("--keep", Kind.COUNT, "N", "Not the newest N, of all of them.", least=0),
                  _DRY_RUN, _JSON),
            _part("saves rebase", argument("name", Kind.SAVE),
                  option("--onto", Kind.TEXT, "IMAGE",
                         "The image.  [default: its own, as it is now]"),
                  _JSON),
            _part("saves trash",
                  argument("ids", Kind.TEXT, "[ID]...", repeatable=True, required=False), _EMPTY,
                  _JSON, reads=True),
        )),
    _verb("du", "space", "Show where the space on the disk goes.",
        flag("--each", "A line for each thing, the largest first."),
        _JSON,
        reads=True),
)

_HOST = _section(
    "This host",
    _verb("info", "host", "Show places, versions and programs in use.", _JSON, reads=True),
    _verb("config", "host", "Check, find and begin the app's config.",
        reads=True,
        parts=(
            _part("config check", reads=True),
            _part("config path", reads=True),
            _part("config example",
                  flag("--write", "Begin the config with it, if there is none yet.")),
            _part("config keys", reads=True),
        )),
    _verb("doctor", "doctor", "Check this host; say what is wrong and the cure.",
        _JSON,
        flag("--fresh", "Probe the accelerator again."),
        reads=True),
    _verb("setup", "host", "Get QEMU and the default image.",
        option("--image", Kind.IMAGE, "", "Image to have ready.", default=DEFAULT_IMAGE,
               shows_default=True)),
    _verb("clean", "space", "Remove what can be made again, and the trash.",
        flag("--dry-run", "Remove nothing, only show."),
        flag("-y --yes", "Ask no question."),
        _JSON),
    _verb("demo", "demo", "Do the main job without a screen, and prove it.",
        option("--image", Kind.IMAGE, "", "Image to use.", default=DEFAULT_IMAGE,
               shows_default=True),
        flag("--json", "Print one JSON object at the end.", name="as_json")),
    _verb("benchmark", "benchmark", "Measure this machine.",
        _IMAGE,
        option("-n --runs", Kind.COUNT, "", "Starts to measure.", default=5, shows_default=True),
        option("--stream-mb", Kind.COUNT, "", "Size of the stream.", default=STREAM_MB,
               shows_default=True),
        flag("--quick", "Leave out the guest of 2G."),
        _JSON),
    _verb("completions", "completions", "Print completions for your shell.",
        argument("shell", Kind.CHOICE, choices=("bash", "zsh", "fish")),
        reads=True),
)
# fmt: on

VERBS = (*_USE, *_SCREEN, *_LIVES, *_BACK, *_LOOK, *_HOST)
"""All verbs, in the order of the help."""

_BY_NAME = {found.name: found for verb in VERBS for found in verb.walk()}


def find_verb(name: str) -> VerbRecord:
    """Finds a verb by the name in its record, such as "checkpoint rm" for a part. Raises
    LookupError."""
    return _BY_NAME[name]
