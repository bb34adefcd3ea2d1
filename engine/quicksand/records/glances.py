"""A glance at every sandbox's record, for the questions about all of them at each start: which has
a name, and which may be left by dead processes.

No index is kept, so none can be wrong: reading the few fields of a thousand records takes some 15
ms. A glance is only a reason to look properly (`Registry.inspect`).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from quicksand.base.files import read_json
from quicksand.records.layout import SandboxDir
from quicksand.records.sandboxes import is_id


class Glance(NamedTuple):
    """The few facts of a sandbox's record that every other start needs."""

    id: str
    name: str
    """Its recorded name; "" if none can be read."""
    may_be_left: bool
    """Whether it is removed if nobody runs it: it is ephemeral, has never started, or has no record
    yet. A sandbox with a damaged record stays."""


def glance_at_all(sandboxes: Path) -> Iterator[Glance]:
    """Yield a glance at each directory that is named as a sandbox. Blocks for small files."""
    place, name = os.fspath(sandboxes), SandboxDir(sandboxes).record.name
    for id_ in ids_in(sandboxes):
        try:
            record = read_json(f"{place}/{id_}/{name}")
        except FileNotFoundError:
            yield Glance(id_, "", True)
        except (OSError, ValueError):
            yield Glance(id_, "", False)
        else:
            stays = record.get("committed") is True and record.get("discard") is False
            yield Glance(id_, str(record.get("name")), not stays)


def ids_in(place: Path) -> list[str]:
    """The names in a directory that are ids of sandboxes; none if there is no such directory."""
    return [name for name in names_in(place) if is_id(name)]


def names_in(place: Path) -> list[str]:
    """The names in a directory; none if there is no such directory."""
    try:
        with os.scandir(place) as found:
            return [one.name for one in found]
    except (FileNotFoundError, NotADirectoryError):
        return []
