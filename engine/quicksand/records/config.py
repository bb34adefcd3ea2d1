"""The configuration of a sandbox: reads the values that a caller gives, and checks them before
anything is started."""

from __future__ import annotations

import difflib
import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Self

from quicksand.base.arch import Architecture
from quicksand.base.errors import ConfigError, UnknownOptionError
from quicksand.base.home import expand
from quicksand.base.remedies import Words
from quicksand.base.text import choose
from quicksand.records.machine_options import option, options_of
from quicksand.records.mount import (
    NINEP,
    Mount,
    check_mounts,
    decode_mount,
    encode_mounts,
    parse_mount,
    reached_directories,
)
from quicksand.records.sizes import (
    parse_disk_size,
    parse_memory,
)

FORWARDS_MAX = 1000
"""The most port forwards; each is a socket of the host."""

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
_FORWARD = re.compile(r"(?:([0-9]{1,5}):)?([0-9]{1,5})")


class NetworkMode(StrEnum):
    """The hosts and ports that the guest can reach."""

    NONE = "none"
    """No network card at all."""
    MOUNTS_ONLY = "mounts_only"
    """Port forwards and mounts only; the guest can open no connection to anywhere else."""
    FULL = "full"
    """All that the host can reach, through QEMU's user network."""


class Accelerator(StrEnum):
    """How QEMU runs the guest's instructions."""

    KVM = "kvm"
    HVF = "hvf"
    WHPX = "whpx"
    TCG = "tcg"
    """Software emulation: works everywhere, slow, and no security boundary (QEMU's own words)."""


@dataclass(frozen=True, slots=True)
class PortForward:
    """A TCP port of the host's loopback interface that is forwarded to a port of the guest."""

    host: int
    """The host's port; 0 picks a free one."""
    guest: int

    def __post_init__(self) -> None:
        _check_port("host", self.host, lowest=0)
        _check_port("guest", self.guest, lowest=1)


def parse_choice(kind: type[Any], value: object, what: str, *, extra: Iterable[str] = ()) -> Any:
    """Returns the member of the StrEnum ``kind`` that ``value`` names. Raises ConfigError, which
    lists the members and ``extra``."""
    try:
        return kind(str(value).lower().replace("-", "_"))
    except ValueError:
        choices = [*extra, *(str(member.value) for member in kind)]
        raise ConfigError(f"{what} {str(value)!r} is unknown: {choose(choices)}") from None


def refuse_unknown(given: Iterable[str], known: Iterable[str]) -> None:
    """Raises UnknownOptionError for the first of ``given`` that is not in ``known``, and suggests a
    name."""
    known = sorted(known)
    for name in given:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
            raise UnknownOptionError(
                f"unknown option {name!r}" + (f"; did you mean {near[0]!r}?" if near else ""),
                hint=f"the options are {', '.join(known)}",
            )


def _read_forward(word: str) -> PortForward:
    """Reads a port forward as `run --publish` takes it: a port alone is the guest's. Raises
    ConfigError."""
    match = _FORWARD.fullmatch(word)
    if match is None:
        raise ConfigError(f"{word!r} is not HOST:GUEST, as in 8080:80")
    return PortForward(host=int(match[1] or 0), guest=int(match[2]))


def _reader(kind: Callable[[str], Any], what: str) -> Callable[[str], Any]:
    def read(word: str) -> Any:
        try:
            return kind(word)
        except ValueError:
            raise ConfigError(f"{word!r} is not {what}") from None

    return read


def _split_arguments(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError as error:
        raise ConfigError(f"the quotes do not match: {error}") from None


def _decode_accel(value: Any) -> Any:
    if value is None or value == AUTO:
        return value
    return parse_choice(Accelerator, value, "accel", extra=(AUTO,))


def _decode_items(name: str, decode: Callable[[Any], Any]) -> Callable[[Any], tuple[Any, ...]]:
    """Makes a decoder for the list that is given as ``name``; None is an empty list."""

    def decode_items(value: Any) -> tuple[Any, ...]:
        if value is None:
            return ()
        if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
            raise ConfigError(f"{name} must be a list, not {value!r}")
        return tuple(decode(item) for item in value)

    return decode_items


def _decode_forward(value: object) -> PortForward:
    if isinstance(value, PortForward):
        return value
    if isinstance(value, Mapping) and set(value) == {"host", "guest"}:
        return PortForward(host=value["host"], guest=value["guest"])
    raise ConfigError(f"{value!r} is not a PortForward", hint="PortForward(host=8080, guest=80)")


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
        _check_port("VNC", port, lowest=0)


def decode_directory(value: object) -> str | None:
    """Returns the whole path of a directory. Raises ConfigError, PathError."""
    if value is None:
        return None
    if not isinstance(value, str | Path) or not str(value) or "\0" in str(value):
        raise ConfigError(f"{value!r} is no path of a directory")
    return str(expand(str(value)).absolute())


def _check_forwards(forwards: Sequence[PortForward]) -> None:
    if len(forwards) > FORWARDS_MAX:
        raise ConfigError(f"{len(forwards)} port forwards are too many; {FORWARDS_MAX} is the most")
    seen: set[int] = set()
    for forward in forwards:
        if forward.host and forward.host in seen:
            raise ConfigError(f"host port {forward.host} is forwarded twice")
        seen.add(forward.host)


def _check_arguments(arguments: Sequence[str]) -> None:
    if any("\0" in argument for argument in arguments):
        raise ConfigError("extra_qemu_args must not have NUL characters")


def _reached_ports(forwards: Sequence[PortForward]) -> str:
    ports = ", ".join(f"{f.host or 'any'}->{f.guest}" for f in forwards)
    return f"ports {ports}" if ports else ""


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
        read=_reader(int, "a whole number"),
        limits=_check_cpus,
    )
    network_mode: NetworkMode = option(
        NetworkMode.MOUNTS_ONLY,
        "--network",
        label="Network",
        help="Let it reach nothing, forwarded ports only, or all.  [default: {default}]",
        choices={
            NetworkMode.NONE: "no network card",
            NetworkMode.MOUNTS_ONLY: "only forwarded ports are open",
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
        read=_reader(float, "a number of seconds"),
        limits=_check_boot_timeout,
    )
    """Seconds that `start` waits for the agent."""
    port_forwards: tuple[PortForward, ...] = option(
        (),
        "-p",
        "--publish",
        metavar="HOST:GUEST",
        label="Ports",
        help="Forward a TCP port of 127.0.0.1 (not of ::1) to one at which the guest listens on "
        "all addresses, not on its own 127.0.0.1; HOST 0 takes a free one. May be repeated.",
        hint="host:guest, such as 8080:80, 0:22; host 0 takes a free one",
        is_usual=True,
        split=lambda text: re.findall(r"[^,\s]+", text),
        read=_read_forward,
        decode=_decode_items("port_forwards", _decode_forward),
        encode=lambda forwards: [{"host": f.host, "guest": f.guest} for f in forwards],
        limits=_check_forwards,
        reaches=_reached_ports,
    )
    mounts: tuple[Mount, ...] = option(
        (),
        "-v",
        "--mount",
        metavar="HOST:GUEST[:ro|:protect]",
        label="Mounts",
        help="Mount a directory of the host; :ro for read-only, :protect if what programs here run "
        "by themselves (git's hooks, …) is to be, :9p for 9p. May be repeated.",
        hint="host:guest, such as ./data:/mnt/data, ~/src:/src:ro",
        limit=4000,
        split=_split_arguments,
        read=parse_mount,
        decode=_decode_items("mounts", decode_mount),
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
        read=_reader(int, "a port"),
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
    memory_dir: str | None = option(
        None,
        "--memory-dir",
        metavar="DIR",
        label="Memory in",
        help="Keep the memory of its checkpoints in this directory, as on a faster disk.",
        hint="the sandbox's own directory",
        limit=1000,
        decode=decode_directory,
        reaches=lambda place: f"memory in {place}" if place else "",
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
        split=_split_arguments,
        decode=_decode_items("extra_qemu_args", str),
        encode=list,
        limits=_check_arguments,
        reaches=lambda words: f"QEMU arguments {' '.join(words)}" if words else "",
    )
    """Further arguments for QEMU. It runs in a directory of the sandbox, so paths must be
    absolute."""

    def __post_init__(self) -> None:
        if not isinstance(self.image, str) or not self.image or "\0" in self.image:
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
            "port forwards need": self.port_forwards,
            "mounts need": any(mount.type != NINEP for mount in self.mounts),
            "agent_http needs": self.agent_http,
        }
        if self.network_mode is NetworkMode.NONE and any(needs.values()):
            what = next(what for what, wanted in needs.items() if wanted)
            raise ConfigError(
                f"{what} a network card, but network_mode is NONE",
                hint="use NetworkMode.MOUNTS_ONLY: only the forwarded ports are open then"
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


def _check_port(which: str, port: int, *, lowest: int) -> None:
    if isinstance(port, bool) or not isinstance(port, int) or not lowest <= port <= 65535:
        raise ConfigError(f"{which} port {port!r} is not a port", hint=f"{lowest} to 65535")
