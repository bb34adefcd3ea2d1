"""The files of checkpoints: whole, complete, or spoilt by a test."""

from __future__ import annotations

from pathlib import Path

from quicksand import Sandbox
from quicksand.base.paths import Paths
from quicksand.base.removal import MARK
from quicksand.records.layout import SandboxDir, sandbox_dir
from quicksand.records.nodes import Node
from quicksand.snapshots.history import LAYER_FILES, History
from quicksand.snapshots.layers import read_seal
from quicksand.snapshots.pages import verify
from quicksand.snapshots.storing import find_image, load_index


def check_files(place: SandboxDir, node: Node) -> None:
    """Every byte that a checkpoint needs is as it was written; nothing is taken from a cache."""
    if node.index is not None:
        load_index(place, node)
    for name, file in node.own_files:
        verify(place.checkpoints / node.id / name, file)
    for file in node.files:
        verify(place.memory / file.name, file)
    image = find_image(place, node.memory)
    assert image is None or node.image is not None
    for name in node.layers:
        verify(place.layer(name), read_seal(place, name))


def check_litter(place: SandboxDir) -> None:
    """After a sweep there is what nodes and head need, and nothing else."""
    history = History(place)
    nodes, head = history.all_nodes(), history.head()
    heads = [head] if head.previous is None else [head, head.previous]
    assert {p.name for p in place.checkpoints.iterdir()} == {node.id for node in nodes}
    hidden = {node.id for node in nodes if node.hidden}
    assert hidden <= {place.node for place in heads}
    for node in nodes:
        found = {p.name for p in (place.checkpoints / node.id).iterdir()}
        assert found == {"node.json", *(name for name, _ in node.own_files)}, found
    layers = {name for node in nodes for name in node.layers}
    layers |= {name for place in heads for name in (*place.layers, place.top)}
    found = {p.name for p in place.layers.iterdir()}
    assert {name for name in found if name.endswith(".qcow2")} == {f"{n}.qcow2" for n in layers}
    assert found <= {f"{name}.{kind}" for name in layers for kind in LAYER_FILES}
    memory = {file.name for node in nodes for file in node.files} | {h.memory for h in heads}
    assert {p.name for p in place.memory.iterdir()} <= memory
    dots = [p.name for p in place.root.iterdir() if p.name.startswith(".")]
    assert dots == [MARK], f"left in the sandbox's directory: {dots}"


def memory_of(vm: Sandbox, places: Paths) -> set[str]:
    """The names of the files of a sandbox's memory."""
    return {path.name for path in sandbox_dir(places, vm.id).memory.iterdir()}


def flip_bit(path: Path, at: int) -> None:
    """Damage one byte."""
    with path.open("r+b") as file:
        file.seek(at)
        byte = file.read(1)
        file.seek(at)
        file.write(bytes([byte[0] ^ 0x10]))
