"""The verbs of this host: its use, its fitness, and its waste."""

from __future__ import annotations

from quicksand_tui.verbs.parameters import ARCHITECTURES, DEFAULT_IMAGE, IMAGE, JSON, STREAM_MB
from quicksand_tui.verbs.verb import Kind, argument, command, flag, option, part

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

BENCHMARK = command("benchmark", ".this_host.benchmark", "Measure this machine.",
    IMAGE,
    option("-n --runs", Kind.COUNT, "", "Measure this many starts.", default=5,
           shows_default=True),
    option("--stream-mb", Kind.COUNT, "", "Send this many megabytes.", default=STREAM_MB,
           shows_default=True),
    flag("--quick", "Skip the guest of 2G."),
    JSON)

COMPLETIONS = command("completions", ".completing", "Print or install completions for your shell.",
    argument("shell", Kind.CHOICE, choices=("bash", "zsh", "fish")),
    flag("--install", "Install them for you, instead of printing them."))
# fmt: on
