"""Checkpoints on disk as the app sees them: anew when they change, and only then."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from quicksand.host.files import read_json as read_json_file
from quicksand.host.paths import Paths
from quicksand.snapshots.history import History

from quicksand_tui import past_reader
from quicksand_tui.past import NO_PAST
from quicksand_tui.past_reader import PastReader
from quicksand_tui.reader import Reader
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
        found.append(path.parent.name)
        return read_json_file(path)

    monkeypatch.setattr(past_reader, "read_json", read_json)
    return found


def tags(looking: PastReader) -> list[str]:
    return [made.tag for made in looking.read().checkpoints]


def test_a_sandbox_without_checkpoints_has_none(places: Paths) -> None:
    from quicksand.layout import sandbox_dir

    assert PastReader(sandbox_dir(places, make(places).id)).read() is NO_PAST


def test_an_unchanged_tree_is_neither_parsed_nor_another_object(
    history: History, parsed: list[str]
) -> None:
    add(history, 1)
    add(history, 2, 1)
    stand_at(history, 2)
    looking = PastReader(history.place)
    first = looking.read()
    assert ([made.tag for made in first.checkpoints], first.head) == (["tag-1", "tag-2"], id_of(2))
    assert sorted(parsed) == [id_of(1), id_of(2)]
    assert looking.read() is first
    assert len(parsed) == 2


def test_of_a_change_only_what_is_new_is_parsed(history: History, parsed: list[str]) -> None:
    add(history, 1)
    looking = PastReader(history.place)
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
    looking = PastReader(history.place)
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
    found = PastReader(history.place).read().checkpoints
    assert [(made.tag, bool(made.error)) for made in found] == [
        (id_of(2), True),
        (id_of(3), True),
        ("tag-1", False),
    ]
    assert not set(found[0].error) & {"\x1b", "\u202e"}


def test_damage_that_comes_later_is_seen(history: History) -> None:
    add(history, 1)
    looking = PastReader(history.place)
    assert tags(looking) == ["tag-1"]
    spoil(history, 1)
    (made,) = looking.read().checkpoints
    assert "schema_version 99" in made.error


def test_a_head_that_cannot_be_read_leaves_the_tree(history: History) -> None:
    add(history, 1)
    history.place.head.write_text("{")
    past = PastReader(history.place).read()
    assert len(past.checkpoints) == 1
    assert past.head is None and "head.json" in past.error


def test_a_tag_that_cannot_be_shown_is_named_by_its_id(history: History) -> None:
    add(history, 1, tag="a\ufe0fb", note="two\nlines\x1b[2J")
    (made,) = PastReader(history.place).read().checkpoints
    assert made.name == id_of(1)
    assert made.tag != "a\ufe0fb"
    assert not set(made.note) & {"\n", "\x1b"}


def test_the_store_shows_them_and_follows_those_that_can_be_seen(
    history: History, places: Paths
) -> None:
    add(history, 1)
    looking = Reader()
    (view,) = looking.read(NOBODY_SEES).sandboxes
    assert [made.tag for made in view.past.checkpoints] == ["tag-1"]
    add(history, 2, 1)
    (unseen,) = looking.read(NOBODY_SEES).sandboxes
    assert len(unseen.past.checkpoints) == 1
    (seen,) = looking.read(frozenset({view.id})).sandboxes
    assert len(seen.past.checkpoints) == 2
    stand_at(history, 2)  # head.json lies beside the record: that shows of any sandbox
    (again,) = looking.read(NOBODY_SEES).sandboxes
    assert again.past.head == id_of(2)


def test_an_idle_look_at_many_checkpoints_costs_little(history: History, places: Paths) -> None:
    for number in range(1, 201):
        add(history, number, number - 1 or None)
    looking = PastReader(history.place)
    past = looking.read()
    begun = time.process_time()
    for _ in range(10):
        assert looking.read() is past
    assert (time.process_time() - begun) / 10 < 0.02
