"""The place of a running sandbox's sockets, which is noted in its directory, since a client with
another TMPDIR or QUICKSAND_RUNTIME_DIR would look elsewhere."""

from __future__ import annotations

import os
from pathlib import Path

from quicksand.base.processes import is_same_place
from quicksand.base.removal import NotOursError, belongs_to

LINK = "runtime"


def find_place(sandbox: Path, usual: Path) -> Path:
    """Return the runtime directory of the sandbox in ``sandbox``: the one where it was started, if
    that exists and its mark names this sandbox (a copied data directory links to another
    sandbox's); else ``usual``."""
    try:
        noted = os.readlink(sandbox / LINK)  # noqa: PTH115 - no `Path` for most: `ps` asks of all
    except OSError:
        return usual
    if noted == os.fspath(usual):
        return usual
    try:
        is_its = is_same_place(belongs_to(Path(noted)), sandbox)
    except (NotOursError, OSError):
        return usual
    return Path(noted) if is_its else usual


def note_place(sandbox: Path, runtime: Path) -> None:
    """Note its place. Raises OSError."""
    temporary = sandbox / f".{LINK}.{os.urandom(4).hex()}"
    temporary.symlink_to(runtime)
    temporary.replace(sandbox / LINK)
