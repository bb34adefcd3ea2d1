"""QEMU's whole command line on each kind of host: that of Linux on x86_64 with KVM, which
test_command.py spells out, and exactly these differences."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from quicksand.base.arch import Architecture
from quicksand.qemu.command import SANDBOX, plan
from quicksand.records.config import Accelerator

from tests.each import each
from tests.unit.qemu.test_command import INHERITED, PLAIN, kernel_words, parse, parse_keyval

Option = tuple[str, Any]

X86, ARM = Architecture.X86_64, Architecture.ARM64
SECCOMP = ("-sandbox", parse_keyval(SANDBOX, "enable"))
VMGENID = ("-device", {"driver": "vmgenid", "guid": "auto"})
COMMON = {"memory-backend": "ram", "suppress-vmdesc": "on"}
Q35 = {"usb": "off", "vmport": "off", "smm": "off", "hpet": "off", "sata": "off"}
Q35 |= {"type": "q35", "smbus": "off", "graphics": "off", **COMMON}
PC_MACHINE = ("-machine", Q35)
PC_WORDS = {"console=ttyS0", "i8042.noaux", "i8042.nokbd", "8250.nr_uarts=1", "tsc=reliable"}
PC_WORDS |= {"no_timer_check"}
ARM_WORDS = {"console=ttyAMA0"}
FAST = {"norandmaps", "mitigations=off", "psi=0", "audit=0", "lsm=landlock,yama,integrity"}
KVM, HOST_CPU = ("-accel", {"accel": "kvm"}), ("-cpu", "host")
HVF = ("-accel", {"accel": "hvf"})
TCG = ("-accel", {"accel": "tcg", "thread": "multi", "tb-size": "128"})
WHPX = ("-accel", {"accel": "whpx", "kernel-irqchip": "off"})
URANDOM = ("-object", {"qom-type": "rng-random", "id": "rng0", "filename": "/dev/urandom"})
BUILTIN = ("-object", {"qom-type": "rng-builtin", "id": "rng0"})


def virt(**more: str) -> Option:
    return ("-machine", {"type": "virt", **more, **COMMON})


@dataclass(frozen=True, kw_only=True)
class Case:
    platform: str
    arch: Architecture
    accel: Accelerator
    without: tuple[Option, ...] = ()
    """What the usual line has and this one has not."""
    also: tuple[Option, ...] = ()
    words_without: frozenset[str] = frozenset()
    """The kernel's words that the usual line has and this one has not."""
    words_also: frozenset[str] = frozenset()


CASES = {
    "linux, x86_64": Case(platform="linux", arch=X86, accel=Accelerator.KVM),
    "linux, x86_64, emulated": Case(
        platform="linux",
        arch=X86,
        accel=Accelerator.TCG,
        without=(KVM, HOST_CPU),
        also=(TCG, ("-cpu", "max,-erms,-fsrm")),
        words_also=frozenset(FAST),
    ),
    "linux, arm64": Case(
        platform="linux",
        arch=ARM,
        accel=Accelerator.KVM,
        without=(PC_MACHINE, VMGENID),
        also=(virt(),),
        words_without=frozenset(PC_WORDS),
        words_also=frozenset(ARM_WORDS),
    ),
    "linux, arm64, emulated": Case(
        platform="linux",
        arch=ARM,
        accel=Accelerator.TCG,
        without=(PC_MACHINE, KVM, HOST_CPU, VMGENID),
        also=(virt(**{"gic-version": "max"}), TCG, ("-cpu", "max,pauth=off,sve=off,sme=off")),
        words_without=frozenset(PC_WORDS),
        words_also=frozenset(ARM_WORDS | FAST),
    ),
    "macos, x86_64": Case(
        platform="darwin",
        arch=X86,
        accel=Accelerator.HVF,
        without=(SECCOMP, KVM),
        also=(HVF,),
    ),
    "macos, arm64": Case(
        platform="darwin",
        arch=ARM,
        accel=Accelerator.HVF,
        without=(SECCOMP, PC_MACHINE, KVM, VMGENID),
        also=(virt(), HVF),
        words_without=frozenset(PC_WORDS),
        words_also=frozenset(ARM_WORDS),
    ),
    "windows, x86_64": Case(
        platform="win32",
        arch=X86,
        accel=Accelerator.WHPX,
        without=(SECCOMP, KVM, HOST_CPU, URANDOM),
        also=(WHPX, ("-cpu", "max"), BUILTIN),
        words_also=frozenset({"noapic"}),
    ),
}


def differences(these: list[Option], those: list[Option]) -> tuple[Option, ...]:
    """What only the first of two lines has, in its order, the kernel's words apart."""
    return tuple(one for one in these if one not in those and one[0] != "-append")


@each("case", CASES.values(), ids=CASES)
def test_a_host_has_the_usual_line_with_exactly_its_own_differences(case: Case) -> None:
    usual = plan(PLAIN, INHERITED, "linux")
    machine = replace(PLAIN, arch=case.arch, accel=case.accel)
    here = plan(machine, INHERITED, case.platform)
    assert differences(parse(usual), parse(here)) == case.without
    assert differences(parse(here), parse(usual)) == case.also
    words, usual_words = set(kernel_words(here)), set(kernel_words(usual))
    assert usual_words - words == case.words_without
    assert words - usual_words == case.words_also
    names, usual_names = (
        [option for option, _ in parse(line) if option not in ("-sandbox", "-device")]
        for line in (here, usual)
    )
    assert names == usual_names, "everything else stands where it stood"


@each("case", CASES.values(), ids=CASES)
def test_no_host_falls_back_to_another_accelerator_by_itself(case: Case) -> None:
    line = plan(replace(PLAIN, arch=case.arch, accel=case.accel), INHERITED, case.platform)
    assert line.count("-accel") == line.count("-cpu") == line.count("-machine") == 1
