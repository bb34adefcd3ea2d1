"""The known workspaces: before an image is removed, the saves in all of them are considered.

``<data>/workspaces/<digest>`` are symbolic links to directories with saves. A workspace that was
moved or copied becomes known again with the next save in it.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

from quicksand.base.effort import best_effort
from quicksand.base.paths import Paths, make_private_dir
from quicksand.saves.finding import all_stores, store_at
from quicksand.saves.links import LINKS, link_of, workspaces_dir
from quicksand.saves.store import SaveStore


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
