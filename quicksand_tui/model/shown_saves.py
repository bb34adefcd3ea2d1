"""All saves and the trash as the app shows them, those of other machines included."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field, replace
from typing import TypeVar

from quicksand.things.frozen import frozen
from quicksand.things.save import SaveFacts, TrashFacts

from quicksand_tui.model.shown_sandboxes import at_host

Kept = TypeVar("Kept", SaveFacts, TrashFacts)


def by_machine(views: Iterable[Kept]) -> Mapping[str, tuple[Kept, ...]]:
    """Groups saves or trash by the names of their machines."""
    every = list(views)
    names = dict.fromkeys(view.host for view in every)
    return {name: tuple(view for view in every if view.host == name) for name in names}


@frozen
class SavesView:
    """All saves at one moment."""

    loaded: bool = True
    """False until those of this machine have been read."""
    saves: tuple[SaveFacts, ...] = ()
    trash: tuple[TrashFacts, ...] = ()
    """The most recently removed first."""
    error: str = ""
    """The reason why those of this machine cannot be read, or ""."""
    size: int = 0
    """Bytes of all saves, counting each file once."""
    trash_frees: int = 0
    """Bytes that emptying the trash frees."""
    parts: Mapping[str, SavesView] = field(default_factory=dict, repr=False, hash=False)
    """If there are other machines, the saves of each by its name, "" for this one. Names in there
    are without their machine."""

    def of(self, host: str) -> SavesView:
        """Returns the saves of a machine."""
        return self.parts.get(host, self if not host else NO_SAVES)


NO_SAVES = SavesView(loaded=False)


def all_together(parts: Mapping[str, SavesView]) -> SavesView:
    """Returns the saves of all machines: those of this machine and, by their names, of others."""
    here = parts[""]
    saves = (_named(save) for part in parts.values() for save in part.saves)
    trash = (_named(found) for part in parts.values() for found in part.trash)
    return replace(
        here,
        saves=tuple(saves),
        trash=tuple(sorted(trash, key=lambda found: -found.removed)),
        size=sum(part.size for part in parts.values()),
        trash_frees=sum(part.trash_frees for part in parts.values()),
        parts=parts,
    )


def _named(view: Kept) -> Kept:
    return replace(view, name=at_host(view.name, view.host)) if view.host else view
