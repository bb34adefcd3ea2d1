"""The table of commands. Their modules are imported when they are used, not before."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

import click


@dataclass(frozen=True, slots=True)
class Verb:
    """One command: where it is, and what `--help` says of it."""

    name: str
    module: str
    attribute: str
    section: str
    summary: str

    @property
    def exists(self) -> bool:
        """Whether this build has it."""
        return Path(__file__).with_name(f"{self.module}.py").exists()

    def load(self) -> click.Command:
        """Import the command."""
        module = import_module(f"quicksand_tui.cli.{self.module}")
        found = getattr(module, self.attribute)
        assert isinstance(found, click.Command)
        return found


_USE, _LIVES, _BACK, _LOOK, _HOST = "Use", "Lives", "Go back", "Look", "This host"

VERBS = tuple(
    Verb(*row)
    for row in (
        ("run", "run", "command", _USE, "Start a sandbox and run a command or a shell in it."),
        ("exec", "execute", "command", _USE, "Run a command in a running sandbox."),
        ("shell", "shell", "command", _USE, "Open a terminal in a sandbox, or come back to one."),
        ("cp", "copy", "command", _USE, "Copy files into or out of a sandbox."),
        ("start", "life", "start", _LIVES, "Start stopped sandboxes again."),
        ("clone", "clone", "command", _LIVES, "Make more sandboxes of one, as it is this instant."),
        ("stop", "life", "stop", _LIVES, "Stop sandboxes: sync, power down."),
        ("kill", "life", "kill", _LIVES, "Stop sandboxes at once, as pulling the plug would."),
        ("pause", "life", "pause", _LIVES, "Freeze sandboxes where they are."),
        ("resume", "life", "resume", _LIVES, "Let paused sandboxes go on."),
        ("rm", "life", "remove", _LIVES, "Remove stopped sandboxes and their disks."),
        ("checkpoint", "checkpoint", "command", _BACK, "Keep an instant to come back to."),
        ("revert", "revert", "revert", _BACK, "Go back to a checkpoint."),
        ("undo", "revert", "undo", _BACK, "Take the last revert back."),
        ("tree", "tree", "command", _BACK, "Show a sandbox's checkpoints and where it stands."),
        ("diff", "diff", "command", _BACK, "List files that differ between two checkpoints."),
        ("save", "save", "command", _BACK, "Keep a sandbox's disk as a start for new ones."),
        ("snapshot", "snapshot", "command", _BACK, "Write a sandbox's disk to a portable file."),
        ("export", "bundles", "export", _BACK, "Write a save or a sandbox to one file."),
        ("import", "bundles", "import_", _BACK, "Take what such a file holds."),
        ("ps", "ps", "command", _LOOK, "List sandboxes."),
        ("logs", "logs", "command", _LOOK, "Show a sandbox's console."),
        ("stats", "stats", "command", _LOOK, "Show what sandboxes use, of the host and inside."),
        ("images", "images", "command", _LOOK, "List, build, warm up, inspect, remove images."),
        ("saves", "saves", "command", _LOOK, "List, remove, restore, verify and prune saves."),
        ("du", "du", "command", _LOOK, "Show where the space on the disk goes."),
        ("info", "info", "command", _HOST, "Show places, versions and programs in use."),
        ("config", "config", "command", _HOST, "Check, find and begin the app's config."),
        ("doctor", "doctor", "command", _HOST, "Check this host; say what is wrong and the cure."),
        ("setup", "setup", "command", _HOST, "Get QEMU and the default image."),
        ("clean", "clean", "command", _HOST, "Remove what can be made again, and the trash."),
        ("demo", "demo", "command", _HOST, "Do the main job without a screen, and prove it."),
        ("benchmark", "benchmark", "command", _HOST, "Measure this machine."),
        ("completions", "completions", "command", _HOST, "Print completions for your shell."),
    )
)
