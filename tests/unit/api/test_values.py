"""The codec, the fields, signatures, keys and records: values, without a server."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from quicksand import (
    AgentRefusedError,
    AgentTooOldError,
    ConfigError,
    ImageNotFound,
    Login,
    PathError,
    QuicksandError,
)
from quicksand.base.remedies import Remedy, Words
from quicksand_e2b import wire
from quicksand_e2b.asked import Asked
from quicksand_e2b.errors import ApiError, RpcError, api_error, file_error, rpc_error
from quicksand_e2b.fields import BODY_MAX, Body, parse_json
from quicksand_e2b.filesystem import moment
from quicksand_e2b.gate import is_ours
from quicksand_e2b.guest_paths import absolute
from quicksand_e2b.keys import Keys
from quicksand_e2b.records import Records, SandboxRecord, State, is_id, new_id
from quicksand_e2b.signatures import check_expiration, is_signed, sign
from quicksand_e2b.users import user_of

from tests.conftest import examples
from tests.each import each

LOGIN = Login(name="user", uid=1000, gid=1000, home="/home/user", shell="/bin/bash")
_objects = st.dictionaries(st.text(), st.none() | st.booleans() | st.integers() | st.text())


def _feed(decoder: wire.Decoder, data: bytes, cuts: list[int]) -> list[wire.Message]:
    found, begin = [], 0
    for cut in [*sorted(c % (len(data) + 1) for c in cuts), len(data)]:
        found += list(decoder.feed(data[begin:cut]))
        begin = cut
    return found


@given(st.lists(_objects, max_size=5), st.lists(st.integers(min_value=0), max_size=5))
def test_messages_come_out_as_they_went_in_however_they_are_cut(
    values: list[dict[str, object]], cuts: list[int]
) -> None:
    data = b"".join(map(wire.encode, values)) + wire.encode_end()
    decoder = wire.Decoder()

    found = _feed(decoder, data, cuts)

    decoder.check_end()
    assert [m.value for m in found] == [*values, {}]
    assert [m.is_end for m in found] == [False] * len(values) + [True]


@settings(max_examples=examples(300))
@example(b"\x01\0\0\0\0")
@example(b"\0\xff\xff\xff\xff")
@example(b"\0\0\0\0\x02[]")
@given(st.binary(max_size=64))
def test_nonsense_is_refused_or_waited_for(data: bytes) -> None:
    decoder = wire.Decoder(most=32)
    try:
        list(decoder.feed(data))
    except RpcError as error:
        assert error.code in ("invalid_argument", "resource_exhausted")
    except ApiError as error:
        assert error.status == 400


def test_an_incomplete_message_is_no_end() -> None:
    decoder = wire.Decoder()
    list(decoder.feed(wire.encode({"a": 1})[:-1]))
    with pytest.raises(RpcError):
        decoder.check_end()


def test_the_end_of_a_stream_carries_its_error() -> None:
    (found,) = wire.Decoder().feed(wire.encode_end(RpcError("not_found", "gone")))
    assert found.is_end
    assert found.value == {"error": {"code": "not_found", "message": "gone"}}


@each(
    "data",
    [b"[" * 200_000, b'{"a":' * 100_000, b"[]", b"7", b"{", b'{"a": 1e', b"\xff",
     b"x" * (BODY_MAX + 1)],
    ids=["deep list", "deep object", "list", "number", "cut", "number cut", "no UTF-8", "large"],
)  # fmt: skip
def test_json_that_is_no_bounded_object_is_refused(data: bytes) -> None:
    with pytest.raises(ApiError) as caught:
        parse_json(data)
    assert caught.value.status in (400, 413)


@settings(max_examples=examples(300))
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
        max_leaves=6,
    )
)
def test_a_member_of_another_type_is_refused_by_its_name(value: object) -> None:
    body = Body({"it": value})
    for read in (
        lambda: body.text("it"), lambda: body.flag("it", False), lambda: body.texts("it"),
        lambda: body.whole("it", most=10), lambda: body.text_map("it"), lambda: body.part("it"),
        lambda: body.data("it"),
    ):  # fmt: skip
        try:
            read()
        except ApiError as error:
            assert error.status == 400
            assert "it" in error.message


def test_members_are_found_as_protobuf_may_spell_them() -> None:
    body = Body({"include_entry": True, "size": "12", "data": "aGk="})
    assert body.flag("includeEntry", False)
    assert body.whole("size", most=20) == 12
    assert body.data("data") == b"hi"


@each("text", ["\0", "a\0b", "\ud800"])
def test_text_that_no_guest_can_take_is_refused(text: str) -> None:
    with pytest.raises(ApiError):
        Body({"it": text}).text("it")
    with pytest.raises(ApiError):
        Body({"it": {"k": text}}).text_map("it")


def test_a_signature_is_that_of_its_request_alone() -> None:
    good = sign("a b", "read", "user", "token", 5)
    assert good.startswith("v1_")
    assert "=" not in good
    assert is_signed(good, "a b", "read", "user", "token", 5)
    for other in (
        ("a", "read", "user", "token", 5), ("a b", "write", "user", "token", 5),
        ("a b", "read", "", "token", 5), ("a b", "read", "user", "other", 5),
        ("a b", "read", "user", "token", 6), ("a b", "read", "user", "token", None),
    ):  # fmt: skip
        assert not is_signed(good, *other)
    # As the SDK makes it: SHA-256 of path:operation:user:token.
    assert sign("p", "read", "", "t", None) == "v1_72NTvJrILEPB3XKClWTVldqJRT97TDh0zDDlZpWcNTY"


def test_a_signature_whose_time_is_over_is_told_in_the_words_of_the_protocol() -> None:
    check_expiration(int(time.time()) + 60)
    with pytest.raises(ApiError) as caught:
        check_expiration(int(time.time()) - 60)
    assert caught.value.body() == {"code": 401, "message": "signature is already expired"}


def test_keys_are_private_and_each_has_an_owner(tmp_path: Path) -> None:
    keys = Keys(tmp_path / "api")
    first = keys.require()
    second = keys.add("ci")

    assert first.key.startswith("e2b_")
    assert len(first.key) == 44
    assert keys.path.stat().st_mode & 0o777 == 0o600
    assert keys.path.parent.stat().st_mode & 0o777 == 0o700
    assert keys.owner_of(first.key) == "default"
    assert keys.owner_of(second.key) == "ci"
    assert keys.owner_of("") is None
    assert keys.owner_of("e2b_\udcff") is None
    assert keys.require() == first

    keys.remove("ci")

    assert keys.owner_of(second.key) is None
    with pytest.raises(ConfigError):
        keys.remove("ci")
    with pytest.raises(ConfigError):
        keys.require("ci")
    with pytest.raises(ConfigError):
        keys.add("default")
    with pytest.raises(ConfigError):
        keys.add("../x")


def test_keys_that_cannot_be_read_are_told_and_left(tmp_path: Path) -> None:
    keys = Keys(tmp_path)
    keys.path.write_text('{"schema_version": 9, "keys": []}')
    with pytest.raises(PathError):
        keys.list()
    with pytest.raises(PathError):
        keys.add("x")


def _record() -> SandboxRecord:
    return SandboxRecord(
        id=new_id(), owner="o", template="base", state=State.RUNNING, created=1.0, ends=2.0,
        on_timeout="kill", auto_resume=False, pauses_memory=True, token="t", traffic_token="u",
        cpus=1, memory_mb=512, disk_mb=8192, metadata={"a": "b"},
    )  # fmt: skip


def test_the_name_in_the_engine_does_not_tell_the_id_but_for_records_of_earlier_versions() -> None:
    record = _record()
    assert record.id not in record.name
    old = {**record.to_json(), "schema_version": 1}
    del old["shows_id"]
    assert SandboxRecord.from_json(old).name == "api-" + record.id
    assert SandboxRecord.from_json(SandboxRecord.from_json(old).to_json()).shows_id


async def test_records_are_read_as_they_were_written_and_damaged_ones_told(
    tmp_path: Path,
) -> None:
    told: list[str] = []
    records = Records(tmp_path, told.append)
    records.prepare()
    record = _record()
    await records.save(record)
    place = tmp_path / "sandboxes"
    (place / f"{new_id()}.json").write_text("{")
    (place / f"{new_id()}.json").write_text(json.dumps({**record.to_json(), "schema_version": 9}))
    (place / f"{new_id()}.json").write_text(json.dumps({**record.to_json(), "id": "../x"}))

    assert list(records.sandboxes()) == [record]
    assert len(told) == 3
    assert all("cannot be read" in words for words in told)
    for damaged in place.iterdir():
        if damaged.stem != record.id:
            damaged.unlink()

    await records.forget(record)
    await records.forget(record)
    assert list(records.sandboxes()) == []


def test_ids_fit_a_label_of_a_name() -> None:
    assert all(is_id(new_id()) for _ in range(100))
    assert len({new_id() for _ in range(100)}) == 100


@each(
    ("given", "wanted"),
    [
        ("", "/home/user"), ("~", "/home/user"), ("~/x", "/home/user/x"),
        ("x/../y", "/home/user/y"),
        ("//a//b/", "/a/b"), ("/../../etc", "/etc"), ("../../../etc/passwd", "/etc/passwd"),
    ],
)  # fmt: skip
def test_paths_begin_at_the_home_of_the_user(given: str, wanted: str) -> None:
    assert absolute(given, LOGIN) == wanted


@each("given", ["~root/x", "a\0b", "x" * 5000])
def test_paths_that_cannot_be_are_refused(given: str) -> None:
    with pytest.raises(RpcError) as caught:
        absolute(given, LOGIN)
    assert caught.value.code == "invalid_argument"


@each(
    ("host", "wanted"),
    [
        ("127.0.0.1:3000", True), ("[::1]:3000", True), ("localhost", True), ("192.0.2.7:80", True),
        ("8000-i0abc.qs.localhost:3000", True), ("called.example:1", True), ("LOCALHOST.", True),
        ("evil.example", False), ("localhost.evil.example", False), ("", False), ("a b", False),
        ("evil-localhost", False), ("xlocalhost", False),
    ],
)  # fmt: skip
def test_only_names_that_no_strangers_page_can_have_are_ours(host: str, wanted: bool) -> None:
    assert is_ours(host, frozenset({"called.example"})) is wanted


@each(
    ("unix_ns", "wanted"),
    [
        (0, "1970-01-01T00:00:00.000000000Z"),
        (1_500_000_001, "1970-01-01T00:00:01.500000001Z"),
        (-(10**9), "1969-12-31T23:59:59.000000000Z"),
        (-(62_000_000_000 * 10**9), "0005-04-19T09:46:40.000000000Z"),
        (2**63, "2262-04-11T23:47:16.854775808Z"),
        (-(2**80), "1970-01-01T00:00:00.000000000Z"),
    ],
)
def test_times_of_files_are_told_in_one_form(unix_ns: int, wanted: str) -> None:
    assert moment(unix_ns) == wanted


@each(
    ("header", "wanted"),
    [(None, None), ("", None), ("Basic dXNlcjo=", "user"), ("Basic Og==", None)],
)
def test_the_user_is_read_of_the_authorization(header: str | None, wanted: str | None) -> None:
    assert user_of(header) == wanted


@each("header", ["Bearer x", "Basic !", "Basic /w=="])
def test_another_authorization_is_refused(header: str) -> None:
    with pytest.raises(RpcError):
        user_of(header)


@each(
    "value",
    [
        {}, {"templateID": 7}, {"templateID": "../x"}, {"templateID": "/etc/passwd"},
        {"templateID": "a b"}, {"templateID": "base", "timeout": -1},
        {"templateID": "base", "timeout": "x"}, {"templateID": "base", "timeout": 1e300},
        {"templateID": "base", "metadata": {"a": 1}}, {"templateID": "base", "metadata": []},
        {"templateID": "base", "envVars": {"A=B": "x"}}, {"templateID": "base", "autoPause": "no"},
        {"templateID": "base", "metadata": {str(i): "x" for i in range(65)}},
        {"templateID": "base", "autoResume": {"enabled": True}, "autoPauseMemory": False},
        {"templateID": "base", "autoResume": []}, {"templateID": "base", "network": 7},
        {"templateID": "base", "network": {"denyOut": "0.0.0.0/0"}},
        {"templateID": "base", "network": {"denyOut": ["example.com"]}},
        {"templateID": "base", "network": {"allowOut": ["no name"]}},
        {"templateID": "base", "network": {"allowOut": ["*"]}},
        {"templateID": "base", "network": {"maskRequestHost": "a\r\nX: b"}},
        {"templateID": "base", "network": {"maskRequestHost": "${HOME}"}},
    ],
)  # fmt: skip
def test_a_request_that_makes_no_sense_is_refused(value: dict[str, object]) -> None:
    with pytest.raises(ApiError) as caught:
        Asked.parse(Body(value), timeout_s=300)
    assert caught.value.status == 400


@each(
    "more",
    [
        {"iam": {"x": 1}},
        {"volumeMounts": [1]},
        {"network": {"rules": {"example.com": []}}},
        {"network": {"egressProxy": {"host": "x"}}},
    ],
)
def test_what_is_not_implemented_is_said_and_not_ignored(more: dict[str, object]) -> None:
    with pytest.raises(ApiError) as caught:
        Asked.parse(Body({"templateID": "base", **more}), timeout_s=300)
    assert caught.value.status == 501


def test_what_helps_is_said_once_and_as_a_command() -> None:
    hint = Words(Remedy("build_image", name="debian"), " builds it")
    missing = ImageNotFound(Words("Image not found: 'debian' is not built yet; ", hint), hint=hint)
    assert api_error(missing).message == (
        "Image not found: 'debian' is not built yet; `quicksand-tui images build debian` builds it"
    )


TOO_OLD = [
    AgentTooOldError("the guest's agent is too old to carry watches", hint="start it again"),
    AgentRefusedError('no such method: "x"', code="no_such_method"),
]


@each("error", TOO_OLD)
def test_what_an_older_agent_cannot_do_is_unimplemented_and_no_fault_of_the_server(
    error: QuicksandError,
) -> None:
    procedure = rpc_error(error)
    assert (procedure.code, procedure.status) == ("unimplemented", 501)
    for failure in (procedure, api_error(error), file_error(error)):
        assert failure.status == 501
        assert "older than this server" in failure.message
        assert "start it again" not in failure.message, "a client cannot do that"
