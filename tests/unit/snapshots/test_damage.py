"""Damaged files of a history: refused by name, the rest goes on; what is broken can be removed."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from quicksand.base.errors import CheckpointNotFoundError, HistoryError, PathError
from quicksand.base.files import read_json
from quicksand.base.paths import Paths
from quicksand.life.sandbox_removal import SandboxTrash
from quicksand.records.layout import SandboxDir, sandbox_dir
from quicksand.records.nodes import Head, Node
from quicksand.records.registry import Registry
from quicksand.records.sandboxes import Record
from quicksand.saves.boot_disk import UNFINISHED, finish_start, prepare_disk
from quicksand.snapshots import history as module
from quicksand.snapshots.history import History, history_of
from quicksand.snapshots.pages import verify
from quicksand.snapshots.restore import check_disk_and_image
from quicksand.snapshots.storing import load_index
from quicksand.snapshots.tree import read_tree
from quicksand.snapshots.verified import Verified

from quicksand_tui.model.remedy_words import hint_of
from tests.conftest import examples
from tests.unit.snapshots.boxes import commit_node, image_of, make_base, make_box, tree

OFFSETS = 40
HUGE = 10**400


class Box:
    """A stopped sandbox with two checkpoints on one layer."""

    def __init__(self, places: Paths, directory: Path) -> None:
        self.registry = Registry(places)
        self.base = make_base(directory)
        self.record: Record = make_box(self.registry, self.base, "box")
        self.place: SandboxDir = sandbox_dir(places, self.record.id)
        self.history = History(self.place)
        self.first = self.history.nodes()[0]
        self.second = commit_node(self.place, self.first.layers)

    def mark(self, node: Node) -> Path:
        return self.place.checkpoints / node.id / "node.json"

    def files(self, node: Node) -> list[Path]:
        """Those that are only this checkpoint's."""
        directory = self.place.checkpoints / node.id
        memory = [self.place.memory / file.name for file in node.files]
        return [directory / "devices", directory / "pages.index", *memory]


def load(place: SandboxDir, node: Node) -> None:
    """Look at all files as a restore does."""
    check_disk_and_image(place, node)
    load_index(place, node)
    for file in node.files:
        verify(place.memory / file.name, file, Verified.of_user())
    assert node.devices is not None
    verify(place.checkpoints / node.id / "devices", node.devices)


@pytest.fixture
def box(places: Paths, tmp_path: Path) -> Box:
    return Box(places, tmp_path)


def test_every_file_that_is_cut_or_changed_is_refused_by_its_name(box: Box) -> None:
    layer = box.first.layers[0]
    paths = [*box.files(box.first), box.place.layer(layer), box.place.seal(layer)]
    kinds = {"", ".index", ".pages", ".ram", ".rom", ".qcow2", ".json"}
    assert {path.suffix for path in paths} == kinds
    load(box.place, box.first)
    for path in paths:
        # Of a layer and a seal that differ nobody can tell which is wrong.
        name = path.stem if path.suffix == ".json" else path.name
        data = path.read_bytes()
        # Without the line feed at its end a seal is no other one.
        size = len(data) - data.endswith(b"}\n")
        for offset in range(0, size, max(1, size // OFFSETS)):
            flipped = data[:offset] + bytes([data[offset] ^ 1]) + data[offset + 1 :]
            for damaged in (data[:offset], flipped):
                path.write_bytes(damaged)
                with pytest.raises(HistoryError, match=name):
                    load(box.place, box.first)
        path.unlink()
        with pytest.raises(HistoryError, match=name):
            load(box.place, box.first)
        if path.suffix not in (".qcow2", ".json"):
            load(box.place, box.second)
        path.write_bytes(data)
        load(box.place, box.first)


def test_a_damaged_checkpoint_is_listed_and_can_be_deleted(box: Box) -> None:
    for path in box.files(box.first):
        path.write_bytes(b"")
    assert {node.id for node in box.history.nodes()} == {box.first.id, box.second.id}
    box.history.delete(box.first.id)
    assert not any(path.exists() for path in box.files(box.first))
    load(box.place, box.second)


def test_one_whose_record_is_broken_is_deleted_by_its_id_and_then_sweeps_go_on(box: Box) -> None:
    box.history.commit(replace(box.second, parent=box.first.id))
    box.mark(box.first).write_bytes(b"{")
    (box.place.memory / "0123456789ab.pages").touch()
    before = tree(box.place.root)
    box.history.sweep()
    assert tree(box.place.root) == before, "nobody knows what the broken one needs"
    assert [node.id for node in box.history.nodes()] == [box.second.id]
    with pytest.raises(CheckpointNotFoundError):
        box.history.delete("no such")
    box.history.delete(box.first.id)
    assert not any(path.exists() for path in box.files(box.first))
    assert box.history.broken() == {}
    assert (box.history.nodes()[0].parent, box.history.head().node) == (None, None)
    assert not (box.place.memory / "0123456789ab.pages").exists()
    load(box.place, box.second)


def test_what_cannot_be_read_at_one_moment_is_not_swept_away(
    box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No descriptors left, at any of the reads of a sweep: whichever it is, nothing is lost."""
    before = tree(box.place.root)
    for fails in range(12):
        count = iter(range(100))

        def read(path: Path, count: Any = count, fails: int = fails) -> dict[str, Any]:
            if next(count) == fails:
                raise OSError(errno.EMFILE, "Too many open files")
            return read_json(path)

        monkeypatch.setattr(module, "read_json", read)
        box.history.sweep()
        assert tree(box.place.root) == before


def test_what_a_killed_client_was_writing_is_swept_away(box: Box) -> None:
    before = tree(box.place.root)
    for name in (
        box.place.root / ".head.json.0123abcd",
        box.mark(box.first).with_name(".node.json.0123abcd"),
    ):
        name.write_text("{")
    box.history.sweep()
    assert tree(box.place.root) == before


# Records


def seen(box: Box) -> None:
    """The tree can be listed, whatever the record of the first says; what can be read can be
    looked at, or is refused."""
    nodes = {node.id: node for node in box.history.nodes()}
    assert box.second.id in nodes
    assert len(nodes) + len(box.history.broken()) == 2
    for node in nodes.values():
        try:
            load(box.place, node)
        except HistoryError:
            assert node.id == box.first.id


@settings(max_examples=examples(150), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_changed_bytes_in_a_record_are_an_error_or_harmless(box: Box, data: st.DataObject) -> None:
    path = box.mark(box.first)
    if not hasattr(box, "text"):
        box.text = path.read_bytes()  # type: ignore[attr-defined]
    text = bytearray(box.text)  # type: ignore[attr-defined]
    for _ in range(data.draw(st.integers(1, 3))):
        text[data.draw(st.integers(0, len(text) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(text)
    seen(box)


SEALS: list[Callable[[dict[str, Any]], object]] = [
    lambda plain: plain.pop("file"),
    lambda plain: plain.update(file=None),
    lambda plain: plain.update(file=[]),
    lambda plain: plain["file"].append(1),
    lambda plain: plain["file"].__setitem__(0, "other.qcow2"),
    lambda plain: plain["file"].__setitem__(0, "../x.qcow2"),
    lambda plain: plain["file"].__setitem__(1, HUGE),
    lambda plain: plain["file"].__setitem__(1, -1),
    lambda plain: plain["file"].__setitem__(2, [2**32]),
    lambda plain: plain["file"].__setitem__(2, [-1]),
    lambda plain: plain["file"].__setitem__(2, [HUGE]),
    lambda plain: plain["file"].__setitem__(2, []),
    lambda plain: plain.update(schema_version=2),
]


@pytest.mark.parametrize("change", SEALS)
def test_impossible_values_in_a_layers_seal_are_an_error(
    box: Box, change: Callable[[dict[str, Any]], object]
) -> None:
    path = box.place.seal(box.first.layers[0])
    plain = json.loads(path.read_bytes())
    change(plain)
    path.write_text(json.dumps(plain))
    with pytest.raises(HistoryError, match="damaged") as caught:
        load(box.place, box.first)
    assert box.first.layers[0] in str(caught.value)


HOSTILE: list[Callable[[dict[str, Any]], object]] = [
    lambda plain: plain["image"].__setitem__(2, []),
    lambda plain: plain["index"].__setitem__(1, 2**63),
    lambda plain: plain["devices"].__setitem__(2, [1, 2, 3]),
    lambda plain: plain.update(created=HUGE),
    lambda plain: plain.update(created=1e308 * 10),
    lambda plain: plain.update(pause_s="nan"),
    lambda plain: plain.update(bytes_written=HUGE),
    lambda plain: plain.update(memory="../../head.json"),
    lambda plain: plain.update(image=None),
    lambda plain: plain.update(layers=[]),
    lambda plain: plain.update(schema_version=True),
    lambda plain: plain.update(pages=[[[]]]),
]


@pytest.mark.parametrize("number", range(len(HOSTILE)))
def test_impossible_values_in_a_record_are_an_error(box: Box, number: int) -> None:
    path = box.mark(box.first)
    plain = json.loads(path.read_bytes())
    HOSTILE[number](plain)
    path.write_text(json.dumps(plain))
    seen(box)


def test_a_record_that_is_a_link_or_a_directory_is_an_error(box: Box) -> None:
    path = box.mark(box.first)
    path.unlink()
    path.symlink_to(path)
    seen(box)
    path.unlink()
    path.mkdir()
    seen(box)
    path.rmdir()
    path.symlink_to(box.mark(box.second))
    seen(box)
    box.history.delete(box.first.id)
    load(box.place, box.second)


@pytest.mark.timeout(60)
def test_a_fifo_in_place_of_any_file_is_an_error_and_hangs_nobody(box: Box) -> None:
    layer = box.first.layers[0]
    needed = [*box.files(box.first), box.place.layer(layer), box.place.seal(layer)]
    needed.append(box.mark(box.first))
    for path in needed:
        data = path.read_bytes()
        path.unlink()
        os.mkfifo(path)
        with pytest.raises(HistoryError, match=r"FIFO|regular file"):
            load(box.place, box.history.get(box.first.id))
        read_tree(history_of(box.registry, box.record.id))
        path.unlink()
        path.write_bytes(data)
    trash = SandboxTrash(box.registry)
    uses: dict[Path, Callable[[], object]] = {
        box.place.head: lambda: start(box),
        box.place.lock: lambda: box.registry.lock(box.record.id),
        box.place.history_lock: lambda: trash.put(box.record.id),
    }
    for path, use in uses.items():
        path.unlink(missing_ok=True)
        os.mkfifo(path)
        box.registry.list()
        with pytest.raises((HistoryError, PathError), match="FIFO"):
            use()
        path.unlink()
    box.place.record.unlink()
    os.mkfifo(box.place.record)
    (entry,) = box.registry.list()
    assert entry.error == "it is a FIFO, and no file"


# The head


def damage_head(box: Box) -> None:
    box.place.head.write_bytes(box.place.head.read_bytes()[:-20])


def start(box: Box, at: Node | None = None) -> Head:
    return prepare_disk(box.record, image_of(box.base), box.place, at)


def test_with_a_damaged_head_a_start_says_what_can_be_done(box: Box) -> None:
    damage_head(box)
    before = tree(box.place.root)
    for _ in range(2):
        with pytest.raises(HistoryError, match=r"head\.json cannot be read") as caught:
            start(box)
        assert "start --at" in hint_of(caught.value)
        box.history.sweep()
    assert tree(box.place.root) == before


def test_with_a_damaged_head_a_start_at_a_checkpoint_works_and_keeps_all(box: Box) -> None:
    layers = set(box.place.layers.iterdir())
    damage_head(box)
    damaged = box.place.head.read_bytes()
    head = start(box, box.second)
    assert (head.machine, head.previous) == (UNFINISHED, None)
    # It does not get so far as to run: the disk is lost still, and none is made up.
    with pytest.raises(HistoryError, match=r"head\.json") as caught:
        start(box)
    assert "start --at" in hint_of(caught.value)
    head = start(box, box.first)
    finish_start(box.place, head, box.first)
    box.history.sweep()
    assert box.place.broken_head.read_bytes() == damaged
    assert layers < set(box.place.layers.iterdir())
    assert start(box).top == head.top
    box.place.broken_head.unlink()
    box.history.sweep()
    layers = {box.place.layer(name) for name in (*box.first.layers, head.top)}
    assert set(box.place.layers.iterdir()) == layers | {box.place.seal(box.first.layers[0])}


def test_a_missing_head_of_a_sandbox_that_had_a_disk_gives_no_empty_disk(box: Box) -> None:
    box.place.head.unlink()
    with pytest.raises(HistoryError, match="missing") as caught:
        start(box)
    assert "start --at" in hint_of(caught.value)
    finish_start(box.place, start(box, box.first), box.first)
    start(box)


def test_a_head_that_cannot_be_read_just_now_is_not_set_aside(
    box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_path: Path) -> dict[str, Any]:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(module, "read_json", refuse)
    with pytest.raises(HistoryError, match=os.strerror(errno.EMFILE)):
        box.history.set_head_aside()
    assert box.place.head.exists()


def test_how_the_last_run_ended_is_known_until_the_head_has_it(box: Box) -> None:
    """A start that fails early must not forget which of two machines ran in the end."""
    head = box.history.head()
    add = replace(head, machine="2", previous=replace(head, machine="1", top="a" * 12))
    box.history.set_head(add)
    box.place.exit.write_text('{"machine": "2"}')
    box.place.layers.rename(box.place.root / "away")
    box.place.layers.touch()
    with pytest.raises(PathError):
        start(box)
    box.place.layers.unlink()
    (box.place.root / "away").rename(box.place.layers)
    assert start(box).top == head.top
