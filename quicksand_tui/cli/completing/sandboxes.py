"""Completes names of sandboxes, and what is named with one."""

from __future__ import annotations

import click
from click.shell_completion import CompletionItem
from quicksand.base.paths import paths
from quicksand.records.registry import Registry


def complete_sandboxes(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Completes names of sandboxes."""
    entries = Registry(paths()).list()
    return [
        CompletionItem(entry.name, help=entry.status.value)
        for entry in entries
        if entry.name.startswith(incomplete)
    ]


def complete_copied(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Completes files of this host, and sandboxes as ``NAME:``."""
    items = [CompletionItem(incomplete, type="file")]
    if "/" not in incomplete and ":" not in incomplete:
        found = complete_sandboxes(ctx, param, incomplete)
        items += [CompletionItem(f"{item.value}:/") for item in found]
    return items
