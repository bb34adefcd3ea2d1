"""Clones and templates by commands, on real VMs."""

from __future__ import annotations

import json
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from quicksand.base.paths import Paths

from tests.conftest import PREFIX, our_processes, share_findings, wait_for
from tests.e2e.commands.conftest import IMAGE, in_vm, invoke, start_quicksand, succeed

pytestmark = pytest.mark.vm

NAMES = "hostname; cat /etc/machine-id /sys/class/net/eth0/address"
WRITE = "| tee /root/f > /dev/shm/f"
READ = "cat /root/f /dev/shm/f"
COUNTER = "n=0; while read _ < /dev/shm/ask; do n=$((n+1)); echo $n > /dev/shm/answer; done"
ASK = "echo > /dev/shm/ask; cat /dev/shm/answer"


@pytest.fixture
def removed() -> Iterator[list[str]]:
    """Names of sandboxes that are removed after the test."""
    names: list[str] = []
    yield names
    invoke("rm", "-f", *names)


def sandboxes() -> set[str]:
    return set(invoke("ps", "-aq").stdout.decode().split())


def directories(places: Paths) -> set[str]:
    return {path.name for path in places.sandboxes.iterdir() if not path.name.startswith(".")}


def test_clones_are_equal_but_for_their_names_and_go_their_own_ways(
    vm: str, removed: list[str]
) -> None:
    in_vm(vm, f"mkfifo /dev/shm/ask /dev/shm/answer; echo both {WRITE}")
    in_vm(vm, f"({COUNTER}) > /dev/null 2>&1 & {ASK}")
    made = succeed("clone", vm, "-n", "2").split()
    removed += made
    assert made == [f"{vm}-1", f"{vm}-2"]
    assert [in_vm(name, READ) for name in made] == ["both\nboth"] * 2
    known = [in_vm(name, NAMES).split() for name in (vm, *made)]
    assert [one[0] for one in known] == [vm, *made]
    assert len({word for one in known for word in one}) == 9
    in_vm(made[0], f"echo mine {WRITE}")
    assert [in_vm(name, READ) for name in (vm, made[1])] == ["both\nboth"] * 2
    # The process that counts goes on in each of them, by itself.
    assert [in_vm(made[0], ASK), in_vm(made[0], ASK), in_vm(vm, ASK)] == ["2", "3", "2"]
    (more,) = json.loads(succeed("clone", made[0], "--name", "more", "--json"))
    removed.append("more")
    assert (more["name"], more["boot_mode"]) == ("more", "checkpoint")
    assert in_vm("more", READ) == "mine\nmine"


def test_a_clone_of_a_checkpoint_or_of_a_stopped_one(vm: str, removed: list[str]) -> None:
    removed += ["then", "still", "still-1"]
    in_vm(vm, f"echo then {WRITE}")
    succeed("checkpoint", vm, "then")
    in_vm(vm, f"echo later {WRITE}")
    assert succeed("clone", vm, "--at", "then", "--name", "then") == "then\n"
    assert in_vm("then", READ) == "then\nthen"
    assert in_vm(vm, READ) == "later\nlater"
    succeed("clone", vm, "--name", "still")
    succeed("stop", "still")
    (clone,) = json.loads(succeed("clone", "still", "--json"))
    assert (clone["name"], clone["boot_mode"]) == ("still-1", "cold boot")
    assert in_vm("still-1", "cat /root/f; ls /dev/shm") == "later"
    ids = {in_vm(name, "cat /etc/machine-id") for name in (vm, "then", "still-1")}
    assert len(ids) == 3


def test_an_unnamed_one_has_clones_without_names() -> None:
    found = json.loads(succeed("run", IMAGE, "-d", "--json", "-p", "0:80"))
    (clone,) = json.loads(succeed("clone", found["name"], "--json"))
    assert clone["name"] == clone["id"] != found["name"]
    (port,) = clone["ports"]
    assert port["guest"] == 80
    assert port["host"] != found["ports"][0]["host"]
    succeed("kill", found["name"], clone["name"])
    assert not {found["name"], clone["name"]} & sandboxes()


def test_a_clone_that_fails_leaves_none_of_the_others(vm: str, places: Paths) -> None:
    before = directories(places)

    def keepers_of_others() -> list[str]:
        """Each sandbox has one, and it ends last."""
        lines = [line for line in our_processes(str(places.sandboxes)) if "keeper.py" in line]
        return [line for line in lines if not any(id_ in line for id_ in before)]

    refused = invoke("clone", vm, "--name", vm)
    assert (refused.returncode, refused.stdout) == (1, b"")
    assert vm.encode() in refused.stderr
    assert invoke("clone", vm, "--at", "never", "-n", "2").returncode == 1
    with start_quicksand("clone", vm, "-n", "6", "--concurrency", "2") as process:
        # All have their files then, some run already.
        wait_for(keepers_of_others, what="the first clone's processes")
        for _ in range(3):
            process.send_signal(signal.SIGINT)
        out, _ = process.communicate()
    assert (process.returncode, out) == (130, b"")
    wait_for(lambda: not keepers_of_others(), what="the clones' processes to be gone")
    assert directories(places) == before
    in_vm(vm, "true")


def test_a_checkpoint_of_another_sandbox_is_gone_back_to(vm: str, removed: list[str]) -> None:
    removed.append("other")
    in_vm(vm, f"echo theirs {WRITE}")
    succeed("checkpoint", vm, "shared tag")
    succeed("run", IMAGE, "-d", "--name", "other")
    mine = in_vm("other", NAMES)
    in_vm("other", f"echo mine {WRITE}")
    assert f"was reverted to '{vm}:shared tag'" in succeed("revert", "other", f"{vm}:shared tag")
    assert in_vm("other", READ) == "theirs\ntheirs"
    assert in_vm("other", NAMES) == mine
    assert f"{vm}:shared tag" in succeed("tree", "other")
    succeed("undo", "other")
    assert in_vm("other", READ) == "mine\nmine"
    in_vm(vm, "true")
    missing = invoke("revert", "other", f"{vm}:no such tag")
    assert missing.returncode == 1
    assert b"there is no checkpoint 'no such tag'" in missing.stderr
    assert invoke("revert", "other", "nobody:x").returncode == 1


@pytest.fixture
def own_cache(prepared: Paths, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A cache without templates; what is known of this host's accelerators is the user's."""
    cache = Path(tempfile.mkdtemp(prefix=PREFIX))
    share_findings(prepared, cache)
    monkeypatch.setenv("QUICKSAND_CACHE_DIR", str(cache))
    yield cache
    shutil.rmtree(cache)


def test_a_warmed_image_is_started_from_its_template(own_cache: Path) -> None:
    # Other memory than other tests have, so that it is another machine.
    machine = ("--memory", "384M")
    made = json.loads(succeed("images", "warm", IMAGE, "--json", *machine))
    assert made["made"]
    assert Path(made["path"]).is_relative_to(own_cache)
    assert 1 << 20 < made["size"] < 512 << 20
    assert "there already" in succeed("images", "warm", IMAGE, *machine)
    told = json.loads(succeed("images", "inspect", IMAGE, "--json"))["templates"]
    assert [(one["path"], one["memory"]) for one in told] == [(made["path"], "384M")]
    started = json.loads(succeed("run", IMAGE, *machine, "-d", "--rm", "--json"))
    assert started["boot_mode"] == "template"
    succeed("kill", started["name"])
    leftovers = [path.name for path in (own_cache / "templates").iterdir()]
    assert sorted(leftovers) == sorted([Path(made["path"]).name, f"{Path(made['path']).name}.lock"])
