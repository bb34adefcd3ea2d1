"""The code interpreter's server with kernels that are no processes, over real connections."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

import aiohttp
import pytest
from hypothesis import given
from hypothesis import strategies as st
from quicksand_interpreter import cells, contexts, server
from quicksand_interpreter.contexts import Contexts, KernelGoneError
from quicksand_interpreter.messages import DATA, Line, line_of
from quicksand_interpreter.service import Service

from tests.each import each


class FakeKernel:
    """Knows a few words as code."""

    def __init__(self, cwd: str) -> None:
        self.cwd = cwd
        self.is_up = False
        self.starts = 0
        self.names: dict[str, str] = {}
        self.silent: list[str] = []
        self.interrupted = 0
        self.running = asyncio.Event()
        self.killed = asyncio.Event()

    async def start(self) -> None:
        if self.cwd == "/proc":
            raise KernelGoneError("no such file")
        self.starts += 1
        self.is_up = True
        self.names.clear()
        self.killed.clear()

    async def execute(self, code: str) -> AsyncGenerator[Line]:
        word, _, rest = code.partition(" ")
        match word:
            case "set":
                self.names["x"] = rest
            case "get":
                yield {"type": "result", "is_main_result": True, "text": self.names.get("x", "")}
            case "exit":
                self.is_up = False
                raise KernelGoneError("the kernel has ended")
            case "fault":
                raise ZeroDivisionError
            case "sleep":
                self.running.set()
                yield {"type": "stdout", "text": "z", "timestamp": 1}
                try:
                    await self.killed.wait()
                    self.is_up = False
                    raise KernelGoneError("the kernel has ended")
                finally:
                    self.interrupted += not self.killed.is_set()
            case "flood":
                for _ in range(int(rest)):
                    yield {"type": "stdout", "text": "x" * 65536, "timestamp": 1}

    async def run_silently(self, code: str) -> None:
        self.silent.append(code)

    async def kill(self) -> None:
        self.killed.set()

    async def end(self) -> None:
        self.is_up = False


class Interpreter:
    """A server, and what a client of it does."""

    def __init__(self, port: int, kernels: list[FakeKernel]) -> None:
        self.port = port
        self.kernels = kernels
        self.session = aiohttp.ClientSession(f"http://127.0.0.1:{port}")

    async def call(self, method: str, path: str, value: object = None) -> tuple[int, Any]:
        async with self.session.request(method, path, json=value) as response:
            text = await response.text()
            return response.status, json.loads(text) if text else None

    def open(self, code: str, **more: Any) -> Any:
        return self.session.post("/execute", json={"code": code, **more})

    async def run(self, code: str, **more: Any) -> list[Line]:
        async with self.open(code, **more) as response:
            assert response.status == 200, await response.text()
            return [json.loads(line) async for line in response.content]


@pytest.fixture
async def interpreter() -> AsyncIterator[Interpreter]:
    kernels: list[FakeKernel] = []

    def make(cwd: str) -> FakeKernel:
        kernels.append(FakeKernel(cwd))
        return kernels[-1]

    found = Contexts(make, "/tmp")
    ready = asyncio.create_task(found.prepare("warm"))
    listening = await server.listen(Service(found, ready).handle, "127.0.0.1", 0)
    made = Interpreter(listening.sockets[0].getsockname()[1], kernels)
    yield made
    await made.session.close()
    await found.close()
    listening.close()
    await listening.wait_closed()


texts = st.text(st.characters(codec="utf-8"), min_size=1)
names = texts.filter(lambda text: "=" not in text and "\0" not in text)

END = {"type": "end_of_execution"}


async def test_cells_share_the_names_of_their_context_and_of_no_other(
    interpreter: Interpreter,
) -> None:
    assert (await interpreter.call("GET", "/health"))[0] == 204
    status, made = await interpreter.call("POST", "/contexts", {"cwd": "/usr"})
    assert (status, made["language"], made["cwd"]) == (200, "python", "/usr")
    id_ = made["id"]

    assert await interpreter.run("set 1") == [END]
    assert (await interpreter.run("get"))[0]["text"] == "1"
    assert (await interpreter.run("get", context_id=id_, env_vars=None))[0]["text"] == ""
    assert (await interpreter.run("get", context_id=None, language="python"))[0]["text"] == "1"
    listed = (await interpreter.call("GET", "/contexts"))[1]
    assert [context["cwd"] for context in listed] == ["/tmp", "/usr"]
    assert (await interpreter.call("DELETE", f"/contexts/{id_}"))[0] == 204
    async with interpreter.open("get", context_id=id_) as response:
        assert response.status == 404
    assert not interpreter.kernels[1].is_up


async def test_a_restart_ends_what_runs_and_gives_a_new_kernel(interpreter: Interpreter) -> None:
    id_ = (await interpreter.call("GET", "/contexts"))[1][0]["id"]
    running = asyncio.create_task(interpreter.run("sleep"))
    kernel = interpreter.kernels[0]
    await kernel.running.wait()

    assert (await interpreter.call("POST", f"/contexts/{id_}/restart"))[0] == 204

    assert [line["type"] for line in await running] == ["stdout", "error", "end_of_execution"]
    assert (kernel.starts, kernel.is_up) == (2, True)
    assert kernel.silent == ["warm", cells.before_first_cell({})]
    await interpreter.run("get")
    assert kernel.silent[2:] == [cells.before_first_cell({})], "it is new again"


async def test_a_client_that_leaves_interrupts_its_cell_and_no_other(
    interpreter: Interpreter,
) -> None:
    kernel = interpreter.kernels[0]
    response = await interpreter.open("sleep", env_vars={"A": "b"})
    await kernel.running.wait()
    waiting = asyncio.create_task(interpreter.run("get"))
    response.close()

    assert (await waiting)[-1] == END
    assert kernel.interrupted == 1
    assert kernel.silent[-2:] == [cells.set_variables({"A": "b"}), cells.unset_variables()]


async def test_a_kernel_that_ends_is_told_and_replaced(interpreter: Interpreter) -> None:
    await interpreter.run("set 1")
    told = await interpreter.run("exit", env_vars={"A": "b"})
    assert [(line["type"], line.get("name")) for line in told] == [
        ("error", "KernelGone"),
        ("end_of_execution", None),
    ]
    assert (await interpreter.run("get"))[0]["text"] == ""
    assert interpreter.kernels[0].starts == 2


async def test_a_fault_breaks_the_stream_off(
    interpreter: Interpreter, capsys: pytest.CaptureFixture[str]
) -> None:
    async with interpreter.open("fault") as response:
        with pytest.raises(aiohttp.ClientPayloadError):
            await response.read()
    assert "ZeroDivisionError" in capsys.readouterr().err
    assert await interpreter.run("set 1") == [END]


async def test_a_client_that_reads_slowly_gets_all(interpreter: Interpreter) -> None:
    told = await interpreter.run("flood 200")
    assert len(told) == 201


async def test_variables_of_the_sandbox_are_there_in_the_first_cell(
    interpreter: Interpreter,
) -> None:
    kernel = interpreter.kernels[0]
    await interpreter.call("GET", "/health")
    assert (await interpreter.call("PUT", "/variables", {"A": "b"}))[0] == 204
    await interpreter.run("get")
    await interpreter.run("get")
    assert kernel.silent == ["warm", cells.before_first_cell({"A": "b"})]


async def test_what_cannot_be_is_refused_and_says_why(interpreter: Interpreter) -> None:
    for method, path, value, status in (
        ("POST", "/execute", {}, 400),
        ("POST", "/execute", {"code": 1}, 400),
        ("POST", "/execute", [], 400),
        ("POST", "/execute", {"code": "", "context_id": "x", "language": "python"}, 400),
        ("POST", "/execute", {"code": "", "context_id": "../x"}, 404),
        ("POST", "/execute", {"code": "", "language": "cobol"}, 400),
        ("POST", "/execute", {"code": "", "env_vars": {"A=B": "c"}}, 400),
        ("POST", "/execute", {"code": "", "env_vars": {"A": 1}}, 400),
        ("POST", "/contexts", {"language": "cobol"}, 400),
        ("POST", "/contexts", {"cwd": "usr"}, 400),
        ("POST", "/contexts", {"cwd": "/no/such"}, 400),
        ("POST", "/contexts", {"cwd": "/proc"}, 500),
        ("POST", "/contexts/x/restart", None, 404),
        ("DELETE", "/contexts/x", None, 404),
        ("PUT", "/variables", {"A": None}, 400),
        ("GET", "/nothing", None, 404),
    ):
        told = await interpreter.call(method, path, value)
        assert told[0] == status, (method, path, value, told)
        assert told[1]["message"]
    assert len((await interpreter.call("GET", "/contexts"))[1]) == 1


async def test_there_are_only_so_many_contexts(interpreter: Interpreter) -> None:
    for _ in range(contexts.CONTEXTS_MAX - 1):
        assert (await interpreter.call("POST", "/contexts", {}))[0] == 200
    assert (await interpreter.call("POST", "/contexts", {}))[0] == 429


async def talk(port: int, data: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(data)
    if not data.startswith(b"GET"):
        writer.write_eof()
    async with asyncio.timeout(60):
        answer = await reader.read()
    writer.close()
    return answer


CHUNKED = b"PUT /variables HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"


@each(
    ("request_", "status"),
    [
        (b"GET /contexts HTTP/1.1\r\n\r\n", b"200"),
        (b"GET /contexts?x=1 HTTP/1.1\r\nHost: x\r\n\r\n", b"200"),
        (CHUNKED + b"2;x\r\n{}\r\n0\r\n\r\n", b"204"),
        (b"PUT /variables HTTP/1.1\r\nContent-Length: x\r\n\r\n", b"400"),
        (b"PUT /variables HTTP/1.1\r\nContent-Length: -1\r\n\r\n", b"400"),
        (b"PUT /variables HTTP/1.1\r\nContent-Length: 99999999\r\n\r\n", b"413"),
        (b"PUT /variables HTTP/1.1\r\nContent-Length: 2\r\n\r\n[]", b"400"),
        (b"PUT /variables HTTP/1.1\r\nContent-Length: 1\r\n\r\n{", b"400"),
        (CHUNKED + b"fffffffff\r\n", b"413"),
        (CHUNKED + b"x\r\n", b"400"),
        (CHUNKED + b"1\r\nabc\r\n0\r\n\r\n", b"400"),
        (b"PUT /variables HTTP/1.1\r\nContent-Length: 9\r\n\r\n{}", b""),
        (b"\x16\x03\x01\r\n\r\n", b"400"),
        (b"X" * 70000, b"431"),
        (b"", b""),
    ],
)  # fmt: skip
async def test_malformed_requests_are_refused(
    interpreter: Interpreter, request_: bytes, status: bytes
) -> None:
    answer = await talk(interpreter.port, request_)
    assert answer.partition(b"\r\n")[0].split(b" ")[1:2] == ([status] if status else [])


def test_each_form_of_a_result_has_its_place() -> None:
    data = {"text/plain": "'text'", "image/png": "aGk=\n", DATA: {"a": [1]}, "x/y": 1}
    assert line_of("execute_result", {"data": data}) == {
        "type": "result", "is_main_result": True, "text": "text", "png": "aGk=", "data": {"a": [1]},
        "extra": {"x/y": 1},
    }  # fmt: skip
    shown = line_of("display_data", {"data": {"text/html": "<b>", "text/plain": "'"}})
    assert shown == {"type": "result", "is_main_result": False, "html": "<b>", "text": "'"}
    failed = line_of("error", {"ename": "E", "evalue": "v", "traceback": ["a", "b"]})
    assert failed == {"type": "error", "name": "E", "value": "v", "traceback": "a\nb"}
    counted = line_of("execute_input", {"execution_count": 3})
    assert counted == {"type": "number_of_executions", "execution_count": 3}
    assert line_of("status", {}) is None


class Shell:
    """What code beside the cells knows of IPython's."""


@given(st.dictionaries(names, texts.filter(lambda text: "\0" not in text), max_size=5))
def test_variables_of_a_cell_reach_it_as_they_are_and_go_with_it(variables: dict[str, str]) -> None:
    shell = Shell()
    kernel = {"get_ipython": lambda: shell}
    before = dict(os.environ)
    exec(cells.set_variables(variables), kernel)
    during = dict(os.environ)
    exec(cells.unset_variables(), kernel)
    assert during == {**before, **variables}
    assert dict(os.environ) == before
    assert set(kernel) == {"get_ipython", "__builtins__"}, "nothing is left in the client's names"
