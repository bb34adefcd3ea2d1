"""The configuration of a sandbox: reads the values that a caller gives, and checks them before
anything is started."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, Self

from quicksand.base.arch import Architecture
from quicksand.base.error_text import host_takes
from quicksand.base.errors import ConfigError
from quicksand.base.remedies import Words
from quicksand.records.machine_options import (
    decode_items,
    option,
    options_of,
    parse_choice,
    parse_disk_size,
    parse_memory,
    place_option,
    places_of,
    reader,
    refuse_unknown,
    split_arguments,
)
from quicksand.records.mount import (
    NINEP,
    Mount,
    check_mounts,
    decode_mount,
    encode_mounts,
    parse_mount,
    reached_directories,
)
from quicksand.records.port_forwards import (
    PortForward,
    check_forwards,
    check_port,
    decode_forward,
    encode_forward,
    parse_forward,
    reached_ports,
)

CPUS_MAX = 255
"""The most CPUs: without an IOMMU, x2APIC ids above 254 cannot get interrupts (QEMU,
hw/i386/x86.c)."""

BOOT_TIMEOUT_MAX = 7 * 24 * 3600
"""Seconds. Clocks overflow only far above this, and nobody waits that long."""

GUEST_IP = "10.0.2.15"
GATEWAY_IP = "10.0.2.2"
DNS_IP = "10.0.2.3"
"""Addresses of QEMU's user network (QEMU system docs, "Network emulation")."""

SHARE_IP = "10.0.2.100"
"""The address of the servers of mounted directories, as in the specification."""

SHARE_PORT = 445
"""The port of the first mount's server; the next one has the next port."""

AUTO = "auto"
"""Selects the fastest accelerator that works."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")


class NetworkMode(StrEnum):
    """The hosts and ports that the guest can reach."""

    NONE = "none"
    """No network card at all."""
    MOUNTS_ONLY = "mounts_only"
    """Port forwards and mounts only; the guest can open no connection to anywhere else."""
    FULL = "full"
    """All that the host can reach, through QEMU's user network."""


class Accelerator(StrEnum):
    """The way in which QEMU runs the guest's instructions."""

    KVM = "kvm"
    HVF = "hvf"
    WHPX = "whpx"
    TCG = "tcg"
    """Software emulation: works everywhere, slow, and no security boundary (QEMU's own words)."""


def _decode_accel(value: Any) -> Any:
    if value is None or value == AUTO:
        return value
    return parse_choice(Accelerator, value, "accel", extra=(AUTO,))


def _check_cpus(cpus: object) -> None:
    if isinstance(cpus, bool) or not isinstance(cpus, int):
        raise ConfigError(f"cpus must be a whole number, not {cpus!r}")
    if not 1 <= cpus <= CPUS_MAX:
        raise ConfigError(f"cpus must be 1 to {CPUS_MAX}, not {cpus}")


def _check_boot_timeout(timeout: object) -> None:
    if isinstance(timeout, bool) or not isinstance(timeout, int | float):
        raise ConfigError(f"boot_timeout must be a number of seconds, not {timeout!r}")
    if not 0 < timeout <= BOOT_TIMEOUT_MAX:
        raise ConfigError(
            f"boot_timeout must be above 0 seconds and at most {BOOT_TIMEOUT_MAX}, not {timeout}"
        )


VNC_PORT_HINT = "choose another one (`--vnc-port`, vnc_port), or 0 for any free one"
"""The hint for a VNC port that is taken."""


def _check_vnc_port(port: object) -> None:
    if port is not None and (not isinstance(port, int) or isinstance(port, bool)):
        raise ConfigError(f"vnc_port {port!r} is not a port", hint="0 to 65535")
    if isinstance(port, int):
        check_port("VNC", port, lowest=0)


def _check_arguments(arguments: Sequence[str]) -> None:
    if not all(host_takes(argument) for argument in arguments):
        raise ConfigError("extra_qemu_args must not have NUL characters or halves of characters")


@dataclass(frozen=True, slots=True)
class SandboxConfig:
    """The configuration of one machine, with the values as `parse` returns them.

    Each option is defined here, once; command line, form, manifest and the rest derive from it.
    """

    image: str
    memory: str = option(
        "512M",
        "--memory",
        metavar="SIZE",
        label="Memory",
        help='Memory, such as "512M" or "2G".  [default: {default}]',
        limit=20,
        is_usual=True,
        limits=parse_memory,
    )
    cpus: int = option(
        1,
        "--cpus",
        metavar="N",
        label="CPUs",
        help="Number of virtual CPUs.  [default: {default}]",
        limit=4,
        is_usual=True,
        read=reader(int, "a whole number"),
        limits=_check_cpus,
    )
    network_mode: NetworkMode = option(
        NetworkMode.MOUNTS_ONLY,
        "--network",
        label="Network",
        help="Let it reach nothing, mounts only, or all.  [default: {default}]",
        choices={
            NetworkMode.NONE: "no network card",
            NetworkMode.MOUNTS_ONLY: "reaches its mounts only",
            NetworkMode.FULL: "reaches all the host can, loopback too",
        },
        is_usual=True,
        decode=lambda value: parse_choice(NetworkMode, value, "network_mode"),
        encode=str,
        reaches=lambda mode: "network full" if mode is NetworkMode.FULL else "",
    )
    arch: Architecture | None = option(
        None,
        "--arch",
        metavar="ARCH",
        label="Arch",
        help="The guest's architecture.  [default: this host's]",
        hint="this host's",
        choices={"amd64": "x86_64", "arm64": "aarch64"},
        decode=lambda value: None if value is None else Architecture.parse(value),
        encode=lambda arch: None if arch is None else arch.value,
    )
    """None means the host's architecture."""
    accel: Accelerator | str | None = option(
        AUTO,
        "--accel",
        metavar="NAME",
        label="Runs on",
        help="kvm, hvf, whpx, tcg or auto.  [default: {default}]",
        choices={
            AUTO: "the fastest that works here",
            Accelerator.KVM: "of Linux",
            Accelerator.HVF: "of macOS",
            Accelerator.WHPX: "of Windows",
            Accelerator.TCG: "emulation: slow, and no security boundary",
        },
        decode=_decode_accel,
        encode=lambda accel: None if accel is None else str(accel),
    )
    """None means TCG, as in the specification."""
    disk_size: str | None = option(
        None,
        "--disk-size",
        metavar="SIZE",
        label="Disk size",
        help="Grow the disk to this size.",
        hint="the image's, or larger, such as 20G",
        limit=20,
        limits=lambda text: None if text is None else parse_disk_size(text),
    )
    boot_timeout: float = option(
        60.0,
        "--boot-timeout",
        metavar="SECONDS",
        label="Boot limit",
        help="Give up if it has not booted after this time.",
        hint="{default} seconds",
        limit=20,
        read=reader(float, "a number of seconds"),
        limits=_check_boot_timeout,
    )
    """Seconds that `start` waits for the agent."""
    port_forwards: tuple[PortForward, ...] = option(
        (),
        "-p",
        "--publish",
        metavar="HOST:GUEST[/udp]",
        label="Ports",
        help="Forward a port of 127.0.0.1 and ::1 to a port of the guest, of TCP unless /udp is "
        "said; HOST 0 takes a free one. May be repeated.",
        hint="host:guest, such as 8080:80, 5353:53/udp; host 0 takes a free one",
        is_usual=True,
        split=lambda text: re.findall(r"[^,\s]+", text),
        read=parse_forward,
        decode=decode_items("port_forwards", decode_forward),
        encode=lambda forwards: [encode_forward(forward) for forward in forwards],
        limits=check_forwards,
        reaches=reached_ports,
    )
    mounts: tuple[Mount, ...] = option(
        (),
        "-v",
        "--mount",
        metavar="HOST:GUEST[:ro|:protect]",
        label="Mounts",
        help="Mount a directory of the host; :ro for read-only, :protect for read-only git "
        "hooks and other files that programs on the host run, :9p for 9p. May be repeated.",
        hint="host:guest, such as ./data:/mnt/data, ~/src:/src:ro",
        limit=4000,
        split=split_arguments,
        read=parse_mount,
        decode=decode_items("mounts", decode_mount),
        encode=encode_mounts,
        limits=check_mounts,
        reaches=reached_directories,
    )
    """Directories of the host that are mounted at each start."""
    enable_display: bool = option(
        False,
        "--display",
        label="Display",
        help="Give it a screen, a keyboard and a pointer.",
    )
    """Whether the machine has a screen, a keyboard and a pointer (display/), as a desktop image
    needs."""
    vnc_port: int | None = option(
        None,
        "--vnc-port",
        metavar="PORT",
        label="VNC port",
        help="Serve the screen to VNC viewers at this port of 127.0.0.1, with a password; "
        "0 takes a free one.",
        hint="none; 0 takes a free one",
        needs="enable_display",
        limit=5,
        read=reader(int, "a port"),
        limits=_check_vnc_port,
        reaches=lambda port: "" if port is None else f"VNC at {port or 'any'} port",
    )
    """The port of the host's loopback at which QEMU serves the screen, too. Other users of the host
    can reach it, but need the password. None for none."""
    agent_http: bool = option(
        False,
        "--agent-http",
        label="Agent HTTP",
        help="Serve the guest agent's HTTP at a free port of 127.0.0.1 as well.",
        reaches=lambda wanted: "the agent's HTTP" if wanted else "",
    )
    """Whether the agent's HTTP API is served too, through a free port of the host's loopback
    interface. Other users of the host can reach that port, but need the token."""
    memory_dir: str | None = place_option(
        "memory",
        "--memory-dir",
        label="Memory in",
        help="Keep the memory of its checkpoints in this directory, as on a faster disk.",
        hint="the sandbox's own directory",
    )
    """The directory for guest memory, made if it is missing; None for that of the variable
    QUICKSAND_MEMORY_DIR or, if that is not set, the sandbox's own. It counts when the sandbox is
    made."""
    extra_qemu_args: tuple[str, ...] = option(
        (),
        "--qemu-arg",
        metavar="ARG",
        label="QEMU args",
        help="Add this argument to QEMU's; paths in it must be absolute. May be repeated.",
        hint="as a shell has them; paths must be absolute",
        limit=1000,
        split=split_arguments,
        decode=decode_items("extra_qemu_args", str),
        encode=list,
        limits=_check_arguments,
        reaches=lambda words: f"QEMU arguments {' '.join(words)}" if words else "",
    )
    """Further arguments for QEMU. It runs in a directory of the sandbox, so paths must be
    absolute."""

    def __post_init__(self) -> None:
        if not isinstance(self.image, str) or not self.image or not host_takes(self.image):
            raise ConfigError(f"image must be a name or a path, not {self.image!r}")
        for record in options_of(type(self)):
            record.check(getattr(self, record.keyword))
        if self.vnc_port is not None and not self.enable_display:
            raise ConfigError(
                "vnc_port needs a screen to serve",
                hint=Words(
                    "`--display`, or enable_display=True, gives the machine one",
                    python="enable_display=True gives the machine one",
                ),
            )
        needs = {
            "mounts need": any(mount.type != NINEP for mount in self.mounts),
            "agent_http needs": self.agent_http,
        }
        if self.network_mode is NetworkMode.NONE and any(needs.values()):
            what = next(what for what, wanted in needs.items() if wanted)
            raise ConfigError(
                f"{what} a network card, but network_mode is NONE",
                hint="use NetworkMode.MOUNTS_ONLY: it reaches nothing else then"
                + ("; or mounts of type 9p" if what == "mounts need" else ""),
            )

    @property
    def memory_bytes(self) -> int:
        """The guest's memory in bytes."""
        return parse_memory(self.memory)

    @property
    def disk_size_bytes(self) -> int | None:
        """The size of the disk in bytes; None for that of the image."""
        return None if self.disk_size is None else parse_disk_size(self.disk_size)

    @property
    def places(self) -> dict[str, Path]:
        """The directories of this host that it names for files of its own, by their links."""
        found = {one.place: getattr(self, one.keyword) for one in places_of(type(self))}
        return {place: Path(named) for place, named in found.items() if named is not None}

    def without_host(self, **changes: Any) -> Self:
        """Returns it without directories of this host, which concern nobody else, and with
        ``changes``."""
        places = {one.keyword: None for one in places_of(type(self))}
        return replace(self, **{"mounts": (), **places, **changes})

    @classmethod
    def parse(cls, options: Mapping[str, Any]) -> Self:
        """Makes a config of keyword arguments or of JSON values. Raises ConfigError for a bad value
        and UnknownOptionError for an unknown option."""
        records = options_of(cls)
        refuse_unknown(options, {"image", *(record.keyword for record in records)})
        if "image" not in options:
            raise ConfigError("image is missing", hint="the name of one, or a path")
        known = {r.keyword: r.decode(options[r.keyword]) for r in records if r.keyword in options}
        return cls(options["image"], **known)

    def to_json(self) -> dict[str, Any]:
        """Returns the config as JSON values, which `parse` reads back."""
        records = options_of(type(self))
        values = {r.keyword: r.encode(getattr(self, r.keyword)) for r in records}
        return {"image": self.image, **values}


def check_name(name: str) -> str:
    """Returns ``name`` if it can be the name of a sandbox. Raises ConfigError."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ConfigError(
            f"{name!r} is no name for a sandbox",
            hint="1 to 63 of A-Z a-z 0-9 _ . -, the first a letter or digit",
        )
    return name
