"""Every process of ours is listed with its memory, whether a sandbox is known for it or not."""

from __future__ import annotations

import subprocess
import sys

from quicksand.base.paths import Paths
from quicksand.life.all_processes import Role, list_all
from quicksand.records.registry import Registry
from quicksand.warm.spares.orders import MAKER

from tests.conftest import fake_qemu, wait_for


def test_a_qemu_of_nobody_and_a_maker(places: Paths) -> None:
    place = places.sandboxes / ("ab" * 6)
    argv = [sys.executable, "-c", "input()", "-m", MAKER]
    with fake_qemu(place) as qemu, subprocess.Popen(argv, stdin=subprocess.PIPE) as maker:

        def listed() -> dict[int, tuple[str, Role, str]]:
            found = list_all(Registry(places))
            assert all(one.memory >= 0 for one in found)
            return {one.pid: (one.kind, one.role, one.name) for one in found}

        wait_for(lambda: {qemu.pid, maker.pid} <= listed().keys(), what="both to be listed")
        assert listed()[qemu.pid] == ("QEMU", Role.OTHER, str(place))
        assert listed()[maker.pid] == ("spare maker", Role.OTHER, "")
        maker.kill()
