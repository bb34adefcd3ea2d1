"""Values and errors on their way between machines: what comes back is what was sent, of the type
that was declared, or it is refused."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from quicksand.base.errors import (
    AgentRefusedError,
    CheckpointNotFoundError,
    CommandFailedError,
    HostError,
    MachineError,
    QuicksandError,
    RemoteError,
    RemoteProtocolError,
    RemoteRefusedError,
    SaveNotFoundError,
    StateError,
)
from quicksand.base.remedies import Remedy, Words
from quicksand.hosted.codec import (
    KNOWN,
    METHODS,
    NAMES,
    ForeignValueError,
    Known,
    decode,
    decode_error,
    encode,
    encode_error,
    hints_of,
)
from quicksand.life.qmp_events import Event, EventKind
from quicksand.records.config import NetworkMode, SandboxConfig
from quicksand.records.mount import Mount
from quicksand.records.port_forwards import PortForward
from quicksand.things.checkpoint import Checkpoint

from tests.each import each

CHECKPOINT = Checkpoint(
    tag="one",
    id="ab12cd34ef56",
    parent=None,
    created=1_700_000_000.5,
    note="näht",
    tier="pages",
    tier_note="",
    auto=False,
    pinned=True,
    pause_s=0.01,
    bytes_written=4096,
)
CONFIG = SandboxConfig(
    image="debian",
    network_mode=NetworkMode.FULL,
    mounts=(Mount("/data", "/mnt/data", readonly=True),),
    port_forwards=(PortForward(host=8080, guest=80),),
)


@each(
    ("value", "wanted"),
    [
        (None, type(None)),
        (True, bool),
        (7, int | None),
        (7.5, float),
        (math.inf, float),
        ("text", str | None),
        (b"\0bytes", bytes),
        (Path("/a/b"), Path),
        ((1, "two"), tuple[int, str]),
        ((1, 2, 3), tuple[int, ...]),
        ([1, 2], list[int]),
        ({8080: 80}, dict[int, int]),
        ({"a": (1, 2)}, Mapping[str, tuple[int, int]]),
        ("ro", Literal["ro", "rw"] | None),
        (NetworkMode.FULL, NetworkMode),
        (Event(kind=EventKind.PAUSED, time=1.5), Event),
        (CHECKPOINT, Checkpoint),
        (CONFIG, SandboxConfig),
        (
            Known(
                id="a",
                name="b",
                config=CONFIG,
                checkpoints=[CHECKPOINT],
                qemu_command=["qemu"],
                notices=[],
                active_mounts=[],
            ),
            Known,
        ),
    ],
)
def test_a_value_comes_back_as_it_was(value: Any, wanted: Any) -> None:
    line = json.dumps(encode(value))
    assert decode(json.loads(line), wanted) == value


@each(
    ("value", "wanted"),
    [
        (1, bool),
        (True, int),
        ("1", int),
        (2**70, int),
        ("x", float),
        (["a"], list[int]),
        ([1], tuple[int, str]),
        ("no base64!", bytes),
        ("wo", Literal["ro", "rw"]),
        ("everything", NetworkMode),
        ("text", Checkpoint),
        ({}, Checkpoint),
        ({**encode(CHECKPOINT), "tier": "gold"}, Checkpoint),
        ({**encode(CHECKPOINT), "created": "now"}, Checkpoint),
        ({"host": 99999, "guest": 80}, PortForward),
        ([["a", 1], ["b"]], dict[str, int]),
        (None, str),
        ("a\0b", Path),
    ],
)
def test_a_value_of_another_type_is_refused(value: Any, wanted: Any) -> None:
    with pytest.raises(ForeignValueError):
        decode(value, wanted)


def test_what_a_newer_machine_adds_is_passed_over() -> None:
    coded = {**encode(CHECKPOINT), "colour": "blue"}
    assert decode(coded, Checkpoint) == CHECKPOINT


def test_a_value_that_is_deep_is_refused() -> None:
    deep: Any = []
    for _ in range(100):
        deep = [deep]
    with pytest.raises(ForeignValueError, match="deep"):
        encode(deep)


def test_objects_of_other_classes_are_not_sent() -> None:
    with pytest.raises(ForeignValueError):
        encode(object())


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(JSON)
def test_anything_that_comes_is_read_or_refused(value: Any) -> None:
    for wanted in (Known, Checkpoint, SandboxConfig, Sequence[int] | None, dict[str, bytes]):
        try:
            decode(value, wanted)
        except ForeignValueError:
            continue


@each("name", METHODS)
def test_the_types_of_a_method_are_known(name: str) -> None:
    assert "return" in hints_of(METHODS[name])


@each("kind", [one for one in NAMES.values() if dataclasses.is_dataclass(one)])
def test_the_types_of_the_fields_are_known(kind: Any) -> None:
    assert hints_of(kind).keys() >= {field.name for field in dataclasses.fields(kind)}


# Errors


@each(
    "error",
    [
        StateError("no", hint="do that"),
        StateError("no", hint=Words(Remedy("start", name="web"), " starts it")),
        CheckpointNotFoundError("none"),
        SaveNotFoundError("none"),
        MachineError("it ended", log="last words"),
        AgentRefusedError("no", code="not_found", errno=2, parameter="path"),
        RemoteRefusedError("no", code="too_many"),
    ],
)
def test_an_error_is_of_the_same_class_there(error: QuicksandError) -> None:
    found = decode_error(json.loads(json.dumps(encode_error(error))), "box")
    assert type(found) is type(error)
    assert (str(found), found.hint) == (str(error), error.hint)
    for name in ("log", "code", "errno", "parameter"):
        assert getattr(found, name, None) == getattr(error, name, None)


@each("name", KNOWN)
def test_every_class_can_be_made(name: str) -> None:
    found = decode_error({"kinds": [name], "message": "it is so", "code": "busy"}, "box")
    wanted = RemoteError if issubclass(KNOWN[name], CommandFailedError) else KNOWN[name]
    assert type(found) is wanted


def test_of_a_class_that_is_not_known_the_next_one_is_made() -> None:
    found = decode_error({"kinds": ["NewError", "StateError"], "message": "no"}, "box")
    assert type(found) is StateError
    assert type(decode_error({"kinds": ["os.system"], "message": "no"}, "box")) is RemoteError


def test_an_error_of_the_system_is_one_of_the_host() -> None:
    found = decode_error(encode_error(PermissionError(13, "no")), "box")
    assert type(found) is HostError


@given(JSON)
def test_any_error_that_comes_is_read_or_refused(value: Any) -> None:
    for found in (value, {"kinds": [value], "message": "x", "hint": value, "errno": value}):
        try:
            assert isinstance(decode_error(found, "box"), QuicksandError)
        except RemoteProtocolError:
            continue
