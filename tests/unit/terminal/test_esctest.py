"""The tests of esctest2, where a copy of it is there. esctest.txt says how each ends, and why if it
fails."""

from __future__ import annotations

import pytest

from scripts import esctest

SUITE = esctest.find_suite(None)
EXPECTED = esctest.expected()


@pytest.mark.skipif(SUITE is None, reason=f"${esctest.VARIABLE} names no copy of esctest2")
def test_each_test_ends_as_expected() -> None:
    assert SUITE is not None
    ended = {one.name: one for one in esctest.run(SUITE)}
    known = {one.name: one.ending for one in EXPECTED}
    assert {name: one for name, one in ended.items() if one.ending != known.get(name)} == {}
    assert set(ended) == set(known)


def test_the_list_says_why() -> None:
    assert [one for one in EXPECTED if one.ending == "fail" and len(one.reason) < 10] == []
    assert {one.ending for one in EXPECTED} == {"pass", "fail", "skip"}
    assert sum(one.ending == "pass" for one in EXPECTED) >= 480
