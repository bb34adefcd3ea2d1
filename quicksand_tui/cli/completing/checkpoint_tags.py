"""Completes tags of checkpoints."""

from __future__ import annotations

import contextlib

import click
from click.shell_completion import CompletionItem
from quicksand.base.errors import QuicksandError
from quicksand.base.paths import paths
from quicksand.records.nodes import Node
from quicksand.records.registry import Registry
from quicksand.snapshots.history import history_of

from quicksand_tui.cli.completing.words import beginning


def complete_tags(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Completes tags of the checkpoints of the sandbox that the command line names."""
    nodes = _checkpoints_of(_named_before(ctx))
    return beginning(incomplete, ((node.tag, node.note) for node in nodes))


def complete_targets(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Completes as `complete_tags` does, and OTHER:TAG for other sandboxes: first their names, then
    their tags."""
    found = complete_tags(ctx, param, incomplete)
    other, colon, _ = incomplete.partition(":")
    if colon:
        theirs = ((f"{other}:{node.tag}", node.note) for node in _checkpoints_of(other))
        return found + beginning(incomplete, theirs)
    mine = _named_before(ctx)
    others = (
        (f"{entry.name}:", "its checkpoints")
        for entry in Registry(paths()).list()
        if entry.name.startswith(incomplete)
        and mine not in (None, entry.name, entry.id)
        and _checkpoints_of(entry.id)
    )
    return found + beginning(incomplete, others)


def _named_before(ctx: click.Context) -> str | None:
    """Returns the name of a sandbox that stands before the word that is being completed, if any."""
    # When an option's value is being completed, click has not sorted the arguments yet.
    known = (ctx.params.get("name"), *(ctx.params.get("names") or ctx.args))
    return next(filter(None, known), None)


def _checkpoints_of(name: str | None) -> list[Node]:
    with contextlib.suppress(QuicksandError, OSError):
        if name is not None:
            registry = Registry(paths())
            return history_of(registry, registry.find(name).id).nodes()
    return []
