"""How much of the host's memory a QEMU may have, by its arguments."""

from __future__ import annotations

import resource
from pathlib import Path

from quicksand.qemu.keeper_parts.bounds import MIB, OWN, RESERVE, SCREEN, bound_of

from tests.each import each

TCG = ("-accel", "tcg,thread=multi,tb-size=128")


def watched(*argv: str) -> int:
    bound = bound_of(argv)
    assert bound is not None
    assert bound.watched < bound.mapped == bound.kernel - RESERVE
    assert bound.within(MIB).mapped < MIB
    assert bound.within(resource.RLIM_INFINITY) is bound
    return bound.watched // MIB


@each(
    ("argv", "mib"),
    [
        (("-m", "512M"), 512),
        (("-m", "512"), 512),
        (("-m", "2G"), 2048),
        (("-m", "size=1G,slots=0"), 1024),
        (("-m", "512M", "-smp", "4", "-m", "1024M"), 1024),
        (("-accel", "kvm", "-m", "512M", "-smp", "cpus=2,cores=2"), 512),
        # The buffer of translated code, and an eighth of the memory for each processor.
        (("-m", "512M", *TCG), 512 + 128 + 64),
        (("-m", "512M", "-smp", "2", *TCG), 512 + 128 + 2 * 64),
        (("-m", "32G", "-smp", "2", *TCG), 32768 + 128 + 2 * 768),
        (("-m", "512M", "-accel", "tcg"), 512 + 1024 + 64),
        (("-m", "512M", "-netdev", '{"type": "user", "restrict": true}'), 512),
        # Each descriptor may be a connection of 288 KiB.
        (("-m", "512M", "-netdev", '{"type": "user", "restrict": false}'), 512 + 576),
        (("-m", "512M", "-device", '{"driver": "virtio-gpu-pci"}'), 512 + SCREEN // MIB),
    ],
)
def test_it_is_the_guests_memory_and_what_qemu_needs(argv: tuple[str, ...], mib: int) -> None:
    assert watched(*argv) == mib + OWN // MIB


@each("argv", [(), ("-m",), ("-m", "lots"), ("-m", ""), ("-M", "512M")])
def test_without_a_guests_memory_there_is_no_bound(argv: tuple[str, ...]) -> None:
    assert bound_of(argv) is None


def test_files_that_qemu_maps_are_no_growth(tmp_path: Path) -> None:
    kernel = tmp_path / "kernel"
    kernel.write_bytes(bytes(MIB))
    small, large = (bound_of(("-m", "8M", *more)) for more in ((), ("-kernel", str(kernel))))
    assert small is not None
    assert large is not None
    assert large.kernel - small.kernel == 2 * MIB
    assert large.watched == small.watched
