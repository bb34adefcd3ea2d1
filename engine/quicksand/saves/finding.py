"""Finding stores of saves, and a save by name or path. Saves that this user has made come before
those of others.

``<data>/workspaces/<digest>`` are symbolic links to the directories where this user has saved. Only
there may the engine clean up; other directories may belong to other users. Before an image is
removed, the saves in all of them are considered. A workspace that was moved or copied becomes known
again with the next save in it.
"""

from __future__ import annotations

import contextlib
import difflib
import hashlib
import os
import re
from collections.abc import Iterator
from pathlib import Path

from quicksand.base.effort import best_effort
from quicksand.base.errors import SaveNotFoundError
from quicksand.base.paths import Paths, make_private_dir
from quicksand.base.remedies import Remedy, Words
from quicksand.saves.ownership import is_own, was_made_at
from quicksand.saves.save_manifest import MANIFEST, OVERLAYS, Save, load_save
from quicksand.saves.save_places import HOUSE, PLAIN, WORKSPACE
from quicksand.saves.store import LOCK, SaveStore

LINKS = re.compile(r"[0-9a-f]{16}")
"""The names of the links."""


def workspaces_dir(places: Paths) -> Path:
    return places.data / "workspaces"


def link_of(root: Path, places: Paths) -> Path:
    """The link to ``root``, which need not exist."""
    return workspaces_dir(places) / hashlib.sha256(os.fsencode(root)).hexdigest()[:16]


def is_kept(root: Path, places: Paths) -> bool:
    """Whether this user has saved there."""
    return root == places.saves or link_of(root, places).is_symlink()


NEAR = 3


def workspace_store(workspace: Path | None = None) -> SaveStore:
    """The store in ``workspace``, by default ``.quicksand/sandboxes`` in the current directory."""
    return store_at(_usual_root(Path.cwd()) if workspace is None else workspace)


def store_at(root: Path, paths: Paths | None = None) -> SaveStore:
    """Return the store in a directory. It is only read, unless ``paths`` show that this user has
    saved there."""
    root = root.absolute()
    kept = paths is not None and is_kept(root, paths)
    is_plain = _is_plain(root) or (paths is not None and root == paths.saves)
    return SaveStore(root, is_shared=not is_plain, is_kept=kept)


def _is_plain(root: Path) -> bool:
    """Whether the directory is only for saves, by its name or because an earlier version used it in
    that way."""
    if root.name != PLAIN:
        return False
    is_used = (root / LOCK).exists() and not (root / HOUSE).exists()
    return root.parent.name == WORKSPACE or is_used


def _usual_root(cwd: Path) -> Path:
    return cwd / WORKSPACE / PLAIN


def all_stores(paths: Paths, cwd: Path | None = None) -> tuple[SaveStore, ...]:
    """The stores in which a name is looked for: the current directory's workspace, the user's own
    saves, and the current directory itself. They need not exist."""
    here = cwd or Path.cwd()
    roots = (_usual_root(here), paths.saves, here)
    return tuple(store_at(root, paths) for root in roots)


def find_save(name_or_path: str | Path, paths: Paths, cwd: Path | None = None) -> Save:
    """The save at a path or with that name (`find_named`). ``./NAME`` also finds NAME in the
    current directory's workspace.

    A save that cannot be used is returned too, with its error. Raises SaveNotFoundError, whose hint
    suggests similar names.
    """
    name, here = str(name_or_path), cwd or Path.cwd()
    stores = all_stores(paths, here)
    if is_path(name_or_path):
        if (save := _find_by_path(name_or_path, here, stores[0])) is not None:
            return save
        message = f"there is no save at {name}: it has no {MANIFEST}"
    else:
        for save, _ in find_named(name, paths, here):
            return save
        places = " or ".join(str(store.root) for store in stores)
        message = f"there is no save {name!r} in {places}"
    raise SaveNotFoundError(message, hint=_near(name, stores))


def find_named(
    name: str, paths: Paths, cwd: Path | None = None, workspace: Path | None = None
) -> Iterator[tuple[Save, bool]]:
    """The saves with that name, and whether this user made each. Those come first, then imported
    ones, then those of other directories. Within each group the order is: ``workspace``, the
    current directory's workspace, the user's saves, the current directory."""
    stores = list(all_stores(paths, cwd))
    if workspace is not None:
        # Earlier versions put them into a subdirectory.
        stores[:0] = [store_at(workspace, paths), store_at(workspace / PLAIN, paths)]
    found = [save for store in stores if (save := store.get(name)) is not None]
    ranked = [(save, _counts_as_own(save, paths)) for save in found]
    return iter(sorted(ranked, key=lambda pair: rank(pair[0].root, paths, is_own=pair[1])))


def rank(root: Path, paths: Paths, *, is_own: bool) -> int:
    """The rank of a save among those of the same name; the lowest comes first."""
    if is_own:
        return 0
    return 1 if root.parent == paths.saves else 2


def _counts_as_own(save: Save, paths: Paths) -> bool:
    """Whether this user made the save. A damaged one counts if it was made here, so that no other
    save silently takes its place."""
    if save.manifest is None and was_made_at(save.root, paths):
        return True
    return is_own(save.root, paths)


def is_path(name_or_path: str | Path) -> bool:
    """Whether it is a path and cannot be a name."""
    return isinstance(name_or_path, Path) or "/" in name_or_path


def _find_by_path(path: str | Path, cwd: Path, workspace: SaveStore) -> Save | None:
    there = _at_path(path, cwd)
    if there is not None and (there.manifest is not None or (there.root / OVERLAYS).exists()):
        return there
    # A directory with a manifest of another kind is no save.
    return _in_workspace(str(path), workspace) or there


def _at_path(name_or_path: str | Path, cwd: Path) -> Save | None:
    # Relative to `cwd`; a path that begins with ~ becomes absolute.
    try:
        root = (cwd / Path(name_or_path).expanduser()).resolve()
        found = (root / MANIFEST).exists()
    except (OSError, RuntimeError, ValueError):  # no such user, a loop of links, a NUL
        return None
    return load_save(root) if found else None


def _in_workspace(path: str, store: SaveStore) -> Save | None:
    start, _, name = path.partition("/")
    return store.get(name) if start == "." else None


def _near(name: str, stores: tuple[SaveStore, ...]) -> str | Words:
    names = {save.name for store in stores for save in store.list()}
    close = difflib.get_close_matches(Path(name).name, sorted(names), n=NEAR, cutoff=0.5)
    if close:
        return f"did you mean {' or '.join(map(repr, close))}?"
    if names:
        return Words(Remedy("list_saves"), " lists them")
    return Words("there are no saves yet: ", Remedy("save"), " makes one")


def remember(root: Path, places: Paths) -> None:
    """Record that there are saves in ``root``. Failures are ignored: they must not prevent the
    save."""
    if root == places.saves:
        return
    directory, link = workspaces_dir(places), link_of(root, places)
    with best_effort(f"note that there are saves in {root}", places.engine_log):
        if link.is_symlink():
            return
        make_private_dir(directory)
        for other in directory.iterdir():
            if LINKS.fullmatch(other.name) and other.is_symlink() and not other.exists():
                other.unlink()
        link.symlink_to(root)


def known_stores(places: Paths, cwd: Path | None = None) -> tuple[SaveStore, ...]:
    """All known stores, those of `all_stores` first."""
    found = {store.root: store for store in all_stores(places, cwd)}
    with contextlib.suppress(OSError):
        for link in sorted(workspaces_dir(places).iterdir()):
            with contextlib.suppress(OSError):
                root = link.readlink()
                if root.is_dir():
                    found.setdefault(root, store_at(root, places))
    return tuple(found.values())
