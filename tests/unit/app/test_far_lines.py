"""What one machine tells of its sandboxes, and what another one makes of it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from quicksand.base.errors import RemoteError
from quicksand.base.paths import Paths
from quicksand.base.typed_values import ForeignValueError
from quicksand.guest.agent.wire import Stream
from quicksand.remote.peer_link import Channel, Request
from quicksand.things.status import Status

from quicksand_tui.door import far_lines
from quicksand_tui.door.far_end import answer_watch
from quicksand_tui.door.far_lines import (
    SANDBOXES,
    FarWorld,
    Learner,
    Lines,
    encode_line,
    world_changes,
)
from quicksand_tui.model.shown_sandboxes import SandboxView
from quicksand_tui.model.world import World
from tests.each import each
from tests.unit.app.fakes import FULL, KEPT, NOW, WEB, WEB_MOUNTS, WEB_PAST
from tests.unit.cli.run_cli import make_stopped
from tests.unit.remote.far import links, until

LATER = replace(
    KEPT,
    sandboxes=(replace(WEB_PAST, state=Status.PAUSED, disk=7, cpu_percent=None), WEB_MOUNTS),
    error="one cannot be read",
)


def told(before: World | None, after: World) -> bytes:
    return encode_line(world_changes(before, after)).rstrip(b"\n")


def shown(view: SandboxView) -> dict[str, Any]:
    """What is sent of a sandbox."""
    names = (one.name for one in fields(view))
    return {name: getattr(view, name) for name in names if name not in SANDBOXES.own}


def test_what_is_told_is_what_is_learned() -> None:
    learner, before = Learner(), None
    for world in (FULL, KEPT, LATER, replace(LATER, sandboxes=())):
        found = learner.learn(told(before, world))
        assert {id_: shown(view) for id_, view in found.sandboxes.items()} == {
            view.id: shown(view) for view in world.sandboxes
        }
        assert (found.images, found.host, found.error) == (world.images, world.host, world.error)
        before = world


def test_only_what_has_changed_is_told() -> None:
    after = replace(KEPT, taken=NOW + 1, sandboxes=(replace(WEB_PAST, disk=5), *KEPT.sandboxes[1:]))
    assert world_changes(KEPT, after) == {"sandboxes": {WEB.id: {"disk": 5}}, "now": NOW + 1}
    noted = replace(WEB_PAST.tree, changed=17)
    after = replace(KEPT, sandboxes=(replace(WEB_PAST, tree=noted), *KEPT.sandboxes[1:]))
    assert world_changes(KEPT, after)["sandboxes"] == {WEB.id: {"tree": {"changed": 17}}}
    assert world_changes(KEPT, replace(KEPT, taken=NOW + 9)) == {}


def test_readings_become_a_history_at_this_end() -> None:
    learner, before = Learner(), None
    for percent in (1.0, 2.0):
        world = replace(KEPT, sandboxes=(replace(WEB, cpu_percent=percent),))
        found = learner.learn(told(before, world))
        before = world
    assert found.sandboxes[WEB.id].history.cpu == (1.0, 2.0)


def test_a_newer_machine_may_tell_what_is_not_known_here() -> None:
    line = {"sandboxes": {WEB.id: {"name": "web", "state": "running", "mood": [1]}}, "moon": {}}
    assert Learner().learn(json.dumps(line).encode()).sandboxes[WEB.id].name == "web"


HOSTILE: tuple[object, ...] = (
    [],
    {"sandboxes": []},
    {"gone": {}},
    {"sandboxes": {"../../etc": {}}},
    {"sandboxes": {WEB.id: {"cpus": True}}},
    {"sandboxes": {WEB.id: {"cpus": "2"}}},
    {"sandboxes": {WEB.id: {"disk": 2**70}}},
    {"sandboxes": {WEB.id: {"created": float("nan")}}},
    {"sandboxes": {WEB.id: {"state": "happy"}}},
    {"sandboxes": {WEB.id: {"ports": [[1, 2, 3]]}}},
    {"sandboxes": {WEB.id: {"tree": 5}}},
    {"sandboxes": {WEB.id: {"tree": {"checkpoints": [{"id": "c1"}]}}}},
    {"sandboxes": {WEB.id: {"tree": {"checkpoints": [{"id": 5, "tag": "", "name": ""}]}}}},
    {"sandboxes": {WEB.id: {"mounts": [{"key": "/x\0", "host": "", "guest": ""}]}}},
    {"sandboxes": {f"{number:012x}": {} for number in range(SANDBOXES.most + 1)}},
    {"images": [{"version": "13"}]},
    {"images": [{"name": "x", "machine": {"memory": 5}}]},
    {"host": {"memory_free": -(2**63)}},
    {"now": "yesterday"},
)


@each("line", HOSTILE, ids=lambda line: json.dumps(line)[:60])
def test_what_makes_no_sense_is_refused(line: object) -> None:
    learner = Learner()
    before = learner.learn(told(None, FULL))
    with pytest.raises(ForeignValueError):
        learner.learn(json.dumps(line).encode())
    assert learner.world is before


@each("line", [b"", b"{", b"\xff", b"[" * 100_000])
def test_what_is_no_json_is_refused(line: bytes) -> None:
    with pytest.raises(ForeignValueError):
        Learner().learn(line)


def test_text_of_a_machine_is_harmless_and_short() -> None:
    nasty = "\x1b]0;owned\x07" + "\u202e" + "x" * 100_000
    tree = {"checkpoints": [{"id": "c1", "tag": nasty, "name": nasty, "note": nasty}]}
    line = {"sandboxes": {WEB.id: {"name": nasty, "error": nasty, "tree": tree}}, "error": nasty}
    found = Learner().learn(json.dumps(line).encode())
    view = found.sandboxes[WEB.id]
    (made,) = view.tree.checkpoints
    for text in (view.name, view.error, made.tag, made.note, found.error):
        assert text.isprintable()
        assert len(text) <= far_lines.TEXT_MAX


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=12,
)
facts = st.dictionaries(
    st.sampled_from([one.name for one in fields(SandboxView)]), json_values, max_size=6
)


@given(facts, json_values, json_values)
def test_whatever_a_machine_tells_it_is_learned_or_refused(
    told: dict[str, Any], images: Any, host: Any
) -> None:
    learner = Learner()
    line = json.dumps({"sandboxes": {WEB.id: told}, "images": images, "host": host})
    try:
        found = learner.learn(line.encode())
    except ForeignValueError:
        assert learner.world.sandboxes == {}
        return
    assert isinstance(found.sandboxes[WEB.id].state, Status)


@given(st.lists(st.binary(min_size=1, max_size=40).filter(lambda one: b"\n" not in one)), st.data())
def test_lines_come_in_any_pieces(sent: list[bytes], data: st.DataObject) -> None:
    lines, whole = Lines(), b"".join(one + b"\n" for one in sent)
    found: list[bytes] = []
    while whole:
        count = data.draw(st.integers(1, len(whole)))
        found += lines.feed(whole[:count])
        whole = whole[count:]
    assert found == sent


def test_a_line_without_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(far_lines, "LINE_MAX", 100)
    with pytest.raises(ForeignValueError):
        list(Lines().feed(b"x" * 101))
    with pytest.raises(ForeignValueError):
        list(Lines().feed(b"x" * 101 + b"\n"))
    assert list(Lines().feed(b"x" * 100 + b"\n")) == [b"x" * 100]


def test_what_is_kept_of_a_machine_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(far_lines, "LINES_MAX", 10_000)
    learner = Learner()
    with pytest.raises(ForeignValueError, match="told more than"):
        for number in range(100):
            noted = {"tree": {"checkpoints": [{"id": "1", "tag": "t" * 900, "name": "n"}]}}
            line = {"sandboxes": {f"{number:012x}": noted}}
            learner.learn(json.dumps(line).encode())


# The far end


async def answer(request: Request) -> None:
    assert request.method == "watch"
    await answer_watch(request)


async def learned(channel: Channel) -> AsyncIterator[FarWorld]:
    """What the far end has told, after each line."""
    learner, lines = Learner(), Lines()
    while True:
        piece = await channel.piece()
        assert piece.stream == Stream.STDOUT
        for line in lines.feed(piece.data):
            yield learner.learn(line)


async def test_a_machine_tells_what_happens_to_its_sandboxes(places: Paths) -> None:
    make_stopped(places, "web")
    async with links(answer) as (asking, _), asyncio.timeout(60):
        channel = asking.open("watch")
        await channel.reply
        worlds = learned(channel)
        names = {view.name for view in (await anext(worlds)).sandboxes.values()}
        assert names == {"web"}
        make_stopped(places, "db")
        while names != {"web", "db"}:
            names = {view.name for view in (await anext(worlds)).sandboxes.values()}
        channel.tell("look", visible=["x" * 12, 5], fresh=True)
        make_stopped(places, "third")
        while "third" not in names:
            names = {view.name for view in (await anext(worlds)).sandboxes.values()}


async def test_it_ends_with_its_client(places: Paths) -> None:
    over = asyncio.Event()

    async def answer(request: Request) -> None:
        try:
            await answer_watch(request)
        except RemoteError:
            over.set()

    async with links(answer) as (asking, _):
        channel = asking.open("watch")
        await channel.reply
    await until(over.is_set, "the watch to end")
