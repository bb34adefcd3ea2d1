"""A sandbox that ends while somebody looks for its machines."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from quicksand.errors import QemuDiedError
from quicksand.layout import RuntimeDir
from quicksand.snapshots.records import BLANK
from quicksand.snapshots.standby import find_all
from quicksand.snapshots.successor import Successor
from quicksand.snapshots.taking import _remove_unborn
from quicksand.snapshots.tier import PAGES


def test_machines_of_one_that_has_ended_are_none(tmp_path: Path) -> None:
    runtime = RuntimeDir(tmp_path / "90e090e0", tmp_path)
    live: Any = SimpleNamespace(runtime=runtime)
    assert runtime.names() == []
    _remove_unborn(runtime, runtime.current())
    assert find_all(live) == []
    with pytest.raises(QemuDiedError, match="QEMU ended before"):
        Successor.new(live, live)
    assert not runtime.root.exists()


def test_unborn_machines_are_removed_and_the_others_stay(tmp_path: Path) -> None:
    runtime = RuntimeDir(tmp_path / "b0c5b0c5", tmp_path)
    for name in ("1", "2", "3"):
        runtime.make(name)
    runtime.machine("3").waiting.write_text("{}")
    runtime.keeper_socket.touch()
    _remove_unborn(runtime, runtime.machine("1"))
    assert sorted(runtime.names()) == [".quicksand", "1", "3", "keeper.sock"]


def test_a_successor_has_a_name_that_is_free_and_was_not_just_another_s(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = RuntimeDir(tmp_path / "b0c5b0c5", tmp_path)
    runtime.make("1")
    node: Any = SimpleNamespace(id="a" * 12, layers=("l",), tier=PAGES, memory=BLANK)
    live: Any = SimpleNamespace(runtime=runtime)
    moment = 123_456_000_000
    monkeypatch.setattr(time, "monotonic_ns", lambda: moment)
    first = Successor.new(live, node).head.machine
    runtime.make(first)
    assert Successor.new(live, node).head.machine not in ("1", first)
    # The keeper may still be removing the directory of one that has just ended.
    runtime.remove_machine(first)
    moment += 20_000_000
    assert Successor.new(live, node).head.machine != first
    monkeypatch.setattr(RuntimeDir, "names", lambda _: [str(n) for n in range(9998)])
    assert Successor.new(live, node).head.machine in ("9998", "9999")
