"""`make test` is the same twice: what property tests draw is no matter of chance."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st


def test_the_same_examples_are_drawn_in_each_run(request: pytest.FixtureRequest) -> None:
    drawn: list[int] = []

    @given(number=st.integers())
    def draw(number: int) -> None:
        drawn.append(number)

    draw()
    first = drawn.copy()
    drawn.clear()
    draw()
    fresh = request.config.getoption("--hypothesis-profile") == "fresh"
    assert (drawn == first) is not fresh
