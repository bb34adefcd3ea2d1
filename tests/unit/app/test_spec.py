"""The form's checks are the engine's."""

from __future__ import annotations

from dataclasses import replace

import pytest

from quicksand_tui import losses
from quicksand_tui.snapshot import CheckpointSpec, NewSpec
from quicksand_tui.spec import (
    checkpoint_command,
    find_problems,
    find_tag_problem,
    run_command,
    suggest_name,
)
from tests.unit.app.fakes import AUTO, CLEAN, EMPTY, FULL, NOW, PAST, WEB, WEB_PAST

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


@pytest.mark.parametrize(
    ("tag", "note", "command"),
    [
        ("", "", "quicksand-tui checkpoint web"),
        ("clean", "", "quicksand-tui checkpoint web clean"),
        ("a b", "it's", "quicksand-tui checkpoint web -m 'it'\"'\"'s' 'a b'"),
        ("-f", "x", "quicksand-tui checkpoint web -m x -- -f"),
    ],
)
def test_the_command_of_a_checkpoint(tag: str, note: str, command: str) -> None:
    assert checkpoint_command("web", CheckpointSpec(tag=tag, note=note)) == command


@pytest.mark.parametrize(
    ("tag", "problem"),
    [
        ("", ""),
        ("new", ""),
        ("[red]x[/]", ""),
        ("clean", "there is a clean already"),
        ("a\u202eb", "cannot be printed"),
        ("x" * 129, "1 to 128 characters"),
    ],
)
def test_what_is_wrong_with_a_tag(tag: str, problem: str) -> None:
    found = find_tag_problem(tag, PAST)
    assert problem in found and bool(found) == bool(problem)


def test_a_question_names_what_is_lost_with_a_checkpoint() -> None:
    assert losses.of_checkpoint(WEB_PAST, CLEAN, NOW) == [
        "The way back to web as it was 2h ago is lost.",
        "Its note: before the upgrade",
        "Of its 48M, what no other needs is freed.",
        "The 2 checkpoints that follow it stay.",
    ]
    assert "undo goes back to" in " ".join(losses.of_checkpoint(WEB_PAST, AUTO, NOW))
    assert losses.of_delete(WEB_PAST, NOW)[-1] == "Its 5 checkpoints are lost."
