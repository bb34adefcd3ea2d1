"""What the app's service does with a real guest."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from quicksand.base.lease import is_leased
from quicksand.base.paths import Paths
from quicksand.records.layout import AGENT_PORTS, runtime_dir
from quicksand.things.status import MountState, Status

from quicksand_tui.door.engine import LINES_MAX, OUTPUT_MAX
from quicksand_tui.door.service import EngineService
from quicksand_tui.model.diffs import diff_specs
from quicksand_tui.model.jobs import OperationError
from quicksand_tui.model.specs import MountSpec, NewSpec
from quicksand_tui.verbs import checkpoints, launching, mounts, trashing
from quicksand_tui.verbs.halting import kill
from tests.conftest import free_port, our_processes, wait_for
from tests.unit.app.carrying import carry_out

pytestmark = pytest.mark.vm


async def delete(service: EngineService, sandbox_id: str) -> None:
    await carry_out(service, trashing.remove(stop=True), sandbox_id)


async def revert(service: EngineService, sandbox_id: str, checkpoint_id: str) -> None:
    await carry_out(service, checkpoints.revert(checkpoint_id), sandbox_id)


@pytest.fixture
async def service() -> AsyncIterator[EngineService]:
    found = EngineService()
    yield found
    for view in found.read().sandboxes:
        await delete(found, view.id)
    await asyncio.to_thread(found.close)


async def until_it_receives(service: EngineService, sandbox_id: str) -> None:
    """Have the guest forget and look for its gateway, which answers, until it tells of that. What
    comes by a forwarded port does not pass its network card."""
    knock = "ip neigh flush dev eth0; bash -c 'echo > /dev/udp/10.0.2.2/9'"
    async with asyncio.timeout(60):
        while True:
            await service.ask(
                "it failed", lambda engine: engine.run_command(sandbox_id, knock, timeout_s=20.0)
            )
            world = await asyncio.to_thread(service.read, network=[sandbox_id])
            (view,) = world.sandboxes
            if view.traffic is not None and view.traffic.received and view.traffic.sent:
                return


async def test_a_sandbox_with_ports_and_commands_in_it(service: EngineService) -> None:
    port = free_port()
    spec = NewSpec(image="debian", name="one", machine={"port_forwards": f"{port}:80, 0:22"})
    await carry_out(service, launching.create(spec))
    (view,) = service.read(fresh=True).sandboxes
    assert view.state is Status.RUNNING
    assert (port, 80) in view.ports and {guest for _, guest in view.ports} == {80, 22}

    async def run(command: str, timeout_s: float = 20.0) -> tuple[int, tuple[str, ...], bool, bool]:
        ran = await service.ask(
            "it failed", lambda engine: engine.run_command(view.id, command, timeout_s=timeout_s)
        )
        assert 0 < ran.seconds < timeout_s + 10
        return ran.exit_code, ran.lines, ran.is_cut, ran.timed_out

    assert await run("echo out; echo err >&2; printf '\\033[2Jx'; exit 3") == (
        3,
        ("out", "err", "x"),
        False,
        False,
    )
    assert await run("exit 0") == (0, (), False, False)
    await until_it_receives(service, view.id)
    code, lines, is_cut, _ = await run(f"yes | head -c {OUTPUT_MAX * 4}")
    assert (code, is_cut, set(lines), len(lines)) == (0, True, {"y"}, LINES_MAX)
    code, lines, is_cut, _ = await run(f"head -c {OUTPUT_MAX} /dev/zero")
    assert (code, is_cut, len(lines)) == (0, False, 1)
    assert (await run("echo begun; sleep 60", timeout_s=5.0))[1:] == (("begun",), False, True)

    task = asyncio.create_task(
        service.ask(
            "it failed", lambda engine: engine.run_command(view.id, "exec sleep 4321", timeout_s=60)
        )
    )
    count = "cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' ' | grep -c 'sleep 432[1]'"
    async with asyncio.timeout(60):
        while (await run(count))[1] != ("1",):
            pass
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    async with asyncio.timeout(60):  # one that is killed is there until it gets a processor
        while (await run(count))[1] != ("0",):
            pass

    await carry_out(service, kill(), view.id)
    with pytest.raises(OperationError, match="not running"):
        await service.ask(
            "it failed", lambda engine: engine.run_command(view.id, "id", timeout_s=5)
        )


async def test_checkpoints_and_reverts_keep_no_port_and_leave_no_process(
    service: EngineService, places: Paths
) -> None:
    await carry_out(service, launching.create(NewSpec(image="debian", name="one")))
    (view,) = service.read().sandboxes
    runtime = runtime_dir(places, view.id)

    def processes() -> int:
        return len(our_processes(str(places.data)))

    for _ in range(2):
        made = await carry_out(service, checkpoints.take(), view.id)
        current = runtime.current()
        assert not any(is_leased(current.agent_socket(n)) for n in range(AGENT_PORTS))
        await revert(service, view.id, made.id)
        assert runtime.current().name != current.name
        assert not any(is_leased(runtime.current().agent_socket(n)) for n in range(AGENT_PORTS))
    await asyncio.to_thread(wait_for, lambda: processes() == 2, what="QEMU and its keeper alone")


async def test_what_differs_is_read_while_the_guest_runs(
    service: EngineService, tmp_path: Path
) -> None:
    await carry_out(service, launching.create(NewSpec(image="debian", name="one", machine={})))
    (view,) = service.read(fresh=True).sandboxes

    async def run(command: str) -> None:
        ran = await service.ask(
            "it failed", lambda engine: engine.run_command(view.id, command, timeout_s=20)
        )
        assert ran.exit_code == 0, ran.lines

    await run("mkdir /srv/app; seq 9 > /srv/app/n; echo x > /srv/app/gone")
    await carry_out(service, checkpoints.take(tag="clean"), view.id)
    evil = r"$(printf 'evil\033[2J\nname')"
    await run(
        f'cd /srv/app; sed -i s/5/five/ n; rm gone; echo 1 > "{evil}"; head -c 9 /dev/zero > z'
    )
    (view,) = service.read(fresh=True).sandboxes
    (checkpoint,) = view.tree.checkpoints
    here, own = diff_specs(view, checkpoint, None)

    steps: list[int] = []
    found = await service.ask("it failed", lambda engine: engine.compare(here, steps.append))
    assert (found.is_live, found.is_synced) == (True, True)
    assert steps == sorted(steps) and steps
    paths = {path.names[-1]: path for path in found.paths if path.names[:2] == ("srv", "app")}
    assert {name: path.letter for name, path in paths.items()} == {
        "n": "M",
        "gone": "D",
        "evil\ufffdname": "A",
        "z": "A",
    }
    assert (paths["n"].added, paths["n"].removed, paths["z"].added) == (1, 1, None)

    async def text(path: str) -> list[tuple[str, str]]:
        shown = await service.ask("it failed", lambda engine: engine.compare_file(here, path))
        return list(shown.lines)

    changed = [line for line in await text("/srv/app/n") if line[0] in "+-"]
    assert changed == [("-", "5"), ("+", "five")]
    assert (" ", "It is binary.") in await text("/srv/app/z")
    assert [line for line in await text(paths["evil\ufffdname"].path) if line[0] == "+"] == [
        ("+", "1")
    ]

    losing = await service.ask("it failed", lambda engine: engine.losing(view.id, checkpoint.id))
    assert losing.places[0][0] == "/srv/app"
    assert losing.changed >= 1 and losing.added >= 2 and losing.removed >= 1

    patch = tmp_path / "a.patch"
    left = await service.ask(
        "it failed", lambda engine: engine.write_patch(here, "/srv/app", patch)
    )
    assert left == 1 and b"+five\n" in patch.read_bytes()
    with pytest.raises(OperationError):
        await service.ask("it failed", lambda engine: engine.write_patch(here, "/srv/app", patch))

    since_image = await service.ask("it failed", lambda engine: engine.compare(own, steps.append))
    assert not since_image.is_live
    assert "gone" in {path.names[-1] for path in since_image.paths if path.names}


async def test_a_directory_is_mounted_seen_and_taken_away(
    service: EngineService, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("from the host")
    await carry_out(service, launching.create(NewSpec(image="debian", name="one")))
    (view,) = service.read(fresh=True).sandboxes
    assert view.mounts == ()
    spec = MountSpec(host=str(tmp_path), guest="/mnt/src", readonly=True)
    await carry_out(service, mounts.mount(spec), view.id)
    (view,) = service.read(visible=[view.id]).sandboxes
    (mount,) = view.mounts
    assert (mount.host, mount.guest, mount.readonly) == (str(tmp_path), "/mnt/src", True)
    assert mount.state is MountState.MOUNTED
    use = "cat /mnt/src/file; (cd /mnt/src; exec sleep 1000) > /dev/null 2>&1 &"
    ran = await service.ask(
        "it failed", lambda engine: engine.run_command(view.id, use, timeout_s=20)
    )
    assert ran.lines == ("from the host",)
    with pytest.raises(OperationError, match="is in use in the guest"):
        await carry_out(service, mounts.unmount(mount.key, force=False), view.id)
    await carry_out(service, mounts.unmount(mount.key, force=True), view.id)
    assert service.read(visible=[view.id]).sandboxes[0].mounts == ()
