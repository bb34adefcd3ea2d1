"""A sandbox that ends while somebody looks for its machines."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from quicksand.errors import QemuDiedError
from quicksand.layout import RuntimeDir
from quicksand.snapshots.operations import _remove_unborn
from quicksand.snapshots.records import BLANK, PAGES
from quicksand.snapshots.standby import find_all
from quicksand.snapshots.successor import Successor


def test_machines_of_one_that_has_ended_are_none(tmp_path: Path) -> None:
    runtime = RuntimeDir(tmp_path / "gone")
    live: Any = SimpleNamespace(runtime=runtime)
    assert runtime.names() == []
    _remove_unborn(runtime, runtime.current())
    assert find_all(live) == []
    with pytest.raises(QemuDiedError, match="QEMU ended before"):
        Successor.new(live, live)
    assert not runtime.root.exists()


def test_unborn_machines_are_removed_and_the_others_stay(tmp_path: Path) -> None:
    runtime = RuntimeDir(tmp_path / "box")
    for name in ("1", "2", "3"):
        runtime.make(name)
    runtime.machine("3").waiting.write_text("{}")
    runtime.keeper_socket.touch()
    _remove_unborn(runtime, runtime.machine("1"))
    assert sorted(runtime.names()) == ["1", "3", "keeper.sock"]


def test_a_successor_has_a_name_that_is_free(tmp_path: Path) -> None:
    runtime = RuntimeDir(tmp_path / "box")
    for name in ("1", "2"):
        runtime.make(name)
    node: Any = SimpleNamespace(id="a" * 12, layers=("l",), tier=PAGES, memory=BLANK)
    live: Any = SimpleNamespace(runtime=runtime)
    assert Successor.new(live, node).head.machine == "3"
