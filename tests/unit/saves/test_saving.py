"""What saving takes from a guest."""

from __future__ import annotations

from typing import Any

from quicksand.saves.saving import PATH_MAX, VOLATILE_MAX, _volatile_paths

from tests.each import each


@each(
    ("reply", "paths"),
    [
        ({"paths": [{"path": "/tmp/a", "bytes": 1}, {"path_b64": "L3g="}]}, ("/tmp/a", "L3g=")),
        ({}, ()),
        ({"paths": None}, ()),
        ({"paths": "/tmp"}, ()),
        ({"paths": {"path": "/tmp"}}, ()),
        ({"paths": [1, None, [], {"path": 7}, {}, {"path": "/x"}]}, ("/x",)),
    ],
)
def test_a_guest_may_say_anything_of_its_memory(
    reply: dict[str, Any], paths: tuple[str, ...]
) -> None:
    assert _volatile_paths(reply) == paths


def test_what_it_says_is_bounded() -> None:
    found = _volatile_paths({"paths": [{"path": "/" + "x" * 10**6}] * 10**4})
    assert len(found) == VOLATILE_MAX
    assert {len(path) for path in found} == {PATH_MAX}
