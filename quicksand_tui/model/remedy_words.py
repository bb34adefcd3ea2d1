"""The words of errors and of their remedies, for the command line.

The engine knows remedies as data (its ``base/remedies.py``); the commands that they stand for are
known here, to commands and app alike.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from typing import Protocol

FAULT = "quicksand-tui has made a mistake"
"""All that a user reads of a fault of the program, besides where its log is (base/faults.py)."""

COMMANDS: Mapping[str, str] = {
    "add_host": "hosts add NAME ssh://USER@HOST",
    "build_any_image": "images build",
    "build_image": "images build {name}",
    "build_image_for": "images build {name} --arch {arch}",
    "checkpoint": "checkpoint {name}",
    "checkpoint_without_9p": "checkpoint --unmount-9p {name}",
    "clean": "clean",
    "du": "du",
    "end": "kill {name}",
    "end_and_trash": "rm -f {name}",
    "export_full": "export --full",
    "fleet_down": "fleet down",
    "fleet_status": "fleet status",
    "fleet_up": "fleet up",
    "fleet_up_local": "fleet up --local 2",
    "fleet_up_ray": "fleet up --ray",
    "fleet_up_ray_local": "fleet up --ray --local 3",
    "get_qemu": "setup --no-image",
    "get_qemu_for": "setup --no-image --arch {arch}",
    "import_bundle": "import {file}",
    "install": "install {name}",
    "install_for": "install {name} --arch {arch}",
    "key": "key NAME {key}",
    "list": "ps -a",
    "list_saves": "saves",
    "list_trash": "trash",
    "list_trashed_saves": "saves trash",
    "logs": "logs",
    "mount": "mount",
    "mouse_move": "mouse {name} move X,Y",
    "remove": "rm --now {name}",
    "remove_checkpoint": "checkpoint rm {name} {id}",
    "remove_image": "images rm {name}",
    "restore": "restore {name}",
    "restore_as": "restore {id} --name NEW",
    "restore_save_as": "saves restore {id} --as NEW",
    "resume": "resume {name}",
    "run_with_display": "run --display",
    "save": "save SANDBOX NAME",
    "setup": "setup",
    "setup_image": "setup --image {name}",
    "setup_image_for": "setup --image {name} --arch {arch}",
    "start": "start {name}",
    "start_at": "start --at {at} {name}",
    "trash": "rm {name}",
    "tree": "tree {name}",
}
"""The command of each of the engine's verbs, with its arguments."""


class Remedy(Protocol):
    """A remedy with its arguments, as the engine knows it."""

    @property
    def verb(self) -> str: ...

    def fill(self, pattern: str, quote: Callable[[str], str] = ...) -> str: ...


def as_command(remedy: Remedy) -> str:
    """Returns the command of a remedy, marked as a command."""
    return f"`quicksand-tui {remedy.fill(COMMANDS[remedy.verb], shlex.quote)}`"


def hint_of(error: object) -> str:
    """Returns the hint of an error of the engine or of ours; "" if it has none, or if it comes from
    another machine, whose remedies are not ours."""
    say = getattr(error, "hint_in", None)
    try:
        return str(getattr(error, "hint", "") if say is None else say(as_command))
    except LookupError:
        return ""


def worded(words: object) -> str:
    """Returns words of the engine in the words of the command line."""
    say = getattr(words, "said", None)
    return str(words if say is None else say(as_command))


def text_of(error: object) -> str:
    """Returns the words of an error, as ``str(error)`` does."""
    say = getattr(error, "text_in", None)
    return str(error if say is None else say(as_command))
