"""What a command's result tells, and the errors that one meets in Python."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import quicksand
import quicksand.errors
from quicksand import CommandFailedError, ExecuteResult, GuestFiles
from quicksand.base.errors import AgentCode, AgentRefusedError
from quicksand.guest.execution import LAST_LINES

from tests.each import each

FAILED = ExecuteResult(stdout="out\n", stderr="one\n\x1b[2Jtwo\n", exit_code=2)


def test_a_result_is_ok_if_the_command_exited_with_0() -> None:
    assert ExecuteResult(stdout="", stderr="", exit_code=0).ok
    assert not FAILED.ok


def test_a_checked_result_that_is_ok_is_returned() -> None:
    result = ExecuteResult(stdout="", stderr="", exit_code=0)
    assert result.check("true") is result


@each(
    ("facts", "said"),
    [
        ({}, "`make test` exited with code 2"),
        ({"signal": 9, "exit_code": 137}, "`make test` was ended by signal 9"),
        (
            {"timed_out": True, "exit_code": 124, "duration_s": 30.04},
            "`make test` was killed at its timeout after 30 s",
        ),
    ],
)
def test_a_failed_command_is_an_error_that_ends_with_its_output(
    facts: dict[str, Any], said: str
) -> None:
    values = {"stdout": "out\n", "stderr": "one\n\x1b[2Jtwo\n", "exit_code": 2, **facts}
    with pytest.raises(CommandFailedError) as raised:
        ExecuteResult(**values).check(["make", "test"])
    assert str(raised.value) == f"{said}\none\n?[2Jtwo"
    assert (raised.value.stderr, raised.value.exit_code) == (
        "one\n\x1b[2Jtwo\n",
        values["exit_code"],
    )


def test_only_the_last_lines_are_shown_and_stdout_if_stderr_is_empty() -> None:
    output = "".join(f"{n}\n" for n in range(1000))
    with pytest.raises(CommandFailedError) as raised:
        ExecuteResult(stdout=output, stderr="", exit_code=1).check("x")
    lines = str(raised.value).splitlines()
    assert lines[0] == "`x` exited with code 1"
    assert lines[1:] == [str(n) for n in range(1000 - LAST_LINES, 1000)]


class RefusingSession:
    """A session whose guest refuses everything."""

    def __init__(self, code: AgentCode, errno: int | None) -> None:
        self._error = AgentRefusedError("/x: no", code=code, errno=errno, parameter="path")

    def can(self, capability: str) -> bool:
        return True

    async def request(self, method: str, params: object) -> dict[str, Any]:
        raise self._error

    def open(self, *_: object, **__: object) -> RefusingSession:
        return self

    async def opened(self) -> dict[str, Any]:
        raise self._error

    @property
    def reply(self) -> asyncio.Future[dict[str, Any]]:
        refused: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        refused.set_exception(self._error)
        return refused

    def write_eof(self) -> None:
        pass

    def close(self) -> None:
        pass


def files(code: AgentCode, errno: int | None) -> GuestFiles:
    session: Any = RefusingSession(code, errno)

    async def find() -> Any:
        return session

    return GuestFiles(find)


@each(
    ("code", "errno", "expected"),
    [
        ("not_found", 2, FileNotFoundError),
        ("not_found", None, FileNotFoundError),
        ("io", 13, PermissionError),
        ("forbidden", 1, PermissionError),
        ("forbidden", None, PermissionError),
        ("exists", 17, FileExistsError),
        ("io", 20, NotADirectoryError),
        ("io", 21, IsADirectoryError),
    ],
)
async def test_a_refusal_of_a_file_is_the_error_of_python_by_its_number(
    code: AgentCode, errno: int | None, expected: type[OSError]
) -> None:
    there = files(code, errno)
    calls: tuple[Callable[[], Awaitable[object]], ...] = (
        lambda: there.read("/x"),
        lambda: there.stat("/x"),
        lambda: there.write("/x", b""),
        lambda: there.list("/x"),
    )
    for call in calls:
        with pytest.raises(expected) as raised:
            await call()
        error = raised.value
        assert isinstance(error, AgentRefusedError)
        assert (str(error), error.code, error.errno) == ("/x: no", code, errno)
        assert error.parameter == "path"


async def test_another_refusal_stays_what_it_is() -> None:
    with pytest.raises(AgentRefusedError) as raised:
        await files("no_space", 28).read("/x")
    assert not isinstance(raised.value, OSError)


def test_every_error_can_be_imported_from_the_package() -> None:
    for name in vars(quicksand.errors)["__all__"]:
        assert getattr(quicksand, name) is getattr(quicksand.errors, name)
        assert name in dir(quicksand)


TYPED = """
from quicksand import DebianSandbox, NetworkMode, Sandbox, SandboxOptions, Snapshot
from typing import Unpack

class Own(Sandbox):
    def __init__(self, **options: Unpack[SandboxOptions]) -> None:
        super().__init__(image="own", **options)

Sandbox(image="debian", memory="2G", cpus=2, network_mode="full", name="a")
DebianSandbox(memory="2G", network_mode=NetworkMode.FULL, ephemeral=False)
Own(memory="1G", vnc_port=0)
reveal_type(DebianSandbox.__init__)
Sandbox(image="debian", memroy="2G")
DebianSandbox(cpus="2")
Own(image="debian")
DebianSandbox(network_mode="internet")

async def use(box: Sandbox, snapshot: Snapshot) -> None:
    reveal_type((await box.execute("true", check=True)).ok)
    await box.mouse_click()
    await box.mouse_click("right", double=True)
    await box.mouse_click(400, 300, pixels=True)
    await box.mouse_click("right", 400, 300)
    await box.mouse_click(x=1, y=2)
    await snapshot.resume(memory="1G")
    await box.mouse_click(400)
    await snapshot.resume(base_dir="/")
"""


def test_editors_and_type_checkers_know_the_keywords(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(TYPED)
    command = [sys.executable, "-m", "mypy", "--strict", "--no-incremental", "script.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    lines = {int(line.split(":")[1]): line for line in done.stdout.splitlines() if "error:" in line}
    source = TYPED.splitlines()
    wrong = [source[number - 1].strip() for number in sorted(lines)]
    assert wrong == [
        'Sandbox(image="debian", memroy="2G")',
        'DebianSandbox(cpus="2")',
        'Own(image="debian")',
        'DebianSandbox(network_mode="internet")',
        "await box.mouse_click(400)",
        'await snapshot.resume(base_dir="/")',
    ], done.stdout
    assert "memory" in done.stdout and 'Revealed type is "bool"' in done.stdout
