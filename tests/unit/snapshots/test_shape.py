"""What a machine must be to go on from a checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from quicksand.base.cpu import describe_cpu
from quicksand.base.errors import HistoryError
from quicksand.records.nodes import Node
from quicksand.snapshots.restore import check_shape, cpu_for, differences

from tests.unit.cli.histories import node_of

SHAPE: dict[str, Any] = {
    "arch": "x86_64",
    "accel": "kvm",
    "memory": 1 << 29,
    "cpus": 1,
    "network": "none",
    "qemu": "10.0.2",
    "image": "d" * 64,
    "extra": [],
    "cpu": "Some Processor (0a1b2c3d)",
    "display": False,
    "directories": 0,
}


def node(**changes: Any) -> Node:
    return node_of(1, shape={**SHAPE, **changes})


def test_the_same_machine_takes_it() -> None:
    assert differences(node(), SHAPE) == []
    check_shape(node(), SHAPE)


def test_another_processor_does_not() -> None:
    other = node(cpu="Other Processor (ffffffff)")
    with pytest.raises(HistoryError, match=r"processor Other .*, not Some Processor \(0a1b2c3d\)"):
        check_shape(other, SHAPE)


def test_one_from_before_processors_were_noted_is_taken() -> None:
    old = {key: value for key, value in SHAPE.items() if key != "cpu"}
    assert differences(node_of(1, shape=old), SHAPE) == []


def test_one_from_before_there_were_displays_has_none() -> None:
    old = node_of(1, shape={key: value for key, value in SHAPE.items() if key != "display"})
    assert differences(old, SHAPE) == []
    assert differences(old, {**SHAPE, "display": True}) == ["display False, not True"]


def test_one_from_before_9p_has_no_devices_for_it() -> None:
    old = node_of(1, shape={key: value for key, value in SHAPE.items() if key != "directories"})
    assert differences(old, SHAPE) == []
    assert differences(old, {**SHAPE, "directories": 2}) == ["number of 9p directories 0, not 2"]


def test_all_that_differs_is_named() -> None:
    found = differences(node(qemu="7.2.0", memory=1), SHAPE)
    assert found == ["memory 1, not 536870912", "QEMU version 7.2.0, not 10.0.2"]


def test_an_emulated_processor_is_the_same_everywhere() -> None:
    assert cpu_for("tcg") == ""
    assert cpu_for("kvm") == describe_cpu()


def test_processors_are_told_apart_by_what_they_can_do(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    texts = (
        "model name\t: A {long}\nflags\t: a b\nmicrocode\t: 1\n\nmodel name: other",
        "model name\t: A {long}\nflags\t: a b\nmicrocode\t: 2\n\n",
        "model name\t: A {long}\nflags\t: a b c\n\n",
    )
    said = []
    for text in texts:
        monkeypatch.setattr(
            Path, "read_text", lambda *_, text=text, **__: text.format(long="x" * 99)
        )
        said.append(describe_cpu())
    assert said[0] == said[1] != said[2]
    assert all(len(line) <= 40 for line in said)
