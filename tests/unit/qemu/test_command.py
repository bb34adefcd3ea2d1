"""QEMU's command line: exact for every host and guest, and nobody's name can add an option."""

from __future__ import annotations

import json
import os
import re
import subprocess
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from quicksand.base.arch import Architecture
from quicksand.disks.images.disk_layers import create_overlay
from quicksand.qemu.binaries import QemuBinaries, find_binaries
from quicksand.qemu.command import AGENT_HTTP_PORT, SANDBOX, Boot, Inherited, MachinePlan, plan
from quicksand.qemu.keeper_parts.bounds import FULL_NETWORK, bound_of
from quicksand.records.config import Accelerator, NetworkMode

from tests.each import each

GIB = 1024**3
GUESTFWD = [
    {"str": "tcp:10.0.2.100:445-chardev:smb0"},
    {"str": "tcp:10.0.2.100:446-chardev:smb1"},
]
"""The ways to the servers of mounts."""
INHERITED = Inherited(
    qmp=(10, 11),
    agent=(20, 21, 22),
    shares=(30, 31),
    vnc=Path("/run/a,b/vnc.sock"),
    vnc_port=Path("/run/a,b/port.sock"),
)
PLAIN = MachinePlan(
    name="/boxes/a,b",
    arch=Architecture.X86_64,
    accel=Accelerator.KVM,
    memory_bytes=GIB,
    cpus=2,
    boot=Boot(
        kernel=Path("/image/kernel"),
        initrd=Path("/cache/initrd"),
        disk=Path("/box/disk.qcow2"),
        backing=(Path("/image/base.qcow2"),),
        hostname="box",
        cmdline="rootfstype=ext4",
    ),
    network=NetworkMode.MOUNTS_ONLY,
    mac="52:54:00:01:02:03",
    aio="threads",
)
ARM = replace(PLAIN, arch=Architecture.ARM64)

FLAGS = {"-nodefaults", "-no-user-config"}
"""Options without a value."""
IMPLIED = {
    "-sandbox": "enable",
    "-machine": "type",
    "-accel": "accel",
    "-smp": "cpus",
    "-chardev": "backend",
    "-object": "qom-type",
    "-mon": "chardev",
    "-rtc": "base",
    "-display": "type",
}
"""Options in key=value syntax, and the key of a first value that has none (QEMU, system/vl.c)."""


def parse_keyval(text: str, implied: str) -> dict[str, str]:
    """QEMU's key=value syntax (util/keyval.c, util/qemu-option.c): a comma ends a value, two are
    one in it. Text that begins with a brace is JSON."""
    if text.startswith("{"):
        return {key: str(value) for key, value in json.loads(text).items()}
    found: dict[str, str] = {}
    position = 0
    while position < len(text):
        key = re.compile(r"[^=,]*").match(text, position)
        assert key is not None
        if text[key.end() : key.end() + 1] == "=":
            name, position = key[0], key.end() + 1
        else:
            assert not found, f"only the first may lack its key: {text!r}"
            name = implied
        value = ""
        while position < len(text):
            if text[position] != ",":
                value += text[position]
                position += 1
            elif text[position + 1 : position + 2] == ",":
                value += ","
                position += 2
            else:
                position += 1
                break
        assert name not in found, f"{name} twice in {text!r}"
        found[name] = value
    return found


def parse(arguments: list[str]) -> list[tuple[str, Any]]:
    """Options and their values as QEMU reads them: JSON, key=value or plain text."""
    options: list[tuple[str, Any]] = []
    words = iter(arguments)
    for option in words:
        assert option.startswith("-"), f"{option!r} would be taken for a disk image"
        if option in FLAGS:
            options.append((option, None))
            continue
        value = next(words)
        if option in ("-device", "-blockdev", "-netdev"):
            assert value.startswith("{"), "everything structured that we name goes in as JSON"
            options.append((option, json.loads(value)))
        elif option in IMPLIED:
            options.append((option, parse_keyval(value, IMPLIED[option])))
        else:
            options.append((option, value))
    return options


def values(arguments: list[str], option: str) -> list[Any]:
    return [value for name, value in parse(arguments) if name == option]


def value(arguments: list[str], option: str) -> Any:
    (found,) = values(arguments, option)
    return found


def drivers(arguments: list[str]) -> list[str]:
    return [device["driver"] for device in values(arguments, "-device")]


def kernel_words(arguments: list[str]) -> list[str]:
    return str(value(arguments, "-append")).split()


# What every machine has

MACHINES = [
    replace(PLAIN, arch=arch, accel=accel, network=network)
    for arch in Architecture
    for accel in Accelerator
    for network in NetworkMode
]


@each("machine", MACHINES)
@each("platform", ["linux", "darwin", "win32"])
def test_nothing_of_the_hosts_configuration_is_used(machine: MachinePlan, platform: str) -> None:
    arguments = plan(machine, INHERITED, platform)
    assert arguments[:2] == ["-nodefaults", "-no-user-config"]
    assert value(arguments, "-display") == {"type": "none"}
    assert "-monitor" not in arguments


@each("machine", MACHINES)
def test_all_seccomp_filters_are_on_where_qemu_has_them(machine: MachinePlan) -> None:
    assert SANDBOX == "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny"
    arguments = plan(machine, INHERITED, "linux")
    assert arguments[arguments.index("-sandbox") + 1] == SANDBOX
    for platform in ("darwin", "win32"):
        assert "-sandbox" not in plan(machine, INHERITED, platform), "no such option there"


@each("machine", MACHINES)
def test_further_arguments_come_last_and_untouched(machine: MachinePlan) -> None:
    extra = ("-device", "edu,id=a,,b", "-sandbox", "off", "", "-")
    arguments = plan(replace(machine, extra=extra), INHERITED)
    assert arguments == [*plan(machine, INHERITED), *extra]


def test_no_secret_can_get_onto_the_command_line() -> None:
    assert not {f.name for f in fields(MachinePlan)} & {"token", "secret", "password", "key"}
    assert "token" not in " ".join(plan(PLAIN, INHERITED))


def test_the_whole_line_of_a_usual_machine() -> None:
    kernel = (
        "rdinit=/quicksand/agent root=/dev/vda rw console=ttyS0 quiet panic=-1 net.ifnames=0 "
        "random.trust_cpu=on cryptomgr.notests nowatchdog i8042.noaux i8042.nokbd "
        "8250.nr_uarts=1 tsc=reliable no_timer_check quicksand.hostname=box "
        "quicksand.ip=10.0.2.15/24 quicksand.gw=10.0.2.2 quicksand.dns=10.0.2.3 rootfstype=ext4"
    )
    machine = "q35,usb=off,vmport=off,smm=off,hpet=off,sata=off,smbus=off,graphics=off,"
    machine += "memory-backend=ram,suppress-vmdesc=on"
    memory = {"qom-type": "memory-backend-ram", "id": "ram", "size": str(1024 * 1024 * 1024)}
    assert parse(plan(PLAIN, INHERITED, "linux")) == [
        ("-nodefaults", None),
        ("-no-user-config", None),
        ("-display", {"type": "none"}),
        ("-name", "/boxes/a,,b"),
        ("-sandbox", parse_keyval(SANDBOX, "enable")),
        ("-global", "migration.send-configuration=off"),
        ("-object", memory),
        ("-machine", parse_keyval(machine, "type")),
        ("-accel", {"accel": "kvm"}),
        ("-cpu", "host"),
        ("-m", "1024M"),
        ("-smp", {"cpus": "2"}),
        ("-rtc", {"base": "utc"}),
        ("-kernel", "/image/kernel"),
        ("-initrd", "/cache/initrd"),
        ("-append", kernel),
        ("-blockdev", file_node("base0", "/image/base.qcow2", read_only=True)),
        ("-blockdev", qcow2_node("base0", None, read_only=True)),
        ("-blockdev", file_node("disk", "/box/disk.qcow2", read_only=False)),
        ("-blockdev", qcow2_node("disk", "base0", read_only=False)),
        ("-object", {"qom-type": "iothread", "id": "io0"}),
        (
            "-device",
            {
                "driver": "virtio-blk-pci",
                "id": "vda",
                "drive": "disk",
                "iothread": "io0",
                "werror": "stop",
                "rerror": "report",
            },
        ),
        (
            "-chardev",
            {"backend": "socket", "id": "smb0", "fd": "30", "server": "on", "wait": "off"},
        ),
        (
            "-chardev",
            {"backend": "socket", "id": "smb1", "fd": "31", "server": "on", "wait": "off"},
        ),
        (
            "-netdev",
            {
                "type": "user",
                "id": "net0",
                "ipv6": False,
                "restrict": True,
                "guestfwd": GUESTFWD,
            },
        ),
        (
            "-device",
            {
                "driver": "virtio-net-pci",
                "netdev": "net0",
                "mac": "52:54:00:01:02:03",
                "romfile": "",
                "guest_announce": False,
            },
        ),
        ("-object", {"qom-type": "rng-random", "id": "rng0", "filename": "/dev/urandom"}),
        ("-device", {"driver": "virtio-rng-pci", "rng": "rng0"}),
        ("-device", {"driver": "vmgenid", "guid": "auto"}),
        ("-device", {"driver": "pvpanic-pci"}),
        ("-chardev", {"backend": "stdio", "id": "console", "signal": "off"}),
        ("-serial", "chardev:console"),
        ("-device", {"driver": "virtio-serial-pci", "id": "ports", "max_ports": 4}),
        *agent_port(0, 20),
        *agent_port(1, 21),
        *agent_port(2, 22),
        ("-chardev", listener("qmp0", 10)),
        ("-mon", {"chardev": "qmp0", "mode": "control"}),
        ("-chardev", listener("qmp1", 11)),
        ("-mon", {"chardev": "qmp1", "mode": "control"}),
    ]


def file_node(name: str, path: str, *, read_only: bool) -> dict[str, Any]:
    return {
        "driver": "file",
        "node-name": f"{name}-file",
        "filename": path,
        "read-only": read_only,
        "aio": "threads",
        "discard": "unmap",
        "locking": "off" if read_only else "auto",
    }


def qcow2_node(name: str, backing: str | None, *, read_only: bool) -> dict[str, Any]:
    return {
        "driver": "qcow2",
        "node-name": name,
        "file": f"{name}-file",
        "backing": backing,
        "read-only": read_only,
        "discard": "unmap",
        "detect-zeroes": "off" if read_only else "unmap",
    }


def listener(name: str, descriptor: int) -> dict[str, str]:
    found = {"backend": "socket", "id": name, "fd": str(descriptor)}
    return {**found, "server": "on", "wait": "off"}


def agent_port(number: int, descriptor: int) -> list[tuple[str, dict[str, Any]]]:
    port = {
        "driver": "virtserialport",
        "bus": "ports.0",
        "nr": number + 1,
        "chardev": f"agent{number}",
        "name": f"quicksand.agent.{number}",
    }
    return [("-chardev", listener(f"agent{number}", descriptor)), ("-device", port)]


# Accelerators and architectures


@each(
    ("accel", "arch", "expected"),
    [
        (Accelerator.KVM, Architecture.X86_64, ["-accel", "kvm", "-cpu", "host"]),
        (Accelerator.KVM, Architecture.ARM64, ["-accel", "kvm", "-cpu", "host"]),
        (Accelerator.HVF, Architecture.X86_64, ["-accel", "hvf", "-cpu", "host"]),
        (Accelerator.HVF, Architecture.ARM64, ["-accel", "hvf", "-cpu", "host"]),
        # WHPX has neither -cpu host nor an interrupt controller that Linux guests get along with.
        (
            Accelerator.WHPX,
            Architecture.X86_64,
            ["-accel", "whpx,kernel-irqchip=off", "-cpu", "max"],
        ),
        (
            Accelerator.TCG,
            Architecture.X86_64,
            ["-accel", "tcg,thread=multi,tb-size=128", "-cpu", "max,-erms,-fsrm"],
        ),
        (
            Accelerator.TCG,
            Architecture.ARM64,
            [
                *("-accel", "tcg,thread=multi,tb-size=128"),
                *("-cpu", "max,pauth=off,sve=off,sme=off"),
            ],
        ),
    ],
)
def test_each_accelerator_gets_a_cpu_that_it_has(
    accel: Accelerator, arch: Architecture, expected: list[str]
) -> None:
    arguments = plan(replace(PLAIN, accel=accel, arch=arch), INHERITED)
    start = arguments.index("-accel")
    assert arguments[start : start + 4] == expected
    assert arguments.count("-accel") == 1, "a second one would be a silent fallback"


def test_programs_with_windows_get_room_for_their_translated_code() -> None:
    machine = replace(PLAIN, accel=Accelerator.TCG, display=True)
    assert "tcg,thread=multi,tb-size=1024" in plan(machine, INHERITED)


@each("accel", Accelerator)
def test_arm_guests_get_what_the_virt_machine_has(accel: Accelerator) -> None:
    arguments = plan(replace(ARM, accel=accel), INHERITED)
    machine = value(arguments, "-machine")
    # The choice is QEMU's where the host's interrupt controller decides; TCG's default is for 8
    # CPUs at the most.
    gic = {"gic-version": "max"} if accel is Accelerator.TCG else {}
    ours = {"memory-backend": "ram", "suppress-vmdesc": "on"}
    assert machine == {"type": "virt", **gic, **ours}
    assert "console=ttyAMA0" in kernel_words(arguments)
    assert not [w for w in kernel_words(arguments) if w.startswith(("i8042", "8250", "tsc"))]
    assert "vmgenid" not in drivers(arguments), "a device of PC machines only"
    assert {"virtio-blk-pci", "virtio-net-pci", "virtio-rng-pci", "pvpanic-pci"} <= {
        *drivers(arguments)
    }


def test_an_emulated_x86_guest_is_told_how_fast_its_counter_ticks() -> None:
    for arch in Architecture:
        for accel in Accelerator:
            machine = replace(PLAIN, arch=arch, accel=accel, tsc_khz=2_596_000)
            emulated = accel is Accelerator.TCG and arch is Architecture.X86_64
            assert ("tsc_early_khz=2596000" in kernel_words(plan(machine, INHERITED))) is emulated
    unknown = kernel_words(plan(replace(PLAIN, accel=Accelerator.TCG), INHERITED))
    assert not [word for word in unknown if word.startswith("tsc_early_khz")]


def test_tcg_guests_do_without_address_randomization_others_keep_it() -> None:
    for accel in Accelerator:
        words = kernel_words(plan(replace(PLAIN, accel=accel), INHERITED))
        assert ("norandmaps" in words) is (accel is Accelerator.TCG)
        assert ("mitigations=off" in words) is (accel is Accelerator.TCG)


@each(("size", "expected"), [(64 * 2**20, "64M"), (GIB * 3 // 2, "1536M"), (2**50, "1073741824M")])
def test_memory_is_said_in_whole_mebibytes(size: int, expected: str) -> None:
    assert value(plan(replace(PLAIN, memory_bytes=size), INHERITED), "-m") == expected


# Network


def test_without_a_network_there_is_no_card_and_no_address() -> None:
    arguments = plan(replace(PLAIN, network=NetworkMode.NONE), INHERITED)
    assert "-netdev" not in arguments
    assert "virtio-net-pci" not in drivers(arguments)
    assert not [w for w in kernel_words(arguments) if w.startswith("quicksand.ip")]


@each(("mode", "restricted"), [(NetworkMode.MOUNTS_ONLY, True), (NetworkMode.FULL, False)])
def test_only_the_full_network_reaches_out(mode: NetworkMode, restricted: bool) -> None:
    arguments = plan(replace(PLAIN, network=mode), INHERITED)
    assert value(arguments, "-netdev") == {
        "type": "user",
        "id": "net0",
        "ipv6": False,
        "restrict": restricted,
        "guestfwd": GUESTFWD,
    }
    assert "quicksand.ip=10.0.2.15/24" in kernel_words(arguments)
    assert any(FULL_NETWORK in word for word in arguments) is not restricted


def test_the_bound_of_a_machine_has_all_that_it_consists_of() -> None:
    emulated = replace(PLAIN, accel=Accelerator.TCG)
    small, large = (
        bound_of(plan(emulated, INHERITED)),
        bound_of(plan(replace(emulated, display=True), INHERITED)),
    )
    assert small is not None
    assert large is not None
    assert small.watched > PLAIN.memory_bytes + 128 * 1024 * 1024
    assert large.watched > small.watched + 900 * 1024 * 1024


def test_the_agents_http_is_served_and_forwarded_only_if_asked_for() -> None:
    without = plan(PLAIN, INHERITED)
    assert "quicksand.http" not in " ".join(without)
    assert "hostfwd" not in value(without, "-netdev")
    arguments = plan(replace(PLAIN, http_port=8000), INHERITED)
    assert f"quicksand.http={AGENT_HTTP_PORT}" in kernel_words(arguments)
    assert value(arguments, "-netdev")["hostfwd"] == [
        {"str": f"tcp:127.0.0.1:8000-10.0.2.15:{AGENT_HTTP_PORT}"},
    ]


# The display


@each("arch", Architecture)
def test_a_display_is_added_behind_all_other_devices(arch: Architecture) -> None:
    plain = replace(PLAIN, arch=arch)
    without, arguments = plan(plain, INHERITED), plan(replace(plain, display=True), INHERITED)
    assert "-vnc" not in without
    devices = drivers(arguments)
    assert devices[: len(drivers(without))] == drivers(without)
    added = ["virtio-gpu-pci", "virtio-keyboard-pci", "virtio-tablet-pci"]
    assert devices[len(drivers(without)) :] == added
    assert value(arguments, "-display") == {"type": "none"}
    assert kernel_words(arguments) == kernel_words(without)


def test_the_screen_is_served_at_a_unix_socket_only() -> None:
    arguments = plan(replace(PLAIN, display=True), INHERITED)
    found = parse_keyval(value(arguments, "-vnc"), "vnc")
    assert found == {"vnc": "unix:/run/a,b/vnc.sock", "share": "ignore", "id": "screen"}


def test_the_server_for_a_port_is_the_first_and_asks_for_a_password() -> None:
    arguments = plan(replace(PLAIN, display=True, vnc_port=True), INHERITED)
    first, second = (parse_keyval(found, "vnc") for found in values(arguments, "-vnc"))
    assert second["vnc"] == "unix:/run/a,b/vnc.sock" and "password" not in second
    assert first["vnc"] == "unix:/run/a,b/port.sock" and first["password"] == "on"


# Layers


@each("count", [0, 1, 3])
def test_every_layer_names_the_one_below(count: int) -> None:
    layers = tuple(Path(f"/image/{number}") for number in range(count))
    boot = replace(PLAIN.boot, backing=layers)
    nodes = values(plan(replace(PLAIN, boot=boot), INHERITED), "-blockdev")
    qcow2 = [node for node in nodes if node["driver"] == "qcow2"]
    names = [*(f"base{number}" for number in range(count)), "disk"]
    assert [node["node-name"] for node in qcow2] == names
    assert [node["backing"] for node in qcow2] == [None, *names[:-1]]
    assert [node["read-only"] for node in nodes] == [True] * (2 * count) + [False] * 2


# S10: names and paths that look like options

NASTY = st.text(
    st.one_of(
        st.sampled_from(",=- '\"\\\n\t{}[]:%$;|&\x1b\u202eé"),
        st.characters(exclude_characters="\0/", exclude_categories=["Cs"]),
    ),
    min_size=1,
    max_size=30,
)
PATHS = NASTY.map(lambda name: Path("/") / f"{name}x")
NASTY_MACHINES = st.builds(
    lambda kernel, initrd, disk, backing, cmdline, extra: replace(
        PLAIN,
        boot=replace(
            PLAIN.boot, kernel=kernel, initrd=initrd, disk=disk, backing=backing, cmdline=cmdline
        ),
        extra=tuple(extra),
    ),
    PATHS,
    PATHS,
    PATHS,
    st.tuples(PATHS),
    NASTY,
    st.lists(st.one_of(NASTY, st.just("")), max_size=3),
)


@given(NASTY_MACHINES)
def test_no_name_or_path_can_change_another_argument(machine: MachinePlan) -> None:
    boot = machine.boot
    arguments = plan(machine, INHERITED)
    usual = parse(plan(PLAIN, INHERITED))
    own = arguments[: len(arguments) - len(machine.extra)]
    assert arguments[len(own) :] == list(machine.extra)
    expected = {
        "/image/kernel": str(boot.kernel),
        "/cache/initrd": str(boot.initrd),
        "/image/base.qcow2": str(boot.backing[0]),
        "/box/disk.qcow2": str(boot.disk),
    }
    for (option, found), (usual_option, usual_value) in zip(parse(own), usual, strict=True):
        assert option == usual_option
        if option == "-append":
            assert found == usual_value.removesuffix(PLAIN.boot.cmdline) + boot.cmdline
        elif isinstance(usual_value, dict) and "filename" in usual_value:
            name = usual_value["filename"]
            assert found == {**usual_value, "filename": expected.get(name, name)}
        elif isinstance(usual_value, str):
            assert found == expected.get(usual_value, usual_value)
        else:
            assert found == usual_value


@given(st.dictionaries(st.from_regex(r"[a-z][a-z0-9-]*", fullmatch=True), NASTY, min_size=1))
def test_the_parser_of_these_tests_undoes_doubled_commas(given_values: dict[str, str]) -> None:
    text = ",".join(f"{k}={v.replace(',', ',,')}" for k, v in given_values.items())
    assert parse_keyval(text, "first") == given_values


@pytest.fixture
def qemu() -> QemuBinaries:
    return find_binaries()


@pytest.mark.parametrize("name", ["a,b=c", "-disk", 'it\'s "it"', "new\nline", "{json", "a,,b é"])
def test_qemu_itself_opens_the_very_file(qemu: QemuBinaries, tmp_path: Path, name: str) -> None:
    base, disk = tmp_path / f"{name}.base", tmp_path / name
    create_overlay(base, backing=Path("/nowhere"), size=GIB)
    create_overlay(disk, backing=base, size=GIB)
    boot = replace(PLAIN.boot, disk=disk, backing=(base,))
    words = plan(replace(PLAIN, boot=boot), INHERITED)
    blocks = [w for i, w in enumerate(words) if "-blockdev" in words[max(0, i - 1) : i + 1]]
    done = subprocess.run(
        [qemu.system, "-machine", "none", "-display", "none", "-qmp", "stdio", *blocks],
        input='{"execute":"qmp_capabilities"}{"execute":"query-named-block-nodes",'
        '"arguments":{"flat":true}}{"execute":"quit"}',
        env={**os.environ, **qemu.env},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.stderr == ""
    replies = [json.loads(line) for line in done.stdout.splitlines()]
    (nodes,) = (r["return"] for r in replies if isinstance(r.get("return"), list))
    files = {node["file"] for node in nodes if node["drv"] == "file"}
    assert files == {str(base), str(disk)}


def test_a_machine_that_goes_on_maps_its_image_and_waits_stopped() -> None:
    image = Path("/box/memory/a,b=c.ram")
    arguments = plan(replace(PLAIN, memory_image=image, incoming=True), INHERITED)
    memory = json.loads(value_after(arguments, "-object"))
    assert (memory["mem-path"], memory["share"]) == (str(image), False)
    assert value_after(arguments, "-incoming") == "defer"
    assert "-S" in arguments
    assert "-incoming" not in plan(PLAIN, INHERITED)


def test_a_machine_that_loads_a_snapshot_stands_still_and_waits_for_nothing() -> None:
    arguments = plan(replace(PLAIN, halted=True), INHERITED)
    assert "-S" in arguments
    assert "-incoming" not in arguments
    assert "-S" not in plan(PLAIN, INHERITED)


def value_after(arguments: list[str], option: str) -> str:
    return arguments[arguments.index(option) + 1]
