"""The examples of the specification (its chapter on file sharing), as they are written there but
for the names of directories and of the image."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from quicksand import Mount, NetworkMode, Sandbox

from tests.integration.guests import say

pytestmark = pytest.mark.vm


@pytest.fixture
def host(tmp_path: Path) -> Path:
    data = tmp_path / "data"
    data.mkdir()
    (data / "file").write_text("from the host")
    return data


@pytest.mark.parametrize(
    "mode", [NetworkMode.MOUNTS_ONLY, pytest.param(NetworkMode.FULL, marks=pytest.mark.soak)]
)
async def test_its_examples_do_what_it_says(host: Path, mode: NetworkMode) -> None:
    # Boot-time mounts
    sb = Sandbox(
        image="debian",
        mounts=[Mount(str(host), "/mnt/data", readonly=True)],
        network_mode=mode,
    )
    async with sb:
        assert await say(sb, "cat /mnt/data/file") == "from the host"
        assert (await sb.execute("rm /mnt/data/file")).exit_code != 0
        assert "cifs" in await say(sb, "grep ' /mnt/data ' /proc/mounts")
        # Dynamic hot-mounts
        handle = await sb.mount(str(host), "/mnt/more")
        assert (await sb.execute("ls /mnt/more")).stdout == "file\n"
        await say(sb, "echo from the guest > /mnt/more/new")
        await sb.unmount(handle)
        assert (await sb.execute("ls /mnt/more")).stdout == ""
    assert (host / "new").read_text() == "from the guest\n"
    assert sorted(os.listdir(host)) == ["file", "new"]


async def test_by_default_the_guest_reaches_the_share_and_nothing_else(host: Path) -> None:
    async with Sandbox(image="debian", mounts=[Mount(str(host), "/mnt/data")]) as sb:
        assert "//10.0.2.100/QUICKSAND0" in await say(sb, "grep ' /mnt/data ' /proc/mounts")
        assert await say(sb, "cat /mnt/data/file") == "from the host"
        reach = "timeout 5 bash -c 'exec 3<>/dev/tcp/10.0.2.2/22'"
        assert (await sb.execute(reach, timeout=20)).exit_code != 0
