"""Folds automatic checkpoints: those that reverts took on the way, and nobody has gone on from."""

from __future__ import annotations

from typing import TYPE_CHECKING

from quicksand.things.frozen import frozen

from quicksand_tui.model.shown_checkpoints import line_to

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from quicksand_tui.model.shown_checkpoints import CheckpointTree

FOLD = "fold:"
"""The beginning of a fold's key; the id follows of the checkpoint from which the fold hangs."""


@frozen(kw_only=False)
class Folded:
    """The tree as it is drawn."""

    parents: Mapping[str, str | None]
    """Checkpoints that are shown, and folds, whose ids are the keys by `fold_of`."""
    counts: Mapping[str, int]
    """The number of checkpoints that each fold hides, by its key."""
    held_by: Mapping[str, str]
    """The key of the fold of each checkpoint that can be folded, hidden or not."""


def fold_of(checkpoint_id: str | None) -> str:
    return f"{FOLD}{checkpoint_id or ''}"


def fold(tree: CheckpointTree, opened: Collection[str]) -> Folded:
    """Folds the automatic checkpoints from which only automatic ones descend, by the checkpoint
    that they branched off; the folds in ``opened`` stay open."""
    parents = tree.parents
    # The ancestors of a named checkpoint stay, and so does the sandbox's position.
    kept = set(line_to(tree.head, parents))
    for view in tree.checkpoints:
        at: str | None = None if view.auto else view.id
        while at is not None and at not in kept:
            kept.add(at)
            at = parents.get(at)
    held: dict[str, str] = {}
    for view in tree.checkpoints:
        if view.id not in kept:
            way = [view.id]
            while (at := parents.get(way[-1])) is not None and at in parents and at not in kept:
                if at in way:
                    break  # a circle in the files
                way.append(at)
            held[view.id] = fold_of(at if at in kept else None)
    shown: dict[str, str | None] = {}
    counts: dict[str, int] = {}
    for id_, parent in parents.items():
        key = held.get(id_)
        if key is None or key in opened:
            shown[id_] = parent
        else:
            counts[key] = counts.get(key, 0) + 1
            shown[key] = key.removeprefix(FOLD) or None
    return Folded(parents=shown, counts=counts, held_by=held)
