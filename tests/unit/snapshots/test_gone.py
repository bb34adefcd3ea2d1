"""A sandbox that ends while somebody looks for its machines."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from quicksand.base.errors import AgentUnreachableError, QemuDiedError
from quicksand.records.layout import MachineDir, RuntimeDir
from quicksand.records.nodes import BLANK
from quicksand.snapshots import awakening
from quicksand.snapshots.awakening import Awakening
from quicksand.snapshots.successor import Successor
from quicksand.snapshots.taking import _remove_unborn
from quicksand.things.checkpoint import PAGES


def test_a_sandbox_that_has_ended_gets_no_new_machine(tmp_path: Path) -> None:
    runtime = RuntimeDir(tmp_path / "90e090e0", tmp_path)
    live: Any = SimpleNamespace(runtime=runtime)
    assert runtime.names() == []
    _remove_unborn(runtime, runtime.current())
    with pytest.raises(QemuDiedError, match="QEMU ended before"):
        Successor.new(live, live)
    assert not runtime.root.exists()


def test_unborn_machines_are_removed_and_the_others_stay(tmp_path: Path) -> None:
    runtime = RuntimeDir(tmp_path / "b0c5b0c5", tmp_path)
    for name in ("1", "2"):
        runtime.make(name)
    runtime.keeper_socket.touch()
    _remove_unborn(runtime, runtime.machine("1"))
    assert sorted(runtime.names()) == [".quicksand", "1", "keeper.sock"]


def test_a_successor_has_a_name_that_is_free_and_was_not_just_another_s(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = RuntimeDir(tmp_path / "b0c5b0c5", tmp_path)
    runtime.make("1")
    node: Any = SimpleNamespace(id="a" * 12, layers=("l",), tier=PAGES, memory=BLANK)
    live: Any = SimpleNamespace(runtime=runtime, record=None)
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


class Hello:
    """A connection whose hello is answered or gets lost."""

    def __init__(self, answer: Exception | None) -> None:
        self.answer = answer
        self.is_closed = False

    async def handshake(self, token: str, *, timeout: float) -> None:
        if self.answer is not None:
            raise self.answer

    def close(self) -> None:
        self.is_closed = True


async def test_a_hello_that_gets_lost_is_said_again_but_not_to_a_qemu_that_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node: Any = SimpleNamespace(port=0, token="secret")
    lost = AgentUnreachableError("no reply")
    said = [Hello(lost), Hello(lost), Hello(None)]
    left = list(said)

    async def dial(path: Path) -> Hello:
        if not left:
            raise AgentUnreachableError("nobody listens")
        return left.pop(0)

    monkeypatch.setattr(awakening, "dial", dial)
    record: Any = None
    new = Awakening(MachineDir(tmp_path), record, node)
    session: Any = await new._again()
    assert session is said[-1]
    assert [hello.is_closed for hello in said] == [True, True, False]
    with pytest.raises(AgentUnreachableError, match="nobody listens"):
        await new._again()
