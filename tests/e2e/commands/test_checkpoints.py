"""Checkpoints by commands, on a real VM and in a real terminal."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest

from tests.conftest import wait_for
from tests.e2e.commands.conftest import in_vm, invoke, pipe_of, start_quicksand, succeed
from tests.e2e.commands.test_shell_tmux import HERE, Person
from tests.e2e.tmux import Terminal

pytestmark = pytest.mark.vm


@pytest.fixture
def person() -> Iterator[Person]:
    """Somebody at a terminal of 100 x 30."""
    argv = ["bash", "--norc", "--noprofile", "-i"]
    with Terminal(argv, columns=100, rows=30, PS1=f"{HERE} ", TERM="xterm-256color") as terminal:
        terminal.sees(HERE)
        yield Person(terminal)


def test_there_and_back_and_there_again(vm: str) -> None:
    in_vm(vm, "echo one | tee /root/f /dev/shm/f")
    shown = succeed("checkpoint", vm, "the first", "-m", "a note").splitlines()
    assert shown[0].split() == ["TAG", "PAUSE", "WRITTEN", "TIER"]
    # How wide a column is goes by what stands in it, and the pause by the machine.
    assert re.fullmatch(r"the first  +[\d.]+ m?s  +[\d.]+ [KM]iB  +\w+", shown[1])
    in_vm(vm, "echo two | tee /root/f /dev/shm/f")
    # Between them it says why this one took long: the guest has booted in its QEMU.
    first, *_, second = succeed("revert", vm, "the first").splitlines()
    assert first.startswith(f"{vm} was reverted to 'the first', from ")
    assert second.startswith("what was until now is kept as 'before revert to the first ")
    assert f"`quicksand-tui undo {vm}`" in second
    assert in_vm(vm, "cat /root/f /dev/shm/f") == "one\none"
    assert "was reverted to 'before revert to the first" in succeed("undo", vm)
    assert in_vm(vm, "cat /root/f /dev/shm/f") == "two\ntwo"
    tree = succeed("tree", vm)
    assert "○   the first" in tree
    assert "a note" in tree
    assert re.search(r"● [ │]*before revert to the first", tree)


def test_json_tells_the_same(vm: str) -> None:
    made = json.loads(succeed("checkpoint", "--json", vm, "json"))
    assert (made["sandbox"], made["tag"], made["auto"]) == (vm, "json", False)
    assert made["pause_s"] > 0
    gone = json.loads(succeed("revert", "--json", vm, "json", "--discard"))
    assert (gone["at"]["id"], gone["kept"]) == (made["id"], None)
    kept = json.loads(succeed("revert", "--json", vm, "json"))["kept"]
    assert kept["auto"]
    found = json.loads(succeed("tree", "--json", vm))
    assert found["head"] == made["id"]
    assert kept["id"] in [one["id"] for one in found["checkpoints"]]


def test_what_is_discarded_is_told(vm: str) -> None:
    succeed("checkpoint", vm, "kept")
    assert "what was until now is not kept" in succeed("revert", vm, "kept", "--discard")


def test_a_taken_tag_is_replaced_only_when_asked(vm: str) -> None:
    before = json.loads(succeed("checkpoint", "--json", vm, "taken"))
    refused = invoke("checkpoint", vm, "taken")
    assert refused.returncode == 2
    assert b"there is a checkpoint 'taken' already" in refused.stderr
    after = json.loads(succeed("checkpoint", "--json", "--replace", vm, "taken"))
    ids = [c["id"] for c in json.loads(succeed("tree", "--json", vm))["checkpoints"]]
    assert after["id"] in ids
    assert before["id"] not in ids
    assert succeed("checkpoint", "rm", vm, "taken") == "taken\n"
    missing = invoke("revert", vm, "taken")
    assert missing.returncode == 1
    assert b"there is no checkpoint 'taken'" in missing.stderr


def test_a_command_that_a_revert_takes_away_fails_and_says_why(vm: str) -> None:
    succeed("checkpoint", vm, "quiet")
    with start_quicksand("exec", vm, "--", "sh", "-c", "echo up; sleep 600") as process:
        assert pipe_of(process.stdout).readline() == b"up\n"
        succeed("revert", vm, "quiet")
        said = pipe_of(process.stderr).read()
    assert process.returncode == 125
    assert said == (
        b"quicksand-tui: the sandbox was reverted to 'quiet'\n"
        b"hint: what ran there since then is undone\n"
    )


def test_a_shell_goes_on_in_the_same_terminal_or_in_a_new_one(vm: str, person: Person) -> None:
    succeed("checkpoint", vm, "no shell")
    person.open_shell(vm)
    person.enter("word=remem; word=${word}bered")
    person.enter("echo $word")
    person.terminal.sees("\nremembered")
    succeed("checkpoint", vm, "with shell")
    person.enter("word=lost")
    wait_for(lambda: "word=lost" in person.terminal.text, what="the typed line")
    succeed("revert", vm, "with shell")
    person.terminal.sees("the sandbox was reverted to 'with shell'")
    person.enter("clear; echo now $word")
    person.terminal.sees("now remembered")
    succeed("revert", vm, "no shell")
    person.terminal.sees("reverted to 'no shell'", "here is a new one")
    person.terminal.until(lambda text: text.rstrip().endswith("#"), what="the guest's prompt")
    person.enter("clear; echo now [$word]; tty")
    person.terminal.sees("now []", "/dev/pts/")
    person.enter("exit 4")
    person.terminal.sees(HERE)
    person.is_back(4)


def test_a_stopped_one_shows_its_tree_and_starts_at_a_checkpoint(vm: str) -> None:
    in_vm(vm, "echo then | tee /root/f /dev/shm/f")
    succeed("checkpoint", vm, "then")
    in_vm(vm, "echo later | tee /root/f /dev/shm/f")
    succeed("stop", vm)
    try:
        assert "then" in succeed("tree", vm)
        refused = invoke("revert", vm, "then")
        assert (refused.returncode, b"--at TAG" in refused.stderr) == (1, True)
        missing = invoke("start", vm, "--at", "them")
        assert missing.returncode == 1
        assert b"did you mean 'then'?" in missing.stderr
    finally:
        assert succeed("start", vm, "--at", "then") == f"{vm}\n"
    assert in_vm(vm, "cat /root/f /dev/shm/f") == "then\nthen"


def test_the_demo_proves_it_all() -> None:
    report = json.loads(succeed("demo", "--json"))
    assert report["ok"]
    names = [step["name"] for step in report["steps"]]
    start = names.index("checkpoint")
    assert report["boot_mode"] in ("template", "cold boot")
    assert names[start : start + 11] == [
        "checkpoint",
        "damage",
        "revert",
        "all is as it was",
        "undo the revert",
        "the damage has returned",
        "clone",
        "its memory and disk are the same",
        "its names are its own",
        "they part",
        "remove the clone",
    ]
    assert all(step["ok"] and step["seconds"] > 0 for step in report["steps"])
