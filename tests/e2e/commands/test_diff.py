"""diff by the command, on a real VM."""

from __future__ import annotations

import json
import re

import pytest

from tests.e2e.commands.conftest import in_vm, invoke, succeed

pytestmark = pytest.mark.vm


def test_files_that_differ_are_listed(vm: str) -> None:
    in_vm(vm, "mkdir /root/d && echo 1 > /root/d/changed && echo 22 > /root/d/gone && sync")
    succeed("checkpoint", vm, "first")
    in_vm(vm, r"cd /root/d && seq 1000 > changed && rm gone && echo > $(printf 'a\033[2J') && sync")
    succeed("checkpoint", vm, "second")
    listed = invoke("diff", vm, "first", "second")
    assert listed.returncode == 0, listed
    assert [re.sub(" +", " ", line) for line in listed.stdout.decode().splitlines()] == [
        r"A /root/d/a\x1b[2J +1 -0 1 B",
        "M /root/d/changed +999 -0 2 B -> 3.8 KiB",
        "D /root/d/gone +0 -1 3 B",
    ]
    assert listed.stderr == b"1 added, 1 removed, 1 changed\n"

    in_vm(vm, "echo > /root/d/now && sync")
    present = invoke("diff", vm, "second", "--json")
    assert present.returncode == 0, present
    (change,) = json.loads(present.stdout)
    assert (change["path"], change["kind"], change["size_after"]) == ("/root/d/now", "added", 1)
    said = present.stderr.decode()
    assert re.fullmatch(rf"{vm} is running: compared with its disk at [\d:]{{8}}\n", said)

    missing = invoke("diff", vm, "frist", "second")
    assert (missing.returncode, missing.stdout) == (1, b"")
    assert b"there is no checkpoint 'frist'" in missing.stderr
    assert b"did you mean 'first'?" in missing.stderr
