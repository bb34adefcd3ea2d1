"""All saves and the trash as the app shows them, those of other machines included."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field, fields, replace
from typing import Any, TypeVar

from quicksand.things.frozen import frozen
from quicksand.things.save import SaveFacts, TrashFacts

from quicksand_tui.model.shown_sandboxes import at_host
from quicksand_tui.model.text import sanitise

Kept = TypeVar("Kept", SaveFacts, TrashFacts)

LIMITS = {"name": 200, "id": 200, "note": 1000, "address": 1000}
"""The most characters of texts that are not cut to the usual ones."""
TEXT_MAX = 500
"""The most characters of the others."""
VOLATILE_MAX = 20
"""The most paths that are kept of those that were only in the guest's memory."""


def harmless(kind: type[Kept], facts: Kept, **more: Any) -> Kept:
    """Returns a save or an entry of the trash with texts that are fit to be shown, but for its
    path; ``more`` are further facts."""
    told = {one.name: _fit(one.name, getattr(facts, one.name)) for one in fields(kind)}
    return kind(**{**told, **more})


def _fit(name: str, value: Any) -> Any:
    if type(value) is str and name != "path":
        return sanitise(value, limit=LIMITS.get(name, TEXT_MAX))
    if type(value) is tuple:
        some = value[:VOLATILE_MAX] if name == "volatile" else value
        return tuple(sanitise(one, limit=TEXT_MAX) for one in some)
    return value


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
