"""Checkpoints on disk as the app sees them: anew when they change, and only then."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from quicksand.base.files import read_json as read_json_file
from quicksand.base.paths import Paths, paths
from quicksand.records.registry import Registry
from quicksand.snapshots import history as history_module
from quicksand.snapshots.history import History

from quicksand_tui.cockpit.tree_panel import tree_title
from quicksand_tui.door.look import Reader, TreeReader
from quicksand_tui.model.shown_sandboxes import NO_TREE
from tests.unit.app.test_reader import make
from tests.unit.cli.histories import add, history_of, id_of, spoil, stand_at

NOBODY_SEES: frozenset[str] = frozenset()


@pytest.fixture
def history(places: Paths) -> History:
    return history_of(places, make(places))


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The directories of the files that were parsed."""
    found: list[str] = []

    def read_json(path: Path) -> object:
        if path.name == "node.json":
            found.append(path.parent.name)
        return read_json_file(path)

    monkeypatch.setattr(history_module, "read_json", read_json)
    # Files of this moment are read again, as they may change with no later time.
    monkeypatch.setattr(history_module, "TICK_NS", -1)
    return found


def reader(history: History) -> TreeReader:
    return TreeReader(Registry(paths()), history.place.root.name)


def tags(looking: TreeReader) -> list[str]:
    return [made.tag for made in looking.read().checkpoints]


def test_a_sandbox_without_checkpoints_has_no_tree(places: Paths) -> None:
    assert TreeReader(Registry(places), make(places).id).read() is NO_TREE


def test_an_unchanged_tree_is_neither_parsed_nor_another_object(
    history: History, parsed: list[str]
) -> None:
    add(history, 1)
    add(history, 2, 1)
    stand_at(history, 2)
    looking = reader(history)
    first = looking.read()
    assert ([made.tag for made in first.checkpoints], first.head) == (["tag-1", "tag-2"], id_of(2))
    assert sorted(parsed) == [id_of(1), id_of(2)]
    assert looking.read() is first
    assert len(parsed) == 2


def test_of_a_change_only_what_is_new_is_parsed(history: History, parsed: list[str]) -> None:
    add(history, 1)
    looking = reader(history)
    looking.read()
    add(history, 2, 1)  # and the head stays: so does a revert keep the present, at its end
    assert tags(looking) == ["tag-1", "tag-2"]
    assert parsed == [id_of(1), id_of(2)]
    stand_at(history, 2)
    assert looking.read().head == id_of(2)
    assert len(parsed) == 2


def test_a_removal_shows_with_the_new_parents(history: History) -> None:
    for number in (1, 2, 3):
        add(history, number, number - 1 or None)
    looking = reader(history)
    looking.read()
    history.remove(history.find("tag-2"))
    after = looking.read()
    assert [(made.tag, made.parent) for made in after.checkpoints] == [
        ("tag-1", None),
        ("tag-3", id_of(1)),
    ]


def test_a_broken_checkpoint_is_shown_and_hides_nothing(history: History) -> None:
    add(history, 1)
    spoil(history, 2, '{"schema_version": "\\u001b[2J\\u202e"}')
    spoil(history, 3, "")
    (history.place.checkpoints / "not-an-id").mkdir()
    (history.place.checkpoints / id_of(4)).mkdir()  # in the making
    found = reader(history).read().checkpoints
    assert [(made.tag, bool(made.error)) for made in found] == [
        (id_of(2), True),
        (id_of(3), True),
        ("tag-1", False),
    ]
    assert not set(found[0].error) & {"\x1b", "\u202e"}


def test_damage_that_comes_later_is_seen(history: History) -> None:
    add(history, 1)
    looking = reader(history)
    assert tags(looking) == ["tag-1"]
    spoil(history, 1)
    (made,) = looking.read().checkpoints
    assert "schema_version 99" in made.error


def test_a_head_that_cannot_be_read_leaves_the_tree(history: History) -> None:
    add(history, 1)
    history.place.head.write_text("{")
    tree = reader(history).read()
    assert len(tree.checkpoints) == 1
    assert tree.head is None and "head.json" in tree.error


def test_a_tag_that_cannot_be_shown_is_named_by_its_id(history: History) -> None:
    add(history, 1, tag="a\ufe0fb", note="two\nlines\x1b[2J")
    (made,) = reader(history).read().checkpoints
    assert made.name == id_of(1)
    assert made.tag != "a\ufe0fb"
    assert not set(made.note) & {"\n", "\x1b"}


def test_the_store_shows_them_and_follows_those_that_can_be_seen(
    history: History, places: Paths
) -> None:
    add(history, 1)
    looking = Reader()
    (view,) = looking.read(NOBODY_SEES).sandboxes
    assert [made.tag for made in view.tree.checkpoints] == ["tag-1"]
    add(history, 2, 1)
    (unseen,) = looking.read(NOBODY_SEES).sandboxes
    assert len(unseen.tree.checkpoints) == 1
    (seen,) = looking.read(frozenset({view.id})).sandboxes
    assert len(seen.tree.checkpoints) == 2
    stand_at(history, 2)  # head.json lies beside the record: that shows of any sandbox
    (again,) = looking.read(NOBODY_SEES).sandboxes
    assert again.tree.head == id_of(2)


def test_an_idle_look_at_many_checkpoints_costs_little(history: History, places: Paths) -> None:
    for number in range(1, 201):
        add(history, number, number - 1 or None)
    looking = reader(history)
    tree = looking.read()

    def cost() -> float:
        begun = time.process_time()
        for _ in range(10):
            assert looking.read() is tree
        return (time.process_time() - begun) / 10

    # Python may look for garbage meanwhile, but not each time.
    assert any(cost() < 0.02 for _ in range(3))


def test_what_was_written_since_is_told_by_the_layers(history: History) -> None:
    add(history, 1)
    stand_at(history, 1)
    looking = reader(history)
    assert looking.read().changed is None, "a layer is not there"
    place, head = history.place, history.head()
    place.layers.mkdir(exist_ok=True)
    for name in (*head.layers, head.top):
        place.layer(name).write_bytes(b"x" * 4096)
    assert looking.read().changed == 0, "that is what an empty one takes"
    place.layer(head.top).write_bytes(b"x" * (1 << 20))
    assert looking.read().changed == 1 << 20
    seen = looking.read()
    place.layer(head.top).write_bytes(b"x" * (1 << 20) + b"y" * 4096)
    assert looking.read() is seen, "it would be shown as the same"
    if head.layers:
        place.layer(head.layers[-1]).write_bytes(b"x" * (8 << 20))
        assert looking.read() is seen, "the checkpoint has that layer"


def test_a_total_is_what_deleting_all_would_free_and_what_is_shared_is_told(
    history: History,
) -> None:
    """Two checkpoints share a layer, which neither would free alone, and both would together."""

    def layer(name: str, kib: int) -> Path:
        path = history.place.layer(name)
        path.write_bytes(b"x" * kib * 1024)
        return path

    layer("11111111", 64)
    layer("22222222", 16)
    layer("aaaaaaaa", 512)
    layer("bbbbbbbb", 128)
    add(history, 1, layers=("aaaaaaaa", "11111111"))
    stand_at(history, 1)
    looking = reader(history)
    alone = looking.read(measure=True)
    assert (alone.own, alone.shared) == (64 * 1024, 512 * 1024)
    add(history, 2, 1, layers=("aaaaaaaa", "11111111", "22222222"))
    both = looking.read(measure=True)
    assert sum(made.size for made in both.checkpoints) == 16 * 1024
    assert (both.own, both.shared) == (80 * 1024, 512 * 1024)
    (history.place.root / "kept-by-a-save").hardlink_to(history.place.layer("22222222"))
    fresh = reader(history).read(measure=True)
    assert (fresh.own, fresh.shared) == (64 * 1024, 528 * 1024)
    title = tree_title(fresh, "web")
    assert title == "4 Tree of web · 2 checkpoints · 64K · 528K shared"


def test_the_disk_of_a_sandbox_is_what_removing_it_would_free(places: Paths) -> None:
    record = make(places)
    root = Registry(places).place(record.id).root
    seen = Reader().read(NOBODY_SEES).sandboxes[0]
    (root / "own").write_bytes(b"x" * (1 << 20))
    template = places.cache / "memory"
    places.cache.mkdir(parents=True, exist_ok=True)
    template.write_bytes(b"x" * (2 << 20))
    (root / "linked").hardlink_to(template)
    now = Reader().read(NOBODY_SEES).sandboxes[0]
    assert (now.disk or 0) - (seen.disk or 0) == 1 << 20
    assert now.disk_shared - seen.disk_shared == 2 << 20
