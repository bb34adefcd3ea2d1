"""The verbs of a sandbox's screen, keyboard and mouse."""

from __future__ import annotations

from quicksand_tui.verbs.parameters import (
    DEFAULT_KEYS,
    FILE,
    JSON,
    MOUSE_ACTIONS,
    RECORD_FPS,
    RECORD_SECONDS,
    SANDBOX,
    buttons,
)
from quicksand_tui.verbs.verb import Kind, argument, command, flag, option

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
