"""Other machines as the app's service knows them: over an `ssh` that leads to this one."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from quicksand.base.errors import (
    RemoteError,
    RemoteProtocolError,
    RemoteUnreachableError,
    SaveError,
)
from quicksand.base.paths import Paths
from quicksand.hosted.calling import send_json
from quicksand.records.registry import Registry
from quicksand.remote.hello import read_hello, welcome
from quicksand.remote.peer_link import Link, Request
from quicksand.things.status import Status

from quicksand_tui.door import far_host
from quicksand_tui.door.engine import Engine
from quicksand_tui.door.far_sandbox import carry_out_there, open_there, patient
from quicksand_tui.door.service import EngineService
from quicksand_tui.door.service_protocol import LogKind
from quicksand_tui.model.diffs import DiffSpec
from quicksand_tui.model.jobs import OperationError
from quicksand_tui.model.specs import ExportSpec, SshQuestion
from quicksand_tui.model.world import MachineState, MachineView, World
from quicksand_tui.verbs import bundles, checkpoints, halting, trashing, verdicts
from quicksand_tui.verbs.call import Progress, ignore
from quicksand_tui.views.machine_groups import state_text
from quicksand_tui.views.sandbox_rows import silence_text
from tests.conftest import wait_for
from tests.ssh_server import far_environ, without_sshd
from tests.unit.app.fakes import until
from tests.unit.cli.run_cli import make_stopped


@pytest.fixture
def ssh(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The directory of an `ssh` that leads here, and notes each call in `calls`."""
    with (
        tempfile.TemporaryDirectory(prefix="qsh-") as root,
        without_sshd(Path(root), far_environ()) as far,
    ):
        program = far.bin / "ssh"
        text = program.read_text().replace("\n", f"\necho $$ >> {root}/calls\n", 1)
        program.write_text(text)
        monkeypatch.setenv("PATH", f"{far.bin}{os.pathsep}{os.environ['PATH']}")
        yield Path(root)


@pytest.fixture
async def service(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[EngineService]:
    monkeypatch.setattr(far_host, "PAUSES_S", (0.05, 0.2))
    service = EngineService()
    yield service
    await asyncio.to_thread(service.close)


def pids(ssh: Path) -> list[int]:
    """The processes of ssh that were started."""
    calls = ssh / "calls"
    return [int(line) for line in calls.read_text().split()] if calls.exists() else []


async def world_of(service: EngineService) -> World:
    return await asyncio.to_thread(service.read)


def box(world: World) -> MachineView:
    machine = world.machine("box")
    assert machine is not None
    return machine


async def there(service: EngineService) -> World:
    """The world once the machine is there."""
    world = await world_of(service)
    while box(world).state is not MachineState.THERE:
        await asyncio.sleep(0.01)
        world = await world_of(service)
    return world


def names(world: World) -> list[str]:
    return [view.name for view in world.sandboxes if view.host]


async def test_without_other_machines_nothing_is_connected(
    service: EngineService, ssh: Path
) -> None:
    service.meet({})
    world = await world_of(service)
    assert world.machines == () and service.joined(world) is world
    assert pids(ssh) == []


async def test_the_first_look_does_not_wait_for_a_machine(
    service: EngineService, ssh: Path, places: Paths
) -> None:
    make_stopped(places, "web")
    service.meet({"box": "ssh://far"})
    assert pids(ssh) == []
    world = await world_of(service)
    assert box(world).state is MachineState.CONNECTING
    assert [view.name for view in world.sandboxes] == ["web"]


async def test_sandboxes_of_a_machine_are_beside_ours_and_changes_come_by_themselves(
    service: EngineService, ssh: Path, places: Paths
) -> None:
    make_stopped(places, "web")
    told = asyncio.Event()
    loop = asyncio.get_running_loop()

    def told_there() -> None:
        loop.call_soon_threadsafe(told.set)

    service.when_told(told_there)
    service.meet({"box": "ssh://far"})
    async with asyncio.timeout(60):
        world = await there(service)
        assert names(world) == ["web@box"]
        (view,) = [view for view in world.sandboxes if view.host]
        assert (view.short_name, view.host, view.state) == ("web", "box", Status.STOPPED)
        assert view.id.endswith("@box")
        make_stopped(places, "db")
        while "db@box" not in names(await world_of(service)):
            told.clear()
            await told.wait()
    assert len(pids(ssh)) == 1


async def test_a_machine_that_is_away_keeps_its_rows_and_comes_again(
    service: EngineService, ssh: Path, places: Paths
) -> None:
    make_stopped(places, "web")
    service.meet({"box": "ssh://far"})
    async with asyncio.timeout(60):
        await there(service)
        program = ssh / "bin" / "ssh"
        works = program.read_text()
        program.write_text("#!/bin/sh\necho no way >&2\nexit 255\n")
        os.kill(pids(ssh)[0], signal.SIGKILL)
        world = await world_of(service)
        while box(world).state is not MachineState.AWAY or "no way" not in box(world).why:
            world = await world_of(service)
        assert names(world) == ["web@box"]
        assert all(view.away for view in world.sandboxes if view.host)
        assert not any(view.away for view in world.sandboxes if not view.host)
        make_stopped(places, "db")
        program.write_text(works)
        world = await there(service)
        assert sorted(names(world)) == ["db@box", "web@box"]
        assert not any(view.away for view in world.sandboxes)


@pytest.mark.parametrize(
    ("address", "why"),
    [("ssh://-oProxyCommand=x", "no valid host"), ("http://box", "no address of a machine")],
)
async def test_an_address_that_makes_no_sense_is_told(
    service: EngineService, ssh: Path, address: str, why: str
) -> None:
    service.meet({"box": address})
    world = await world_of(service)
    while box(world).state is not MachineState.UNFIT:
        world = await world_of(service)
    assert why in box(world).why
    assert pids(ssh) == []


async def test_machines_of_the_config_may_come_and_go(
    service: EngineService, ssh: Path, places: Paths
) -> None:
    make_stopped(places, "web")
    service.meet({"box": "ssh://far"})
    async with asyncio.timeout(60):
        await there(service)
        service.meet({})
        assert (await world_of(service)).machines == ()
        wait_for(lambda: not Path(f"/proc/{pids(ssh)[0]}").exists(), what="its ssh to end")
        service.meet({"box": "ssh://far"})
        assert names(await there(service)) == ["web@box"]


# Verbs


async def test_a_verb_is_carried_out_there_and_tells_as_here(
    service: EngineService, ssh: Path, places: Paths
) -> None:
    make_stopped(places, "web")
    service.meet({"box": "ssh://far"})
    async with asyncio.timeout(60):
        (view,) = [view for view in (await there(service)).sandboxes if view.host]
        removed = await service.carry_out(trashing.remove(stop=True), view.id, ignore)
        gone = trashing.removed_view(removed, "box")
        assert (gone.id, gone.name, gone.in_trash, gone.goes_on) == (
            view.id,
            "web@box",
            True,
            False,
        )
        assert Registry(places).list() == []
        await service.carry_out(trashing.bring_back(), view.id, ignore)
        assert [entry.name for entry in Registry(places).list()] == ["web"]


BROKEN = RemoteUnreachableError("the connection broke")


async def test_who_waits_for_a_machine_is_told_and_waits_no_longer_than_that_makes_sense(
    liar: tuple[Liar, far_host.FarHost],
) -> None:
    lies, host = liar
    await met(*liar)
    told: list[str] = []

    def wait() -> asyncio.Task[None]:
        told.clear()
        return asyncio.create_task(
            host.again(BROKEN, told=lambda _: told.append(host.waiting_words))
        )

    lies.can = ()  # another version comes back: nothing will come of the wait
    host.link.end(BROKEN)
    waiting = wait()
    async with asyncio.timeout(60):
        with pytest.raises(RemoteError, match="cannot tell what happens"):
            await waiting
    assert told and all("waiting for it, 5 min at most" in words for words in told)
    lies.can = Liar().can
    await until(lambda: host.connection)
    host.link.end(BROKEN)
    async with asyncio.timeout(60):
        await wait()


async def test_work_on_a_sandbox_waits_for_its_machine_and_tells_so(
    liar: tuple[Liar, far_host.FarHost],
) -> None:
    _, host = liar
    await met(*liar)
    told: list[str] = []
    way = patient(host, told.append).sharing()
    host.link.end(BROKEN)
    async with asyncio.timeout(60):
        link = await way.link()
    assert link is host.link and not link.ended.is_set()
    assert "box is away: waiting for it" in told[0] and "box is back" in told[-1]


async def test_nobody_waits_for_a_machine_that_was_left(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    (tmp_path / "ssh").write_text("#!/bin/sh\nexit 255\n")
    (tmp_path / "ssh").chmod(0o755)
    told: list[str] = []
    host = far_host.FarHost("box", "ssh://far", changed=lambda: None)
    running = asyncio.create_task(host.run())
    waiting = asyncio.create_task(
        host.again(BROKEN, told=lambda _: told.append(host.waiting_words))
    )
    async with asyncio.timeout(60):
        await until(lambda: told)
        running.cancel()
        await asyncio.wait([running])
        with pytest.raises(RemoteError, match="was left"):
            await waiting


async def test_a_failure_has_the_words_and_the_hint_of_the_other_machine(
    service: EngineService, ssh: Path, places: Paths
) -> None:
    make_stopped(places, "web")
    service.meet({"box": "ssh://far"})
    async with asyncio.timeout(60):
        (view,) = [view for view in (await there(service)).sandboxes if view.host]
        with pytest.raises(OperationError) as error:
            await service.carry_out(checkpoints.undo(), view.id, ignore)
        failure = error.value.failure
        assert failure.title == "The undo failed"
        assert failure.message == "the sandbox 'web' is not running"
        with pytest.raises(OperationError) as error:
            await service.carry_out(trashing.bring_back(), view.id, ignore)
        assert error.value.failure.hint
        with pytest.raises(OperationError) as error:
            await service.carry_out(bundles.export("x", ExportSpec(file="x")), view.id, ignore)
        assert "not done on other machines" in error.value.failure.message


async def test_a_machine_that_is_away_refuses_at_once(
    service: EngineService, ssh: Path, places: Paths
) -> None:
    (ssh / "bin" / "ssh").write_text("#!/bin/sh\nexit 255\n")
    service.meet({"box": "ssh://far"})
    await world_of(service)
    with pytest.raises(OperationError) as error:
        await service.carry_out(halting.stop(), "0123456789ab@box", ignore)
    assert "box is away" in error.value.failure.message


async def test_a_question_of_ssh_is_asked_until_the_user_gives_up_and_then_only_on_request(
    service: EngineService, ssh: Path, places: Paths
) -> None:
    program = ssh / "bin" / "ssh"
    question = '[ "$("$SSH_ASKPASS" "Password:")" = sesame ] || exit 255'
    program.write_text(program.read_text().replace("\n", f"\n{question}\n", 1))
    answers: list[str | None] = ["wrong", None, "sesame"]
    asked: list[SshQuestion] = []

    async def ask(question: SshQuestion) -> str | None:
        asked.append(question)
        return answers.pop(0)

    service.when_asked(ask, asyncio.get_running_loop())
    service.meet({"box": "ssh://far"})

    async def machine() -> MachineView:
        return (await world_of(service)).machines[0]

    async with asyncio.timeout(60):
        while (await machine()).state is not MachineState.UNANSWERED:
            await asyncio.sleep(0.01)
        # A look at everything anew, as after each job, does not ask again.
        await asyncio.to_thread(service.read, fresh=True)
        assert len(asked) == 2
        assert (await machine()).state is MachineState.UNANSWERED
        service.ask_again()
        while (await machine()).state is not MachineState.THERE:
            await asyncio.sleep(0.01)
    assert [question.host for question in asked] == ["far"] * 3
    assert asked[0].prompt == "Password:"


async def test_a_log_of_another_machine_is_followed(
    service: EngineService, ssh: Path, places: Paths
) -> None:
    entry = make_stopped(places, "web")
    Registry(places).place(entry.id).console_log.write_text("hello from far\n")
    service.meet({"box": "ssh://far"})
    async with asyncio.timeout(60):
        (view,) = [view for view in (await there(service)).sandboxes if view.host]
        log = service.open_log(view.id, LogKind.CONSOLE)
        text = ""
        while "hello from far" not in text:
            text += await asyncio.to_thread(log.read)
            await asyncio.sleep(0.01)
        log.close()


# A machine that lies


class Liar:
    """A far end whose calls are answered as a test says."""

    def __init__(self) -> None:
        self.result: Any = None
        self.world = b'{"sandboxes":{}}\n'
        self.can: tuple[str, ...] = ("watch", "sandboxes")
        self.speaks = asyncio.Event()
        self.speaks.set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        hello, _ = await read_hello(reader)
        writer.write(welcome(*self.can, resumed=False).encode(hello))
        await Link(reader, writer, name="the app", answer=self._answer).run()

    async def _answer(self, request: Request) -> None:
        if request.method == "ping":
            await self.speaks.wait()
        if request.method == "call":
            request.channel.tell("progress", args=["reading", 3, 9])
            await asyncio.sleep(0.05)
            await send_json(request, self.result)
            return
        request.answer(resumed=False)
        if request.method == "watch":
            await request.channel.send(1, self.world)
            while True:
                await request.channel.event()


@pytest.fixture
async def liar(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> AsyncIterator[tuple[Liar, far_host.FarHost]]:
    found = Liar()
    with tempfile.TemporaryDirectory(prefix="qsh-") as root:
        path = Path(root) / "far.sock"
        server = await asyncio.start_unix_server(found.serve, path)
        ssh = Path(root) / "ssh"
        lines = (
            "import socket, sys, os, threading",
            "far = socket.socket(socket.AF_UNIX); far.connect(sys.argv[1])",
            "def copy():",
            "    while data := os.read(0, 65536): far.sendall(data)",
            "    far.shutdown(socket.SHUT_RDWR)",
            "threading.Thread(target=copy, daemon=True).start()",
            "while data := far.recv(65536): os.write(1, data)",
        )
        (Path(root) / "copy.py").write_text("\n".join(lines))
        ssh.write_text(f"#!/bin/sh\nexec python3 {root}/copy.py {path}\n")
        ssh.chmod(0o755)
        monkeypatch.setenv("PATH", f"{root}{os.pathsep}{os.environ['PATH']}")
        monkeypatch.setattr(far_host, "PAUSES_S", (0.05, 0.2))
        host = far_host.FarHost("box", "ssh://far", changed=lambda: None)
        running = asyncio.create_task(host.run())
        yield found, host
        running.cancel()
        await asyncio.wait([running])
        server.close()


WEB_ID = "0123456789ab"
WEB = {
    "sandboxes": {WEB_ID: {"name": "web", "state": "running", "created": 50.0}},
    "now": 100.0,
}


async def met(liar: Liar, host: far_host.FarHost) -> None:
    liar.world = json.dumps(WEB).encode() + b"\n"
    await until(lambda: host.sandboxes)


async def test_a_machine_that_stalls_is_told_within_seconds_and_so_are_its_sandboxes(
    liar: tuple[Liar, far_host.FarHost], monkeypatch: pytest.MonkeyPatch
) -> None:
    """They were shown as running for the minute after which the connection is given up."""
    monkeypatch.setattr(far_host, "ASK_S", 0.05)
    monkeypatch.setattr(far_host, "ANSWER_S", 0.05)
    far, host = liar
    await met(far, host)
    far.speaks.clear()
    await until(lambda: host.view.silent_since is not None)
    since = host.view.silent_since
    assert since is not None and host.view.state is MachineState.THERE
    (view,) = host.sandboxes
    assert view.silent_since == since
    assert silence_text(view, since + 8) == "no answer for 8s"
    assert state_text(host.view, since + 8) == "no answer for 8s"
    far.speaks.set()
    await until(lambda: host.view.silent_since is None)
    (view,) = host.sandboxes
    assert view.silent_since is None and host.connection == 1


async def test_a_machine_that_answers_is_never_called_silent(
    liar: tuple[Liar, far_host.FarHost], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(far_host, "ASK_S", 0.01)
    far, host = liar
    asked: list[str] = []
    answer = far._answer

    async def count(request: Request) -> None:
        asked.append(request.method)
        await answer(request)

    monkeypatch.setattr(far, "_answer", count)
    await met(far, host)
    await until(lambda: asked.count("ping") > 2)
    assert host.view.silent_since is None


async def test_times_of_a_machine_whose_clock_is_wrong_are_put_right(
    liar: tuple[Liar, far_host.FarHost],
) -> None:
    await met(*liar)
    (view,) = liar[1].sandboxes
    assert view.created is not None
    # It is fifty seconds old there.
    assert liar[1].view.since - view.created == pytest.approx(50.0, abs=30.0)


async def test_a_machine_that_tells_nonsense_cannot_be_used(
    liar: tuple[Liar, far_host.FarHost],
) -> None:
    lies, host = liar
    lies.world = b'{"sandboxes":{"../x":{}}}\n'
    await until(lambda: host.view.state is MachineState.UNFIT)
    assert "makes no sense" in host.view.why
    await met(lies, host)  # it is tried again
    assert host.view.state is MachineState.THERE


SAVE = {"name": "dev", "root": "/saves/dev", "manifest": None, "error": "it has no manifest"}
VERDICT = {"save": SAVE, "deep": True, "problems": [["manifest.json", "it has no manifest"]]}


async def test_what_a_call_tells_is_a_verbs_result_and_its_progress(
    liar: tuple[Liar, far_host.FarHost],
) -> None:
    lies, host = liar
    await met(lies, host)
    lies.result = {"value": {"verdicts": [VERDICT], "size": 9}}
    seen: list[Progress] = []
    verified: Any = await carry_out_there(host, verdicts.verify(["/saves/dev"]), "", seen.append)
    assert [one.save.name for one in verified.verdicts] == ["dev"]
    assert seen == [Progress("", "reading", done=3, total=9)]


LIES: tuple[Any, ...] = (
    None,
    {},
    {"value": []},
    {"value": {"verdicts": [5], "size": 9}},
    {"value": {"verdicts": [{**VERDICT, "deep": "yes"}], "size": 9}},
    {"value": {"verdicts": [{**VERDICT, "problems": {}}], "size": 9}},
)


@pytest.mark.parametrize("result", LIES)
async def test_a_result_that_makes_no_sense_is_a_failure(
    liar: tuple[Liar, far_host.FarHost], result: Any
) -> None:
    lies, host = liar
    await met(lies, host)
    lies.result = result
    with pytest.raises(RemoteProtocolError):
        await carry_out_there(host, verdicts.verify(["/saves/dev"]), "", ignore)


async def test_errors_of_a_call_are_those_of_their_classes_with_their_hints(
    liar: tuple[Liar, far_host.FarHost],
) -> None:
    lies, host = liar
    await met(lies, host)
    lies.result = {"error": {"kinds": ["SaveError", "QuicksandError"], "message": "m", "hint": "h"}}
    with pytest.raises(SaveError, match="m") as error:
        await carry_out_there(host, verdicts.verify(["/saves/dev"]), "", ignore)
    assert error.value.hint == "h"


# What is asked by the methods of a sandbox


async def test_checkpoints_there_are_asked_about_as_here(
    service: EngineService, ssh: Path, places: Paths
) -> None:
    make_stopped(places, "web")
    service.meet({"box": "ssh://far"})
    async with asyncio.timeout(60):
        (view,) = [view for view in (await there(service)).sandboxes if view.host]
        specs = DiffSpec(sandbox_id=view.id, a="nothing", names=("a", "b"), words=())
        questions: list[Callable[[Engine], Awaitable[object]]] = [
            lambda engine: engine.compare(specs, lambda _: None),
            lambda engine: engine.compare_file(specs, "/etc/passwd"),
            lambda engine: engine.losing(view.id, "nothing"),
            lambda engine: engine.shell_then(view.id, "nothing"),
            lambda engine: engine.changes(view.id, "nothing"),
            lambda engine: engine.look_at_screen(view.id, (80, 24), at="nothing"),
        ]
        for question in questions:
            with pytest.raises(OperationError) as caught:
                await service.ask("It is not known", question)
            assert "no checkpoint 'nothing'" in caught.value.failure.message
        assert len(pids(ssh)) == 1, "all of it goes over one ssh"


async def test_nothing_is_asked_of_a_machine_that_is_away() -> None:
    box = far_host.FarHost("box", "ssh://far", changed=lambda: None)
    with pytest.raises(RemoteUnreachableError, match="box is away"):
        open_there(box, "web")
