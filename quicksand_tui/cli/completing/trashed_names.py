"""Completes names of things in the trash."""

from __future__ import annotations

import click
from click.shell_completion import CompletionItem
from quicksand.base.paths import paths
from quicksand.life.sandbox_removal import SandboxTrash
from quicksand.records.registry import Registry
from quicksand.saves.census import list_trash
from quicksand.saves.workspaces import known_stores

from quicksand_tui.cli.completing.words import beginning


def complete_trash(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Completes names of saves in the trash."""
    names = {found.save.name for found in list_trash(known_stores(paths()))}
    return beginning(incomplete, ((name, "") for name in sorted(names)))


def complete_all_trash(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Completes names and ids of sandboxes and saves in the trash."""
    found = [
        (trashed.name, trashed.id, "sandbox") for trashed in SandboxTrash(Registry(paths())).list()
    ]
    found += [(t.save.name, t.id, "save") for t in list_trash(known_stores(paths()))]
    names = {name: f"{kind} {id_}" for name, id_, kind in found}
    ids = {id_: f"the {kind} {name}" for name, id_, kind in found}
    words = [*sorted(names.items()), *(ids.items() if incomplete else ())]
    return beginning(incomplete, words)
