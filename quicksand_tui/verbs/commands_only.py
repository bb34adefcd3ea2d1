"""The verbs that are commands and nothing else: the app shows the same in its own way, or not at
all."""

from __future__ import annotations

from quicksand_tui.verbs.parameters import (
    ARCHITECTURES,
    BUILD,
    DEFAULT_IMAGE,
    DEFAULT_KEYS,
    DETACH_KEYS,
    DRY_RUN,
    FILE,
    IMAGE,
    IN_GUEST,
    JSON,
    MACHINE,
    MAYBE_SANDBOXES,
    MOUSE_ACTIONS,
    RECORD_FPS,
    RECORD_SECONDS,
    SANDBOX,
    buttons,
    spares_max,
)
from quicksand_tui.verbs.verb import Kind, argument, command, flag, option, part

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


# Tables are formatted by hand: a parameter in a row or two.
# fmt: off
PS = command("ps", ".this_host.looking", "List sandboxes.",
    flag("-a --all", "Include sandboxes that are not running.", name="everything"),
    flag("-q --quiet", "Print names only."),
    flag("--all-processes", "List all of our processes and their memory instead.",
         name="processes"),
    flag("-w --watch", "Show it again whenever something changes, until Ctrl-C."),
    JSON,
    reads=True)

LOGS = command("logs", ".this_host.looking", "Show a sandbox's console.",
    SANDBOX,
    flag("-f --follow", "Show new lines until the sandbox ends."),
    flag("--qemu", "Show QEMU's messages instead of the console."),
    option("-n --lines", Kind.COUNT, "N", "Show only the last N lines.", least=0),
    flag("--plain", "Write only text, line breaks and tabs, to files and pipes too."),
    reads=True)

EVENTS = command("events", ".this_host.looking",
    "Show what happens to sandboxes, for scripts too.",
    MAYBE_SANDBOXES,
    flag("-f --follow", "Show what happens from now on, until Ctrl-C."),
    option("-n --lines", Kind.COUNT, "N", "Show the last N of the past; with -f first.",
           least=0),
    option("--since", Kind.OWN_FILE, "FILE",
           "Go on where the reader before has ended; FILE keeps that place."),
    JSON,
    reads=True)

STATS = command("stats", ".this_host.looking",
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


# Tables are formatted by hand: a parameter in a row or two.
# fmt: off
SCREENSHOT = command("screenshot", ".guests.display", "Take a picture of a sandbox's screen.",
    SANDBOX, FILE,
    option("--region", Kind.TEXT, "X,Y,W,H", "Take only this part, in pixels."),
    option("--scale", Kind.NUMBER, "F", "Scale the picture by this factor, such as 0.5.",
           least=0, above_least=True),
    option("--format", Kind.CHOICE, "",
           "Write this format.  [default: by FILE's suffix, else png]",
           name="form", choices=("png", "ppm")),
    option("--at", Kind.CHECKPOINT, "TAG",
           "Write the small picture of this checkpoint, not the present screen."),
    reads=True)

RECORD = command("record", ".guests.display",
    "Record a sandbox's screen into an animated picture.",
    SANDBOX,
    argument("file", Kind.FILE, "FILE.{gif,png,webp}"),
    option("--seconds", Kind.NUMBER, "S", "Stop recording after this time.  [default: 600]",
           default=RECORD_SECONDS, least=0, above_least=True),
    option("--fps", Kind.NUMBER, "N",
           "Take at most this many pictures a second.  [default: 10]",
           default=RECORD_FPS, least=0, above_least=True),
    option("--scale", Kind.NUMBER, "F", "Scale the picture by this factor, such as 0.5.",
           default=1, least=0, above_least=True),
    flag("--force -f", "Replace FILE if it exists.", name="replace"),
    reads=True)

TYPE = command("type", ".guests.display", "Type a text on a sandbox's keyboard.",
    SANDBOX,
    argument("text", Kind.TEXT, "TEXT|-"))

KEY = command("key", ".guests.display", "Press keys on a sandbox's keyboard.",
    SANDBOX,
    argument("chords", Kind.TEXT, "KEY[+KEY...]...", repeatable=True),
    option("--hold", Kind.NUMBER, "S", "Hold the keys for this many seconds.  [default: 0.02]",
           least=0))

MOUSE = command("mouse", ".guests.display", "Use a sandbox's mouse.",
    SANDBOX,
    argument("action", Kind.CHOICE, "ACTION", choices=MOUSE_ACTIONS),
    argument("places", Kind.TEXT, "[X,Y|up|down|N]...", repeatable=True, required=False),
    option("-b --button", Kind.CHOICE, "", "Use this button.  [default: left]", default="left",
           choices=buttons),
    flag("--absolute", "Count X and Y from 0 to 32767, not in pixels."),
    JSON)

VNC = command("vnc", ".guests.display", "Show the address of a sandbox's screen for VNC viewers.",
    SANDBOX, JSON,
    reads=True)

VIEW = command("view", ".guests.view",
    "Show a sandbox's screen in the terminal, with mouse and keys.",
    SANDBOX,
    option("--graphics", Kind.CHOICE, "auto|kitty|sixel|half",
           "Draw the picture in this way.", default="auto", shows_default=True,
           choices=("auto", "kitty", "sixel", "half")),
    option("--detach-keys", Kind.TEXT, "KEYS",
           "The prefix, and the key after it that leaves the view.", default=DEFAULT_KEYS,
           shows_default=True))
# fmt: on


# fmt: off
_ARCH = option(
    "--arch", Kind.CHOICE, "", "Take the one for this architecture.  "
    "[default: the one that new sandboxes get]", choices=ARCHITECTURES,
)

IMAGES = command("images", ".this_host.stored_images", "List, build, check, tag and remove images.",
    JSON,
    reads=True,
    parts=(
        part("images list", JSON, reads=True),
        part("images build", argument("name", Kind.RECIPE, required=False),
              option("--arch", Kind.CHOICE, "", "Build it for this architecture.  "
                     "[default: that of this host]", choices=ARCHITECTURES),
              flag("--in-sandbox",
                   "Use no apt and no e2fsprogs of this host, but those in a sandbox."),
              option("--from-oci", Kind.TEXT, "DIR|TAR|REF",
                     "Build it of a container image: an OCI layout, a `docker save` archive, "
                     "or a reference in a registry."),
              option("--name", Kind.TEXT, "NAME", "With --from-oci: give the image this name.",
                     name="new_name"),
              option("--kernel-from", Kind.IMAGE, "IMAGE",
                     "With --from-oci: boot it with the kernel of this image.  "
                     "[default: debian]"),
              option("--pick", Kind.TEXT, "IMAGE",
                     "With --from-oci: take this one of several images in DIR or TAR."),
              flag("--init", "With --from-oci: have its own init run."),
              flag("--plain-http", "With --from-oci: ask a registry on this host without TLS."),
              flag("--build/--no-build",
                  "With --from-oci: build or install the image with the kernel if it is "
                  "missing.  [default: on a terminal, without --json]"),
              JSON),
        part("images warm", IMAGE, MACHINE,
              option("--spares", Kind.COUNT, "N",
                     "Keep N machines ready for the next starts from now on; 0 ends that.",
                     least=0, most=spares_max),
              BUILD, JSON),
        part("images inspect", argument("name", Kind.STORED), _ARCH, JSON, reads=True),
        part("images info", argument("name", Kind.STORED), _ARCH, JSON, reads=True),
        part("images ls", JSON, reads=True),
        part("images sbom", argument("name", Kind.STORED), _ARCH, reads=True),
        part("images tag", argument("name", Kind.STORED), argument("new", Kind.TEXT, "NEW"),
             _ARCH),
        part("images verify",
              argument("names", Kind.STORED, "[NAME]...", repeatable=True, required=False),
              JSON, reads=True),
        part("images rm", argument("name", Kind.STORED)),
        part("images prune", DRY_RUN, JSON),
        part("images new",
              argument("kind", Kind.CHOICE, choices=("base", "layer")),
              argument("name"),
              option("--into", Kind.DIRECTORY, "DIR",
                     "Make it in this directory.  [default: ./quicksand-NAME]"),
              option("--on", Kind.IMAGE, "IMAGE", "Lay the layer on this image.",
                     default="alpine", shows_default=True),
              JSON),
    ))
# fmt: on


# Tables are formatted by hand: a parameter in a row or two.
# fmt: off
SSH = command("ssh", ".ssh.ssh_command", "Run ssh with a sandbox, with all that ssh can.",
    flag("--stdio", "Be the SSH server for NAME on stdin and stdout; for ProxyCommand."),
    argument("name", Kind.SANDBOX, "[USER@]NAME"),
    argument("argv", Kind.ARGV, "[SSH OPTIONS] [COMMAND]...", repeatable=True,
             required=False),
    takes_rest=True)

SSH_CONFIG = command("ssh-config", ".ssh.ssh_config",
    "Let ssh, scp, rsync, git and editors reach NAME.qs.",
    flag("--install", "Include it in ~/.ssh/config."),
    flag("--remove", "Remove it from there."),
    flag("--dry-run", "Show what would change there, and change nothing."))

CODE = command("code", ".ssh.code", "Open an editor of this host on a sandbox, by SSH.",
    SANDBOX,
    argument("directory", Kind.TEXT, "[DIR]", required=False),
    option("--editor", Kind.CHOICE, "", "Open this one.", default="code",
           shows_default=True, choices=("code", "zed", "jetbrains")),
    flag("--check", "Only say what the guest lacks, and how the editor would be called."))

SSH_GATEWAY = command("ssh-gateway", ".ssh.gateway",
    "Serve SSH at a port, for other machines, by public keys.",
    option("--listen", Kind.TEXT, "ADDRESS", "Listen at this port, or HOST:PORT.",
           required=True),
    option("--keys", Kind.FILE, "FILE",
           "Take the keys of this file.  [default: ssh/authorized_keys of our data]"))
# fmt: on


# Tables are formatted by hand: a parameter in a row or two.
# fmt: off
INFO = command("info", ".this_host.upkeep",
    "Show what is in use on this host, or what a bundle holds.",
    argument("file", Kind.FILE, "[FILE]", required=False), JSON,
    reads=True)

CONFIG = command("config", ".this_host.upkeep", "Check, find or create the app's config.",
    reads=True,
    parts=(
        part("config check", reads=True),
        part("config path", reads=True),
        part("config example",
              flag("--write", "Write it to the config if there is none yet.")),
        part("config keys", reads=True),
    ))

DOCTOR = command("doctor", ".this_host.doctor", "Check this host; name each problem and its cure.",
    JSON,
    flag("--fresh", "Probe the accelerator again."),
    flag("--fix", "Get QEMU if none works here."),
    reads=True)

SETUP = command("setup", ".this_host.upkeep", "Get QEMU and the default image.",
    option("--image", Kind.IMAGE, "", "Make this image ready.", default=DEFAULT_IMAGE,
           shows_default=True),
    option("--arch", Kind.CHOICE, "", "Get them for guests of this architecture.  "
           "[default: that of this host]", choices=ARCHITECTURES),
    flag("--no-image", "Get QEMU only."))

CLEAN = command("clean", ".this_host.upkeep",
    "Empty the trash, and remove files that can be made again.",
    flag("--dry-run", "Show what would be removed, and remove nothing."),
    flag("-y --yes", "Do not ask."),
    JSON)

DEMO = command("demo", ".this_host.demo", "Run through the main steps and check each of them.",
    option("--image", Kind.IMAGE, "", "Use this image.", default=DEFAULT_IMAGE,
           shows_default=True),
    flag("--json", "Print one JSON object at the end.", name="as_json"))

COMPLETIONS = command("completions", ".completing", "Print or install completions for your shell.",
    argument("shell", Kind.CHOICE, choices=("bash", "zsh", "fish")),
    flag("--install", "Install them for you, instead of printing them."))
# fmt: on


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
