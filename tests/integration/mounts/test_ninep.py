"""A directory that QEMU serves by 9p, in a guest whose kernel has no 9p: Debian's for the cloud."""

from __future__ import annotations

from pathlib import Path

import pytest
from quicksand import Mount, Sandbox
from quicksand.base.errors import MountError
from quicksand.base.paths import Paths

pytestmark = [pytest.mark.vm, pytest.mark.usefixtures("warm_without_network")]


async def test_the_start_names_what_the_kernel_lacks_and_leaves_nothing(
    places: Paths, tmp_path: Path
) -> None:
    mount = Mount(str(tmp_path), "/mnt/data", type="9p")
    sandbox = Sandbox(image="debian", name="web", network_mode="none", mounts=[mount])
    with pytest.raises(MountError, match=r"no 9p client \(the kernel module 9p\)") as raised:
        await sandbox.start()
    assert "cifs" in raised.value.hint
    assert not list(places.runtime.iterdir())
