"""Words for where panes lie. Apart from what arranges them: that is loaded with the first shell."""

from __future__ import annotations

from enum import Enum


class Way(Enum):
    """Where a new pane goes."""

    BESIDE = "beside"
    BELOW = "below"


class Side(Enum):
    LEFT = "left"
    RIGHT = "right"
    UP = "up"
    DOWN = "down"
