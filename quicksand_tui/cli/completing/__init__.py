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
    Kind.SANDBOX: "sandbox_names.complete_sandboxes",
    Kind.CHECKPOINT: "checkpoint_tags.complete_tags",
    Kind.TARGET: "checkpoint_tags.complete_targets",
    Kind.IMAGE: "image_names.complete_images",
    Kind.STORED: "image_names.complete_stored",
    Kind.RECIPE: "image_names.complete_recipes",
    Kind.PACKAGE: "package_names.complete_packages",
    Kind.INSTALLED: "package_names.complete_installed",
    Kind.SOURCE: "image_names.complete_images",
    Kind.SAVE: "save_names.complete_saves",
    Kind.EXPORTED: "save_names.complete_exported",
    Kind.TRASHED: "trashed_names.complete_all_trash",
    Kind.TRASHED_SAVE: "trashed_names.complete_trash",
    Kind.COPIED: "sandbox_names.complete_copied",
    Kind.HOST: "host_names.complete_hosts",
    Kind.MOUNT: "mount_places.complete_mount",
    Kind.MOUNTED: "mount_places.complete_mounted",
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
