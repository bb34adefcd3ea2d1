"""From a name to a save."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from quicksand.base.errors import SaveNotFoundError
from quicksand.base.paths import Paths
from quicksand.saves.finding import all_stores, find_named, find_save, store_at
from quicksand.saves.ownership import mark_imported, mark_made
from quicksand.saves.save_manifest import MANIFEST, Save

from tests.unit.saves.making import make_published, make_save


def own(save: Save, places: Paths) -> Save:
    """As if this user had saved it there."""
    mark_made(save.root, save.root, places)
    return save


def test_what_this_user_has_made_comes_before_what_a_directory_offers(
    places: Paths, tmp_path: Path
) -> None:
    workspace, users, here = all_stores(places, tmp_path)
    offered = make_published(here.root / "env", b"path")
    assert find_save("env", places, tmp_path).root == offered
    make_save(workspace, "env", b"work")
    assert find_save("env", places, tmp_path).root == workspace.root / "env"
    make_save(users, "env", b"user")
    assert find_save("env", places, tmp_path).root == users.root / "env"
    # Made here, the nearer one is meant.
    own(find_save("./.quicksand/sandboxes/env", places, tmp_path), places)
    assert find_save("env", places, tmp_path).root == workspace.root / "env"
    ranks = [mine for _, mine in find_named("env", places, tmp_path)]
    assert ranks == [True, True, False]


def test_what_was_imported_comes_before_what_a_directory_offers(
    places: Paths, tmp_path: Path
) -> None:
    workspace, users, _ = all_stores(places, tmp_path)
    make_save(workspace, "env", b"work")
    imported = make_save(users, "env", b"user")
    mark_imported(imported.root)
    (first, mine), (second, _) = find_named("env", places, tmp_path)
    assert (first.root, mine, second.root) == (imported.root, False, workspace.root / "env")


def test_a_dot_before_the_name_is_what_the_directory_offers(places: Paths, tmp_path: Path) -> None:
    workspace, users, here = all_stores(places, tmp_path)
    make_save(users, "env", b"user")
    with pytest.raises(SaveNotFoundError):
        find_save("./env", places, tmp_path)
    make_save(workspace, "env", b"work")
    assert find_save("./env", places, tmp_path).root == workspace.root / "env"
    # A directory that only happens to be called so is in nobody's way.
    (tmp_path / "env").mkdir()
    (tmp_path / "env" / MANIFEST).write_text("{}")
    assert find_save("./env", places, tmp_path).root == workspace.root / "env"
    (tmp_path / "env" / MANIFEST).unlink()
    (tmp_path / "env").rmdir()
    make_published(here.root / "env", b"path")
    assert find_save("./env", places, tmp_path).root == here.root / "env"


def test_a_workspace_of_ones_own_is_looked_in_first(places: Paths, tmp_path: Path) -> None:
    workspace, _, _ = all_stores(places, tmp_path)
    make_save(workspace, "env", b"near")
    given = tmp_path / "given"
    make_save(store_at(given / "sandboxes"), "env", b"as earlier versions saved")
    (old, _), (near, _) = find_named("env", places, tmp_path, given)
    assert (old.root, near.root) == (given / "sandboxes" / "env", workspace.root / "env")
    make_save(store_at(given), "env", b"new")
    (new, _), *_ = find_named("env", places, tmp_path, given)
    assert new.root == given / "env"


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
    workspace, users, _ = all_stores(places, tmp_path)
    make_save(users, "env", b"user")
    own(make_save(workspace, "env", b"work"), places)
    (workspace.root / "env" / MANIFEST).write_text("{")
    # The one in the data directory is another save: never taken in its place.
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
