"""The screens of which pictures can be taken. No Textual, since the command line lists them."""

from __future__ import annotations

from dataclasses import dataclass

DEFAULT_SIZE = (120, 36)
SIZE_MIN, SIZE_MAX = (20, 6), (400, 200)


@dataclass(frozen=True, slots=True)
class Shot:
    """The way to a screen: actions of the registry, each on the screen that the last one opened."""

    actions: tuple[str, ...] = ()
    opens: bool = True
    """The actions open another screen, not a part of the main one."""
    of_sandbox: bool = False
    """It shows one sandbox: the first, unless another is named."""


SHOTS = {
    "main": Shot(),
    "tree": Shot(("revert",), of_sandbox=True, opens=False),
    "shells": Shot(("shell",), of_sandbox=True, opens=False),
    "log": Shot(("log",), of_sandbox=True, opens=False),
    "desktop": Shot(("desktop",), of_sandbox=True, opens=False),
    "mounts": Shot(("mounts",), of_sandbox=True, opens=False),
    "stats": Shot(("previous_tab",), of_sandbox=True, opens=False),
    "wall": Shot(("wall",)),
    "new": Shot(("new",)),
    "checkpoint": Shot(("checkpoint",), of_sandbox=True),
    "save": Shot(("save",), of_sandbox=True),
    "mount": Shot(("mount",), of_sandbox=True),
    "delete": Shot(("delete",), of_sandbox=True),
    "saves": Shot(("saves",)),
    "trash": Shot(("saves", "trash")),
    "jobs": Shot(("jobs",)),
    "commands": Shot(("commands",)),
    "palette": Shot(("palette",)),
    "help": Shot(("help",)),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ShotSpec:
    """The picture that was asked for."""

    screen: str = "main"
    sandbox: str = ""
    """The name of the sandbox under the cursor; "" for the first."""
    size: tuple[int, int] = DEFAULT_SIZE
    """Columns and rows."""
    theme: str = ""
    ascii_glyphs: bool = False


def parse_screen(text: str) -> tuple[str, str]:
    """Parses a screen and perhaps a sandbox: ``tree`` or ``tree:web``. Raises ValueError."""
    screen, _, sandbox = text.partition(":")
    if screen not in SHOTS:
        raise ValueError(f"there is no screen {screen!r}; there are {', '.join(SHOTS)}")
    return screen, sandbox


def parse_size(text: str) -> tuple[int, int]:
    """Parses columns and rows: ``120x36``. Raises ValueError."""
    columns, _, rows = text.lower().partition("x")
    if not (columns.isdecimal() and rows.isdecimal() and len(text) < 12):
        raise ValueError(f"{text!r} is no size; write columns x rows, such as 120x36")
    size = (int(columns), int(rows))
    if not all(low <= n <= high for low, n, high in zip(SIZE_MIN, size, SIZE_MAX, strict=True)):
        low, high = ("x".join(map(str, limit)) for limit in (SIZE_MIN, SIZE_MAX))
        raise ValueError(f"{text} is out of range; sizes go from {low} to {high}")
    return size
