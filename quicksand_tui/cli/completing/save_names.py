"""Completes names of saves."""

from __future__ import annotations

import click
from click.shell_completion import CompletionItem
from quicksand.base.paths import paths
from quicksand.saves.finding import all_stores

from quicksand_tui.cli.completing.image_names import complete_images
from quicksand_tui.cli.completing.sandbox_names import complete_sandboxes
from quicksand_tui.cli.completing.words import beginning


def complete_saves(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Completes names of saves."""
    saves = (save for store in all_stores(paths()) for save in store.list())
    notes = ((save.name, save.manifest.note if save.manifest else "damaged") for save in saves)
    return beginning(incomplete, notes)


def complete_exported(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Completes names of saves, of sandboxes after ``--tree``, or of images after ``--image``."""
    complete = complete_sandboxes if ctx.params.get("tree") else complete_saves
    if ctx.params.get("image"):
        complete = complete_images
    return complete(ctx, param, incomplete)
