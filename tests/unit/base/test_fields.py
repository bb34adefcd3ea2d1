"""A field has the type that it must have, or the error names it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from quicksand.base.fields import WHOLE_MAX, Fields

from tests.each import each

VALUES: dict[str, Any] = {
    "text": "x", "flag": True, "whole": 5, "real": 0.5, "texts": ["a"], "items": [1, {}],
    "fields": {"a": 1},
}  # fmt: skip
"""A right value for each method."""

WRONG: dict[str, list[Any]] = {
    "text": [None, 5, ["x"], {}],
    "flag": ["false", "", 0, 1, None, []],
    "whole": ["5", 5.0, 7.9, True, None, WHOLE_MAX, -WHOLE_MAX, 10**400, float("nan")],
    "real": ["5", True, None, float("nan"), float("inf"), 10**400, [1.0]],
    "texts": ["abc", [1], ["a", None], {"a": 1}, None],
    "items": ["abc", {"a": 1}, None, 5],
    "fields": [[], "x", None, [["a", 1]]],
}


@each("kind", VALUES)
def test_a_right_value_is_taken_as_it_is(kind: str) -> None:
    value = VALUES[kind]
    found = getattr(Fields({"x": value, "more": 1}, "bad record"), kind)("x")
    assert found == (tuple(value) if kind == "texts" else value)


@each(("kind", "value"), [(kind, value) for kind, values in WRONG.items() for value in values])
def test_a_wrong_one_is_refused_by_name(kind: str, value: Any) -> None:
    with pytest.raises(ValueError, match=r"^bad record: size is .*, no") as caught:
        getattr(Fields({"size": value}, "bad record"), kind)("size")
    assert len(str(caught.value)) < 200


@each("kind", VALUES)
def test_a_missing_one_is_named(kind: str) -> None:
    with pytest.raises(ValueError, match=r"^bad record: size is missing$"):
        getattr(Fields({}, "bad record"), kind)("size")


def test_what_older_versions_lack_may_have_a_default() -> None:
    found = Fields({}, "bad record")
    assert found.flag("a", default=True)
    assert found.text("a", default="") == ""
    assert found.whole("a", default=0) == 0
    assert found.any("a", default=None) is None


def test_null_is_nothing_only_where_it_may_be() -> None:
    found = Fields({"port": None, "pid": 5}, "bad record")
    assert found.maybe("port", found.whole) is None
    assert found.maybe("pid", found.whole) == 5
    with pytest.raises(ValueError, match="port is None"):
        found.whole("port")


@each("number", [0, -5, 10**19, 1e300])
def test_a_real_number_may_be_a_whole_one_and_large(number: float) -> None:
    found = Fields({"created": number}, "bad record").real("created")
    assert (found, type(found)) == (float(number), float)


@each("value", [None, [], "x", 5])
def test_what_is_no_object_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match="bad record: it is no JSON object"):
        Fields(value, "bad record")


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
                    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)))  # fmt: skip
def test_any_value_is_taken_or_refused(value: Any) -> None:
    value = json.loads(json.dumps(value))
    for kind in VALUES:
        try:
            getattr(Fields({"x": value}, "bad record"), kind)("x")
        except ValueError as error:
            assert str(error).startswith("bad record: x is ")
