"""Completion of words of a command line, a module for each kind of thing. A module is imported when
a shell asks for it.

Each function takes click's arguments: the context, the parameter, and the word so far.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module

import click
from click.shell_completion import CompletionItem

from quicksand_tui.verbs.verb import Kind

Completer = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]

COMPLETERS: Mapping[Kind, str] = {
    Kind.SANDBOX: "sandboxes.complete_sandboxes",
    Kind.CHECKPOINT: "checkpoints.complete_tags",
    Kind.TARGET: "checkpoints.complete_targets",
    Kind.IMAGE: "images.complete_images",
    Kind.STORED: "images.complete_stored",
    Kind.RECIPE: "images.complete_recipes",
    Kind.PACKAGE: "packages.complete_packages",
    Kind.INSTALLED: "packages.complete_installed",
    Kind.SOURCE: "images.complete_images",
    Kind.SAVE: "saves.complete_saves",
    Kind.EXPORTED: "saves.complete_exported",
    Kind.TRASHED: "trash.complete_all_trash",
    Kind.TRASHED_SAVE: "trash.complete_trash",
    Kind.COPIED: "sandboxes.complete_copied",
    Kind.HOST: "hosts.complete_hosts",
    Kind.MOUNT: "mounts.complete_mount",
    Kind.MOUNTED: "mounts.complete_mounted",
}
"""The functions, by their modules in this package and their names."""


def completer_of(kind: Kind, own: str = "") -> Completer | None:
    """Returns the function that completes values of a kind, or the parameter's ``own``
    (`Parameter.completer`); None if there is none."""
    if kind not in COMPLETERS and not own:
        return None
    module, _, function = own.partition(":")
    if not own:
        module, _, function = f"{__name__}.{COMPLETERS[kind]}".rpartition(".")

    def complete(
        ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        found: Completer = getattr(import_module(module), function)
        return found(ctx, param, incomplete)

    return complete
