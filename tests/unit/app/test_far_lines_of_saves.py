"""What machines tell each other of their saves: both ends, and an end that lies."""

from __future__ import annotations

import contextlib
import json
from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from quicksand.base.typed_values import ForeignValueError
from quicksand.things.save import Verification

from quicksand_tui.door import far_lines
from quicksand_tui.door.far_lines import ROUGHLY, SavesLearner, encode_line, saves_changes
from quicksand_tui.forms.save_forms import restore
from quicksand_tui.model.shown_saves import NO_SAVES, SavesView
from quicksand_tui.verbs.call import words_of
from quicksand_tui.verbs.index import find_verb
from quicksand_tui.views.save_rows import arrange
from tests.each import each
from tests.unit.app.fake_saves import DEV, GONE, SAVES, saved, trashed, view_of

WS = saved("ws", place="workspace")
HERE = saved("here", place="here")
SANDBOX = trashed("web", kind="sandbox", path="/trash/web", until=None)
VIEW = view_of(WS, DEV, HERE, trash=(GONE, SANDBOX))


def told(learner: SavesLearner, before: SavesView | None, after: SavesView) -> SavesView:
    """What the near end knows after the far end has told of a change."""
    found = [learner.learn(encode_line(line).strip()) for line in saves_changes(before, after)]
    assert all(one is None for one in found[:-1]), "only the last line ends a change"
    assert found[-1] is not None
    return found[-1]


def test_all_that_is_shown_of_saves_and_the_trash_arrives() -> None:
    seen = told(SavesLearner("box"), None, VIEW)
    assert [save.name for save in seen.saves] == ["ws", "dev", "here"]
    assert (seen.size, seen.trash_frees, seen.error) == (VIEW.size, VIEW.trash_frees, "")
    pairs: list[tuple[Any, Any]] = [*zip(seen.saves, VIEW.saves, strict=True)]
    pairs += zip(seen.trash, VIEW.trash, strict=True)
    for one, before in pairs:
        assert (one.host, one.key, one.path) == ("box", f"box:{before.key}", before.key)
        skipped = {"host", "away", "verdict"}
        for name in (field.name for field in fields(one) if field.name not in skipped):
            assert getattr(one, name) == getattr(before, name), name
    assert arrange(seen.saves, "box", "name") == list(seen.saves)


def test_only_what_differs_is_told_and_what_is_gone() -> None:
    learner = SavesLearner("box")
    told(learner, None, VIEW)
    assert list(saves_changes(VIEW, VIEW)) == []
    after = view_of(WS, replace(DEV, note="other"), trash=(SANDBOX,))
    lines = list(saves_changes(VIEW, after))
    assert lines[0]["saves"] == {DEV.key: {"note": "other"}}
    assert lines[-1]["gone"] == [HERE.key] and lines[-1]["gone_trash"] == [GONE.key]
    for line in lines:
        seen = learner.learn(encode_line(line))
    assert seen is not None
    assert [(save.name, save.note) for save in seen.saves] == [("ws", ""), ("dev", "other")]
    assert [found.name for found in seen.trash] == ["web"]


def test_verdicts_of_the_other_apps_are_not_ours() -> None:
    marked = replace(DEV, verdict=Verification(deep=True, when=1.0))
    (save,) = told(SavesLearner("box"), None, view_of(marked)).saves
    assert save.verdict is None


def test_many_come_in_lines_that_are_short_enough() -> None:
    many = [saved(f"save-{number:05}", note="x" * 900) for number in range(3000)]
    lines = [encode_line(line) for line in saves_changes(None, view_of(*many))]
    assert len(lines) > 5 and max(map(len, lines)) < 2 * ROUGHLY
    learner = SavesLearner("box")
    assert [learner.learn(line) is None for line in lines] == [True] * (len(lines) - 1) + [False]


def test_times_are_put_right() -> None:
    learner = SavesLearner("box")
    learner.skew = 100.0
    seen = told(learner, None, VIEW)
    assert seen.saves[1].created == (DEV.created or 0) + 100
    assert seen.trash[0].removed == GONE.removed + 100
    assert [found.until for found in seen.trash] == [(GONE.until or 0) + 100, None]


def test_names_that_are_hostile_are_cut_and_cleaned() -> None:
    evil = "\x1b[31m\u202e" + "x" * 100_000
    line = {"saves": {"/s": {"name": evil, "address": evil, "problems": [evil], "parent": evil}}}
    seen = SavesLearner("box").learn(encode_line(line))
    assert seen is not None
    (save,) = seen.saves
    for text in (save.name, save.address, save.parent, *save.problems):
        assert "\x1b" not in text and "\u202e" not in text and len(text) <= 1001
    assert len(save.name) <= 201
    line = {"trash": {"/t": {"name": evil, "kind": evil, "id": "--empty"}}}
    seen = SavesLearner("box").learn(encode_line(line))
    assert seen is not None
    (found,) = seen.trash
    assert found.kind == "save" and len(found.name) <= 201
    # An id that looks like an option is an argument all the same.
    verb = restore(found)
    assert words_of(find_verb(verb.name), "", verb.values) == ["restore", "--", "--empty"]


@each(
    "line",
    [
        {"saves": {"relative": {}}},
        {"saves": {"--now": {}}},
        {"saves": {"/with\0zero": {}}},
        {"saves": {"/" + "x" * 5000: {}}},
        {"saves": []},
        {"trash": {"/t": []}},
        {"gone": "x"},
        {"saves": {"/s": {"own": -5}}},
        {"saves": {"/s": {"own": "1"}}},
        {"saves": {"/s": {"created": 1e400}}},
        {"saves": {"/s": {"shared_files": {"a": 1}}}},
        {"saves": {"/s": {"shared_files": [[[1, 2], [3, 4, -5]]]}}},
        {"saves": {"/s": {"shared_files": [[[1], [3, 4, 5]]]}}},
        {"saves": {"/s": {"sandboxes": ["x"] * 10_001}}},
        {"trash": {"/t": {"removed": None}}},
        {"size": "all"},
    ],
    ids=lambda line: json.dumps(line)[:40],
)
def test_what_makes_no_sense_is_refused_and_nothing_of_it_kept(line: Any) -> None:
    learner = SavesLearner("box")
    told(learner, None, VIEW)
    with pytest.raises(ForeignValueError):
        learner.learn(json.dumps(line).encode())
    seen = learner.learn(b"{}")
    assert seen is not None and len(seen.saves) == 3


def test_what_this_end_fills_in_is_not_taken() -> None:
    line = {"saves": {"/s": {"name": "s", "host": "other", "away": True, "key": "/etc", "n": 1}}}
    seen = SavesLearner("box").learn(encode_line(line))
    assert seen is not None
    assert (seen.saves[0].host, seen.saves[0].away, seen.saves[0].key) == ("box", False, "box:/s")


def test_all_that_is_kept_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(far_lines, "SAVES", replace(far_lines.SAVES, most=3))
    with pytest.raises(ForeignValueError, match="more than 3 saves"):
        SavesLearner("box").learn(encode_line({"saves": {f"/{n}": {} for n in range(4)}}))
    monkeypatch.undo()
    monkeypatch.setattr(far_lines, "LINES_MAX", 10_000)
    learner = SavesLearner("box")
    with pytest.raises(ForeignValueError, match="more than 10000 bytes"):
        for number in range(100):
            learner.learn(encode_line({"saves": {f"/{number}": {"note": "x" * 900}}}))


def test_paths_that_cannot_be_sent_are_left_out() -> None:
    odd = saved("odd", path="/saves/\udcff")
    seen = told(SavesLearner("box"), None, view_of(DEV, odd))
    assert [save.name for save in seen.saves] == ["dev"]


def test_an_empty_machine_is_told_as_one() -> None:
    assert told(SavesLearner("box"), None, SavesView()) == SavesView()
    error = replace(SAVES, error="no right to read")
    assert told(SavesLearner("box"), None, error).error == "no right to read"
    assert not NO_SAVES.loaded


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner),
    max_leaves=12,
)
NAMES = st.sampled_from(["name", "own", "shared_files", "created", "problems", "until", "kind"])
THINGS = st.dictionaries(
    st.sampled_from(["/a", "/b", "c"]), st.dictionaries(NAMES, PLAIN, max_size=4) | PLAIN
)


@given(st.dictionaries(st.sampled_from(["saves", "trash", "gone", "more"]), THINGS | PLAIN))
def test_nothing_that_comes_does_more_than_be_refused(line: Any) -> None:
    learner = SavesLearner("box")
    with contextlib.suppress(ForeignValueError):
        learner.learn(json.dumps(line).encode())
    assert learner.learn(b"{}") is not None
