"""Removing a sandbox that runs, and bringing it back with what ran in it, on a real VM."""

from __future__ import annotations

import asyncio
import json

import pytest
from quicksand import Sandbox

from tests.e2e.commands.conftest import in_vm, succeed

pytestmark = pytest.mark.vm


def test_a_running_one_that_was_removed_goes_on_where_it_was(vm: str) -> None:
    in_vm(vm, "echo kept >/dev/shm/f; setsid sleep 12345 </dev/null >/dev/null 2>&1 &")
    pid = in_vm(vm, "pidof sleep")
    succeed("checkpoint", vm, "mine")
    assert succeed("rm", "-f", vm) == f"{vm}\n"
    assert json.loads(succeed("ps", "-a", "--json")) == []
    (found,) = json.loads(succeed("trash", "--json"))["removed"]
    assert (found["kind"], found["name"]) == ("sandbox", vm)
    assert found["instant"]
    assert succeed("restore", "--start", vm) == f"{vm}\n"
    assert in_vm(vm, "cat /dev/shm/f; pidof sleep") == f"kept\n{pid}"
    tree = succeed("tree", vm)
    assert "mine" in tree
    assert "before removal" in tree


def test_a_paused_one_too(vm: str) -> None:
    in_vm(vm, "echo paused >/dev/shm/f")
    succeed("pause", vm)
    succeed("rm", "-f", vm)
    succeed("restore", vm, "--name", "shared-again")
    (found,) = json.loads(succeed("ps", "-a", "--json"))
    assert found["name"] == "shared-again"
    assert found["status"] == "stopped"
    succeed("rm", "shared-again")
    succeed("restore", "shared-again", "--name", vm)
    instant = json.loads(succeed("tree", vm, "--json"))["checkpoints"][-1]["id"]
    succeed("start", vm, "--at", instant)
    assert in_vm(vm, "cat /dev/shm/f") == "paused"


@pytest.mark.soak
def test_without_the_instant_its_disk_is_as_it_was(vm: str) -> None:
    in_vm(vm, "echo disk >/root/f")
    succeed("rm", "-f", vm)
    succeed("restore", vm)
    succeed("start", vm)
    assert in_vm(vm, "cat /root/f; test -e /dev/shm/f || echo booted") == "disk\nbooted"


def test_from_python_too(vm: str) -> None:
    async def there_and_back() -> str:
        sandbox = Sandbox.attach(vm)
        await sandbox.execute("echo python >/dev/shm/f")
        await sandbox.trash()
        assert not sandbox.is_running
        assert Sandbox.list() == []
        again = Sandbox.restore(vm)
        await again.start(at=again.checkpoints()[-1].id)
        result = await again.execute("cat /dev/shm/f")
        again.detach()
        again.close()
        return result.stdout

    assert asyncio.run(there_and_back()) == "python\n"
