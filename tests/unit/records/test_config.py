"""What callers give: good values are taken as meant, bad ones are refused with a ConfigError."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from quicksand.base.arch import Architecture
from quicksand.base.errors import ConfigError, UnknownOptionError
from quicksand.records.config import CPUS_MAX, Accelerator, NetworkMode, SandboxConfig, check_name
from quicksand.records.machine_options import (
    MEMORY_MIN,
    MIB,
    parse_choice,
    parse_memory,
    parse_size,
    refuse_unknown,
)
from quicksand.records.port_forwards import PortForward, Protocol

from tests.each import each

GIB = 1024 * MIB


def parse(**options: Any) -> SandboxConfig:
    return SandboxConfig.parse({"image": "debian", **options})


def refusal(**options: Any) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        parse(**options)
    return caught.value


# Sizes


@each(
    ("text", "expected"),
    [
        ("512M", 512 * MIB),
        ("512m", 512 * MIB),
        ("512MB", 512 * MIB),
        ("512MiB", 512 * MIB),
        ("512 MiB", 512 * MIB),
        (" 512M ", 512 * MIB),
        ("1.5G", 1536 * MIB),
        ("0.5g", 512 * MIB),
        ("2048", 2048 * MIB),
        (2048, 2048 * MIB),
        ("131072K", 128 * MIB),
        ("134217728B", 128 * MIB),
        ("1T", 1024 * GIB),
        ("64M", MEMORY_MIN),
        ("100.7M", 100 * MIB),
    ],
)
def test_memory_is_read_in_every_usual_way(text: str | int, expected: int) -> None:
    assert parse_memory(text) == expected
    assert parse(memory=text).memory_bytes == expected


@each(
    "text",
    [
        "banana",
        "",
        " ",
        "M",
        "iB",
        "512iB",
        "-512M",
        "+512M",
        "5 12M",
        "1,5G",
        "1.5.5G",
        ".5G",
        "512P",
        "0x200M",
        "1e3M",
        "512M\0",
        "512M extra",
        "nan",
        "inf",
        "٥١٢M",
        None,
        True,
        False,
        -1,
        1e30,
        float("nan"),
        [],
        {},
    ],
)
def test_what_is_no_size_is_refused_by_its_name(text: Any) -> None:
    assert "memory" in str(refusal(memory=text))


@each("text", ["0", "0M", "63M", "63.99M", "1", "2048B", "1K", 0])
def test_too_little_memory_is_refused(text: Any) -> None:
    assert "memory" in str(refusal(memory=text))


@each("text", ["1048576T", "9" * 30, "9" * 400 + "G", 2**60])
def test_sizes_beyond_any_machine_are_refused(text: Any) -> None:
    assert "out of range" in str(refusal(memory=text))


@given(st.integers(64, 2**20))
def test_whole_mebibytes_are_kept_exactly(count: int) -> None:
    assert parse_memory(f"{count}M") == parse_memory(count) == parse_memory(str(count))
    assert parse_memory(f"{count}MiB") == count * MIB


@given(st.text(max_size=12))
def test_any_text_is_a_size_or_a_config_error(text: str) -> None:
    try:
        size = parse_memory(text)
    except ConfigError:
        return
    assert size >= MEMORY_MIN
    assert size % MIB == 0


def test_a_disk_size_without_unit_is_in_bytes() -> None:
    assert parse_size("4096", what="disk_size") == 4096
    assert parse(disk_size="20G").disk_size_bytes == 20 * GIB
    assert parse().disk_size_bytes is None
    assert "disk_size" in str(refusal(disk_size="much"))


# Names


@each("name", ["a", "0", "web-1", "a.b_c-D", "x" * 63, "0123456789ab"])
def test_usual_names_are_taken(name: str) -> None:
    assert check_name(name) == name


@each(
    "name",
    [
        "",
        " ",
        "-a",
        ".a",
        "_a",
        "..",
        "a/b",
        "../a",
        "a b",
        "a\n",
        "\na",
        "a\0",
        "é",
        "x" * 64,
        "a,b",
        "a=b",
        "\x1b[31m",
        None,
        5,
        b"a",
    ],
)
def test_names_that_could_be_more_than_a_name_are_refused(name: Any) -> None:
    with pytest.raises(ConfigError, match="is no name"):
        check_name(name)


@given(st.text(max_size=70))
def test_a_name_that_is_taken_is_one_plain_path_component(name: str) -> None:
    try:
        check_name(name)
    except ConfigError:
        return
    assert name.isascii()
    assert name.isprintable()
    assert not set(name) & set("/\\ ,='\"")
    assert name[0] not in ".-"
    assert len(name) <= 63


# Ports


@each(("host", "guest"), [(0, 1), (1, 1), (8080, 80), (65535, 65535)])
def test_ports_within_their_range_are_taken(host: int, guest: int) -> None:
    given_ports = [PortForward(host, guest), {"host": host, "guest": guest}]
    for forward in given_ports:
        assert parse(port_forwards=[forward]).port_forwards == (PortForward(host, guest),)


@each(
    ("host", "guest"),
    [
        (-1, 80),
        (65536, 80),
        (80, 0),
        (80, -1),
        (80, 65536),
        ("80", 80),
        (80, 8.0),
        (True, 80),
        (None, 80),
        (80, 2**70),
    ],
)
def test_what_is_no_port_is_refused(host: Any, guest: Any) -> None:
    with pytest.raises(ConfigError, match="port"):
        PortForward(host, guest)


@each(
    "forwards",
    [
        5,
        "8080",
        "8080:80",
        {"host": 1, "guest": 2},
        [5],
        [[8080, 80]],
        [{"host": 1}],
        [None],
        [{"host": 1, "guest": 2, "more": 3}],
        [{"host": 1, "guest": 2, "protocol": "sctp"}],
        [{"host": 1, "guest": 2, "protocol": []}],
        [{"host": 1, "protocol": "udp"}],
        True,
    ],
)
def test_what_is_no_list_of_forwards_is_refused(forwards: Any) -> None:
    refusal(port_forwards=forwards)


def test_a_host_port_can_be_used_once_but_any_number_of_free_ones() -> None:
    assert "twice" in str(refusal(port_forwards=[PortForward(80, 80), PortForward(80, 81)]))
    assert len(parse(port_forwards=[PortForward(0, 80), PortForward(0, 80)]).port_forwards) == 2


def test_forwards_need_no_network() -> None:
    found = parse(port_forwards=[PortForward(80, 80)], network_mode=NetworkMode.NONE)
    assert found.port_forwards == (PortForward(80, 80),)


def test_what_needs_a_network_is_refused_without_with_the_way_out() -> None:
    error = refusal(agent_http=True, network_mode=NetworkMode.NONE)
    assert "MOUNTS_ONLY" in error.hint


# Other options


@each("cpus", [0, -1, CPUS_MAX + 1, 1.0, "2", True, None, 10**400])
def test_an_impossible_number_of_cpus_is_refused(cpus: Any) -> None:
    assert "cpus" in str(refusal(cpus=cpus))


@each(
    "timeout", [0, -1, float("nan"), float("inf"), -float("inf"), "60", None, True, 10**400, 1e300]
)
def test_an_impossible_boot_timeout_is_refused(timeout: Any) -> None:
    assert "boot_timeout" in str(refusal(boot_timeout=timeout))


@each("image", ["", None, 5, b"debian", "a\0b"])
def test_what_is_no_image_is_refused(image: Any) -> None:
    assert "image" in str(refusal(image=image))


def test_an_image_is_necessary() -> None:
    with pytest.raises(ConfigError, match="image is missing"):
        SandboxConfig.parse({"memory": "1G"})


@each("arguments", ["-snapshot", 5, {"-m": "1G"}, ["a\0b"]])
def test_what_is_no_list_of_arguments_is_refused(arguments: Any) -> None:
    assert "extra_qemu_args" in str(refusal(extra_qemu_args=arguments))


@each(
    ("given_mode", "expected"),
    [
        (NetworkMode.FULL, NetworkMode.FULL),
        ("full", NetworkMode.FULL),
        ("FULL", NetworkMode.FULL),
        ("mounts-only", NetworkMode.MOUNTS_ONLY),
        ("none", NetworkMode.NONE),
    ],
)
def test_a_network_mode_can_be_a_word(given_mode: Any, expected: NetworkMode) -> None:
    assert parse(network_mode=given_mode).network_mode is expected


def test_unknown_words_are_refused_with_the_choices() -> None:
    assert str(refusal(network_mode="lan")) == (
        "network_mode 'lan' is unknown: choose none, mounts_only or full"
    )
    assert "choose auto, kvm, hvf, whpx or tcg" in str(refusal(accel="xen"))
    assert "choose amd64 or arm64" in str(refusal(arch="riscv64"))
    with pytest.raises(ConfigError):
        parse_choice(Accelerator, object(), "accel")


@each("name", ["amd64", "x86_64", "X64", Architecture.X86_64])
def test_architectures_have_several_names(name: str) -> None:
    assert parse(arch=name).arch is Architecture.X86_64


@each(
    ("accel", "expected"),
    [("auto", "auto"), (None, None), ("KVM", Accelerator.KVM), (Accelerator.TCG, Accelerator.TCG)],
)
def test_an_accelerator_can_be_left_open(accel: Any, expected: Any) -> None:
    assert parse(accel=accel).accel == expected


# Unknown options


@each(
    ("name", "near"),
    [
        ("memroy", "memory"),
        ("cpu", "cpus"),
        ("ports_forward", "port_forwards"),
        ("network", "network_mode"),
        ("disksize", "disk_size"),
    ],
)
def test_a_near_option_is_suggested(name: str, near: str) -> None:
    error = refusal(**{name: 1})
    assert isinstance(error, UnknownOptionError)
    assert isinstance(error, TypeError), "as for any function"
    assert str(error) == f"unknown option {name!r}; did you mean {near!r}?"


def test_an_option_like_no_other_gets_the_whole_list() -> None:
    error = refusal(zzz=1)
    assert str(error) == "unknown option 'zzz'"
    assert "boot_timeout" in error.hint


@given(st.text(max_size=20))
def test_any_unknown_name_is_refused(name: str) -> None:
    known = {"memory", "cpus"}
    if name in known:
        refuse_unknown([name], known)
    else:
        with pytest.raises(UnknownOptionError):
            refuse_unknown([name], known)


# JSON

CONFIGS = st.builds(
    SandboxConfig,
    image=st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1),
    arch=st.sampled_from([None, *Architecture]),
    memory=st.integers(64, 2**20).map("{}M".format),
    cpus=st.integers(1, CPUS_MAX),
    port_forwards=st.lists(
        st.builds(
            PortForward, st.integers(0, 65535), st.integers(1, 65535), st.sampled_from(Protocol)
        ),
        max_size=3,
        unique_by=lambda forward: forward.host,
    ).map(tuple),
    network_mode=st.sampled_from([NetworkMode.MOUNTS_ONLY, NetworkMode.FULL]),
    extra_qemu_args=st.lists(st.text(st.characters(exclude_characters="\0"))).map(tuple),
    boot_timeout=st.floats(0.1, 3600),
    accel=st.sampled_from([None, "auto", *Accelerator]),
    disk_size=st.one_of(st.none(), st.integers(1, 2**40).map(str)),
)


@given(CONFIGS)
def test_a_config_comes_back_from_json_as_it_was(config: SandboxConfig) -> None:
    text = json.dumps(config.to_json())
    assert SandboxConfig.parse(json.loads(text)) == config
    assert SandboxConfig.parse(config.to_json()).to_json() == config.to_json()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(CONFIGS, st.data())
def test_any_json_in_any_field_is_taken_or_a_config_error(
    config: SandboxConfig, data: st.DataObject
) -> None:
    given_json = config.to_json()
    field = data.draw(st.sampled_from(sorted(given_json)))
    try:
        found = SandboxConfig.parse({**given_json, field: data.draw(JSON)})
    except ConfigError:
        return
    json.dumps(found.to_json())
