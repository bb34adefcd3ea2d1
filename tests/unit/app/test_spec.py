"""The form's checks are the engine's."""

from __future__ import annotations

from dataclasses import replace

import pytest

from quicksand_tui.snapshot import NewSpec
from quicksand_tui.spec import find_problems, run_command, suggest_name
from tests.unit.app.fakes import EMPTY, FULL, WEB

GOOD = NewSpec(image="debian", name="debian-1")


def test_names_are_suggested_by_the_image_and_free() -> None:
    assert suggest_name("debian", EMPTY) == "debian-1"
    taken = replace(FULL, sandboxes=(replace(WEB, name="debian-1"), replace(WEB, name="debian-2")))
    assert suggest_name("debian", taken) == "debian-3"
    assert suggest_name("/some where/it's.qcow2", EMPTY) == "it-s.qcow2-1"
    assert suggest_name("///", EMPTY) == "sandbox-1"


def test_a_good_spec_has_no_problems() -> None:
    assert find_problems(GOOD, FULL) == {}


@pytest.mark.parametrize(
    ("field", "value", "says"),
    [
        ("image", "", "quicksand-tui setup"),
        ("image", "old", "damaged"),
        ("name", "web", "taken"),
        ("name", "-x", "1 to 63"),
        ("name", "", "1 to 63"),
        ("memory", "banana", "512M"),
        ("memory", "1", "64M is the least"),
        ("memory", "900G", "has 6.0G free"),
        ("cpus", "x", "whole number"),
        ("cpus", "0", "1 to 255"),
        ("cpus", "-1", "whole number"),
        ("cpus", "²", "whole number"),
    ],
)
def test_problems_name_the_field_and_the_remedy(field: str, value: str, says: str) -> None:
    problems = find_problems(replace(GOOD, **{field: value}), FULL)
    assert set(problems) == {field}
    assert says in problems[field]


def test_the_command_leaves_defaults_out_and_quotes() -> None:
    assert run_command(GOOD) == "quicksand-tui run debian --name debian-1 --detach"
    spec = NewSpec(image="/a b", name="x", memory="1G", cpus="2", network="full")
    assert (
        run_command(spec)
        == "quicksand-tui run '/a b' --name x --memory 1G --cpus 2 --network full --detach"
    )
