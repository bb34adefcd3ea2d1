"""One count for work of many stages."""

from __future__ import annotations

from itertools import pairwise

from quicksand.base.progress import WHOLE, Course

TOLD = list[tuple[str, float]]


def course_of(told: TOLD) -> Course:
    def hear(stage: str, done: int, total: int) -> None:
        assert total == WHOLE
        told.append((stage, round(done / WHOLE, 3)))

    return Course(hear)


def test_stages_count_by_the_time_that_they_take() -> None:
    told: TOLD = []
    tell = course_of(told).part([("fetching", 1), ("installing", 3)])
    tell("fetching", 0, 0)
    tell("fetching", 5, 10)
    tell("installing packages", 0, 0)
    tell("installing packages", 30, 60)
    assert [share for _, share in told] == [0, 0.125, 0.25, 0.625]


def test_what_is_done_before_takes_no_more_than_its_part_and_the_rest_goes_on_from_there() -> None:
    told: TOLD = []
    course = course_of(told)
    course.part([("getting", 1)], until=0.2)("getting", 1, 1)
    build = course.part()
    build("installing", WHOLE // 2, WHOLE)
    build("ready", WHOLE, WHOLE)
    assert [share for _, share in told] == [0.2, 0.6, 1.0]
    fresh: TOLD = []
    course_of(fresh).part()("installing", WHOLE // 2, WHOLE)
    assert fresh == [("installing", 0.5)], "with nothing to get before, the build is the whole"


def test_the_count_never_goes_back() -> None:
    """Packages of tools are downloaded, too, and some are unpacked when others are installed."""
    told: TOLD = []
    course = course_of(told)
    early, late = course.part([("a", 1), ("b", 1)], until=0.3), course.part([("a", 1), ("b", 1)])
    for tell in (early, late, early, late):
        for stage, done, total in (("b", 3, 4), ("a", 0, 9), ("waiting", 0, 0), ("b", 9, 4)):
            tell(stage, done, total)
    assert all(one[1] <= other[1] for one, other in pairwise(told))
    assert told[-1] == ("b", 1.0)


def test_an_unknown_stage_is_told_and_counts_nothing() -> None:
    told: TOLD = []
    course = course_of(told)
    course.part([("a", 1)])("waiting for another build", 7, 9)
    assert told == [("waiting for another build", 0)]
    assert not course.has_begun


def test_without_anybody_who_listens_it_counts_all_the_same() -> None:
    course = Course(None)
    course.part([("a", 1)])("a", 1, 2)
    assert course.has_begun
