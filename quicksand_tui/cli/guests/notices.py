"""Tells the notices of a start."""

from __future__ import annotations

from collections.abc import Sequence

from quicksand_tui.cli.output import say, tell_program, tells_json
from quicksand_tui.model.text import clean


def say_notices(name: str, notices: Sequence[str], *, but: Sequence[str] = ()) -> None:
    """Tells the notices of a sandbox's start, without those that were told already."""
    for notice in notices:
        if notice in but:
            continue
        if tells_json():
            tell_program(notice=clean(notice))
        else:
            say(f"{name}: {clean(notice)}")
