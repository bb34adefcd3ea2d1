"""The table of what is imported when it is used: all of it is there, and all of it is used."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from quicksand.life import machinery

ENGINE = Path(machinery.__file__).parents[1]
USED = {
    name
    for path in ENGINE.rglob("*.py")
    for name in re.findall(r"\bmachinery\.(\w+)", path.read_text(encoding="utf-8"))
}


@pytest.mark.parametrize("name", sorted(USED | {*machinery.__all__}))
def test_a_name_leads_to_what_has_that_name(name: str) -> None:
    assert getattr(machinery, name).__name__ == name


def test_no_name_stands_there_that_nobody_uses() -> None:
    assert {*machinery.__all__} == USED
