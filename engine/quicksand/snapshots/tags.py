"""Tags of automatic checkpoints."""

from __future__ import annotations

import time

from quicksand.snapshots.history import History

WHAT_MAX = 90
"""Characters of the description; the time and a number follow."""


def automatic_tag(history: History, what: str) -> str:
    """``what`` and the local time, and a number if that tag is taken."""
    tag = first = f"{what[:WHAT_MAX]} {time.strftime('%H:%M:%S')}"
    taken = {node.tag for node in history.nodes()}
    number = 2
    while tag in taken:
        tag, number = f"{first} ({number})", number + 1
    return tag
