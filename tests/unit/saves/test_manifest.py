"""Manifests of saves: ours, those of the published packages, and those of nobody."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from quicksand.base.errors import ConfigError, SaveError, SaveNotFoundError
from quicksand.records.config import SandboxConfig
from quicksand.saves.save_manifest import (
    NAME_MAX,
    Base,
    Parent,
    SavedLayer,
    SaveManifest,
    check_save_name,
    read_manifest,
)

from tests.each import each

LAYER = SavedLayer(id="0123456789ab", size=262144, sha256="a" * 64)
OURS = SaveManifest(
    config=SandboxConfig.parse({"image": "debian", "memory": "1G"}),
    arch="x86_64",
    id="ba9876543210",
    created=1700000000.5,
    note="a note",
    engine="quicksand-tui 1",
    base=Base(name="debian", version="13", digest="d" * 64),
    parent=Parent(name="before", id="001122334455"),
    layers=(LAYER,),
    frozen=True,
    unsynced=True,
    volatile=("/tmp/x",),
)
PUBLISHED = {"version": 6, "config": {"image": "ubuntu", "mounts": []}, "arch": "amd64"}

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=9), inner),
    max_leaves=8,
)


def test_what_is_written_is_read() -> None:
    assert SaveManifest.from_json(json.loads(json.dumps(OURS.to_json()))) == OURS


def test_a_published_save_says_little_and_is_read() -> None:
    found = SaveManifest.from_json(PUBLISHED)
    assert (found.config.image, found.arch) == ("ubuntu", "x86_64")
    assert (found.id, found.layers, found.base) == ("", None, None)
    assert (found.config.mounts, found.other_config) == ((), {})


def test_what_we_do_not_know_is_kept() -> None:
    plain = {**OURS.to_json(), "color": {"of": ["the", "sky"]}}
    plain["config"]["sound_card"] = True
    again = SaveManifest.from_json(plain).to_json()
    assert again == plain


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"version": 7}, "newer"),
    ({"version": "6"}, "version"),
    ({"version": 0}, "version"),
    ({"version": True}, "version"),
    ({"config": None}, "config"),
    ({"config": {}}, "image"),
    ({"config": {"image": 7}}, "image"),
    ({"config": {"image": "x", "memory": []}}, "memory"),
    ({"arch": "vax"}, "vax"),
    ({"id": "../x"}, "id"),
    ({"id": None}, "id"),
    ({"created": "now"}, "created"),
    ({"created": float("inf")}, "created"),
    ({"created": 10**400}, "created"),
    ({"note": 1}, "note"),
    ({"engine": {}}, "engine"),
    ({"base": "debian"}, "base"),
    ({"base": {"digest": "x"}}, "base"),
    ({"base": {"name": 1}}, "name"),
    ({"parent": []}, "parent"),
    ({"layers": {}}, "layers"),
    ({"layers": []}, "layers"),
    ({"layers": ["x"]}, "layer"),
    ({"layers": [{"id": "0123456789ab", "size": -1, "sha256": "a" * 64}]}, "bytes"),
    ({"layers": [{"id": "0123456789ab", "size": True, "sha256": "a" * 64}]}, "bytes"),
    ({"layers": [{"id": "../../x", "size": 1, "sha256": "a" * 64}]}, "id"),
    ({"layers": [{"id": "0123456789ab", "size": 1, "sha256": "A" * 64}]}, "sha256"),
    ({"layers": [{"id": "0123456789ab", "size": 1, "sha256": "a" * 64}] * 2}, "same id"),
    ({"frozen": "yes"}, "frozen"),
    ({"unsynced": 1}, "unsynced"),
    ({"volatile": "/tmp"}, "volatile"),
    ({"volatile": [1]}, "volatile"),
]


@each(("change", "named"), WRONG)
def test_a_wrong_value_is_named(change: dict[str, Any], named: str) -> None:
    plain = json.loads(json.dumps(OURS.to_json())) | change
    with pytest.raises(ValueError, match=named):
        SaveManifest.from_json(plain)


@given(field=st.sampled_from(sorted(OURS.to_json())), value=JSON)
def test_any_value_anywhere_is_read_or_refused(field: str, value: Any) -> None:
    try:
        found = SaveManifest.from_json({**OURS.to_json(), field: value})
    except ValueError:
        return
    assert SaveManifest.from_json(found.to_json()) == found


@given(JSON)
def test_any_json_at_all_is_refused_or_read(value: Any) -> None:
    try:
        SaveManifest.from_json(value)
    except ValueError:
        return


@given(st.binary(max_size=200))
def test_a_file_of_anything_is_an_error_that_names_it(data: bytes) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "manifest.json"
        path.write_bytes(data)
        with pytest.raises(SaveError, match="manifest"):
            read_manifest(path.parent)


def test_no_manifest_is_no_save(tmp_path: Path) -> None:
    with pytest.raises(SaveNotFoundError) as caught:
        read_manifest(tmp_path)
    assert isinstance(caught.value, FileNotFoundError)
    assert str(tmp_path) in str(caught.value)


GOOD = ["a", "my-env", "with space", "ümläut", "雪", "v1.2", "-x", "x" * NAME_MAX]
EMPTY: list[object] = ["", " ", None, 7]
HIDDEN = [".", "..", ".hidden"]
BAD = ["a/b", "/", "a\nb", "a\0b", "\x1b[31m", "\ud800", "x" * 201, "雪" * 67]


@each("name", GOOD)
def test_names_that_can_be(name: str) -> None:
    assert check_save_name(name) == name


@each("name", [*EMPTY, *HIDDEN, *BAD])
def test_names_that_cannot(name: Any) -> None:
    with pytest.raises(ConfigError, match="no name for a save"):
        check_save_name(name)
