"""A mount within another: the guest may put a link in its place, which leads out of both."""

from __future__ import annotations

from pathlib import Path

import pytest
from quicksand import Mount, Sandbox
from quicksand.base.errors import MountError
from quicksand.mounts.known_mounts import known_mounts
from quicksand.records.registry import Registry
from quicksand.things.status import MountState

from tests.integration.guests import say

pytestmark = pytest.mark.vm

ABOVE, BELOW = "/mnt/above", "/mnt/below"


def states(vm: Sandbox) -> dict[str, tuple[str, str]]:
    """What `mounts` and `doctor` show, by the guest's path."""
    registry = Registry(vm._parts.life.registry.paths)
    found = known_mounts(registry, registry.find(vm.name))
    return {known.guest: (known.state.value, known.reason) for known in found}


async def look(vm: Sandbox) -> str:
    """What the guest sees at the mount within the other, and whether it can write there."""
    return await say(vm, f"ls {BELOW}; cat {BELOW}/* 2>/dev/null; touch {BELOW}/planted; true")


async def test_a_link_that_the_guest_put_in_place_of_a_mount_is_never_followed(
    tmp_path: Path,
) -> None:
    above, outside = tmp_path / "above", tmp_path / "outside"
    (above / "sub").mkdir(parents=True)
    (above / "sub" / "file").write_text("mine")
    outside.mkdir()
    (outside / "secret").write_text("secret of the host")
    mounts = [Mount(str(above), ABOVE), Mount(str(above / "sub"), BELOW)]
    vm = Sandbox(image="debian", name="nested", mounts=mounts)
    await vm.start()
    try:
        assert await look(vm) == "file\nmine"
        await vm.checkpoint("before")
        await say(vm, f"mv {ABOVE}/sub {ABOVE}/moved && ln -s ../outside {ABOVE}/sub")
        assert (above / "sub" / "secret").exists(), "the link leads out, on the host"

        with pytest.raises(MountError, match=f"{above}/sub is a link"):
            await vm.revert("before")
        assert "secret" not in await look(vm)
        assert [one.guest for one in vm.active_mounts] == [ABOVE], "the other is there again"
        state, reason = states(vm)[BELOW]
        assert state == MountState.LEFT_OUT
        assert f"{above}/sub is a link" in reason
        with pytest.raises(MountError, match=f"leads through {above}/sub, a link"):
            await vm.mount(above / "sub", "/mnt/other")

        await vm.stop()
        await vm.start()
        assert "secret" not in await look(vm)
        assert [one.guest for one in vm.active_mounts] == [ABOVE]
        assert any(f"{above}/sub is a link" in notice for notice in vm.notices)
        assert states(vm)[BELOW][0] == MountState.LEFT_OUT
        assert sorted(one.name for one in outside.iterdir()) == ["secret"]

        await vm.mount(above / "moved", BELOW)
        assert states(vm)[BELOW] == (MountState.MOUNTED, "")
        await vm.unmount(BELOW)
        assert states(vm)[BELOW] == (MountState.AT_START, ""), "it says nothing of the link"

        await say(vm, f"rm {ABOVE}/sub && mv {ABOVE}/moved {ABOVE}/sub && rm -f {BELOW}/planted")
        await vm.stop()
        await vm.start()
        assert "file\nplanted\nmine" in await look(vm), "what was mounted is mounted again"
        assert states(vm)[BELOW] == (MountState.MOUNTED, "")
    finally:
        await vm.kill()
