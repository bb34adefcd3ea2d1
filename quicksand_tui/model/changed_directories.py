"""Sums up the differing files by their directories."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from quicksand_tui.model.shown_sandboxes import ChangedPlace

PLACES_MAX = 12
"""The most places that are told apart, if the tree allows it."""


def by_directory(files: Iterable[ChangedPlace], most: int = PLACES_MAX) -> tuple[ChangedPlace, ...]:
    """Returns single files, and directories in which several files differ in the same way. If there
    are more than ``most``, they are merged into the directories above them."""
    found = list(files)
    for depth in (64, 5, 4, 3, 2, 1):
        places = _grouped(found, depth)
        if len(places) <= most:
            break
    return places


def _grouped(files: Sequence[ChangedPlace], depth: int) -> tuple[ChangedPlace, ...]:
    """Groups files by letter, and by at most ``depth`` directories."""
    groups: dict[tuple[str, str], list[ChangedPlace]] = {}
    for file in files:
        parts = file.path.split("/")[1:-1][:depth]
        directory = "/".join(["", *parts, ""])
        groups.setdefault((file.letter, directory), []).append(file)
    places = []
    for (letter, directory), members in groups.items():
        if len(members) == 1:
            places.append(members[0])
            continue
        sizes = [member.size for member in members if member.size is not None]
        places.append(
            ChangedPlace(
                letter=letter,
                path=directory,
                files=len(members),
                size=sum(sizes) if sizes else None,
            )
        )
    return tuple(sorted(places, key=lambda place: (place.path, place.letter)))
