"""How long the rest of a build takes."""

from __future__ import annotations

import pytest

from quicksand_tui.model.pace import Pace


def test_nothing_is_told_until_something_can_be() -> None:
    pace = Pace(100.0)
    assert pace.take(0.05, 120.0) == 0.0, "a tenth has to be done"
    assert Pace(100.0).take(0.5, 101.0) == 0.0, "and a second says little"


def test_an_even_pace_tells_the_end() -> None:
    pace = Pace(100.0)
    ends = [pace.take(share / 10, 100.0 + share * 6) for share in range(1, 10)]
    assert ends[1:] == pytest.approx([160.0] * 8)


def test_a_stage_that_goes_on_counts_down() -> None:
    pace = Pace(0.0)
    ends = pace.take(0.5, 30.0)
    assert pace.take(0.5, 50.0) == ends == 60.0, "nothing new is known, and 10 s are left"


def test_a_slow_beginning_is_forgotten() -> None:
    """The packages come over a slow line: a fifth takes three minutes, all else one."""
    pace = Pace(0.0)
    pace.take(0.2, 180.0)
    told = [pace.take(0.2 + 0.8 * part / 60, 180.0 + part) for part in range(1, 60)]
    assert told[0] > 400.0
    assert told[-1] == pytest.approx(240.0, abs=5)


def test_a_step_forth_in_packages_that_are_there_already_does_not_count_as_speed_for_long() -> None:
    pace = Pace(0.0)
    pace.take(0.3, 0.5)
    told = [pace.take(0.3 + 0.7 * part / 70, 0.5 + part) for part in range(1, 70)]
    assert told[-1] == pytest.approx(70.5, abs=1)
