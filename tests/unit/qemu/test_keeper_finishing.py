"""A guest that goes on as another machine, in the same QEMU: while its memory is being written anew
nobody resumes it, and a revert that its client has left is finished by a program."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from quicksand.base.errors import MachineError
from quicksand.records.layout import MachineDir

from tests.conftest import wait_for
from tests.unit.qemu.test_keeper_machines import Scene, scene

__all__ = ["scene"]

FINISHER = (
    "import os, sys; open(sys.argv[1], 'a').write(sys.stdin.read() + os.environ['WHO'] + '\\n')"
)


def begin(scene: Scene, name: str, program: Any) -> MachineDir:
    """The directory of another machine, with a mark that names ``program``."""
    made = scene.runtime.make(name)
    made.unfinished.write_text(program if isinstance(program, str) else json.dumps(program))
    return made


def finisher(to: Path) -> dict[str, Any]:
    argv = [sys.executable, "-c", FINISHER, str(to)]
    return {"argv": argv, "env": {"WHO": "me"}, "task": "do it, "}


async def written(path: Path) -> str:
    await asyncio.to_thread(wait_for, path.exists, what="the finisher's file")
    await asyncio.to_thread(wait_for, lambda: path.read_text()[-1:] == "\n", what="all of it")
    return path.read_text()


async def test_the_guest_goes_on_as_the_other_machine(scene: Scene) -> None:
    link = await scene.link()
    scene.runtime.make("7")
    await link.ask("turn", name="7")
    assert scene.runtime.current().name == "7"
    scene.runtime.remove_machine("1")
    scene.owner.cut()
    await asyncio.wait_for(scene.owner.wait(), 60)
    assert json.loads(scene.place.exit.read_text())["machine"] == "7"


async def test_a_client_that_leaves_a_mark_has_its_revert_finished(
    scene: Scene, tmp_path: Path
) -> None:
    said = tmp_path / "said"
    made = begin(scene, "7", finisher(said))
    link = await scene.link()
    await link.ask("turn", name="7")
    link.close()
    assert await written(said) == "do it, me\n"
    await scene.unharmed()
    assert "heard cont" not in scene.console()
    made.unfinished.unlink()


async def test_a_client_that_has_finished_leaves_a_guest_that_runs(scene: Scene) -> None:
    made = begin(scene, "7", {})
    link = await scene.link()
    await link.ask("turn", name="7")
    made.unfinished.unlink()
    link.close()
    await scene.said("1 heard cont")


async def test_a_client_that_has_not_stored_the_state_before_leaves_that_to_a_program(
    scene: Scene, tmp_path: Path
) -> None:
    said = tmp_path / "said"
    made = begin(scene, "7", finisher(said))
    link = await scene.link()
    await link.ask("turn", name="7")
    made.unfinished.replace(made.unstored)
    link.close()
    await scene.said("1 heard cont")
    assert await written(said) == "do it, me\n"


KILLED = (
    "import os, sys\nwith open(sys.argv[1], 'a') as file: file.write('tried\\n')\n"
    "if open(sys.argv[1]).read().count('tried') < 3: os.kill(os.getpid(), 9)\n"
    "os.unlink(sys.argv[2])"
)


async def test_a_finisher_that_is_killed_is_started_again(scene: Scene, tmp_path: Path) -> None:
    said, mark = tmp_path / "said", scene.runtime.machine("7").unfinished
    argv = [sys.executable, "-c", KILLED, str(said), str(mark)]
    begin(scene, "7", {"argv": argv, "env": {}, "task": ""})
    link = await scene.link()
    await link.ask("turn", name="7")
    link.close()
    await asyncio.to_thread(wait_for, lambda: not mark.exists(), what="the third finisher")
    assert said.read_text() == 3 * "tried\n"


async def test_a_client_that_leaves_before_the_turn_changes_nothing(
    scene: Scene, tmp_path: Path
) -> None:
    said = tmp_path / "said"
    begin(scene, "7", finisher(said))
    link = await scene.link()
    await link.ask("guard", on=True)
    link.close()
    await scene.said("1 heard cont")
    assert scene.runtime.current().name == "1"
    assert not said.exists()


async def test_a_revert_is_finished_on_request_and_once(scene: Scene, tmp_path: Path) -> None:
    said = tmp_path / "said"
    begin(scene, "7", finisher(said))
    link = await scene.link()
    await link.ask("turn", name="7")
    other = await scene.link()
    assert (await other.ask("finish", again=True))["running"]  # its client is at it
    assert not said.exists()
    await link.ask("guard", on=False)
    assert not (await other.ask("finish", again=False))["running"]
    assert (await other.ask("finish", again=True))["running"]
    assert await written(said) == "do it, me\n"


async def test_nothing_is_finished_without_a_mark(scene: Scene) -> None:
    link = await scene.link()
    assert not (await link.ask("finish", again=True))["running"]
    await scene.unharmed()


@pytest.mark.parametrize(
    "program",
    [
        "no JSON",
        "[]",
        "{}",
        {"argv": [], "env": {}, "task": ""},
        {"argv": ["/nowhere/at/all"], "env": {}, "task": ""},
        {"argv": [sys.executable], "env": [], "task": ""},
        {"argv": [sys.executable], "env": {"A=B": "\0"}, "task": ""},
        {"argv": [sys.executable], "env": {}, "task": "x" * 40_000},
    ],
)
async def test_a_mark_that_names_no_program_is_reported(scene: Scene, program: Any) -> None:
    begin(scene, "7", program)
    link = await scene.link()
    await link.ask("turn", name="7")
    link.close()
    await scene.unharmed()
    assert "cannot finish a revert: " in scene.place.qemu_log.read_text()
    assert "heard cont" not in scene.console()


FAILING = (
    "import sys; sys.path[:0] = sys.argv[3:]; import asyncio, json, pathlib\n"
    "from quicksand.qemu.keeper_link import KeeperLink\n"
    "async def fail():\n"
    "    link = await KeeperLink.connect(pathlib.Path(sys.argv[1]))\n"
    "    await link.ask('guard', on=True)\n"
    "    with open(sys.argv[2], 'a') as file: file.write('tried\\n')\n"
    "asyncio.run(fail())"
)
"""A program that takes the guest, as one that finishes a revert does, and ends without success."""


async def test_a_finisher_that_fails_is_tried_again_only_on_request(
    scene: Scene, tmp_path: Path
) -> None:
    said = tmp_path / "said"
    keeper = str(scene.runtime.keeper_socket)
    argv = [sys.executable, "-c", FAILING, keeper, str(said), *sys.path]
    begin(scene, "7", {"argv": argv, "env": {}, "task": ""})
    link = await scene.link()
    await link.ask("turn", name="7")
    link.close()
    assert await written(said) == "tried\n"
    other = await scene.link()

    async def nobody_is_at_it() -> None:
        while (await other.ask("finish", again=False))["running"]:
            await asyncio.sleep(0.01)

    await asyncio.wait_for(nobody_is_at_it(), 60)
    assert said.read_text() == "tried\n"
    assert (await other.ask("finish", again=True))["running"]
    await asyncio.wait_for(nobody_is_at_it(), 60)
    assert said.read_text() == "tried\ntried\n"


@pytest.mark.parametrize("name", ["1", "2", "../2", "", "2/3", "2\n"])
async def test_a_turn_to_what_is_no_new_machine_is_refused(scene: Scene, name: str) -> None:
    link = await scene.link()
    with pytest.raises(MachineError, match="cannot go on as machine"):
        await link.ask("turn", name=name)
    assert scene.runtime.current().name == "1"
    await scene.unharmed()


async def test_a_finisher_has_none_of_the_keepers_open_files(scene: Scene, tmp_path: Path) -> None:
    said = tmp_path / "said"
    look = (
        "import json, os, sys; n = [f'/proc/self/fd/{n}' for n in range(3, 64)];"
        "links = [os.readlink(p) for p in n if os.path.exists(p)];"
        "open(sys.argv[1], 'w').write(json.dumps([l for l in links if '/fd' not in l]) + '\\n')"
    )
    begin(scene, "7", {"argv": [sys.executable, "-c", look, str(said)], "env": {}, "task": ""})
    link = await scene.link()
    await link.ask("turn", name="7")
    link.close()
    assert json.loads(await written(said)) == []
