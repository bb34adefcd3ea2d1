"""`Sandbox(host=…)`: a sandbox of another machine, which is this one, over a private sshd where
there is one."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from quicksand import EventKind, RemoteHost, Sandbox
from quicksand.base.listing import own_sockets
from quicksand.base.paths import Paths
from quicksand.errors import (
    CheckpointNotFoundError,
    ConfigError,
    GuestFileNotFoundError,
    MachineError,
    NameTakenError,
    RevertedError,
    SandboxNotFoundError,
    StateError,
)
from quicksand.records.host_sockets import HOST_SOCKETS
from quicksand.records.registry import Registry

from quicksand_tui.door.service import EngineService
from quicksand_tui.model.diffs import DiffSpec
from quicksand_tui.model.shown_sandboxes import SandboxView
from tests.conftest import wait_for
from tests.ssh_server import FarHost, far_environ, find_sshd, with_sshd, without_sshd
from tests.unit.remote.far import until

pytestmark = pytest.mark.vm


@pytest.fixture(scope="module")
def far(places: Paths) -> Iterator[FarHost]:
    way = with_sshd if find_sshd() is not None else without_sshd
    with (
        tempfile.TemporaryDirectory(prefix="qsh-") as root,
        way(Path(root), far_environ()) as found,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setenv("PATH", found.environ()["PATH"])
        yield found
        wait_for(lambda: not own_sockets(places.runtime, HOST_SOCKETS), what="the far end to end")


@pytest.fixture
async def there(far: FarHost, vm_name: str) -> AsyncIterator[Sandbox]:
    """The module's sandbox, as another machine's."""
    sandbox = Sandbox.attach(vm_name, host=far.address)
    yield sandbox
    sandbox.close()
    await RemoteHost(far.address).shared().ended()


def our_ssh() -> list[int]:
    """The processes of ssh that this one has started."""
    own = os.getpid()
    found = []
    for child in Path(f"/proc/{own}/task/{own}/children").read_text().split():
        with contextlib.suppress(OSError):  # it has ended
            program = Path(f"/proc/{child}/cmdline").read_bytes().split(b"\0")[0]
            if b"ssh" in program and b"sshd" not in program:
                found.append(int(child))
    return found


async def test_its_guest_is_spoken_to_as_one_here(there: Sandbox) -> None:
    found = await there.execute("echo out; echo err >&2; exit 7")
    assert (found.exit_code, found.stdout, found.stderr) == (7, "out\n", "err\n")
    await there.files.write("/tmp/there", b"\0bytes")
    assert await there.files.read("/tmp/there") == b"\0bytes"
    with pytest.raises(GuestFileNotFoundError):
        await there.files.read("/tmp/nothing")
    assert (await there.stats()).guest_processes > 0
    assert any(one.pid == 1 for one in await there.processes())
    shell = await there.shell("cat")
    await shell.close()


async def test_what_is_known_of_it_is_what_its_machine_answered(
    there: Sandbox, vm_name: str
) -> None:
    assert there.name == vm_name
    await there.ping()
    here = Sandbox.attach(vm_name)
    assert (there.id, there.name, there.is_running) == (here.id, here.name, True)
    assert (there.config, there.accelerator) == (here.config, here.accelerator)
    assert there.agent_url is None


async def test_it_goes_back_and_forth_in_time(there: Sandbox) -> None:
    made = await there.checkpoint("one", note="a note")
    assert [one.tag for one in there.checkpoints()] == ["one"]
    assert (made.tag, made.note, made.has_memory) == ("one", "a note", True)
    await there.execute("touch /later; sync")
    running = asyncio.create_task(there.execute("sleep 1000"))
    await until(lambda: len(there.checkpoints()) == 1, "it to be known")
    assert "/later" in [one.path for one in await there.diff("one")]
    back = await there.revert("one")
    assert back.tag == "one" and back.revert_form
    with pytest.raises(RevertedError):
        await running
    assert (await there.execute("ls /later")).exit_code != 0
    await there.undo()
    assert (await there.execute("ls /later")).exit_code == 0
    assert await there.checkpoint_screen("one") is None
    difference = await there.compare("one", on_progress=lambda steps: None)
    assert any(one.path == "/later" for one in difference.changes)


async def test_the_app_compares_its_checkpoints_as_those_of_a_sandbox_here(
    far: FarHost, there: Sandbox, tmp_path: Path
) -> None:
    made = await there.checkpoint("before")
    await there.execute("echo text > /root/new; sync")
    service = EngineService()
    try:
        service.meet({"box": far.address})

        async def found() -> SandboxView | None:
            world = await asyncio.to_thread(service.read)
            return next((view for view in world.sandboxes if view.host), None)

        async with asyncio.timeout(120):
            while (view := await found()) is None:
                await asyncio.sleep(0.05)
            spec = DiffSpec(sandbox_id=view.id, a=made.id, names=("before", "now"), words=())
            steps: list[int] = []
            all_ = await service.ask("", lambda engine: engine.compare(spec, steps.append))
            assert ("/root/new", "A") in [(one.path, one.letter) for one in all_.paths]
            text = await service.ask("", lambda engine: engine.compare_file(spec, "/root/new"))
            assert ("+", "text") in text.lines
            patch = tmp_path / "patch"
            await service.ask("", lambda engine: engine.write_patch(spec, "/root", patch))
            assert "+text" in patch.read_text().splitlines()
            losing = await service.ask("", lambda engine: engine.losing(view.id, made.id))
            assert losing.added >= 1
            changes = await service.ask("", lambda engine: engine.changes(view.id, made.id))
            assert changes.places
            picture = await service.ask(
                "", lambda engine: engine.look_at_screen(view.id, (80, 24), at=made.id)
            )
            assert picture == (), "it has no display"
    finally:
        await asyncio.to_thread(service.close)


async def test_errors_are_of_the_classes_that_they_have_here(far: FarHost, there: Sandbox) -> None:
    with pytest.raises(CheckpointNotFoundError, match="no checkpoint"):
        await there.revert("nothing")
    with pytest.raises(SandboxNotFoundError, match="nobody"):
        await Sandbox.attach("nobody", host=far.address).ping()
    with pytest.raises(TypeError):
        await there.checkpoint(tga="one")  # type: ignore[call-arg]
    with pytest.raises(NameTakenError):
        await Sandbox(image="debian", name=there.name, host=far.address).start()
    with pytest.raises(ConfigError, match="whole path"):
        await there.mount("./data", "/mnt/data")
    with pytest.raises(StateError, match="another machine"):
        there.logs()


async def test_a_command_in_one_that_is_paused_is_refused_at_once(
    there: Sandbox, vm_name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Be it paused from here or by somebody there; and one that waits goes on."""
    assert (await there.execute("echo one")).stdout == "one\n"
    await there.pause()
    with pytest.raises(StateError, match="is paused"):
        await asyncio.wait_for(there.execute("echo two"), 10)
    await there.resume()
    assert (await there.execute("echo three")).stdout == "three\n"
    same = Sandbox.attach(vm_name)
    waiting = asyncio.create_task(there.execute("sleep 2; echo four"))
    await same.pause()
    await until(lambda: "goes on when it does" in caplog.text, "the word that it is paused")
    await same.resume()
    same.close()
    assert (await waiting).stdout == "four\n"


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_each_run_of_an_event_loop_connects_anew(far: FarHost, vm_name: str) -> None:
    sandbox = Sandbox.attach(vm_name, host=far.address)

    async def say(word: str) -> str:
        return (await sandbox.execute(f"echo {word}")).stdout

    for word in ("one", "two"):
        assert asyncio.run(say(word)) == f"{word}\n"
    sandbox.close()
    gc.collect()


async def test_its_machine_lists_it(far: FarHost, there: Sandbox) -> None:
    found = await RemoteHost(far.address).list()
    assert [(one.name, one.status) for one in found] == [(there.name, "running")]
    await there.execute("echo listed > /dev/console")
    while "listed" not in (told := await RemoteHost(far.address).logs(there.name)):
        pass
    assert Sandbox.open(there.name).logs().startswith(told)  # there may be more by now


async def test_a_directory_of_its_machine_is_mounted(there: Sandbox, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("from there")
    made = await there.mount(tmp_path, "/mnt/data", readonly=True)
    assert (made.host, made.guest, made.readonly) == (str(tmp_path), "/mnt/data", True)
    assert await there.files.read_text("/mnt/data/file") == "from there"
    assert [one.guest for one in there.active_mounts] == ["/mnt/data"]
    await there.unmount(made)
    assert there.active_mounts == []


async def test_events_come_as_they_happen(there: Sandbox) -> None:
    events = there.events()
    coming = asyncio.ensure_future(anext(events))
    try:
        while not coming.done():
            await there.pause()
            await there.resume()
            await asyncio.wait([coming], timeout=0.1)
        assert (await coming).kind in (EventKind.PAUSED, EventKind.RESUMED)
    finally:
        coming.cancel()
        await asyncio.wait([coming])


async def test_several_share_one_ssh(far: FarHost, there: Sandbox, vm_name: str) -> None:
    other = Sandbox.attach(vm_name, host=far.address)
    await asyncio.gather(*(one.ping() for one in (there, other) for _ in range(5)))
    # That of the test before may just be ending.
    await asyncio.to_thread(wait_for, lambda: len(our_ssh()) == 1, what="one ssh")
    other.close()
    await there.ping()


SERVER = """
import contextlib, socket
server = socket.create_server(('127.0.0.1', 8123))
while True:
    with contextlib.suppress(OSError), server.accept()[0] as peer:
        peer.sendall(b'here')
"""


async def test_a_port_of_this_machine_leads_to_its_guest(there: Sandbox) -> None:
    serve = f'python3 -c "{SERVER}" >/dev/null 2>&1 & echo $!'
    pid = (await there.execute(serve)).stdout
    made = await there.forward(8123)
    assert there.port_forwards == {8123: made.host}

    async def answers() -> bool:
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", made.host)
            data = await reader.read(64)
            writer.close()
        except OSError:
            return False
        return data == b"here"

    async with asyncio.timeout(60):
        while not await answers():
            await asyncio.sleep(0.05)
    await there.unforward(made.host)
    assert there.port_forwards == {}
    await there.execute(f"kill {pid}")


async def test_a_connection_that_breaks_is_made_anew(there: Sandbox) -> None:
    await there.ping()
    call = asyncio.create_task(there.checkpoint("cut"))
    await until(our_ssh, "ssh")
    for pid in our_ssh():
        os.kill(pid, signal.SIGKILL)
    assert (await call).tag == "cut"
    assert [one.tag for one in there.checkpoints()].count("cut") == 1
    assert (await there.execute("echo again")).stdout == "again\n"


async def test_a_call_that_is_cancelled_leaves_nothing(there: Sandbox) -> None:
    before = len(there.checkpoints())
    await there.ping()
    call = asyncio.create_task(there.checkpoint("cancelled"))
    await asyncio.sleep(0)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    await there.execute("true")
    assert "cancelled" not in [one.tag for one in there.checkpoints()][before:]


async def test_it_lives_as_long_as_its_block(far: FarHost, places: Paths) -> None:
    stages = []
    async with Sandbox(
        image="debian",
        name="block",
        host=far.address,
        progress_callback=lambda stage, done, total: stages.append(stage),
    ) as made:
        assert made.is_running and made.boot_timing is not None
        assert (await made.execute("hostname")).stdout == "block\n"
        clone = (await made.clone(names=["twin"]))[0]
        assert (await clone.execute("hostname")).stdout == "twin\n"
        await clone.kill()
        await made.pause()
        await made.resume()
        await made.save("kept", workspace=str(places.data / "kept"))
        # A command that begins before that is noticed is told that nobody knows its fate.
        noticed = asyncio.create_task(made.wait_disconnected())
        await made.execute("true")
        for pid in our_ssh():
            os.kill(pid, signal.SIGKILL)
        await noticed
        assert (await made.execute("echo lives")).stdout == "lives\n"
    assert stages
    entry = next(one for one in Registry(places).list() if one.name == "block")
    assert not entry.is_live
    again = Sandbox.open("block", host=far.address)
    await again.start()
    again.detach()
    again.close()
    await RemoteHost(far.address).shared().ended()
    here = Sandbox.attach("block")
    assert (await here.execute("true")).exit_code == 0
    await here.kill()
    with pytest.raises((MachineError, StateError)):
        await Sandbox.attach("block", host=far.address).ping()


CLIENT = """
import asyncio, sys
from quicksand import EventKind, RemoteHost, Sandbox
async def main():
    host = RemoteHost(sys.argv[1], grace=0.5)
    async with Sandbox(image="debian", name="lost", host=host) as sandbox:
        print(sandbox.id, flush=True)
        await asyncio.sleep(1000)
asyncio.run(main())
"""


def test_it_ends_when_its_client_is_killed(far: FarHost, places: Paths) -> None:
    with subprocess.Popen([sys.executable, "-c", CLIENT, far.address], stdout=-1) as client:
        assert client.stdout is not None
        id_ = client.stdout.readline().decode().strip()
        entry = Registry(places).inspect(id_)
        assert entry is not None and entry.is_live
        client.kill()

    def is_gone() -> bool:
        found = Registry(places).inspect(id_)
        return found is None or not found.is_live

    wait_for(is_gone, what="it to end")
