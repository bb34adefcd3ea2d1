"""What a mount may be, and how it is written."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from quicksand import Mount, SandboxConfig
from quicksand.base.errors import ConfigError
from quicksand.records.mount import MOUNTS_MAX, check_mounts, decode_mount, parse_mount

from tests.each import each


@each(
    ("word", "mount"),
    [
        ("/data:/mnt/data", Mount("/data", "/mnt/data")),
        ("/data:/mnt/data:ro", Mount("/data", "/mnt/data", readonly=True)),
        ("/data:/mnt/data:protect", Mount("/data", "/mnt/data", protect=True)),
        ("/data:/mnt/data:rw", Mount("/data", "/mnt/data")),
        ("/a b:/mnt/c d", Mount("/a b", "/mnt/c d")),
        ("/a:b:/mnt", Mount("/a:b", "/mnt")),
        ("/a/:/mnt/", Mount("/a", "/mnt")),
        ("/a://mnt/./x", Mount("/a", "/mnt/x")),
    ],
)
def test_host_and_guest_are_told_apart(word: str, mount: Mount) -> None:
    assert parse_mount(word) == mount
    assert decode_mount(word) == mount


def test_the_hosts_side_may_be_relative_or_of_the_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/somebody")
    assert parse_mount(".:/work").host == str(tmp_path)
    assert parse_mount("../x:/work").host == str(tmp_path.parent / "x")
    assert parse_mount("~/src:/src:ro").host == "/home/somebody/src"
    assert Mount(host=str(tmp_path), guest="/w").host == str(tmp_path)


@each(
    ("word", "said"),
    [
        ("", "HOST:GUEST"),
        ("/data", "HOST:GUEST"),
        ("/data:mnt", "HOST:GUEST"),
        (":/mnt", "HOST:GUEST"),
        ("/data:/", "system needs it"),
        ("/data:/proc", "system needs it"),
        ("/data:/dev/shm", "system needs it"),
        ("/data:/run", "system needs it"),
        ("/data:/mnt/../etc", "nothing can be mounted"),
        ("/data:/" + "x" * 4096, "nothing can be mounted"),
        ("/da\0ta:/mnt", "must be a path"),
        ("/data:/m\0nt", "absolute path"),
    ],
)
def test_what_cannot_be_mounted_is_refused_by_name(word: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        parse_mount(word)


@each("value", [7, None, {"host": "/a"}, {"host": "/a", "guest": "/b", "more": 1}, ["/a", "/b"]])
def test_other_things_are_no_mounts(value: object) -> None:
    with pytest.raises(ConfigError, match="not a Mount"):
        decode_mount(value)


def test_fields_are_checked() -> None:
    with pytest.raises(ConfigError, match="readonly"):
        Mount("/a", "/b", readonly="yes")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="fsync"):
        Mount("/a", "/b", fsync=0)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="9p has fsync always"):
        Mount("/a", "/b", type="9p", fsync=False)
    with pytest.raises(ConfigError, match="protect must be true or false"):
        Mount("/a", "/b", protect="yes")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="9p cannot be protected"):
        parse_mount("/a:/b:9p,protect")
    with pytest.raises(ConfigError, match="virtiofs"):
        Mount("/a", "/b", type="virtiofs")


def test_two_cannot_be_in_the_same_place_nor_too_many() -> None:
    with pytest.raises(ConfigError, match="/mnt/a"):
        check_mounts([Mount("/a", "/mnt/a"), Mount("/b", "/mnt/a/")])
    many = [Mount("/a", f"/mnt/{n}") for n in range(MOUNTS_MAX)]
    check_mounts(many)
    with pytest.raises(ConfigError, match="16 is the most"):
        check_mounts([*many, Mount("/a", "/mnt")])


def test_mounts_need_a_network_card() -> None:
    with pytest.raises(ConfigError, match="mounts need a network card"):
        SandboxConfig.parse({"image": "x", "mounts": ["/a:/mnt"], "network_mode": "none"})


PATHS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1)


@given(PATHS, PATHS, st.booleans(), st.booleans(), st.booleans())
def test_what_is_written_is_read(
    host: str, guest: str, readonly: bool, fsync: bool, protect: bool
) -> None:
    try:
        mount = Mount(f"/{host}", f"/mnt/{guest}", readonly, fsync=fsync, protect=protect)
    except ConfigError:
        return  # with .. in it
    config = SandboxConfig.parse({"image": "x", "mounts": [mount]})
    assert SandboxConfig.parse(config.to_json()).mounts == (mount,)
