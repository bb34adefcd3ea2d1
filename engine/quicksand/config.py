"""What a sandbox is made of: the values a caller gives, checked before anything is started."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any

from quicksand.errors import ConfigError, UnknownOptionError
from quicksand.host.arch import Architecture

MIB = 1024 * 1024

MEMORY_MIN = 64 * MIB
"""Below this Debian's kernel does not reach its first process."""

CPUS_MAX = 255
"""Without an IOMMU, x2APIC ids above 254 cannot get interrupts (QEMU, hw/i386/x86.c)."""

BOOT_TIMEOUT_MAX = 7 * 24 * 3600
"""Seconds. Clocks overflow far above this; nobody waits so long."""

GUEST_IP = "10.0.2.15"
GATEWAY_IP = "10.0.2.2"
DNS_IP = "10.0.2.3"
"""Addresses of QEMU's user network (QEMU system docs, "Network emulation")."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")
_SIZE = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*(?:([KMGT])(?:i?B)?|(B))?\s*", re.IGNORECASE)
_UNITS = {"B": 1, "K": 1024, "M": MIB, "G": 1024 * MIB, "T": 1024 * 1024 * MIB}


class NetworkMode(StrEnum):
    """What the guest can reach."""

    NONE = "none"
    """No network card at all."""
    MOUNTS_ONLY = "mounts_only"
    """Port forwards and mounts only; the guest can open no connection to anywhere else."""
    FULL = "full"
    """Everything the host can reach, through QEMU's user network."""


class Accelerator(StrEnum):
    """How QEMU runs the guest's instructions."""

    KVM = "kvm"
    HVF = "hvf"
    WHPX = "whpx"
    TCG = "tcg"
    """Software emulation: works everywhere, slow, and no security boundary (QEMU's own words)."""


@dataclass(frozen=True, slots=True)
class PortForward:
    """A TCP port of the host's loopback that leads to a port of the guest."""

    host: int
    """0 takes a free port."""
    guest: int

    def __post_init__(self) -> None:
        _check_port("host", self.host, lowest=0)
        _check_port("guest", self.guest, lowest=1)


@dataclass(frozen=True, slots=True)
class SandboxConfig:
    """All that makes one machine; the values are as `parse` left them."""

    image: str
    arch: Architecture | None = None
    """None is the host's."""
    memory: str = "512M"
    cpus: int = 1
    port_forwards: tuple[PortForward, ...] = ()
    network_mode: NetworkMode = NetworkMode.MOUNTS_ONLY
    extra_qemu_args: tuple[str, ...] = ()
    """QEMU runs in a directory of the sandbox's: paths in them must be absolute."""
    boot_timeout: float = 60.0
    """Seconds until `start` gives up on the agent."""
    accel: Accelerator | str | None = "auto"
    """None means TCG, as in the specification."""
    disk_size: str | None = None
    agent_http: bool = False
    """Serve the agent's HTTP too, through a free port of the host's loopback. Other users of the
    host reach that port, but not without the token."""

    def __post_init__(self) -> None:
        if not isinstance(self.image, str) or not self.image or "\0" in self.image:
            raise ConfigError(f"image must be a name or a path, not {self.image!r}")
        self._check_numbers()
        if any("\0" in argument for argument in self.extra_qemu_args):
            raise ConfigError("extra_qemu_args must not have NUL characters")
        _ = self.memory_bytes, self.disk_size_bytes
        seen: set[int] = set()
        for forward in self.port_forwards:
            if forward.host and forward.host in seen:
                raise ConfigError(f"host port {forward.host} is forwarded twice")
            seen.add(forward.host)
        if not isinstance(self.agent_http, bool):
            raise ConfigError(f"agent_http must be true or false, not {self.agent_http!r}")
        if (self.port_forwards or self.agent_http) and self.network_mode is NetworkMode.NONE:
            what = "port forwards need" if self.port_forwards else "agent_http needs"
            raise ConfigError(
                f"{what} a network card, but network_mode is NONE",
                hint="use NetworkMode.MOUNTS_ONLY: only the forwarded ports are open then",
            )

    def _check_numbers(self) -> None:
        if isinstance(self.cpus, bool) or not isinstance(self.cpus, int):
            raise ConfigError(f"cpus must be a whole number, not {self.cpus!r}")
        if not 1 <= self.cpus <= CPUS_MAX:
            raise ConfigError(f"cpus must be 1 to {CPUS_MAX}, not {self.cpus}")
        timeout = self.boot_timeout
        if isinstance(timeout, bool) or not isinstance(timeout, int | float):
            raise ConfigError(f"boot_timeout must be a number of seconds, not {timeout!r}")
        if not 0 < timeout <= BOOT_TIMEOUT_MAX:
            raise ConfigError(
                f"boot_timeout must be above 0 seconds and at most {BOOT_TIMEOUT_MAX}, "
                f"not {timeout}"
            )

    @property
    def memory_bytes(self) -> int:
        return parse_memory(self.memory)

    @property
    def disk_size_bytes(self) -> int | None:
        return None if self.disk_size is None else parse_size(self.disk_size, what="disk_size")

    @classmethod
    def parse(cls, options: Mapping[str, Any]) -> SandboxConfig:
        """Make a config of keyword arguments or of JSON. Raises ConfigError for any bad one."""
        refuse_unknown(options, {f.name for f in fields(cls)})
        known = dict(options)
        if "image" not in known:
            raise ConfigError("image is missing", hint="the name of one, or a path")
        if "arch" in known and known["arch"] is not None:
            known["arch"] = Architecture.parse(known["arch"])
        known["network_mode"] = parse_choice(
            NetworkMode, known.get("network_mode", NetworkMode.MOUNTS_ONLY), "network_mode"
        )
        accel = known.get("accel", "auto")
        if accel is not None and accel != "auto":
            known["accel"] = parse_choice(Accelerator, accel, "accel", extra=("auto",))
        known["port_forwards"] = tuple(_forward(f) for f in _items(known, "port_forwards"))
        known["extra_qemu_args"] = tuple(str(a) for a in _items(known, "extra_qemu_args"))
        return cls(**known)

    def to_json(self) -> dict[str, Any]:
        """The config as JSON values; `parse` reads them back."""
        return {
            "image": self.image,
            "arch": self.arch.value if self.arch else None,
            "memory": self.memory,
            "cpus": self.cpus,
            "port_forwards": [{"host": f.host, "guest": f.guest} for f in self.port_forwards],
            "network_mode": self.network_mode.value,
            "extra_qemu_args": list(self.extra_qemu_args),
            "boot_timeout": self.boot_timeout,
            "accel": None if self.accel is None else str(self.accel),
            "disk_size": self.disk_size,
            "agent_http": self.agent_http,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class BootTiming:
    """Seconds that each phase of a start took, measured, in order. Unmeasured phases are None."""

    resolve_image_s: float = 0.0
    detect_accelerator_s: float = 0.0
    load_runtime_s: float = 0.0
    """Finding the QEMU binaries."""
    setup_disk_s: float = 0.0
    """Overlay and initrd."""
    launch_process_s: float = 0.0
    """Until QEMU runs."""
    connect_agent_s: float = 0.0
    """From there to the agent's first answer: firmware, kernel, agent."""
    connect_qmp_s: float = 0.0
    post_boot_s: float = 0.0
    mode: str = "cold boot"
    """"cold boot", "template" or "checkpoint": what the guest went on from."""
    note: str = ""
    """Why there was no template to go on from; "" if nobody looked for one."""
    kernel_boot_s: float | None = None
    """Within connect_agent_s, by the guest's clock: kernel entry to the agent's first
    instruction."""
    init_system_s: float | None = None
    """Within connect_agent_s, by the guest's clock: mounting the root, bringing up the network."""
    agent_startup_s: float | None = None
    """Within connect_agent_s, by the guest's clock: until the agent serves."""
    console_log: str | None = field(default=None, repr=False)

    @property
    def total_s(self) -> float:
        return (
            self.resolve_image_s
            + self.detect_accelerator_s
            + self.load_runtime_s
            + self.setup_disk_s
            + self.launch_process_s
            + self.connect_agent_s
            + self.connect_qmp_s
            + self.post_boot_s
        )


def check_name(name: str) -> str:
    """Return ``name`` if a sandbox may be called so. Raises ConfigError."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ConfigError(
            f"{name!r} is no name for a sandbox",
            hint="1 to 63 of A-Z a-z 0-9 _ . -, the first a letter or digit",
        )
    return name


def parse_memory(text: str | int) -> int:
    """Bytes of a memory size. A number without a unit is in MiB, as QEMU's -m has it.

    >>> parse_memory("1.5G") == parse_memory("1536") == 1536 * 1024 * 1024
    True
    """
    size = parse_size(text, what="memory", default_unit="M")
    if size < MEMORY_MIN:
        raise ConfigError(f"memory {text!r} is too little", hint="64M is the least, 512M usual")
    return size - size % MIB


def parse_size(text: str | int, *, what: str, default_unit: str = "") -> int:
    """Bytes of a size such as "512M", "1.5G", "512MiB". Raises ConfigError naming ``what``."""
    match = _SIZE.fullmatch(str(text)) if not isinstance(text, bool) else None
    if match is None:
        raise ConfigError(
            f"{what} {text!r} is not a size", hint='write it like "512M", "1.5G" or "2048"'
        )
    unit = (match[2] or match[3] or default_unit).upper()
    size = float(match[1]) * _UNITS.get(unit, 1)
    if not 0 < size < 2**60:
        raise ConfigError(f"{what} {text!r} is out of range")
    return int(size)


def parse_choice(kind: type[Any], value: object, what: str, *, extra: Iterable[str] = ()) -> Any:
    """The member of the StrEnum ``kind`` that ``value`` names. Raises ConfigError."""
    try:
        return kind(str(value).lower().replace("-", "_"))
    except ValueError:
        choices = [*extra, *(str(member.value) for member in kind)]
        raise ConfigError(
            f"{what} {str(value)!r} is unknown", hint=f"one of {', '.join(choices)}"
        ) from None


def refuse_unknown(given: Iterable[str], known: Iterable[str]) -> None:
    """Raise UnknownOptionError for the first of ``given`` that is not ``known``; suggest one."""
    known = sorted(known)
    for name in given:
        if name not in known:
            import difflib

            near = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
            raise UnknownOptionError(
                f"unknown option {name!r}" + (f"; did you mean {near[0]!r}?" if near else ""),
                hint=f"the options are {', '.join(known)}",
            )


def _items(options: Mapping[str, Any], name: str) -> Iterable[Any]:
    """The list that is given as ``name``; None is an empty one."""
    value = options.get(name)
    if value is None:
        return ()
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
        raise ConfigError(f"{name} must be a list, not {value!r}")
    return value


def _forward(value: object) -> PortForward:
    if isinstance(value, PortForward):
        return value
    if isinstance(value, Mapping) and set(value) == {"host", "guest"}:
        return PortForward(host=value["host"], guest=value["guest"])
    raise ConfigError(f"{value!r} is not a PortForward", hint="PortForward(host=8080, guest=80)")


def _check_port(which: str, port: int, *, lowest: int) -> None:
    if isinstance(port, bool) or not isinstance(port, int) or not lowest <= port <= 65535:
        raise ConfigError(f"{which} port {port!r} is not a port", hint=f"{lowest} to 65535")
