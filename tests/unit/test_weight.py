"""What a person must hold in the head does not grow unnoticed."""

from __future__ import annotations

import ast

from scripts import weight


def test_no_figure_is_above_its_limit() -> None:
    """Whoever needs more writes the new limit, with the reason in the commit."""
    limits, found = weight.read_limits(), weight.figures()
    assert set(found) == set(limits)
    grown = {name: (count, limits[name]) for name, count in found.items() if count > limits[name]}
    assert not grown, "scripts/weight.py --write, if there is no way to say it with less"


def test_what_is_counted_is_found() -> None:
    tree = ast.parse(
        '"""What a module does."""\n'
        "class Host(Protocol):\n    name: str\n    def look(self) -> None: ...\n"
        "class Screen:\n    def __init__(self, look: Callable[[], None], *, n: str) -> None: ...\n"
    )
    assert weight._protocol_members(tree) == 2
    assert weight._callables_in_constructors(tree) == 1
    assert list(weight._docstrings(tree)) == ["What a module does."]
