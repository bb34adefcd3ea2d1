"""From a name to a save, in the order of the specification."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from quicksand.errors import SaveNotFoundError
from quicksand.host.paths import Paths
from quicksand.saves.finding import all_stores, find_save
from quicksand.saves.manifest import MANIFEST

from tests.unit.saves.making import make_published, make_save


def test_a_path_comes_before_the_workspace_and_that_before_the_users_own(
    places: Paths, tmp_path: Path
) -> None:
    workspace, users = all_stores(places, tmp_path)
    make_save(users, "env", b"user")
    assert find_save("env", places, tmp_path).root == users.root / "env"
    make_save(workspace, "env", b"work")
    assert find_save("env", places, tmp_path).root == tmp_path / ".quicksand/sandboxes/env"
    make_published(tmp_path / "env", b"path")
    assert find_save("env", places, tmp_path).root == tmp_path / "env"


@pytest.mark.parametrize("path", ["sub/env", "./sub/env", "sub/../sub/env/", "{root}/sub/env"])
def test_a_save_is_found_by_its_path(places: Paths, tmp_path: Path, path: str) -> None:
    made = make_published(tmp_path / "sub" / "env", b"1")
    found = find_save(path.format(root=tmp_path), places, tmp_path)
    assert (found.root, found.name, found.error) == (made, "env", "")
    assert find_save(made, places).root == made


def test_a_directory_with_some_manifest_is_no_save(places: Paths, tmp_path: Path) -> None:
    (tmp_path / "debian").mkdir()
    (tmp_path / "debian" / MANIFEST).write_text(json.dumps({"name": "a program's"}))
    with pytest.raises(SaveNotFoundError):
        find_save("debian", places, tmp_path)
    # Who gives a path means it.
    assert "version" in find_save("./debian", places, tmp_path).error


def test_a_broken_save_is_found_and_says_why(places: Paths, tmp_path: Path) -> None:
    workspace, users = all_stores(places, tmp_path)
    make_save(users, "env", b"user")
    make_save(workspace, "env", b"work")
    (workspace.root / "env" / MANIFEST).write_text("{")
    # The user's own is another save: never taken in its place.
    found = find_save("env", places, tmp_path)
    assert found.root == workspace.root / "env"
    assert MANIFEST in found.error


def test_a_name_that_is_near_is_suggested(places: Paths, tmp_path: Path) -> None:
    make_save(all_stores(places, tmp_path)[0], "my-env", b"1")
    make_save(all_stores(places, tmp_path)[1], "my-other", b"1")
    for asked in ("my-envv", "sub/my-envv"):
        with pytest.raises(SaveNotFoundError) as caught:
            find_save(asked, places, tmp_path)
        assert asked in str(caught.value)
        assert "'my-env'" in caught.value.hint
    with pytest.raises(SaveNotFoundError) as caught:
        find_save("zzzzzz", places, tmp_path)
    assert "saves" in caught.value.hint


def test_where_there_are_no_saves_the_way_to_one_is_told(places: Paths, tmp_path: Path) -> None:
    with pytest.raises(SaveNotFoundError) as caught:
        find_save("env", places, tmp_path)
    assert "there are no saves yet" in caught.value.hint
    assert not (tmp_path / ".quicksand").exists()
    assert not places.saves.exists()


HOSTILE = st.one_of(
    st.text(max_size=300),
    st.sampled_from(
        ["", ".", "..", "../..", "~", "~nobody/x", "\0", "a\0b", "/", "\udc80", "é" * 200]
    ),
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(name=HOSTILE)
def test_a_hostile_name_leads_nowhere(places: Paths, tmp_path: Path, name: str) -> None:
    with pytest.raises(SaveNotFoundError):
        find_save(name, places, tmp_path / "empty")
