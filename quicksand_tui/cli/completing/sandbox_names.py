"""Completes names of sandboxes, and words that begin with one."""

from __future__ import annotations

import click
from click.shell_completion import CompletionItem
from quicksand.base.paths import paths
from quicksand.records.registry import Registry

from quicksand_tui.cli.completing.words import a_file, beginning


def complete_sandboxes(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Completes names of sandboxes."""
    entries = Registry(paths()).list()
    return beginning(incomplete, ((entry.name, entry.status.value) for entry in entries))


def complete_copied(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Completes files of this host, and sandboxes as ``NAME:``."""
    items = a_file(incomplete)
    if "/" not in incomplete and ":" not in incomplete:
        found = complete_sandboxes(ctx, param, incomplete)
        items += [CompletionItem(f"{item.value}:/") for item in found]
    return items
