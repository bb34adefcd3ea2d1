"""Builds QEMU's command line from small pure functions. Structured options are JSON, so that no
path or name needs quoting."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from quicksand.base.arch import Architecture
from quicksand.records.config import (
    DNS_IP,
    GATEWAY_IP,
    GUEST_IP,
    SHARE_IP,
    SHARE_PORT,
    Accelerator,
    NetworkMode,
)

SANDBOX = "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny"
"""All of QEMU's seccomp filters (qemu(1), -sandbox): a guest that breaks out cannot start programs.
Only on Linux: other builds of QEMU refuse the option."""

TB_SIZE_MIB = 128
"""TCG's buffer for translated code. QEMU's default is 1 GiB on 64-bit hosts; a guest's kernel and
tools fit into this one, which bounds the memory of an idle sandbox."""

TB_SIZE_DISPLAY_MIB = 1024
"""The same for a machine with a display. Drawing Firefox's first window translates 700 MiB of code;
when the buffer is full, QEMU discards all of it and begins again."""

SLOW_IN_TCG = {
    Architecture.X86_64: ("-erms", "-fsrm"),
    Architecture.ARM64: ("pauth=off", "sve=off", "sme=off"),
}
"""CPU features that cost time under TCG and give nothing. On x86 they make Linux and libc copy with
`rep movsb`, which TCG emulates byte by byte. On arm64 they make libc copy with vectors of any
length, for each of which TCG calls a function, and make every function of a Debian guest compute a
cipher (QARMA5) at its beginning and end, to authenticate pointers."""

FAST_IN_TCG = (
    "norandmaps",
    "mitigations=off",
    "psi=0",
    "audit=0",
    "lsm=landlock,yama,integrity",
)
"""Kernel parameters that make TCG fast. TCG caches translated code by virtual address, so address
space randomization would translate every program again at each start: `true` took 39 ms instead of
7. Mitigations are against the speculation of real CPUs. Pressure accounting, auditing, and security
modules that inspect every call even without a policy (AppArmor, TOMOYO) are code to translate."""

KEYBOARD, TABLET = "keyboard", "tablet"
"""Ids of the input devices."""

VNC_WITH_PORT = "port"
"""The id of the VNC server that gets a port."""

GPU_MEMORY_MAX = 128 * 1024 * 1024
"""Bytes of pictures that a guest can have QEMU hold, such as three of 3840x2160. QEMU's
default is 256 MiB (hw/display/virtio-gpu.c, max_hostmem)."""

RANDOMNESS = "rng-random,id=rng0,filename=/dev/urandom"

AGENT_HTTP_PORT = 8300
"""The guest's TCP port for the agent's HTTP, if that is asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Inherited:
    """Descriptors of listening Unix sockets that QEMU inherits, and the places of those that it
    makes itself, since -vnc takes no descriptor (QEMU, ui/vnc.c)."""

    qmp: Sequence[int]
    agent: Sequence[int]
    shares: Sequence[int]
    vnc: Path
    """The place of the VNC socket; only a machine with a display makes it."""
    vnc_port: Path
    """Where a machine with ``vnc_port`` serves viewers until it has the port (display/place.py)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Boot:
    """The files and kernel words with which the guest boots."""

    kernel: Path
    initrd: Path
    disk: Path
    """The overlay to which the guest writes."""
    backing: Sequence[Path]
    """Its read-only layers, the root base first."""
    hostname: str
    cmdline: str = ""
    """Additional words for the kernel, from the image."""


NINEP_DEVICE = "virtio-9p-pci"


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedDirectory:
    """A directory of the host that QEMU serves by 9p."""

    path: str
    readonly: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class MachinePlan:
    """One VM in every detail; `plan` turns it into arguments."""

    name: str
    """The sandbox's directory, by which its processes are found (base/processes.py)."""
    arch: Architecture
    accel: Accelerator
    memory_bytes: int
    memory_image: Path | None = None
    """A file of ``memory_bytes`` bytes that is mapped privately as the guest's memory. None for
    memory that starts empty."""
    incoming: bool = False
    """Do not boot, but wait for a state to be loaded (QMP migrate-incoming)."""
    halted: bool = False
    """Stay stopped before the first instruction until QMP cont."""
    cpus: int
    tsc_khz: int | None = None
    """The rate of the time stamp counter that an emulated x86 guest reads (base/tick_rate.py); None
    to let it measure the rate itself."""
    boot: Boot
    network: NetworkMode
    display: bool = False
    """Whether it has a screen, a keyboard and a pointer."""
    vnc_port: bool = False
    """Whether its screen will be served at a port, too."""
    mac: str
    aio: str
    """"threads" or "io_uring"."""
    http_port: int | None = None
    """The host port that is forwarded to the agent's HTTP; None for no HTTP."""
    directories: Sequence[SharedDirectory] = ()
    extra: Sequence[str] = ()


def plan(machine: MachinePlan, inherited: Inherited, platform: str = sys.platform) -> list[str]:
    """Return QEMU's arguments, without the program's name, for a host of the kind ``platform``."""
    return [
        *_plan_machine(machine, platform),
        *_plan_boot(machine),
        *_plan_disk(machine),
        *_plan_network(machine, inherited),
        *_plan_devices(machine.arch, inherited, platform),
        *(_plan_display(machine, inherited) if machine.display else ()),
        *_plan_directories(machine.directories),
        *_plan_monitors(inherited),
        *machine.extra,
    ]


def machine_name(name: str) -> str:
    """Return the value of -name, in which commas are doubled."""
    return name.replace(",", ",,")


def _plan_machine(machine: MachinePlan, platform: str) -> list[str]:
    if machine.arch is Architecture.X86_64:
        kind = "q35,usb=off,vmport=off,smm=off,hpet=off,sata=off,smbus=off,graphics=off"
    else:
        kind = "virt,gic-version=max" if machine.accel is Accelerator.TCG else "virt"
    arguments = ["-nodefaults", "-no-user-config", "-display", "none"]
    arguments += ["-name", machine_name(machine.name)]
    if platform.startswith("linux"):
        arguments += ["-sandbox", SANDBOX]
    # xen-save-devices-state writes device states without the configuration section, so none must be
    # expected when one is loaded. Nobody needs the description of their format.
    kind += ",memory-backend=ram,suppress-vmdesc=on"
    arguments += ["-global", "migration.send-configuration=off"]
    memory: dict[str, Any] = {"qom-type": "memory-backend-ram"}
    if machine.memory_image is not None:
        path = str(machine.memory_image)
        memory = {"qom-type": "memory-backend-file", "mem-path": path, "share": False}
    arguments += _json("-object", {**memory, "id": "ram", "size": machine.memory_bytes})
    if machine.incoming:
        arguments += ["-incoming", "defer"]
    if machine.incoming or machine.halted:
        arguments += ["-S"]
    arguments += ["-machine", kind, *plan_cpu(machine.arch, machine.accel, machine.display)]
    arguments += ["-m", f"{machine.memory_bytes // (1024 * 1024)}M", "-smp", str(machine.cpus)]
    return [*arguments, "-rtc", "base=utc"]


def plan_cpu(arch: Architecture, accel: Accelerator, display: bool = False) -> list[str]:
    """Return the arguments for the accelerator and the CPU model."""
    match accel:
        case Accelerator.TCG:
            model = ",".join(("max", *SLOW_IN_TCG[arch]))
            size = TB_SIZE_DISPLAY_MIB if display else TB_SIZE_MIB
            return ["-accel", f"tcg,thread=multi,tb-size={size}", "-cpu", model]
        case Accelerator.WHPX:
            return ["-accel", "whpx,kernel-irqchip=off", "-cpu", "max"]
        case _:
            return ["-accel", accel.value, "-cpu", "host"]


def _plan_boot(machine: MachinePlan) -> list[str]:
    boot = machine.boot
    return [
        "-kernel",
        str(boot.kernel),
        "-initrd",
        str(boot.initrd),
        "-append",
        " ".join(_kernel_words(machine)),
    ]


def _kernel_words(machine: MachinePlan) -> list[str]:
    console = "ttyS0" if machine.arch is Architecture.X86_64 else "ttyAMA0"
    words = ["rdinit=/quicksand/agent", "root=/dev/vda", "rw", f"console={console}", "quiet"]
    # The crypto self-tests take 0.5 s of a boot under TCG and find nothing on emulated hardware.
    words += ["panic=-1", "net.ifnames=0", "random.trust_cpu=on", "cryptomgr.notests"]
    # A paused VM must not look like one that hangs.
    words.append("nowatchdog")
    if machine.accel is Accelerator.TCG:
        words += FAST_IN_TCG
    if machine.arch is Architecture.X86_64:
        # No PS/2 controller and one serial port: probing for more takes time.
        words += ["i8042.noaux", "i8042.nokbd", "8250.nr_uarts=1", "tsc=reliable"]
        words += ["no_timer_check"]
        if machine.accel is Accelerator.WHPX:
            # Without its interrupt controller in the kernel (plan_cpu), WHPX and Linux do not agree
            # on the I/O APIC (specification, "Direct kernel boot").
            words.append("noapic")
        if machine.accel is Accelerator.TCG and machine.tsc_khz is not None:
            # Since Linux 5.9. The kernel's later measurement corrects it by a hundredth at most.
            words.append(f"tsc_early_khz={machine.tsc_khz}")
    words.append(f"quicksand.hostname={machine.boot.hostname}")
    if machine.network is not NetworkMode.NONE:
        words += [f"quicksand.ip={GUEST_IP}/24", f"quicksand.gw={GATEWAY_IP}"]
        words.append(f"quicksand.dns={DNS_IP}")
    if machine.http_port is not None:
        words.append(f"quicksand.http={AGENT_HTTP_PORT}")
    if machine.boot.cmdline:
        words.append(machine.boot.cmdline)
    return words


def _plan_disk(machine: MachinePlan) -> list[str]:
    """Give QEMU the whole block graph, so that it ignores the backing files in qcow2 headers."""
    arguments: list[str] = []
    lower: str | None = None
    for number, path in enumerate(machine.boot.backing):
        name = f"base{number}"
        arguments += _blockdevs(name, path, lower, read_only=True, aio=machine.aio)
        lower = name
    arguments += _blockdevs("disk", machine.boot.disk, lower, read_only=False, aio=machine.aio)
    arguments += ["-object", "iothread,id=io0"]
    # werror=stop: a full host disk pauses the guest instead of breaking its file system.
    return arguments + _json(
        "-device",
        {
            "driver": "virtio-blk-pci",
            "id": "vda",
            "drive": "disk",
            "iothread": "io0",
            "werror": "stop",
            "rerror": "report",
        },
    )


def _blockdevs(
    name: str, path: Path, backing: str | None, *, read_only: bool, aio: str
) -> list[str]:
    file = {
        "driver": "file",
        "node-name": f"{name}-file",
        "filename": str(path),
        "read-only": read_only,
        "aio": aio,
        "discard": "unmap",
        # Our own lock decides who may start a sandbox; many sandboxes share images read-only.
        "locking": "off" if read_only else "auto",
    }
    layer = {
        "driver": "qcow2",
        "node-name": name,
        "file": f"{name}-file",
        "backing": backing,
        "read-only": read_only,
        "discard": "unmap",
        "detect-zeroes": "unmap" if not read_only else "off",
    }
    return [*_json("-blockdev", file), *_json("-blockdev", layer)]


def forward_rules(http_port: int | None) -> list[str]:
    """The rules by which QEMU's network forwards the host's ``http_port`` to the agent's HTTP, as
    QEMU takes them (QEMU system docs, -netdev user,hostfwd); none without a port."""
    if http_port is None:
        return []
    return [f"tcp:127.0.0.1:{http_port}-{GUEST_IP}:{AGENT_HTTP_PORT}"]


def _plan_network(machine: MachinePlan, inherited: Inherited) -> list[str]:
    if machine.network is NetworkMode.NONE:
        return []
    arguments: list[str] = []
    netdev: dict[str, Any] = {
        "type": "user",
        "id": "net0",
        "ipv6": False,
        "restrict": machine.network is not NetworkMode.FULL,
    }
    if rules := forward_rules(machine.http_port):
        netdev["hostfwd"] = [{"str": rule} for rule in rules]
    # Not "cmd:", for which QEMU would have to be able to start programs (see SANDBOX).
    names = [f"smb{number}" for number in range(len(inherited.shares))]
    for name, descriptor in zip(names, inherited.shares, strict=True):
        arguments += _listener(name, descriptor)
    netdev["guestfwd"] = [
        {"str": f"tcp:{SHARE_IP}:{SHARE_PORT + number}-chardev:{name}"}
        for number, name in enumerate(names)
    ]
    card = {
        "driver": "virtio-net-pci",
        "netdev": "net0",
        "mac": machine.mac,
        "romfile": "",
        # Nobody on this private network needs an announcement after a restore.
        "guest_announce": False,
    }
    return [*arguments, *_json("-netdev", netdev), *_json("-device", card)]


def _plan_devices(arch: Architecture, inherited: Inherited, platform: str) -> list[str]:
    # A QEMU for Windows has no file to read randomness from, but its own source.
    source = "rng-builtin,id=rng0" if platform == "win32" else RANDOMNESS
    arguments = ["-object", source]
    arguments += _json("-device", {"driver": "virtio-rng-pci", "rng": "rng0"})
    if arch is Architecture.X86_64:
        # Only the PC machines have this ACPI device (QEMU hw/acpi/Kconfig).
        arguments += _json("-device", {"driver": "vmgenid", "guid": "auto"})
    # A panic ends QEMU before the kernel can reboot (-action panic=shutdown is the default).
    arguments += _json("-device", {"driver": "pvpanic-pci"})
    # The console is QEMU's stdout; the keeper writes it to a bounded log.
    arguments += ["-chardev", "stdio,id=console,signal=off", "-serial", "chardev:console"]
    bus = {
        "driver": "virtio-serial-pci",
        "id": "ports",
        "max_ports": len(inherited.agent) + 1,
    }
    arguments += _json("-device", bus)
    for number, descriptor in enumerate(inherited.agent):
        arguments += _listener(f"agent{number}", descriptor)
        port = {
            "driver": "virtserialport",
            "bus": "ports.0",
            "nr": number + 1,
            "chardev": f"agent{number}",
            "name": f"quicksand.agent.{number}",
        }
        arguments += _json("-device", port)
    return arguments


def _plan_display(machine: MachinePlan, inherited: Inherited) -> list[str]:
    """Plan the screen, keyboard and pointer, and the VNC server that shows them.

    A virtio-gpu without VGA has no video memory of its own, which the state of the devices alone
    (xen-save-devices-state) would not contain. It comes last, so that it does not change any other
    device's place on the bus. The pointer is a virtio-tablet, not a usb-tablet: the guest's
    keyboard driver drives it, too, and no USB controller must be emulated.
    """
    arguments = _json("-device", {"driver": "virtio-gpu-pci", "max_hostmem": GPU_MEMORY_MAX})
    arguments += _json("-device", {"driver": "virtio-keyboard-pci", "id": KEYBOARD})
    arguments += _json("-device", {"driver": "virtio-tablet-pci", "id": TABLET})
    if machine.vnc_port:
        # The first server is the one whose port display-update changes.
        arguments += _vnc(inherited.vnc_port, f"id={VNC_WITH_PORT},password=on")
    return arguments + _vnc(inherited.vnc, "id=screen")


def _vnc(path: Path, options: str) -> list[str]:
    name = str(path).replace(",", ",,")
    # share=ignore: a viewer that asks for exclusive use does not close the others.
    return ["-vnc", f"unix:{name},share=ignore,{options}"]


def ninep_tag(number: int) -> str:
    """Return the name by which the guest finds the directory of that number."""
    return f"quicksand9p{number}"


def count_directories(arguments: Iterable[str]) -> int:
    """Return how many directories a QEMU with these arguments serves by 9p."""
    mark = json.dumps({"driver": NINEP_DEVICE})[1:-1]
    return sum(mark in argument for argument in arguments)


def _plan_directories(directories: Sequence[SharedDirectory]) -> list[str]:
    """For a guest that may write, its owners, modes, links and devices are attributes of plain
    files (mapped-xattr): in the host's file system it cannot make set-id programs, links or
    devices. A guest that may only read sees them as they are, including the host's links."""
    arguments: list[str] = []
    for number, directory in enumerate(directories):
        words = {
            "id": f"fs{number}",
            "path": directory.path.replace(",", ",,"),
            "security_model": "none" if directory.readonly else "mapped-xattr",
            "readonly": "on" if directory.readonly else "off",
            # File systems below the directory have inode numbers of their own.
            "multidevs": "remap",
        }
        listed = ",".join(f"{key}={value}" for key, value in words.items())
        arguments += ["-fsdev", f"local,{listed}"]
        device = {"driver": NINEP_DEVICE, "fsdev": f"fs{number}", "mount_tag": ninep_tag(number)}
        arguments += _json("-device", device)
    return arguments


def _plan_monitors(inherited: Inherited) -> list[str]:
    arguments: list[str] = []
    for number, descriptor in enumerate(inherited.qmp):
        arguments += _listener(f"qmp{number}", descriptor)
        arguments += ["-mon", f"chardev=qmp{number},mode=control"]
    return arguments


def _listener(name: str, descriptor: int) -> list[str]:
    return ["-chardev", f"socket,id={name},fd={descriptor},server=on,wait=off"]


def _json(option: str, value: Mapping[str, Any]) -> list[str]:
    return [option, json.dumps(value)]
