"""The form's checks are the engine's."""

from __future__ import annotations

import asyncio
import shlex
import socket
from dataclasses import replace
from typing import Any

import pytest
from quicksand.config import SandboxConfig

from quicksand_tui import losses
from quicksand_tui.past import PastView
from quicksand_tui.spec import (
    checkpoint_command,
    find_problems,
    find_tag_problem,
    look_at_ports,
    machine_options,
    run_command,
    suggest_name,
)
from quicksand_tui.specs import CheckpointSpec, NewSpec
from tests.unit.app.fake_saves import SAVES
from tests.unit.app.fakes import AUTO, CLEAN, EMPTY, FULL, NOW, PAST, WEB, WEB_PAST, kept

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
        ("ports", "80,x:1", "x:1 is not HOST:GUEST"),
        ("ports", "99999:80", "0 to 65535"),
        ("ports", "8081:80 8081:81", "forwarded twice"),
        ("ports", "8080:80", "leads to web already"),
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


def test_ports_need_a_network() -> None:
    assert find_problems(replace(GOOD, ports="80", network="none"), FULL).keys() == {"ports"}


@pytest.mark.parametrize(
    ("image", "save", "says"),
    [
        ("", "", "choose what"),
        ("old", "", "damaged"),
        ("dev", "", "the save dev would be taken"),
        ("lost", "/saves/lost", "is not here"),
        ("none", "/saves/none", "this save is gone"),
    ],
)
def test_what_is_wrong_with_what_it_begins_with(image: str, save: str, says: str) -> None:
    spec = replace(GOOD, image=image, save=save)
    problems = find_problems(spec, replace(FULL, saves=SAVES))
    assert problems.keys() == {"begin"} and says in problems["begin"]
    without = find_problems(replace(GOOD, image=""), replace(FULL, images=()))
    assert "quicksand-tui setup" in without["begin"]


def test_the_command_leaves_defaults_out_and_quotes() -> None:
    assert run_command(GOOD) == "quicksand-tui run debian --name debian-1 --detach"
    spec = NewSpec(image="/a b", name="x", memory="1G", cpus="2", network="full")
    assert (
        run_command(spec)
        == "quicksand-tui run '/a b' --name x --memory 1G --cpus 2 --network full --detach"
    )


SPECS = {
    "usual": GOOD,
    "all": replace(
        GOOD, memory="1.5G", cpus="4", network="full", ports="8081:80, 22 0:23", name="a.b"
    ),
    "usual values of a save": replace(GOOD, save="/saves/dev", image="dev"),
    "as saved": replace(GOOD, save="/s", image="dev", memory="", cpus="", network=""),
    "none": replace(GOOD, network="none"),
    "hostile": replace(GOOD, save="/s", image="$(id) '`x` \"", name="x"),
    "a dash": replace(GOOD, save="/s", image="--rm", cpus="3"),
}


@pytest.mark.parametrize("case", SPECS, ids=str)
def test_the_command_that_is_shown_starts_the_same_machine(
    case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is read by a shell's rules and by the real command."""
    from quicksand_tui.cli import run, runner

    spec, plans = SPECS[case], []

    async def take(plan: Any, _: object) -> int:
        plans.append(plan)
        return 0

    monkeypatch.setattr(run, "_run", take)
    monkeypatch.setattr(runner, "run_in_sandbox", lambda main: asyncio.run(main(None)))
    program, verb, *words = shlex.split(run_command(spec))
    assert (program, verb) == ("quicksand-tui", "run")
    run.command.main(words, standalone_mode=False)
    (plan,) = plans
    assert (plan.image, plan.name, plan.detach) == (spec.image, spec.name, True)
    assert plan.wish.argv == () and plan.ephemeral is None
    base = (
        {"image": "x"}
        if not spec.save
        else {
            "image": "x",
            "memory": "3G",
            "cpus": 7,
            "network_mode": "full",
            "port_forwards": [{"host": 1, "guest": 2}],
        }
    )
    ours = SandboxConfig.parse({**base, **machine_options(spec)})
    assert SandboxConfig.parse({**base, **plan.options}) == ours


def test_a_port_that_another_program_has_is_seen_on_this_host() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert f"another program has port {port}" in look_at_ports(f"0:22, {port}:80")
    assert look_at_ports(f"{port}:80") == ""
    assert look_at_ports("nonsense") == ""


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


def test_all_that_descend_are_counted_once_whatever_the_files_say() -> None:
    line = tuple(kept(f"c{n}", f"t{n}", f"c{n - 1}" if n else "c4") for n in range(5))
    past = PastView(checkpoints=(*line, kept("d", "d", "c1")), head="c4")
    assert [past.descendants(id_) for id_ in ("c0", "d", "gone")] == [5, 0, 0]


def test_a_question_names_what_is_lost_with_a_checkpoint() -> None:
    assert losses.of_checkpoint(WEB_PAST, CLEAN, NOW) == [
        "The way back to web as it was 2h ago is lost.",
        "Its note: before the upgrade",
        "Of its 48M, what no other needs is freed.",
        "The 3 checkpoints that follow it stay.",
    ]
    assert "undo goes back to" in " ".join(losses.of_checkpoint(WEB_PAST, AUTO, NOW))
    assert losses.of_delete(WEB_PAST, NOW)[-1] == "Its 5 checkpoints are lost."
