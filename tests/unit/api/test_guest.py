"""Processes and files of a guest that is a fake, over real HTTP."""

from __future__ import annotations

import asyncio
import base64
import gzip
import io
import time
from typing import Any

import aiohttp
import pytest
from quicksand import AgentRefusedError, AgentTooOldError
from quicksand_e2b import fanout, lines, rpc
from quicksand_e2b.contents import filename_of
from quicksand_e2b.fields import BODY_MAX
from quicksand_e2b.records import engine_name
from quicksand_e2b.signatures import sign

from tests.each import each
from tests.unit.api.fakes import Api, FakeGuest, decode, envelope, next_message, text_of, until

UNARY = [
    "process.Process/List", "process.Process/Update", "process.Process/SendInput",
    "process.Process/SendSignal", "process.Process/CloseStdin", "filesystem.Filesystem/Stat",
    "filesystem.Filesystem/MakeDir", "filesystem.Filesystem/Move",
    "filesystem.Filesystem/ListDir", "filesystem.Filesystem/Remove",
]  # fmt: skip
STREAMS = ["process.Process/Start", "process.Process/Connect", "process.Process/StreamInput"]
BASH = {"cmd": "/bin/bash", "args": ["-l", "-c", "sleep 60"]}


@each("name", [*UNARY, *STREAMS])
async def test_procedures_want_the_token_of_their_sandbox(api: Api, name: str) -> None:
    one, other = await api.create(), await api.create()
    for token in ("", other["envdAccessToken"], one["envdAccessToken"] + "x"):
        headers = {**api.headers(one), "X-Access-Token": token}
        response = await api.client.post(f"/{name}", json={}, headers=headers)
        assert response.status == 401
        assert (await response.json())["code"] == "unauthenticated"
    assert api.guest(one).spawned == []


@each("name", UNARY)
@each(
    "body",
    [b"[]", b"{", b"[" * 50_000, b'{"a": "' + b"x" * BODY_MAX + b'"}',
     b'{"path": 7, "source": 7, "process": [], "signal": 1, "depth": "x"}'],
    ids=["list", "cut", "deep", "large", "types"],
)  # fmt: skip
async def test_messages_that_make_no_sense_are_refused(api: Api, name: str, body: bytes) -> None:
    made = await api.create()
    headers = {**api.headers(made), "Content-Type": "application/json"}
    response = await api.client.post(f"/{name}", data=io.BytesIO(body), headers=headers)
    if name == "process.Process/List" and b"path" in body:
        assert response.status == 200
        return
    assert response.status in (400, 429)
    assert (await response.json())["code"] in ("invalid_argument", "resource_exhausted")


@each("name", STREAMS)
@each(
    "body",
    [b"", b"\0\0", b"\0\0\0\0\x01{", envelope([]), envelope({}), envelope({"process": 7}),
     envelope({"process": {"cmd": 7}}), b"\x01\0\0\0\x02{}", b"\0\xff\xff\xff\xff",
     envelope({"process": {"pid": "x"}}), envelope({"start": {"process": {"pid": -1}}})],
    ids=["nothing", "cut head", "no JSON", "list", "empty", "wrong process", "wrong cmd",
         "compressed", "large", "wrong pid", "negative pid"],
)  # fmt: skip
async def test_streams_that_make_no_sense_end_with_an_error(
    api: Api, name: str, body: bytes
) -> None:
    made = await api.create()
    headers = {**api.headers(made), "Content-Type": "application/connect+json"}
    response = await api.client.post(f"/{name}", data=body, headers=headers)
    assert response.status == 200
    messages = decode(await response.read())
    if name.endswith("StreamInput") and not body:
        assert messages == [{}, {"end of stream": {}}]
        return
    (end,) = messages
    code = end["end of stream"]["error"]["code"]
    assert code in ("invalid_argument", "resource_exhausted"), end
    assert api.guest(made).spawned == []


async def test_a_command_runs_from_start_to_end(api: Api) -> None:
    made = await api.create(envVars={"A": "sandbox", "B": "sandbox"})

    messages = await api.run(made, "echo hello")

    assert messages[0] == {"event": {"start": {"pid": 101}}}
    assert text_of(messages) == "hello\n"
    assert messages[-2] == {
        "event": {"end": {"exitCode": 0, "exited": True, "status": "exit status 0"}}
    }
    assert messages[-1] == {"end of stream": {}}
    (spawned,) = api.guest(made).spawned
    assert spawned["user"] == "user"
    assert spawned["env"] == {
        "E2B_SANDBOX": "true",
        "E2B_SANDBOX_ID": made["sandboxID"],
        "E2B_TEMPLATE_ID": "base",
        "A": "sandbox",
        "B": "sandbox",
    }
    assert spawned["detach"] is True
    assert spawned["stdin"] is False


async def test_a_request_says_as_whom_where_and_with_what(api: Api) -> None:
    made = await api.create(envVars={"A": "sandbox"})
    process = {**BASH, "args": ["-c", "exit 3"], "envs": {"A": "mine"}, "cwd": "sub"}
    value = {"process": process, "tag": "t"}
    basic = "Basic " + base64.b64encode(b"root:").decode()

    response = await api.open(
        made, "process.Process/Start", value, Authorization=basic, **{"connect-timeout-ms": "1500"}
    )

    messages = decode(await response.read())
    end = messages[-2]["event"]["end"]
    assert (end["exitCode"], end["error"]) == (3, "exit status 3")
    assert text_of(messages, "stderr") == "bye"
    (spawned,) = api.guest(made).spawned
    assert (spawned["user"], spawned["cwd"]) == ("root", "/root/sub")
    assert spawned["env"]["A"] == "mine"
    assert spawned["timeout"] == 1.5


@each(
    ("more", "code"),
    [
        ({"process": {"cmd": "/no/such"}}, "invalid_argument"),
        ({"process": {"cmd": "x\0y"}}, "invalid_argument"),
        ({"process": {"cmd": "x", "cwd": "~other"}}, "invalid_argument"),
    ],
)
async def test_what_cannot_be_started_is_told(api: Api, more: dict[str, Any], code: str) -> None:
    made = await api.create()
    response = await api.open(made, "process.Process/Start", more)
    (end,) = decode(await response.read())
    assert end["end of stream"]["error"]["code"] == code


async def test_an_unknown_user_is_not_authenticated(api: Api) -> None:
    made = await api.create()
    basic = "Basic " + base64.b64encode(b"nobody-here:").decode()
    response = await api.rpc(made, "filesystem.Filesystem/Stat", {"path": "x"}, Authorization=basic)
    assert response.status == 401


async def test_input_arrives_and_can_end(api: Api) -> None:
    made = await api.create()
    value = {"process": {"cmd": "sh", "args": ["-c", "cat"]}}
    response = await api.open(made, "process.Process/Start", value)
    pid = (await next_message(response))["event"]["start"]["pid"]
    selector = {"process": {"pid": pid}}

    sent = await api.rpc(
        made, "process.Process/SendInput", {**selector, "input": {"stdin": "aGk="}}
    )
    assert sent.status == 200
    assert (await next_message(response))["event"] == {"data": {"stdout": "aGk="}}
    headers = {**api.headers(made), "Content-Type": "application/connect+json"}
    parts = [
        envelope({"start": selector}),
        envelope({"data": {"input": {"stdin": "eA=="}}}),
        envelope({"keepalive": {}}),
    ]
    streamed = await api.client.post(
        "/process.Process/StreamInput", data=b"".join(parts), headers=headers
    )
    assert decode(await streamed.read()) == [{}, {"end of stream": {}}]
    assert (await next_message(response))["event"] == {"data": {"stdout": "eA=="}}
    wrong = await api.rpc(made, "process.Process/SendInput", {**selector, "input": {"pty": "eA=="}})
    assert wrong.status == 400
    assert (await api.rpc(made, "process.Process/CloseStdin", selector)).status == 200
    assert (await next_message(response))["event"]["end"]["exitCode"] == 0
    gone = await api.rpc(made, "process.Process/CloseStdin", selector)
    assert (gone.status, (await gone.json())["code"]) == (404, "not_found")


async def test_input_to_one_without_stdin_is_refused(api: Api) -> None:
    made = await api.create()
    response = await api.open(made, "process.Process/Start", {"process": BASH, "stdin": False})
    pid = (await next_message(response))["event"]["start"]["pid"]
    value = {"process": {"pid": pid}, "input": {"stdin": "eA=="}}
    sent = await api.rpc(made, "process.Process/SendInput", value)
    assert (sent.status, (await sent.json())["code"]) == (400, "failed_precondition")


async def test_a_process_outlives_its_client_and_can_be_connected_to(api: Api) -> None:
    made = await api.create()
    value = {"process": {"cmd": "sh", "args": ["-c", "cat"]}, "tag": "mine"}
    first = await api.open(made, "process.Process/Start", value)
    pid = (await next_message(first))["event"]["start"]["pid"]
    first.close()

    (listed,) = (await (await api.rpc(made, "process.Process/List", {})).json())["processes"]
    assert (listed["pid"], listed["tag"], listed["config"]["cmd"]) == (pid, "mine", "sh")
    again = await api.open(made, "process.Process/Connect", {"process": {"tag": "mine"}})
    assert (await next_message(again))["event"] == {"start": {"pid": pid}}
    await api.rpc(
        made, "process.Process/SendInput", {"process": {"pid": pid}, "input": {"stdin": "eA=="}}
    )
    assert (await next_message(again))["event"] == {"data": {"stdout": "eA=="}}
    await api.rpc(made, "process.Process/CloseStdin", {"process": {"pid": pid}})
    assert "end" in (await next_message(again))["event"]
    late = await api.open(made, "process.Process/Connect", {"process": {"pid": pid}})
    assert decode(await late.read())[1]["event"]["end"]["exitCode"] == 0


async def test_signals_and_unknown_processes(api: Api) -> None:
    made = await api.create()
    response = await api.open(made, "process.Process/Start", {"process": BASH})
    pid = (await next_message(response))["event"]["start"]["pid"]
    signal = {"process": {"pid": pid}, "signal": "SIGNAL_SIGKILL"}

    assert (await api.rpc(made, "process.Process/SendSignal", signal)).status == 200

    end = (await next_message(response))["event"]["end"]
    assert end == {
        "exitCode": -1, "exited": False, "status": "signal: killed", "error": "signal: killed",
    }  # fmt: skip
    assert (await api.rpc(made, "process.Process/SendSignal", signal)).status == 404
    unknown = await api.open(made, "process.Process/Connect", {"process": {"pid": 9999}})
    (last,) = decode(await unknown.read())
    assert last["end of stream"]["error"]["code"] == "not_found"


async def test_the_time_of_a_request_is_that_of_its_process(api: Api) -> None:
    made = await api.create()
    headers = {"connect-timeout-ms": "50"}
    response = await api.open(made, "process.Process/Start", {"process": BASH}, **headers)
    messages = decode(await response.read())
    assert messages[-1]["end of stream"]["error"]["code"] == "deadline_exceeded"

    again = await api.open(made, "process.Process/Start", {"process": BASH})
    pid = (await next_message(again))["event"]["start"]["pid"]
    value = {"process": {"pid": pid}}
    connected = await api.open(made, "process.Process/Connect", value, **headers)
    last = decode(await connected.read())[-1]
    assert last["end of stream"]["error"]["code"] == "deadline_exceeded"
    assert api.guest(made).commands[pid].status is None, "the process goes on"


async def test_a_stream_without_events_says_that_it_lives(api: Api) -> None:
    made = await api.create()
    response = await api.open(
        made, "process.Process/Start", {"process": BASH}, **{"Keepalive-Ping-Interval": "1"}
    )
    await next_message(response)
    assert await next_message(response) == {"event": {"keepalive": {}}}


async def test_a_killed_sandbox_breaks_its_streams_off(api: Api) -> None:
    made = await api.create()
    response = await api.open(made, "process.Process/Start", {"process": BASH})
    await next_message(response)

    await api.call("DELETE", f"/sandboxes/{made['sandboxID']}")

    with pytest.raises((aiohttp.ClientError, ConnectionError, asyncio.IncompleteReadError)):
        await response.read()
    assert (await api.client.get("/health", headers=api.headers(made))).status == 502
    assert (await api.rpc(made, "process.Process/List", {})).status == 502


async def test_streams_are_bounded_and_idle_ones_hold_nobody_up(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rpc, "STREAMS_EACH_MAX", 20)
    monkeypatch.setattr(fanout, "LISTENERS_MAX", 100)
    made = await api.create()
    held = [await api.open(made, "process.Process/Start", {"process": BASH}) for _ in range(20)]
    for response in held:
        await next_message(response)

    refused = await api.open(made, "process.Process/Start", {"process": BASH})

    assert refused.status == 429
    assert (await api.rpc(made, "process.Process/List", {})).status == 200
    for response in held:
        response.close()
    await until(lambda: True)
    for _ in range(200):
        again = await api.open(made, "process.Process/Start", {"process": BASH})
        if again.status == 200:
            break
        await asyncio.sleep(0.02)
    assert again.status == 200


async def test_a_client_that_reads_nothing_is_left_behind_and_others_are_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fanout, "STALLED_S", 1.0)  # a busy host may hold the quick one up, too
    source = fanout.Fanout()
    slow, quick = source.listen(), source.listen()
    taken: list[fanout.Event] = []

    async def read() -> None:
        while (event := await quick.next()) is not None:
            taken.append(event)

    reader = asyncio.create_task(read())
    for number in range(40):
        await source.put({"n": number}, 128 * 1024)
    source.finish()
    await reader

    assert len(taken) == 40
    with pytest.raises(fanout.LeftBehind):
        for _ in range(50):
            await slow.next()


async def test_output_waits_for_the_only_client(monkeypatch: pytest.MonkeyPatch) -> None:
    source = fanout.Fanout()
    listener = source.listen()

    async def fill() -> None:
        for number in range(100):
            await source.put({"n": number}, 64 * 1024)

    writer = asyncio.create_task(fill())
    await until(lambda: listener.is_full)
    await asyncio.sleep(0)
    assert not writer.done()
    assert [(await listener.next()) for _ in range(100)] == [{"n": n} for n in range(100)]
    await writer


async def test_files_are_told_as_the_guest_has_them(api: Api) -> None:
    made = await api.create()
    wrote = await api.client.post(
        "/files", params={"path": "a/b.txt"}, data=b"hello", headers=api.headers(made)
    )
    assert await wrote.json() == [{"path": "/home/user/a/b.txt", "name": "b.txt", "type": "file"}]

    stat = await (await api.rpc(made, "filesystem.Filesystem/Stat", {"path": "a/b.txt"})).json()

    assert stat["entry"] == {
        "name": "b.txt", "type": "FILE_TYPE_FILE", "path": "/home/user/a/b.txt", "size": "5",
        "mode": 0o644, "permissions": "-rw-r--r--", "owner": "user", "group": "user",
        "modifiedTime": "1970-01-01T00:00:01.500000000Z", "isSymlink": False, "metadata": {},
    }  # fmt: skip
    listed = await (await api.rpc(made, "filesystem.Filesystem/ListDir", {"depth": 2})).json()
    assert [e["path"] for e in listed["entries"]] == ["/home/user/a", "/home/user/a/b.txt"]


async def test_directories_are_made_moved_and_removed(api: Api) -> None:
    made = await api.create()

    async def call(name: str, **value: object) -> tuple[int, Any]:
        response = await api.rpc(made, f"filesystem.Filesystem/{name}", value)
        return response.status, await response.json()

    assert (await call("MakeDir", path="x/y"))[0] == 200
    assert (await call("MakeDir", path="x/y")) == (
        409, {"code": "already_exists", "message": "directory already exists: /home/user/x/y"},
    )  # fmt: skip
    api.guest(made).files.found["/home/user/f"] = b""
    assert (await call("MakeDir", path="f"))[0] == 400
    assert (await call("Move", source="f", destination="new/g"))[1]["entry"]["name"] == "g"
    assert (await call("Move", source="f", destination="h"))[0] == 404
    assert (await call("Remove", path="new"))[0] == 200
    assert (await call("Remove", path="new"))[0] == 200
    assert (await call("Stat", path="new/g"))[0] == 404
    assert (await call("ListDir", path="nothing"))[0] == 404


async def test_contents_go_both_ways_and_errors_are_told(api: Api) -> None:
    made = await api.create()
    headers = api.headers(made)
    data = bytes(range(256)) * 5000
    packed = {**headers, "Content-Encoding": "gzip", "Content-Type": "application/octet-stream"}
    for given, more in ((data, headers), (gzip.compress(data), packed)):
        put = await api.client.post(
            "/files", params={"path": "big"}, data=io.BytesIO(given), headers=more
        )
        assert put.status == 200, await put.text()
        got = await api.client.get("/files", params={"path": "big"}, headers=headers)
        assert await got.read() == data

    for path, status in (("nothing", 404), ("/home", 400), ("~x/y", 400)):
        got = await api.client.get("/files", params={"path": path}, headers=headers)
        assert (got.status, (await got.json())["code"]) == (status, status)
    api.guest(made).files.found["/full"] = None
    full = await api.client.post("/files", params={"path": "/full/x"}, data=b"x", headers=headers)
    assert full.status == 507
    assert (await api.client.post("/files", data=b"x", headers=headers)).status == 400
    nobody = {"path": "x", "username": "nobody-here"}
    assert (await api.client.get("/files", params=nobody, headers=headers)).status == 401


async def test_forms_carry_one_file_or_several(api: Api) -> None:
    made = await api.create()
    form = aiohttp.FormData(quote_fields=False)
    form.add_field("file", b"one", filename="/home/user/m/1.txt")
    form.add_field("other", "no")
    form.add_field("file", b"two", filename="2.txt")
    put = await api.client.post("/files", data=form, headers=api.headers(made))
    assert [f["path"] for f in await put.json()] == ["/home/user/m/1.txt", "/home/user/2.txt"]
    assert api.guest(made).files.found["/home/user/m/1.txt"] == b"one"
    broken = {**api.headers(made), "Content-Type": "multipart/form-data"}
    assert (await api.client.post("/files", data=b"x", headers=broken)).status == 400
    broken["Content-Type"] = "multipart/form-data; boundary=b"
    assert (await api.client.post("/files", data=b"x", headers=broken)).status == 400


@each(
    ("header", "wanted"),
    [
        ('form-data; name="file"; filename="/a/b c"', "/a/b c"),
        ('form-data; name="file"; filename="a%22b%0Ac"', 'a"b\nc'),
        ('form-data; name="file"; filename="a\\"b"', 'a"b'),
        ('form-data; name="file"', ""),
        ("", ""),
    ],
)
def test_the_name_of_a_part_is_the_path_that_was_sent(header: str, wanted: str) -> None:
    assert filename_of({"Content-Disposition": header}) == wanted


async def test_files_want_the_token_or_a_signature(api: Api) -> None:
    one, other = await api.create(), await api.create()
    api.guest(one).files.found["/home/user/s"] = b"secret"
    token = one["envdAccessToken"]
    until_ = int(time.time()) + 60

    async def get(headers: dict[str, str], **query: str) -> int:
        return (await api.client.get("/files", params=query, headers=headers)).status

    assert await get({}, path="s") == 401
    assert await get({"X-Access-Token": "x"}, path="s") == 401
    assert await get({"X-Access-Token": token}, path="s") == 200, "older clients name it so"
    assert await get({**api.headers(other), "X-Access-Token": token}, path="s") == 401
    good = sign("s", "read", "user", token, until_)
    signed = {"path": "s", "username": "user", "signature_expiration": str(until_)}
    assert await get({}, **signed, signature=good) == 200
    assert await get({}, **{**signed, "path": "t"}, signature=good) == 401
    assert await get({}, **signed, signature=sign("s", "write", "user", token, until_)) == 401
    named = {"E2b-Sandbox-Id": other["sandboxID"]}
    assert await get(named, **signed, signature=good) == 401
    past = {**signed, "signature_expiration": "1"}
    assert await get({}, **past, signature=sign("s", "read", "user", token, 1)) == 401
    put = await api.client.post("/files", params={**signed, "signature": good}, data=b"x")
    assert put.status == 401


@each("port", ["²", "٣", "x", "", "0", "65536", "-1", "1" * 5000])
async def test_an_impossible_port_is_refused(api: Api, port: str) -> None:
    made = await api.create()
    headers = {**api.headers(made), "E2b-Sandbox-Port": port}
    assert (await api.client.get("/health", headers=headers)).status in (400, 502)


@each("header", ["connect-timeout-ms", "Keepalive-Ping-Interval"])
@each("text", ["²", "x", "-1", "1" * 5000, "1.5"])
async def test_times_that_make_no_sense_break_nothing(api: Api, header: str, text: str) -> None:
    made = await api.create()
    value = {"process": {"cmd": "sh", "args": ["-c", "echo x"]}}
    response = await api.open(made, "process.Process/Start", value, **{header: text})
    last = decode(await response.read())[-1]["end of stream"]
    assert last in ({}, {"error": last.get("error")})


async def test_owners_are_read_of_whatever_a_guest_has_for_its_accounts(api: Api) -> None:
    made = await api.create()
    api.guest(made).files.found["/etc/passwd"] = "\xff:x:²:\n:\nuser:x:1000:\na:b".encode("latin-1")
    api.guest(made).files.found["/etc/group"] = b"\0" * 1000
    stat = await (await api.rpc(made, "filesystem.Filesystem/Stat", {"path": "~"})).json()
    assert (stat["entry"]["owner"], stat["entry"]["group"]) == ("user", "1000")


async def test_a_host_name_says_for_which_sandbox_a_request_is(api: Api) -> None:
    made = await api.create()
    host = f"49983-{made['sandboxID']}.qs.localhost"
    assert (await api.client.get("/health", headers={"Host": host})).status == 204
    assert (await api.client.get("/health", headers={"Host": "49983-x.localhost"})).status == 502


async def test_many_processes_go_over_several_connections_which_are_closed_again(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines, "EACH_MAX", 3)
    made = await api.create()
    machine = api.machines.found[engine_name(made["sandboxID"])]
    first, second = machine.guest, FakeGuest()
    second.commands = first.commands
    second.next_pid = first.next_pid  # type: ignore[method-assign]
    machine.guest = second  # the next connection
    value = {"process": BASH, "stdin": False}
    held = [await api.open(made, "process.Process/Start", value) for _ in range(5)]
    pids = [(await next_message(one))["event"]["start"]["pid"] for one in held]
    assert (len(first.spawned), len(second.spawned)) == (3, 2)

    for pid in pids[3:]:
        signal = {"process": {"pid": pid}, "signal": "SIGNAL_SIGTERM"}
        assert (await api.rpc(made, "process.Process/SendSignal", signal)).status == 200

    await until(lambda: second.closed)
    assert not first.closed


async def test_what_a_guests_older_agent_cannot_do_is_unimplemented(api: Api) -> None:
    made = await api.create()
    guest = api.guest(made)

    async def lacks(*_: object, **__: object) -> Any:
        raise AgentTooOldError("the guest's agent is too old to carry this")

    async def unknown(*_: object, **__: object) -> Any:
        raise AgentRefusedError("no such method", code="no_such_method")

    for failing in (lacks, unknown):
        guest.watch = guest.spawn = guest.dial = failing  # type: ignore[method-assign, attr-defined]
        guest.files.write = failing  # type: ignore[method-assign]
        watch = await api.rpc(made, "filesystem.Filesystem/CreateWatcher", {"path": "/"})
        assert (watch.status, (await watch.json())["code"]) == (501, "unimplemented")
        (end,) = await api.run(made, "true")
        assert end["end of stream"]["error"]["code"] == "unimplemented"
        port = await api.client.get(f"/ports/8000-{made['sandboxID']}/")
        upload = await api.client.post("/files?path=/x", data=b"", headers=api.headers(made))
        assert (port.status, upload.status) == (501, 501)
        assert "older than this server" in (await upload.json())["message"]

    guest.find_user = unknown  # type: ignore[method-assign]
    headers = {"Authorization": "Basic bmV3Og=="}  # new:
    stat = await api.rpc(made, "filesystem.Filesystem/Stat", {"path": "/"}, **headers)
    assert (stat.status, (await stat.json())["code"]) == (501, "unimplemented")
