"""Whose end a keeper that has adopted QEMU waits for."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace

import pytest
from quicksand.base.processes import start_of
from quicksand.qemu.keeper_parts.adopting import _follow
from quicksand.qemu.process import owned_here
from quicksand.records.sandboxes import RunState

from tests.unit.records.making import RUN

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux adopts")


class Loop(SimpleNamespace):
    """In place of a keeper."""

    def __init__(self) -> None:
        super().__init__(watched={}, ended=0)

    def watch(self, descriptor: int, handler: Callable[[], None]) -> None:
        self.watched[descriptor] = handler

    def unwatch(self, descriptor: int) -> None:
        del self.watched[descriptor]

    def pulled(self) -> None:
        self.ended += 1

    def follow(self, pid: int, started: str) -> None:
        _follow(self, f"{pid} {started}")  # type: ignore[arg-type]


def test_the_process_that_started_it_is_the_owner_and_is_read_again() -> None:
    run = owned_here(RUN)
    assert (run.owner_pid, run.owner_started) == (os.getpid(), start_of(os.getpid()))
    assert RunState.from_json(json.loads(json.dumps(run.to_json()))) == run


def test_the_state_of_an_older_version_has_no_owner() -> None:
    told = json.loads(json.dumps(RUN.to_json()))
    del told["owner_pid"], told["owner_started"]
    assert RunState.from_json(told) == replace(RUN, owner_pid=0, owner_started="")


def test_an_owner_that_lives_is_followed() -> None:
    loop = Loop()
    loop.follow(os.getpid(), start_of(os.getpid()))
    assert (len(loop.watched), loop.ended) == (1, 0)
    loop.owner.follow(None)
    assert not loop.watched


def test_another_process_with_the_id_of_the_owner_is_not_taken_for_it() -> None:
    loop = Loop()
    loop.follow(os.getpid(), "1")
    assert (len(loop.watched), loop.ended) == (0, 1)


def test_an_owner_that_is_gone_already_ends_it_at_once() -> None:
    loop = Loop()
    with subprocess.Popen(["true"]) as process:
        started = start_of(process.pid) or "1"
    loop.follow(process.pid, started)
    assert (len(loop.watched), loop.ended) == (0, 1)
