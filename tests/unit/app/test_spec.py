"""The form's checks are the engine's."""

from __future__ import annotations

import asyncio
import shlex
import socket
from dataclasses import replace
from typing import Any

import pytest
from quicksand.records.config import SandboxConfig

from quicksand_tui.forms.form_fields import (
    find_problems,
    find_tag_problem,
    look_at_ports,
    suggest_name,
)
from quicksand_tui.model.shown_sandboxes import CheckpointTree
from quicksand_tui.model.specs import NewSpec
from quicksand_tui.verbs import checkpoints
from quicksand_tui.verbs.launching import machine_keywords, run_command
from quicksand_tui.views import losses
from tests.each import each
from tests.unit.app.fake_saves import SAVES
from tests.unit.app.fakes import (
    AUTO,
    CLEAN,
    DB_PAST,
    EMPTY,
    FULL,
    KEYMAP,
    NOW,
    PAST,
    WEB,
    WEB_PAST,
    kept,
)

GOOD = NewSpec(image="debian", name="debian-1")


def machine(spec: NewSpec, **texts: str) -> NewSpec:
    return replace(spec, machine=texts)


def test_names_are_suggested_by_the_image_and_free() -> None:
    assert suggest_name("debian", EMPTY) == "debian-1"
    taken = replace(FULL, sandboxes=(replace(WEB, name="debian-1"), replace(WEB, name="debian-2")))
    assert suggest_name("debian", taken) == "debian-3"
    assert suggest_name("/some where/it's.qcow2", EMPTY) == "it-s.qcow2-1"
    assert suggest_name("///", EMPTY) == "sandbox-1"


def test_a_good_spec_has_no_problems() -> None:
    assert find_problems(GOOD, FULL) == {}


@each(
    ("field", "value", "says"),
    [
        ("port_forwards", "80,x:1", "'x:1' is not HOST:GUEST"),
        ("port_forwards", "99999:80", "0 to 65535"),
        ("port_forwards", "8081:80 8081:81", "forwarded twice"),
        ("port_forwards", "8080:80", "leads to web already"),
        ("port_forwards", "8081:80/sctp", "is not HOST:GUEST"),
        ("port_forwards", "8081:80/udp 8081:81/udp", "forwarded twice"),
        ("name", "web", "taken"),
        ("name", "-x", "1 to 63"),
        ("name", "", "1 to 63"),
        ("memory", "banana", "512M"),
        ("memory", "1", "64M is the least"),
        ("memory", "900G", "has 6.0G free"),
        ("cpus", "x", "whole number"),
        ("cpus", "0", "1 to 255"),
        ("cpus", "-1", "1 to 255"),
        ("cpus", "²", "whole number"),
        ("disk_size", "9T", "4T is the most"),
        ("boot_timeout", "soon", "number of seconds"),
        ("boot_timeout", "0", "above 0 seconds"),
        ("extra_qemu_args", "-name 'x", "quotes do not match"),
    ],
)
def test_problems_name_the_field_and_the_remedy(field: str, value: str, says: str) -> None:
    spec = replace(GOOD, name=value) if field == "name" else machine(GOOD, **{field: value})
    problems = find_problems(spec, FULL)
    assert set(problems) == {field}
    assert says in problems[field]


def test_ports_need_no_network() -> None:
    assert not find_problems(machine(GOOD, port_forwards="80", network_mode="none"), FULL)
    assert not find_problems(machine(GOOD, port_forwards="8080:80/udp"), FULL)


@each(
    ("image", "save", "says"),
    [
        ("", "", "choose an image"),
        ("old", "", "damaged"),
        ("dev", "", "a save has the name dev, too"),
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
    usual = machine(GOOD, memory="512M", cpus="1", network_mode="mounts_only", agent_http="no")
    assert run_command(usual) == run_command(GOOD)
    texts = {"memory": "1G", "cpus": "2", "network_mode": "full"}
    spec = NewSpec(image="/a b", name="x", machine=texts)
    assert (
        run_command(spec)
        == "quicksand-tui run '/a b' --name x --memory 1G --cpus 2 --network full --detach"
    )


SPECS = {
    "usual": GOOD,
    "all": machine(
        replace(GOOD, name="a.b"),
        memory="1.5G",
        cpus="4",
        network_mode="full",
        arch="arm64",
        accel="tcg",
        disk_size="20G",
        boot_timeout="2.5",
        port_forwards="8081:80, 22 0:23",
        agent_http="yes",
        extra_qemu_args="-device 'virtio-rng-pci,id=a b' --no-reboot",
    ),
    "usual values of a save": machine(
        replace(GOOD, save="/saves/dev", image="dev"),
        memory="512M",
        cpus="1",
        network_mode="mounts_only",
        accel="auto",
        agent_http="no",
    ),
    "as saved": replace(GOOD, save="/s", image="dev"),
    "none": machine(GOOD, network_mode="none"),
    "hostile": replace(GOOD, save="/s", image="$(id) '`x` \"", name="x"),
    "a dash": machine(replace(GOOD, save="/s", image="--rm"), cpus="3"),
}


@each("case", SPECS, ids=str)
def test_the_command_that_is_shown_starts_the_same_machine(
    case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is read by a shell's rules and by the real command."""
    from quicksand_tui.cli import runner
    from quicksand_tui.cli.guests import run

    spec, plans = SPECS[case], []

    async def take(plan: Any, _: object) -> int:
        plans.append(plan)
        return 0

    monkeypatch.setattr(run, "_run", take)
    monkeypatch.setattr(runner, "run_in_sandbox", lambda main: asyncio.run(main(None)))
    program, verb, *words = shlex.split(run_command(spec))
    assert (program, verb) == ("quicksand-tui", "run")
    run.run_command.main(words, standalone_mode=False)
    (plan,) = plans
    start = plan.start
    assert (start["image"], start["name"], plan.detach) == (spec.image, spec.name, True)
    assert plan.wish.argv == () and start["ephemeral"] is None and not plan.fleet
    base = (
        {"image": "x"}
        if not spec.save
        else {
            "image": "x",
            "memory": "3G",
            "cpus": 7,
            "network_mode": "full",
            "port_forwards": [{"host": 1, "guest": 2}],
            "accel": "tcg",
            "agent_http": True,
        }
    )
    ours = SandboxConfig.parse({**base, **machine_keywords(spec)})
    others = {"image", "name", "trust", "warm", "ephemeral", "build"}
    options = {key: value for key, value in start.items() if key not in others}
    assert SandboxConfig.parse({**base, **options}) == ours


def test_a_port_that_another_program_has_is_seen_on_this_host() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert f"another program has port {port}" in look_at_ports(f"0:22, {port}:80")
    assert look_at_ports(f"{port}:80") == ""
    assert look_at_ports("nonsense") == ""


@each(
    ("tag", "note", "command"),
    [
        ("", "", "quicksand-tui checkpoint web"),
        ("clean", "", "quicksand-tui checkpoint web clean"),
        ("a b", "it's", "quicksand-tui checkpoint web -m 'it'\"'\"'s' 'a b'"),
        ("-f", "x", "quicksand-tui checkpoint web -m x -- -f"),
    ],
)
def test_the_command_of_a_checkpoint(tag: str, note: str, command: str) -> None:
    verb = checkpoints.take(tag=tag, note=note)
    assert verb.command_for("web") == command


@each(
    ("tag", "problem"),
    [
        ("", ""),
        ("new", ""),
        ("[red]x[/]", ""),
        ("clean", "the tag clean is taken"),
        ("a\u202eb", "cannot be printed"),
        ("x" * 129, "1 to 128 characters"),
    ],
)
def test_what_is_wrong_with_a_tag(tag: str, problem: str) -> None:
    found = find_tag_problem(tag, PAST)
    assert problem in found and bool(found) == bool(problem)


def test_all_that_descend_are_counted_once_whatever_the_files_say() -> None:
    line = tuple(kept(f"c{n}", f"t{n}", f"c{n - 1}" if n else "c4") for n in range(5))
    tree = CheckpointTree(checkpoints=(*line, kept("d", "d", "c1")), head="c4")
    assert [tree.descendants(id_) for id_ in ("c0", "d", "gone")] == [5, 0, 0]


def test_a_question_names_what_is_lost_with_a_checkpoint() -> None:
    assert losses.of_checkpoint(WEB_PAST, CLEAN, NOW) == [
        "web can no longer be reverted to what it was 2h ago.",
        "Its note: before the upgrade",
        "Of its 48M, what no other needs is freed.",
        "The 3 checkpoints that follow it stay.",
    ]
    measured = replace(CLEAN, size=1 << 20, shared=5 << 20, is_measured=True)
    told = losses.of_checkpoint(WEB_PAST, measured, NOW)
    assert "Deleting it frees 1.0M; what others share stays." in told
    assert "undo reverts to" in " ".join(losses.of_checkpoint(WEB_PAST, AUTO, NOW))
    assert losses.of_delete(WEB_PAST, NOW) == [
        "It is stopped at once, and its last state is kept.",
        "It goes to the trash for a week: 42M of disk, 5 checkpoints, made 3h ago.",
    ]
    discarded = replace(DB_PAST, discard=True)
    assert losses.of_delete(discarded, NOW) == [
        "It was started to be discarded when it stops.",
        "It is deleted for good: 420M of disk, 2 checkpoints, made 3d ago.",
    ]
    assert losses.way_back([discarded], KEYMAP) == "This cannot be undone."


def test_limits_are_the_engine_s() -> None:
    from quicksand.records.nodes import TAG_MAX

    from quicksand_tui.model.shown_sandboxes import TAG_LIMIT

    assert TAG_LIMIT == TAG_MAX
