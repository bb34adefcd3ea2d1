"""What is known of all saves: what they take, what they lie on, what came from them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from quicksand.host.footprint import Footprint
from quicksand.host.paths import Paths
from quicksand.images.store import ImageStore
from quicksand.registry import Entry, Registry
from quicksand.saves.finding import all_stores
from quicksand.saves.manifest import Base, Parent
from quicksand.saves.store import TRASH_KEPT_S, Save, SaveStore, Trashed
from quicksand.saves.workspaces import known_stores


class BaseState(StrEnum):
    """Whether the image that a save lies on is here."""

    HERE = "here"
    OTHER = "another version"
    """One of its name is here, but not that one."""
    MISSING = "missing"
    UNKNOWN = "unknown"
    """The save cannot be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SaveInfo:
    """A save among all others."""

    save: Save
    store: SaveStore
    own: int
    """Bytes that deleting it would free."""
    shared: int
    """Bytes of files that other saves or sandboxes have too."""
    created: float
    """Unix time; of a save that does not tell, of its last change."""
    base: Base | None
    base_state: BaseState
    parent: Parent | None
    children: tuple[str, ...]
    """Names of the saves that were made of sandboxes that began with this one; they need it no
    more."""
    above: tuple[str, ...]
    """Names of the saves that lie on this one, as only those of the published packages do: they
    cannot be used without it."""
    sandboxes: tuple[str, ...]
    """Names of the sandboxes that began with it."""
    problems: tuple[str, ...]
    footprint: Footprint = field(repr=False, compare=False)
    """Its files: what several saves free together is more than the sum of what each does."""

    @property
    def name(self) -> str:
        return self.save.name

    @property
    def note(self) -> str:
        return "" if self.save.manifest is None else self.save.manifest.note


class Census:
    """All saves, images and sandboxes at one moment. Blocks for I/O."""

    def __init__(self, paths: Paths, cwd: Path | None = None) -> None:
        self._paths = paths
        self._stores = all_stores(paths, cwd)
        self._known = known_stores(paths, cwd)
        self._saves = [(store, save) for store in self._known for save in store.list()]
        self._sandboxes = Registry(paths).list()
        self._children: dict[str, list[str]] = {}
        for _, save in self._saves:
            if save.manifest is not None and save.manifest.parent is not None:
                self._children.setdefault(save.manifest.parent.id, []).append(save.name)
        self._lower = {save.root: self._find_lower(save, store) for store, save in self._saves}
        self._above: dict[Path, list[str]] = {}
        for _, save in self._saves:
            if (lower := self._lower[save.root]) is not None:
                self._above.setdefault(lower.root, []).append(save.name)
        self._states: dict[tuple[Base, Path], BaseState] = {}

    def list(self, *, everywhere: bool = False) -> Sequence[SaveInfo]:
        """The saves that are found by name, those of the workspace first; or ``everywhere`` those
        of all workspaces that are known. Never raises for one of them."""
        roots = {store.root for store in (self._known if everywhere else self._stores)}
        return [self.look_at(save, store) for store, save in self._saves if store.root in roots]

    def look_at(self, save: Save, store: SaveStore) -> SaveInfo:
        """What is known of one save."""
        footprint, manifest = Footprint(save.root), save.manifest
        base = None if manifest is None else base_of(save)
        state = self._base_state(save)
        return SaveInfo(
            save=save,
            store=store,
            own=footprint.own,
            shared=footprint.shared,
            created=created_at(save),
            base=base,
            base_state=state,
            parent=None if manifest is None else manifest.parent,
            children=self.children(save),
            above=self.above(save),
            sandboxes=self.sandboxes(save),
            problems=tuple(filter(None, (save.error, _base_problem(base, state)))),
            footprint=footprint,
        )

    def _find_lower(self, save: Save, store: SaveStore) -> Save | None:
        """The save that one of the published packages lies on, if it lies on one."""
        manifest = save.manifest
        if manifest is None or manifest.base is not None:
            return None
        places = dict.fromkeys((store.root, *(near.root for near in self._stores)))
        for place in places:
            for other_store, other in self._saves:
                if other_store.root == place and other.name == manifest.config.image:
                    # One that has the name of its image lies on the image.
                    return None if other.root == save.root else other
        return None

    def _base_state(self, save: Save) -> BaseState:
        seen: set[Path] = set()
        while (lower := self._lower.get(save.root)) is not None and save.root not in seen:
            seen.add(save.root)
            save = lower
        if save.manifest is None:
            return BaseState.UNKNOWN
        key = base_of(save), save.root.parent
        if key not in self._states:
            self._states[key] = base_state(key[0], self._paths, key[1])
        return self._states[key]

    def above(self, save: Save) -> tuple[str, ...]:
        """Names of the saves that lie on it."""
        return tuple(self._above.get(save.root, ()))

    def children(self, save: Save) -> tuple[str, ...]:
        """Names of the saves whose parent it is."""
        id_ = "" if save.manifest is None else save.manifest.id
        return tuple(self._children.get(id_, ())) if id_ else ()

    def sandboxes(self, save: Save, *, starting: bool = False) -> tuple[str, ...]:
        """Names of the sandboxes that began with it; of those that are just ``starting`` from it,
        and so still need it, as it is now."""
        return tuple(
            entry.name
            for entry in (Registry(self._paths).list() if starting else self._sandboxes)
            if (_starts_with(entry, save) if starting else _began_with(entry, save))
        )


def _began_with(entry: Entry, save: Save) -> bool:
    source = None if entry.record is None else entry.record.source
    if source is None:
        return False
    if source.id:
        return save.manifest is not None and source.id == save.manifest.id
    return source.path == str(save.root)


def _starts_with(entry: Entry, save: Save) -> bool:
    record = entry.record
    if record is None or record.source is None or record.committed:
        return False
    return _began_with(entry, save) or str(save.root) in record.source.below


def base_of(save: Save) -> Base:
    """What a save lies on; of one that does not tell, the image of its config. Raises SaveError if
    it cannot be used."""
    manifest = save.require()
    return manifest.base or Base(name=manifest.config.image)


def base_state(base: Base, paths: Paths, near: Path) -> BaseState:
    """Whether an image is here, as its manifest says; ``near`` is the directory of the save."""
    images = ImageStore(paths.images)
    if base.digest:
        from quicksand.saves.portable import find_image

        if images.find_version(base.name, base.digest) or find_image(base.digest, paths, [near]):
            return BaseState.HERE
        return BaseState.MISSING if images.get(base.name) is None else BaseState.OTHER
    if images.get(base.name) is not None:
        return BaseState.HERE
    from importlib.metadata import entry_points

    from quicksand.images.resolve import GROUP

    names = {entry.name for entry in entry_points(group=GROUP)}
    is_package = bool(names & {base.name, f"quicksand-{base.name}"})
    is_path = "/" in base.name and Path(base.name).exists()
    return BaseState.HERE if is_package or is_path else BaseState.MISSING


def _base_problem(base: Base | None, state: BaseState) -> str:
    match state:
        case BaseState.OTHER:
            return f"its base {base} is not here, only another version of it"
        case BaseState.MISSING:
            return f"its base {base} is not here"
    return ""


def created_at(save: Save) -> float:
    """When it was made, as well as can be known."""
    if save.manifest is not None and save.manifest.created > 0:
        return save.manifest.created
    try:
        return save.root.stat().st_mtime
    except OSError:
        return 0.0


def freed_by(roots: Iterable[Path]) -> int:
    """Bytes that would be free if all these were deleted together."""
    return Footprint(*roots).own


def list_trash(stores: Iterable[SaveStore]) -> list[Trashed]:
    """What is in the trash of all these, the latest last."""
    return sorted(
        (found for store in stores for found in store.trash()), key=lambda found: found.removed
    )


def expire_trash(stores: Iterable[SaveStore], now: float) -> list[Trashed]:
    """Remove for good what has been in the trash for longer than it is kept; returns it. Raises
    HostError, SaveError."""
    gone = []
    for store in stores:
        old = [found for found in store.trash() if now - found.removed > TRASH_KEPT_S]
        if old:
            store.empty_trash([found.id for found in old])
            gone += old
    return gone
