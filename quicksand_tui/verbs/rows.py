"""Every verb, once: the commands of `quicksand-tui` with their arguments, options and limits.

The commands' parameters (`quicksand_tui.cli.commands`), the overview of `--help`, the `:` line and
its completion (`quicksand_tui.actions.line`), and the commands that the app shows
(`quicksand_tui.verbs.commands`) derive from these records. What a command does is described by
the docstring of its function.
"""

from __future__ import annotations

from quicksand_tui.verbs import engine
from quicksand_tui.verbs.row import Kind, Parameter, VerbRecord, argument, flag, option

GRACE_S = 10.0
"""Seconds until a guest that does not power down is killed, unless `stop` is told otherwise."""

DEFAULT_KEYS = "ctrl-],d"
"""The keys that leave a terminal and let it run on."""

DEFAULT_IMAGE = "debian"
ARCHITECTURES = ("amd64", "arm64")
STREAM_MB = 500
"""The megabytes that `benchmark` sends through a command."""

MOUSE_ACTIONS = ("move", "click", "double", "down", "up", "drag", "scroll", "where")

RECORD_SECONDS, RECORD_FPS = 600, 10
"""How long `record` records, and how often it looks, unless it is told."""

# Limits of the engine, which is not imported before they are needed.


def clones_max() -> int:
    """Returns the most clones of one call."""
    return engine.CLONES_MAX


def spares_max() -> int:
    """Returns the most spares of one machine."""
    return engine.SPARES_MAX


def buttons() -> tuple[str, ...]:
    """Returns the buttons of a mouse."""
    return engine.BUTTONS


def _concurrency_help() -> str:
    return f"Start this many at a time.  [default: one per CPU, at most {engine.CLONES_AT_ONCE}]"


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
_NOTE = option("-m --note", Kind.TEXT, "NOTE", "Add a note to it.", default="")
_LINE_NOTE = option("-m --note", Kind.TEXT, "NOTE", "Add a note to it.", default="",
                    on_line=True)
_DRY_RUN = flag("--dry-run", "List what would be removed, and remove nothing.")
_NOW = flag("--now", "Delete for good instead of moving to the trash.")
_EMPTY = flag("--empty", "Delete all of it for good, or only these IDs.")
_EVERYWHERE = flag("-a --all", "Include saves of other workspaces.", name="everywhere")
_NEW_NAME = option("--name --as", Kind.TEXT, "NEW", "Give it another name.", name="new_name")
_MACHINE = Parameter("machine", Kind.MACHINE)
_BUILD = flag("--build/--no-build",
              "Build or install the image if it is missing.  "
              "[default: on a terminal, without --json]")
_DETACH_KEYS = option("--detach-keys", Kind.TEXT, "KEYS",
                      "Keys that leave the terminal running; press the first twice to send it.",
                      default=DEFAULT_KEYS, shows_default=True)
_IN_GUEST = (
    option("--timeout", Kind.NUMBER, "SECONDS",
           "End the command after this time and exit with 124.", least=0, above_least=True),
    option("--cwd", Kind.TEXT, "DIR", "Run the command in this directory of the guest."),
    option("--user", Kind.TEXT, "USER", "Run the command as this user instead of root."),
    option("-e --env", Kind.ENV, "K=V",
           "Set an environment variable; K alone passes on yours. May be repeated.",
           repeatable=True),
    flag("--entrypoint",
         "Run the command of an image that was made of a container image."),
    flag("-t --tty", "Run the command in a terminal."),
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
        option("--name", Kind.TEXT, "",
               "Name the sandbox, to keep its disk and start it again later.",
               on_line=True, by_place=True),
        _MACHINE,
        flag("--trust",
             "Accept the network, ports and QEMU arguments of a save made elsewhere."),
        _BUILD,
        flag("--cold", "Boot the guest even if a template could start it faster."),
        option("--save", Kind.TEXT, "SAVE",
               "Save the disk when the sandbox stops; `run SAVE` continues from it."),
        flag("--detach -d", "Leave the sandbox running and print its name."),
        flag("--rm --ephemeral", "Remove the sandbox when it stops, even if it has a name.",
             name="remove"),
        *_IN_GUEST),
    _verb("exec", "exec", "Run a command in a running sandbox.",
        _SANDBOX, *_IN_GUEST),
    _verb("shell", "shells", "Open a terminal in a sandbox, or return to one.",
        _SANDBOX,
        option("--user", Kind.TEXT, "USER", "Open the terminal as this user instead of root."),
        option("--session", Kind.TEXT, "S", "Return to this terminal; --list names them."),
        flag("--list", "List the sandbox's terminals instead.", name="listing"),
        _DETACH_KEYS, _JSON),
    _verb("cp", "copy", "Copy files into or out of a sandbox.",
        argument("source", Kind.COPIED),
        argument("target", Kind.COPIED),
        flag("-L --follow", "If SOURCE is a symlink, copy the file it points to."),
        flag("-y --yes", "Do not ask before a copy that may fill the disk here.")),
    _verb("mount", "mounts", "Mount a directory of this host in a running sandbox.",
        _SANDBOX,
        argument("mount", Kind.MOUNT, "HOST:GUEST[:ro|:protect]", on_line=True)),
    _verb("unmount", "mounts", "Unmount a directory of this host from a sandbox.",
        _SANDBOX,
        argument("guest", Kind.MOUNTED, "GUEST", on_line=True),
        flag("--force -f", "Unmount it even while programs use it; they get errors.")),
)

_UNMOUNT_9P = flag("--unmount-9p", "Unmount 9p mounts for that moment.")

_SCREEN = _section(
    "See and drive the screen",
    _verb("screenshot", "display", "Take a picture of a sandbox's screen.",
        _SANDBOX, _FILE,
        option("--region", Kind.TEXT, "X,Y,W,H", "Take only this part, in pixels."),
        option("--scale", Kind.NUMBER, "F", "Scale the picture by this factor, such as 0.5.",
               least=0, above_least=True),
        option("--format", Kind.CHOICE, "",
               "Write this format.  [default: by FILE's suffix, else png]",
               name="form", choices=("png", "ppm")),
        option("--at", Kind.CHECKPOINT, "TAG",
               "Write the small picture of this checkpoint, not the present screen."),
        reads=True),
    _verb("record", "recording", "Record a sandbox's screen into an animated picture.",
        _SANDBOX,
        argument("file", Kind.FILE, "FILE.{gif,png,webp}"),
        option("--seconds", Kind.NUMBER, "S", "Stop recording after this time.  [default: 600]",
               default=RECORD_SECONDS, least=0, above_least=True),
        option("--fps", Kind.NUMBER, "N",
               "Take at most this many pictures a second.  [default: 10]",
               default=RECORD_FPS, least=0, above_least=True),
        option("--scale", Kind.NUMBER, "F", "Scale the picture by this factor, such as 0.5.",
               default=1, least=0, above_least=True),
        flag("--force -f", "Replace FILE if it exists.", name="replace"),
        reads=True),
    _verb("type", "display", "Type a text on a sandbox's keyboard.",
        _SANDBOX,
        argument("text", Kind.TEXT, "TEXT|-")),
    _verb("key", "display", "Press keys on a sandbox's keyboard.",
        _SANDBOX,
        argument("chords", Kind.TEXT, "KEY[+KEY...]...", repeatable=True),
        option("--hold", Kind.NUMBER, "S", "Hold the keys for this many seconds.  [default: 0.02]",
               least=0)),
    _verb("mouse", "display", "Use a sandbox's mouse.",
        _SANDBOX,
        argument("action", Kind.CHOICE, "ACTION", choices=MOUSE_ACTIONS),
        argument("places", Kind.TEXT, "[X,Y|up|down|N]...", repeatable=True, required=False),
        option("-b --button", Kind.CHOICE, "", "Use this button.  [default: left]", default="left",
               choices=buttons),
        flag("--absolute", "Count X and Y from 0 to 32767, not in pixels."),
        _JSON),
    _verb("vnc", "display", "Show the address of a sandbox's screen for VNC viewers.",
        _SANDBOX, _JSON,
        reads=True),
)

_LIVES = _section(
    "Start, stop, remove",
    _verb("start", "life", "Start stopped sandboxes again.",
        _SANDBOXES,
        option("--at", Kind.CHECKPOINT, "TAG",
               "Continue from this checkpoint, with its processes.", on_line=True)),
    _verb("clone", "clone", "Copy a sandbox as it is now, with its running processes.",
        _SANDBOX,
        option("-n --count", Kind.COUNT, "N", "Make this many clones.  [default: 1]", default=1,
               least=1, most=clones_max, on_line=True, by_place=True),
        option("--at", Kind.CHECKPOINT, "TAG",
               "Clone this checkpoint instead of the present state.", on_line=True),
        option("--name", Kind.TEXT, "NEW", "Name the clone, if there is only one.",
               name="new_name"),
        option("--mounts", Kind.CHOICE, "ro|rw",
               "Mount NAME's directories too: read-only, or as NAME has them.  "
               "[default: no mounts]", choices=("ro", "rw")),
        option("--concurrency", Kind.COUNT, "C", _concurrency_help, least=1),
        _JSON),
    _verb("stop", "life", "Stop sandboxes: their guests sync and power down.",
        _MAYBE_SANDBOXES,
        option("--grace", Kind.NUMBER, "S",
               "Kill a guest that is still running after so many seconds.", default=GRACE_S,
               shows_default=True, least=0),
        flag("--all", "Stop all running sandboxes.", name="everything")),
    _verb("kill", "life", "Stop sandboxes at once, like pulling the plug.", _SANDBOXES),
    _verb("pause", "life", "Freeze running sandboxes.", _SANDBOXES),
    _verb("resume", "life", "Resume paused sandboxes.", _SANDBOXES),
    _verb("rm", "removal", "Move sandboxes to the trash, which keeps them for a week.",
        _MAYBE_SANDBOXES,
        flag("--force -f", "End running sandboxes first."),
        _NOW,
        flag("--all-stopped", "Remove all stopped and crashed sandboxes.")),
    _verb("trash", "removal", "List the trash: removed sandboxes and saves.",
        argument("ids", Kind.TRASHED, "[ID]...", repeatable=True, required=False),
        _EMPTY, _JSON,
        reads=True),
    _verb("restore", "removal", "Restore a sandbox or a save from the trash.",
        argument("name", Kind.TRASHED, "NAME"),
        _NEW_NAME,
        flag("--start", "Start it; one that was running continues where it was.")),
)

_BACK = _section(
    "Keep and go back",
    _verb("checkpoint", "checkpoints", "Keep a sandbox's present state, to return to it later.",
        _SANDBOX,
        argument("tag", required=False, on_line=True),
        _LINE_NOTE,
        flag("--replace", "Replace the checkpoint with this tag."),
        option("--tier", Kind.CHOICE, "", "Keep memory in this way.  [default: the best possible]",
               choices=("pages", "internal")),
        _UNMOUNT_9P,
        _JSON,
        parts=(
            _part("checkpoint rm", _SANDBOX, _TAGS),
            _part("checkpoint pin", _SANDBOX, _TAGS),
            _part("checkpoint unpin", _SANDBOX, _TAGS),
            _part("checkpoint note", _SANDBOX, _TAG, argument("note")),
        )),
    _verb("revert", "checkpoints", "Return a sandbox to a checkpoint.",
        _SANDBOX,
        argument("tag", Kind.TARGET, on_line=True),
        flag("--discard", "Do not keep the present state, which makes undo impossible."),
        _UNMOUNT_9P,
        _JSON),
    _verb("undo", "checkpoints", "Undo the last revert.",
        _SANDBOX, _UNMOUNT_9P, _JSON),
    _verb("tree", "checkpoints", "Show a sandbox's checkpoints and its place among them.",
        _SANDBOX, _JSON,
        reads=True),
    _verb("diff", "checkpoints", "List files that differ between two checkpoints.",
        _SANDBOX,
        argument("a", Kind.CHECKPOINT),
        argument("b", Kind.CHECKPOINT, required=False),
        _JSON,
        reads=True),
    _verb("save", "bundles", "Save a sandbox's disk, so that new ones can start from it.",
        _SANDBOX,
        argument("save", Kind.TEXT, "SAVE", on_line=True),
        _LINE_NOTE,
        flag("--compress", "Merge all layers into one and compress it."),
        flag("--replace", "Move a save that has this name to the trash."),
        flag("--freeze/--no-freeze",
             "Freeze the guest's file system for the instant.  [default: if it is quick]"),
        flag("--delete-checkpoints", "Delete the sandbox's checkpoints."),
        option("--workspace", Kind.DIRECTORY, "DIR", "Save to DIR/SAVE, not among your own saves."),
        _JSON),
    _verb("snapshot", "bundles", "Write a sandbox's disk to a portable file.",
        _SANDBOX,
        argument("file", Kind.FILE, "FILE"),
        _NOTE,
        flag("--compress", "Compress the file, which takes longer."),
        flag("--replace", "Replace FILE if it exists."),
        _JSON),
    _verb("export", "bundles", "Write a save, a sandbox or an image to one file.",
        argument("name", Kind.EXPORTED, "NAME"),
        _FILE,
        flag("--full", "Include the image, so that FILE needs nothing else."),
        flag("--tree", "Export the sandbox NAME with all its checkpoints and their memory."),
        flag("--image", "Export the image NAME."),
        flag("--compress/--no-compress",
             "Compress FILE (Zstandard).  [default: only with --tree]"),
        _JSON),
    _verb("import", "bundles", "Import a save, a sandbox or an image from an exported file.",
        _FILE,
        option("--name", Kind.TEXT, "NEW", "Give it another name."),
        flag("--replace", "Move a save that has this name to the trash."),
        flag("--trust",
             "Accept the network, ports and QEMU arguments that FILE brings."),
        option("--memory-dir", Kind.DIRECTORY, "DIR",
               "Put the memory of a sandbox's checkpoints into this directory."),
        _JSON),
)

_SHOWN_ARCH = option(
    "--arch", Kind.CHOICE, "", "Show the one for this architecture.  "
    "[default: the one that new sandboxes get]", choices=ARCHITECTURES,
)  # fmt: skip

_LOOK = _section(
    "Look",
    _verb("ps", "ps", "List sandboxes.",
        flag("-a --all", "Include sandboxes that are not running.", name="everything"),
        flag("-q --quiet", "Print names only."),
        flag("--all-processes", "List all of our processes and their memory instead.",
             name="processes"),
        _JSON,
        reads=True),
    _verb("view", "view", "Show a sandbox's screen in the terminal, with mouse and keys.",
        _SANDBOX,
        option("--graphics", Kind.CHOICE, "auto|kitty|sixel|half",
               "Draw the picture in this way.", default="auto", shows_default=True,
               choices=("auto", "kitty", "sixel", "half")),
        option("--detach-keys", Kind.TEXT, "KEYS",
               "The prefix, and the key after it that leaves the view.", default=DEFAULT_KEYS,
               shows_default=True)),
    _verb("logs", "logs", "Show a sandbox's console.",
        _SANDBOX,
        flag("-f --follow", "Show new lines until the sandbox ends."),
        flag("--qemu", "Show QEMU's messages instead of the console."),
        option("-n --lines", Kind.COUNT, "N", "Show only the last N lines.", least=0),
        flag("--plain", "Write only text, line breaks and tabs, to files and pipes too."),
        reads=True),
    _verb("stats", "stats", "Show how much sandboxes use, on the host and inside.",
        _MAYBE_SANDBOXES,
        option("--watch", Kind.NUMBER, "S", "Show it again every S seconds.", least=0.2),
        _JSON,
        reads=True),
    _verb("mounts", "mounts", "List the directories of this host that are in sandboxes.",
        _MAYBE_SANDBOXES, _JSON,
        reads=True),
    _verb("images", "images", "List, build, warm up, inspect, remove images.",
        _JSON,
        reads=True,
        parts=(
            _part("images list", _JSON, reads=True),
            _part("images build", argument("name", required=False),
                  option("--arch", Kind.CHOICE, "", "Build it for this architecture.  "
                         "[default: that of this host]", choices=ARCHITECTURES),
                  option("--from-oci", Kind.TEXT, "DIR|TAR|REF",
                         "Build it of a container image: an OCI layout, a `docker save` archive, "
                         "or a reference in a registry."),
                  option("--name", Kind.TEXT, "NAME", "Give the image this name.",
                         name="new_name"),
                  option("--kernel-from", Kind.IMAGE, "IMAGE",
                         "Boot a container image with the kernel of this image.  "
                         "[default: debian]"),
                  option("--pick", Kind.TEXT, "IMAGE",
                         "Take this one of several images in DIR or TAR."),
                  flag("--init", "Have the container image's own init run."),
                  flag("--plain-http", "Ask a registry on this host without TLS."),
                  _BUILD, _JSON),
            _part("images warm", _IMAGE, _MACHINE,
                  option("--spares", Kind.COUNT, "N",
                         "Keep N machines ready for the next starts from now on; 0 ends that.",
                         least=0, most=spares_max),
                  _BUILD, _JSON),
            _part("images inspect", argument("name", Kind.IMAGE), _SHOWN_ARCH, _JSON, reads=True),
            _part("images info", argument("name", Kind.IMAGE), _SHOWN_ARCH, _JSON, reads=True),
            _part("images ls", _JSON, reads=True),
            _part("images sbom", argument("name", Kind.IMAGE), reads=True),
            _part("images tag", argument("name", Kind.IMAGE), argument("new", Kind.TEXT, "NEW")),
            _part("images verify",
                  argument("names", Kind.IMAGE, "[NAME]...", repeatable=True, required=False),
                  _JSON, reads=True),
            _part("images rm", argument("name", Kind.IMAGE)),
            _part("images prune", _DRY_RUN, _JSON),
            _part("images new",
                  argument("kind", Kind.CHOICE, choices=("base", "layer")),
                  argument("name"),
                  option("--into", Kind.DIRECTORY, "DIR",
                         "Make it in this directory.  [default: ./quicksand-NAME]"),
                  option("--on", Kind.IMAGE, "IMAGE", "Lay the layer on this image.",
                         default="alpine", shows_default=True),
                  _JSON),
        )),
    _verb("install", "packages", "Install images from packages.",
        argument("names", Kind.TEXT, "[NAME|FILE.whl]...", repeatable=True, required=False),
        option("--from", Kind.TEXT, "SOURCE",
               "Get it from this directory, wheel, address or project; may be repeated.  "
               "[default: the package index, then the releases of the project]",
               name="sources", repeatable=True),
        option("--arch", Kind.CHOICE, "", "Install the image for this architecture.  "
               "[default: that of this host]", choices=ARCHITECTURES),
        flag("--no-qemu", "Do not get QEMU where there is none."),
        flag("--list", "List what is installed from packages instead.", name="listing"),
        _JSON),
    _verb("uninstall", "packages", "Remove images that were installed from packages.",
        argument("names", Kind.INSTALLED, "NAME...", repeatable=True),
        _JSON),
    _verb("saves", "saves", "List, remove, restore, verify and prune saves.",
        _EVERYWHERE, _JSON,
        reads=True,
        parts=(
            _part("saves list", _EVERYWHERE, _JSON, reads=True),
            _part("saves rm", argument("names", Kind.SAVE, "NAME...", repeatable=True), _NOW),
            _part("saves restore", argument("name", Kind.TRASHED_SAVE, "NAME"), _NEW_NAME),
            _part("saves verify",
                  argument("names", Kind.SAVE, "[NAME]...", repeatable=True, required=False),
                  flag("--deep", "Read every byte of the saves and their bases."), _JSON,
                  reads=True),
            _part("saves prune",
                  option("--older-than", Kind.NUMBER, "DAYS",
                         "Remove only saves that are older than this.", least=0),
                  option("--keep", Kind.COUNT, "N", "Keep the newest N of all saves.", least=0),
                  _DRY_RUN, _JSON),
            _part("saves rebase", argument("name", Kind.SAVE),
                  option("--onto", Kind.TEXT, "IMAGE",
                         "Use this image.  [default: its own image's newest version]"),
                  _JSON),
            _part("saves trash",
                  argument("ids", Kind.TEXT, "[ID]...", repeatable=True, required=False), _EMPTY,
                  _JSON, reads=True),
        )),
    _verb("du", "space", "Show how much disk space each kind of thing takes.",
        flag("--each", "List each thing on a line, the largest first."),
        _JSON,
        reads=True),
)

_HOST = _section(
    "This host",
    _verb("info", "host", "Show what is in use on this host, or what a bundle holds.",
        argument("file", Kind.FILE, "[FILE]", required=False), _JSON,
        reads=True),
    _verb("config", "config", "Check, find or create the app's config.",
        reads=True,
        parts=(
            _part("config check", reads=True),
            _part("config path", reads=True),
            _part("config example",
                  flag("--write", "Write it to the config if there is none yet.")),
            _part("config keys", reads=True),
        )),
    _verb("doctor", "doctor", "Check this host; name each problem and its cure.",
        _JSON,
        flag("--fresh", "Probe the accelerator again."),
        flag("--fix", "Get QEMU if none works here."),
        reads=True),
    _verb("setup", "host", "Get QEMU and the default image.",
        option("--image", Kind.IMAGE, "", "Make this image ready.", default=DEFAULT_IMAGE,
               shows_default=True),
        option("--arch", Kind.CHOICE, "", "Get them for guests of this architecture.  "
               "[default: that of this host]", choices=ARCHITECTURES),
        flag("--no-image", "Get QEMU only.")),
    _verb("clean", "space", "Empty the trash, and remove files that can be made again.",
        flag("--dry-run", "Show what would be removed, and remove nothing."),
        flag("-y --yes", "Do not ask."),
        _JSON),
    _verb("demo", "demo", "Run through the main steps and check each of them.",
        option("--image", Kind.IMAGE, "", "Use this image.", default=DEFAULT_IMAGE,
               shows_default=True),
        flag("--json", "Print one JSON object at the end.", name="as_json")),
    _verb("benchmark", "benchmark", "Measure this machine.",
        _IMAGE,
        option("-n --runs", Kind.COUNT, "", "Measure this many starts.", default=5,
               shows_default=True),
        option("--stream-mb", Kind.COUNT, "", "Send this many megabytes.", default=STREAM_MB,
               shows_default=True),
        flag("--quick", "Skip the guest of 2G."),
        _JSON),
    _verb("completions", "completions", "Print or install completions for your shell.",
        argument("shell", Kind.CHOICE, choices=("bash", "zsh", "fish")),
        flag("--install", "Install them for you, instead of printing them.")),
)

APP_OPTIONS = (
    option("--theme", Kind.TEXT, "NAME", "Use these colours for this run, or auto."),
    flag("--ascii", "Draw with ASCII only."),
    flag("--read-only", "Change nothing, and open no shell."),
    option("--screenshot", Kind.FILE, "FILE",
           "Write a picture (.svg, .png) instead; needs no terminal."),
    option("--screen", Kind.TEXT, "NAME", "Take it of this screen, or of NAME:SANDBOX."),
    option("--size", Kind.TEXT, "WxH", "Take it in this size, in columns and rows.  "
           "[default: 120x36]"),
)
"""The options of the app, which are given without a command."""
# fmt: on

VERBS = (*_USE, *_SCREEN, *_LIVES, *_BACK, *_LOOK, *_HOST)
"""All verbs, in the order of the help."""

_BY_NAME = {found.name: found for verb in VERBS for found in verb.walk()}


def find_verb(name: str) -> VerbRecord:
    """Finds a verb by the name in its record, such as "checkpoint rm" for a part. Raises
    LookupError."""
    return _BY_NAME[name]
