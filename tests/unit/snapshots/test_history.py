"""A sandbox's history on disk: what is written comes back, damage is refused, and nothing that is
needed is ever removed."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from quicksand.base.errors import CheckpointNotFoundError, ConfigError, HistoryError, StateError
from quicksand.base.files import try_lock
from quicksand.base.removal import make_marked
from quicksand.records.layout import SandboxDir
from quicksand.records.nodes import TAG_MAX, File, Head, Node, check_tag, new_id
from quicksand.snapshots import history as module
from quicksand.snapshots.history import AUTO_KEPT, History, prune_automatic
from quicksand.snapshots.reverting import last_automatic
from quicksand.things.checkpoint import find_tier

from quicksand_tui.model.remedy_words import hint_of
from tests.each import each

IDS = st.text("0123456789abcdef", min_size=8, max_size=16)
NAMES = st.from_regex(r"[0-9a-z][0-9a-z.-]{0,80}", fullmatch=True)
TEXTS = st.text(max_size=20)
FILES = st.builds(
    File,
    name=NAMES,
    size=st.integers(0, 2**48),
    crcs=st.lists(st.integers(0, 2**32 - 1), max_size=3).map(tuple),
)
HEADS = st.builds(
    Head,
    layers=st.lists(IDS, max_size=3).map(tuple),
    top=IDS,
    node=st.none() | IDS,
    run=st.none() | TEXTS,
    memory=NAMES,
    machine=TEXTS,
)
TAGS = st.text(st.characters().filter(str.isprintable), min_size=1, max_size=TAG_MAX).filter(
    lambda tag: bool(tag.strip())
)
FLOATS = st.floats(0, 1e10)
NODES = st.builds(
    Node,
    id=IDS,
    tag=TAGS,
    parent=st.none() | IDS,
    created=FLOATS,
    note=TEXTS,
    tier=st.just(find_tier("pages")),
    tier_note=TEXTS,
    auto=st.booleans(),
    pinned=st.booleans(),
    pause_s=FLOATS,
    bytes_written=st.integers(0, 2**48),
    layers=st.lists(IDS, max_size=3).map(tuple),
    shape=st.dictionaries(TEXTS, st.integers() | TEXTS | st.lists(TEXTS, max_size=2), max_size=3),
    memory=NAMES,
    pages=st.lists(FILES, max_size=3).map(tuple),
    index=FILES,
    devices=FILES,
    token=TEXTS,
    image=st.none() | FILES,
)
INTERNAL_NODES = NODES.flatmap(
    lambda node: FILES.map(
        lambda state: replace(
            node,
            tier=find_tier("internal"),
            memory="blank",
            pages=(),
            index=None,
            devices=None,
            image=None,
            state=state,
        )
    )
)


# Records


@given(HEADS, st.none() | HEADS)
def test_a_head_comes_back_as_it_was(head: Head, previous: Head | None) -> None:
    head = replace(head, previous=previous)
    assert Head.from_json(json.loads(json.dumps(head.to_json()))) == head


def test_a_tier_that_there_is_not_makes_a_checkpoint_that_cannot_be_read() -> None:
    with pytest.raises(ValueError, match="there is no tier 'newer'"):
        Node.from_json({**PLAIN_NODE, "tier": "newer"})


@given(NODES | INTERNAL_NODES)
def test_a_checkpoint_comes_back_as_it_was(node: Node) -> None:
    assert Node.from_json(json.loads(json.dumps(node.to_json()))) == node


HEAD = Head(layers=("00000001",), top="00000002", node="0000000a", run="run", machine="1")
PREVIOUS = Head(layers=("00000001",), top="00000003", machine="2")
SAVED = "5a7e5a7e5a7e.ram"
"""A memory image."""


def pages_file(name: str) -> str:
    """The name of a file with pages, from a letter."""
    return f"{name.encode().hex() * 6}.pages"


FILE = File(name="a.pages", size=3, crcs=(1,))
NODE = Node(
    id="0000000a",
    tag="one",
    parent=None,
    created=1.0,
    note="",
    tier=find_tier("pages"),
    tier_note="",
    auto=False,
    pinned=False,
    pause_s=0.1,
    bytes_written=1,
    layers=("00000001",),
    shape={"cpus": 1},
    memory="blank",
    pages=(FILE,),
    index=FILE,
    devices=FILE,
    token="t",
)

INTERNAL = replace(
    NODE,
    tier=find_tier("internal"),
    pages=(),
    index=None,
    devices=None,
    state=File(name="0000000a.state", size=3, crcs=(1,)),
)

DISK = replace(INTERNAL, tier=find_tier("disk"), state=None)

PLAIN_HEAD = replace(HEAD, previous=PREVIOUS).to_json()
PLAIN_NODE = NODE.to_json()
PLAIN_INTERNAL = INTERNAL.to_json()
PLAIN_DISK = DISK.to_json()
PLAIN_FILE = FILE.to_json()
WRONG: list[Any] = [None, 5, 1e999, "../x", "a/b", "..", "", [], {}, [[]], "0000000a\n", "A\0b"]


@each("field", ["schema_version", "layers", "top", "memory"])
@each("wrong", WRONG, ids=repr)
def test_a_head_with_a_field_of_a_wrong_kind_is_refused(field: str, wrong: Any) -> None:
    if field == "layers" and wrong in ("", [], {}):
        return  # these are no layers
    with pytest.raises(ValueError):
        Head.from_json({**PLAIN_HEAD, field: wrong})


@each("wrong", [5, "x", [], [1], {}, {"schema_version": 1}], ids=repr)
def test_a_previous_head_of_a_wrong_kind_is_refused(wrong: Any) -> None:
    with pytest.raises(ValueError):
        Head.from_json({**PLAIN_HEAD, "previous": wrong})


@each("field", ["id", "tag", "created", "pages", "index", "devices", "memory"])
@each("wrong", WRONG, ids=repr)
def test_a_checkpoint_with_a_field_of_a_wrong_kind_is_refused(field: str, wrong: Any) -> None:
    valid: dict[str, Callable[[Any], bool]] = {
        "pages": lambda value: value in ("", [], {}),
        "created": lambda value: isinstance(value, (int, float)),
        "tag": lambda value: value in ("../x", "a/b", ".."),
    }
    if field in valid and valid[field](wrong):
        return
    with pytest.raises(ValueError):
        Node.from_json({**PLAIN_NODE, field: wrong})


@each("field", sorted({*PLAIN_NODE} - {"port", "shares", "origin"}))
def test_a_checkpoint_without_a_field_is_refused(field: str) -> None:
    with pytest.raises(ValueError):
        Node.from_json({name: value for name, value in PLAIN_NODE.items() if name != field})


def test_an_older_checkpoint_comes_from_the_image_that_it_lies_over() -> None:
    older = {name: value for name, value in PLAIN_NODE.items() if name != "origin"}
    assert Node.from_json(older).line == Node.from_json(older).memory


def test_an_older_checkpoint_may_hold_mounts() -> None:
    older = {name: value for name, value in PLAIN_NODE.items() if name != "shares"}
    assert Node.from_json(older).shares
    assert not Node.from_json(PLAIN_NODE).shares


@each("field", sorted(PLAIN_HEAD))
def test_a_head_without_a_field_is_refused(field: str) -> None:
    with pytest.raises(ValueError):
        Head.from_json({name: value for name, value in PLAIN_HEAD.items() if name != field})


@each(
    "changes",
    [
        {"state": None},
        {"index": PLAIN_FILE},
        {"devices": PLAIN_FILE},
        {"pages": [PLAIN_FILE]},
        {"image": PLAIN_FILE},
        {"firmware": PLAIN_FILE},
        {"memory": "0000000a.ram"},
        {"tier": "pages"},
        {"state": ["../x", 1, [1]]},
    ],
    ids=repr,
)
def test_files_of_the_other_tier_are_refused(changes: dict[str, Any]) -> None:
    assert Node.from_json(PLAIN_INTERNAL) == INTERNAL
    with pytest.raises(ValueError):
        Node.from_json({**PLAIN_INTERNAL, **changes})


@each(
    "changes",
    [
        {"state": PLAIN_FILE},
        {"index": PLAIN_FILE},
        {"devices": PLAIN_FILE},
        {"pages": [PLAIN_FILE]},
        {"memory": "0000000a.ram"},
        {"tier": "internal"},
        {"tier": "pages"},
    ],
    ids=repr,
)
def test_one_that_has_a_disk_only_has_no_other_files(changes: dict[str, Any]) -> None:
    assert Node.from_json(PLAIN_DISK) == DISK
    assert (DISK.files, DISK.own_files) == ((), ())
    with pytest.raises(ValueError):
        Node.from_json({**PLAIN_DISK, **changes})


@each(
    "changes",
    [
        {"state": PLAIN_FILE},
        {"index": None},
        {"devices": None},
        {"tier": "internal"},
        {"tier": "disk"},
    ],
)
def test_pages_need_an_index_and_devices_and_have_no_snapshot(changes: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        Node.from_json({**PLAIN_NODE, **changes})


def test_a_machine_that_goes_on_from_a_snapshot_has_no_known_pages() -> None:
    head = Head.going_on(INTERNAL, machine="2", previous=PREVIOUS)
    assert (head.node, head.run, head.layers) == (INTERNAL.id, None, INTERNAL.layers)
    assert (head.machine, head.previous, head.memory) == ("2", PREVIOUS, "blank")
    assert head.top not in INTERNAL.layers
    assert Head.going_on(NODE, machine="2").run


@each("name", ["../up", "a/b", "/etc/passwd", "..", ".", "", ".hidden", "a\0"])
def test_names_that_lead_elsewhere_are_refused(name: str) -> None:
    for plain in (
        {**PLAIN_NODE, "memory": name},
        {**PLAIN_NODE, "pages": [[name, 1, [1]]]},
        {**PLAIN_NODE, "image": [name, 1, [1]]},
        {**PLAIN_NODE, "layers": [name]},
        {**PLAIN_NODE, "parent": name},
    ):
        with pytest.raises(ValueError):
            Node.from_json(plain)


# Tags


@pytest.mark.parametrize(
    "tag",
    [
        "a",
        "two words",
        'it\'s "it"',
        "a/b",
        "../..",
        "🎉",
        "❤️",
        "日本",
        "-rf",
        "x" * 128,
        "é" * 128,
    ],
)
def test_people_may_call_a_checkpoint_what_they_like(history: History, tag: str) -> None:
    assert check_tag(tag) == tag
    add(history, "0000000a", tag=tag)
    assert history.find(tag).tag == tag


@each("tag", ["", " ", "   ", "x" * 129, "é" * 129, "a\nb", "a\0", "\x1b[31m", "\ud800"])
def test_what_cannot_be_shown_is_no_tag(tag: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check_tag(tag)
    assert str(caught.value).isprintable()
    with pytest.raises(ValueError):
        Node.from_json({**PLAIN_NODE, "tag": tag})


# The tree


@pytest.fixture
def history(tmp_path: Path) -> History:
    place = SandboxDir(make_marked(tmp_path / "b0c5b0c5b0c5"))
    for directory in (place.layers, place.memory, place.checkpoints):
        directory.mkdir()
    return History(place)


def add(history: History, id_: str, **values: Any) -> Node:
    """Commit a checkpoint, with files where they belong."""
    node = replace(NODE, **{"id": id_, "tag": id_, "pages": (), "layers": (), **values})
    directory = history.place.checkpoints / id_
    directory.mkdir()
    for name in ("devices", "pages.index"):
        (directory / name).write_text("x")
    for layer in node.layers:
        history.place.layer(layer).touch()
    for name in (*(file.name for file in node.pages), node.memory):
        (history.place.memory / name).touch()
    history.commit(node)
    return node


def stand(history: History, head: Head) -> None:
    history.set_head(head)
    for layer in (*head.layers, head.top):
        history.place.layer(layer).touch()


def names(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir()}


def pages(*names: str) -> tuple[File, ...]:
    return tuple(replace(FILE, name=pages_file(name)) for name in names)


def test_checkpoints_are_listed_the_oldest_first(history: History) -> None:
    add(history, "0000000c", created=1.0)
    add(history, "0000000a", created=3.0)
    add(history, "0000000b", created=2.0)
    assert [node.id for node in history.nodes()] == ["0000000c", "0000000b", "0000000a"]


def test_a_history_that_was_never_written_is_empty(tmp_path: Path) -> None:
    empty = History(SandboxDir(tmp_path / "nothing"))
    assert (empty.nodes(), empty.broken()) == ([], {})
    with pytest.raises(CheckpointNotFoundError):
        empty.find("x")
    with pytest.raises(HistoryError, match=r"head\.json"):
        empty.head()
    empty.sweep()


def test_every_truncation_of_a_record_is_seen(history: History) -> None:
    add(history, "0000000a")
    path = history.place.checkpoints / "0000000a" / "node.json"
    data = path.read_bytes()
    for length in range(len(data.rstrip())):
        path.write_bytes(data[:length])
        assert list(history.broken()) == ["0000000a"], length
        assert history.nodes() == []


def test_every_truncation_of_the_head_is_seen(history: History) -> None:
    stand(history, replace(HEAD, previous=PREVIOUS))
    data = history.place.head.read_bytes()
    for length in range(len(data.rstrip())):
        history.place.head.write_bytes(data[:length])
        with pytest.raises(HistoryError):
            history.head()


@pytest.mark.parametrize(
    "text", ["[]", "5", "null", "\xff", "[" * 100_000, '{"schema_version": 2}']
)
def test_what_is_no_record_is_an_error_and_no_crash(history: History, text: str) -> None:
    add(history, "0000000a")
    data = text.encode("latin-1")
    (history.place.checkpoints / "0000000a" / "node.json").write_bytes(data)
    history.place.head.write_bytes(data)
    assert list(history.broken()) == ["0000000a"]
    with pytest.raises(HistoryError):
        history.head()


def test_a_record_in_another_checkpoint_s_place_is_broken(history: History) -> None:
    add(history, "0000000a")
    (history.place.checkpoints / "0000000a").rename(history.place.checkpoints / "0000000b")
    assert list(history.broken()) == ["0000000b"]


def test_it_is_found_by_tag_and_by_id_and_the_latest_of_a_tag_counts(history: History) -> None:
    add(history, "0000000a", tag="same", created=1.0)
    add(history, "0000000b", tag="same", created=2.0)
    assert history.find("same").id == "0000000b"
    assert history.find("0000000a").id == "0000000a"


def test_an_id_is_never_mistaken_for_another_one_s_tag(history: History) -> None:
    add(history, "0000000a", created=1.0)
    add(history, "0000000b", tag="0000000a", created=2.0)
    assert history.find("0000000a").id == "0000000a"


def test_a_tag_that_is_nearly_right_is_answered_with_the_right_one(history: History) -> None:
    add(history, "0000000a", tag="before upgrade")
    with pytest.raises(CheckpointNotFoundError, match="'befor upgrade'") as caught:
        history.find("befor upgrade")
    assert caught.value.hint == "did you mean 'before upgrade'?"
    with pytest.raises(CheckpointNotFoundError) as caught:
        history.find("zzz")
    assert "tree" in hint_of(caught.value)


# Removing


def test_the_children_of_a_removed_checkpoint_become_its_parent_s(history: History) -> None:
    stand(history, HEAD)
    add(history, "0000000a")
    middle = add(history, "0000000b", parent="0000000a")
    add(history, "0000000c", parent="0000000b")
    add(history, "0000000d", parent="0000000b")
    history.remove(middle)
    assert {node.id: node.parent for node in history.nodes()} == {
        "0000000a": None,
        "0000000c": "0000000a",
        "0000000d": "0000000a",
    }
    history.remove(history.find("0000000a"))
    assert {node.parent for node in history.nodes()} == {None}


def test_removing_keeps_what_others_need(history: History) -> None:
    stand(history, replace(HEAD, node=None))
    layers = ("00000001", "00000004")
    old = add(history, "0000000a", pages=pages("x", "y"), layers=layers, memory="01d001d0.ram")
    add(history, "0000000b", pages=pages("y", "z"), layers=("00000001",), memory=SAVED)
    history.remove(old)
    assert names(history.place.memory) == {pages_file("y"), pages_file("z"), SAVED}
    assert names(history.place.layers) == {"00000001.qcow2", "00000002.qcow2"}
    assert names(history.place.checkpoints) == {"0000000b"}


def test_a_snapshot_s_file_stays_as_long_as_its_checkpoint(history: History) -> None:
    stand(history, replace(HEAD, run=None))
    (history.place.memory / "0000000a.state").touch()
    (history.place.memory / "0000000b.state").touch()
    node = replace(INTERNAL, layers=())
    (history.place.checkpoints / node.id).mkdir()
    history.commit(node)
    history.sweep()
    assert names(history.place.memory) == {"0000000a.state"}
    lock = try_lock(history.place.lock)
    assert lock is not None
    # Also if a running sandbox stands on it: nothing of it is used any more.
    history.remove(node)
    os.close(lock)
    assert names(history.place.memory) == set()
    assert history.head().node is None


def test_the_head_no_longer_descends_from_what_was_removed(history: History) -> None:
    stand(history, replace(HEAD, node="0000000b"))
    add(history, "0000000a")
    history.remove(add(history, "0000000b", parent="0000000a"))
    head = history.head()
    assert (head.node, head.run) == ("0000000a", None)
    assert (head.layers, head.top) == (HEAD.layers, HEAD.top)


def test_a_sweep_removes_only_what_nothing_needs(history: History) -> None:
    stand(history, HEAD)
    add(history, "0000000a", pages=pages("x"), layers=("00000005",))
    half = history.place.checkpoints / "0000000f"
    half.mkdir()
    (half / "devices").touch()
    (history.place.checkpoints / "not ours").mkdir()
    (history.place.memory / "0123456789ab.pages").touch()
    history.place.layer("0000000e").touch()
    for _ in range(2):
        history.sweep()
        assert names(history.place.checkpoints) == {"0000000a", "not ours"}
        assert names(history.place.memory) == {pages_file("x"), "blank"}
        assert names(history.place.layers) == {f"0000000{n}.qcow2" for n in (1, 2, 5)}
        assert names(history.place.checkpoints / "0000000a") == {
            "node.json",
            "devices",
            "pages.index",
        }


def test_who_stands_on_a_hidden_checkpoint_that_goes_stands_on_the_one_above(
    history: History,
) -> None:
    """Else nobody would know where the sandbox stands, and its next checkpoint would be a root."""
    add(history, "0000000a")
    add(history, "0000000b", parent="0000000a", hidden=True)
    # A start from the disk: no run has the memory of the hidden one any more.
    history.set_head(replace(HEAD, node="0000000b", run=None))
    history.sweep()
    assert history.head().node == history.position() == "0000000a"
    assert [node.id for node in history.all_nodes()] == ["0000000a"]


def test_automatic_checkpoints_go_but_for_the_last_and_those_that_mean_something(
    history: History,
) -> None:
    ids = [f"{n:08x}" for n in range(9)]
    marks: dict[int, dict[str, Any]] = {0: {"note": "precious"}, 1: {"pinned": True}}
    for n, id_ in enumerate(ids):
        add(history, id_, created=float(n), auto=True, **marks.get(n, {}))
    history.set_head(replace(HEAD, node=None))
    prune_automatic(history)
    assert [node.id for node in history.nodes()] == [*ids[:2], *ids[-AUTO_KEPT:]]


def test_what_is_undone_is_the_last_revert(history: History) -> None:
    with pytest.raises(StateError, match="'box' was never reverted: nothing to undo"):
        last_automatic(history, "box")
    for n, auto in enumerate((True, True, False)):
        add(history, f"{n:08x}", created=float(n), auto=auto)
    assert last_automatic(history, "box").id == "00000001"


@pytest.mark.parametrize("damage", ["", "{", '{"schema_version": 2}'])
def test_a_sweep_does_nothing_while_a_checkpoint_cannot_be_read(
    history: History, damage: str
) -> None:
    stand(history, HEAD)
    add(history, "0000000a", pages=pages("x"), layers=("00000005",))
    (history.place.checkpoints / "0000000a" / "node.json").write_text(damage)
    (history.place.checkpoints / "0000000f").mkdir()
    history.sweep()
    assert names(history.place.checkpoints) == {"0000000a", "0000000f"}
    assert pages_file("x") in names(history.place.memory)
    assert "00000005.qcow2" in names(history.place.layers)


@pytest.mark.parametrize("damage", [None, "{"])
def test_a_sweep_keeps_layers_while_the_head_cannot_be_read(
    history: History, damage: str | None
) -> None:
    history.place.layer("0000000e").touch()
    if damage is not None:
        history.place.head.write_text(damage)
    history.sweep()
    assert names(history.place.layers) == {"0000000e.qcow2"}


# Two heads


def test_while_a_machine_takes_over_the_other_one_s_files_are_kept(history: History) -> None:
    stand(history, replace(PREVIOUS, memory=SAVED))
    (history.place.memory / SAVED).touch()
    stand(history, replace(HEAD, previous=history.head()))
    lock = try_lock(history.place.lock)
    assert lock is not None
    history.sweep()
    assert names(history.place.layers) == {f"0000000{n}.qcow2" for n in (1, 2, 3)}
    assert names(history.place.memory) == {SAVED}
    os.close(lock)
    history.sweep()
    assert names(history.place.memory) == set()  # nothing runs that maps it


@pytest.mark.parametrize(("machine", "top"), [("1", "00000002"), ("2", "00000003")])
def test_the_machine_that_runs_decides_a_hand_over_that_was_cut_short(
    history: History, machine: str, top: str
) -> None:
    stand(history, replace(HEAD, previous=PREVIOUS))
    history.settle(machine)
    assert (history.head().top, history.head().previous) == (top, None)
    history.settle("another")
    assert history.head().top == top


# The lock

HOLDER = """
import fcntl, os, sys
descriptor = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
fcntl.flock(descriptor, fcntl.LOCK_EX)
print("held", flush=True)
sys.stdin.read()
"""


async def test_another_process_that_holds_the_lock_is_waited_for_then_named(
    history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", HOLDER, str(history.place.history_lock)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert holder.stdout is not None
    holder.stdout.readline()
    with monkeypatch.context() as patch:
        patch.setattr(module, "LOCK_WAIT_S", 0.0)
        with pytest.raises(HistoryError, match="another client"):
            async with history.locked():
                pass

    async def wait() -> None:
        async with history.locked():
            assert holder.poll() is not None

    waiting = asyncio.create_task(wait())
    await asyncio.sleep(0)
    assert not waiting.done()
    holder.communicate()
    await asyncio.wait_for(waiting, 60)


async def test_the_lock_is_freed_after_any_end(history: History) -> None:
    with pytest.raises(RuntimeError):
        async with history.locked():
            descriptor = os.open(history.place.history_lock, os.O_RDWR)
            with pytest.raises(BlockingIOError):
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            raise RuntimeError
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(descriptor)
    async with history.locked():
        pass


def test_ids_are_new(history: History) -> None:
    assert len({new_id() for _ in range(100)}) == 100


def test_a_hint_names_the_sandbox(tmp_path: Path) -> None:
    place = SandboxDir(tmp_path)
    with pytest.raises(CheckpointNotFoundError) as caught:
        History(place).find("none")
    assert hint_of(caught.value) == "`quicksand-tui tree NAME` lists them", "it has no record"
    place.record.write_text('{"name": "web"}')
    with pytest.raises(CheckpointNotFoundError) as caught:
        History(place).find("none")
    assert hint_of(caught.value) == "`quicksand-tui tree web` lists them"
    with pytest.raises(HistoryError) as lost:
        History(place).head()
    assert "start --at TAG web" in hint_of(lost.value)
