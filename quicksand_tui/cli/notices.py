"""Says what a start could not do."""

from __future__ import annotations

from collections.abc import Sequence

from quicksand_tui.cli.output import say, tell_program, tells_json
from quicksand_tui.model.text import clean


def say_notices(name: str, notices: Sequence[str], *, but: Sequence[str] = ()) -> None:
    """Says what the start of a sandbox could not do, without what was said already."""
    for notice in notices:
        if notice in but:
            continue
        if tells_json():
            tell_program(notice=clean(notice))
        else:
            say(f"{name}: {clean(notice)}")
