"""From a name to a save: a path, the workspace of the current directory, the user's own saves."""

from __future__ import annotations

from pathlib import Path

from quicksand.errors import SaveNotFoundError
from quicksand.host.paths import Paths
from quicksand.saves.manifest import MANIFEST, OVERLAYS
from quicksand.saves.store import Save, SaveStore, load_save

WORKSPACE = ".quicksand"
"""Of a directory; the saves are in its ``sandboxes`` (the specification's names)."""

NEAR = 3


def workspace_store(workspace: Path | None = None) -> SaveStore:
    """The saves in ``workspace``, that of the current directory if None."""
    return SaveStore((workspace or Path.cwd() / WORKSPACE) / "sandboxes")


def all_stores(paths: Paths, cwd: Path | None = None) -> tuple[SaveStore, ...]:
    """Where saves are looked for by name, in this order; they need not exist."""
    return workspace_store((cwd or Path.cwd()) / WORKSPACE), SaveStore(paths.saves)


def find_save(name_or_path: str | Path, paths: Paths, cwd: Path | None = None) -> Save:
    """The save at a path, else of that name in the workspace, else among the user's saves.

    One that cannot be used is found too, and says why. Raises SaveNotFoundError, with near names.
    """
    if (save := _at_path(name_or_path, cwd or Path.cwd())) is not None:
        return save
    name = str(name_or_path)
    stores = all_stores(paths, cwd)
    for store in stores:
        if (save := store.get(name)) is not None:
            return save
    places = " or ".join(str(store.root) for store in stores)
    if is_path(name_or_path):
        message = f"there is no save at {name}: it has no {MANIFEST}"
    else:
        message = f"there is no save {name!r} in {places}"
    raise SaveNotFoundError(message, hint=_near(name, stores))


def is_path(name_or_path: str | Path) -> bool:
    """Whether it can only be a path."""
    return isinstance(name_or_path, Path) or "/" in name_or_path


def _at_path(name_or_path: str | Path, cwd: Path) -> Save | None:
    # Relative to `cwd`; what begins with ~ is absolute then.
    try:
        root = (cwd / Path(name_or_path).expanduser()).resolve()
        # A directory of a program may be called as an image is, and have a manifest of its own.
        marks = (MANIFEST,) if is_path(name_or_path) else (MANIFEST, OVERLAYS)
        found = str(name_or_path) != "" and all((root / mark).exists() for mark in marks)
    except (OSError, RuntimeError, ValueError):  # no such user, a loop of links, a NUL
        return None
    return load_save(root) if found else None


def _near(name: str, stores: tuple[SaveStore, ...]) -> str:
    import difflib

    names = {save.name for store in stores for save in store.list()}
    close = difflib.get_close_matches(Path(name).name, sorted(names), n=NEAR, cutoff=0.5)
    if close:
        return f"did you mean {' or '.join(map(repr, close))}?"
    if names:
        return "`quicksand-tui saves` lists them"
    return "there are no saves yet: `quicksand-tui save SANDBOX NAME` makes one"
