"""What a name means, and what a save that was not made here brings with it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from quicksand import Sandbox
from quicksand.base.errors import ConfigError, SaveError
from quicksand.base.paths import Paths
from quicksand.records.config import NetworkMode
from quicksand.records.mount import Mount
from quicksand.records.port_forwards import PortForward
from quicksand.saves.finding import all_stores
from quicksand.saves.ownership import mark_made
from quicksand.saves.resolving import Meaning, SaveWarning, confine, explain, find_meaning, inherit
from quicksand.saves.save_manifest import MANIFEST, OVERLAYS, Save, SaveManifest
from quicksand.saves.store import SaveStore

from tests.unit.saves.making import make_published, make_save, publish_image
from tests.unit.saves.test_manifest import OURS

GREEDY: dict[str, Any] = {
    "network_mode": "full",
    "port_forwards": [{"host": 8080, "guest": 80}],
    "extra_qemu_args": ["-drive", "file=/etc/shadow\x1b[2J"],
    "agent_http": True,
    "memory": "1G",
}


def greedy(root: Path, **config: Any) -> Path:
    """Have a save ask for all there is."""
    manifest = json.loads((root / MANIFEST).read_text())
    manifest["config"] |= {**GREEDY, **config}
    (root / MANIFEST).write_text(json.dumps(manifest))
    return root


@pytest.fixture
def cwd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, places: Paths) -> Path:
    """A directory as cloned; of images there is "mine"."""
    (places.data / "images").unlink()
    publish_image(places, name="mine")
    (tmp_path / "repo").mkdir()
    monkeypatch.chdir(tmp_path / "repo")
    return tmp_path / "repo"


@pytest.fixture(params=[".quicksand/sandboxes", "."])
def offered(request: pytest.FixtureRequest, cwd: Path) -> Path:
    """Where a directory may have saves."""
    return Path(cwd / request.param)


# Names


@pytest.mark.parametrize("name", ["mine", "debian"])
def test_nothing_in_the_directory_stands_in_for_an_image(
    places: Paths, offered: Path, name: str
) -> None:
    """Built, or still to be built as the one that there is a recipe for."""
    root = greedy(make_published(offered / name, b"1"))
    meaning = find_meaning(name, places)
    assert meaning.save is None and meaning.passed_over is not None
    (notice,) = explain(meaning, ())
    assert "is the image" in notice and f"./{name}" in notice
    with pytest.warns(SaveWarning, match="is the image"):
        sandbox = Sandbox(image=name)
    assert sandbox.config.network_mode is NetworkMode.MOUNTS_ONLY
    assert (sandbox.config.port_forwards, sandbox.config.extra_qemu_args) == ((), ())
    assert sandbox.notices == (notice,)
    # A damaged one does not either.
    (root / MANIFEST).write_text("{")
    assert find_meaning(name, places).save is None


@pytest.mark.parametrize("text", ["./mine", "{root}"])
def test_by_its_path_it_is_meant(places: Paths, offered: Path, text: str) -> None:
    root = make_published(offered / "mine", b"1")
    meaning = find_meaning(text.format(root=root), places)
    assert meaning.save is not None
    assert (meaning.save.root, meaning.is_own) == (root, False)


def test_ones_own_save_comes_before_an_image(places: Paths, cwd: Path) -> None:
    """It is older than the image: a save is not given the name of one."""
    for store in all_stores(places)[:2]:
        save = make_save(store, "mine", b"1")
        mark_made(save.root, save.root, places)
        meaning = find_meaning("mine", places)
        assert meaning.save is not None
        assert (meaning.save.root, meaning.is_own) == (save.root, True)
        store.delete("mine")


def test_a_name_that_is_no_image_is_the_directorys_save(places: Paths, offered: Path) -> None:
    """As the specification has it, but for what reaches beyond the guest."""
    root = greedy(make_published(offered / "env", b"1"))
    with pytest.warns(SaveWarning, match="not made here") as caught:
        sandbox = Sandbox(image="env")
    assert caught[0].filename == __file__, "the line is the user's, not one of ours"
    config = sandbox.config
    assert (config.memory, config.network_mode) == ("1G", NetworkMode.MOUNTS_ONLY)
    assert (config.port_forwards, config.extra_qemu_args, config.agent_http) == ((), (), False)
    (notice,) = sandbox.notices
    for word in (str(root.parent), "network full", "8080->80", "/etc/shadow", "--trust"):
        assert word in notice
    assert "\x1b" not in notice


def test_a_directory_of_something_else_is_no_save(places: Paths, cwd: Path) -> None:
    (cwd / "env").mkdir()
    (cwd / "env" / MANIFEST).write_text(json.dumps({"name": "a program's"}))
    (cwd / ".quicksand" / "sandboxes" / "env").mkdir(parents=True)
    assert find_meaning("env", places).save is None
    assert find_meaning(str(places.images), places).save is None
    (cwd / ".quicksand" / "sandboxes" / "env" / OVERLAYS).mkdir()
    with pytest.raises(SaveError, match="env"):
        find_meaning("env", places)


def test_a_workspace_that_is_given_is_no_more_trusted(places: Paths, tmp_path: Path) -> None:
    given = tmp_path / "given"
    greedy(make_published(given / "debian", b"1"))
    assert find_meaning("debian", places, given).save is None
    greedy(make_published(given / "env", b"1"))
    meaning = find_meaning("env", places, given)
    assert meaning.save is not None
    assert (meaning.save.root, meaning.is_own) == (given / "env", False)


# What it brings


def save_with(**config: Any) -> Save:
    return Save(
        name="env",
        root=Path("/nowhere/env"),
        manifest=replace(OURS, config=replace(OURS.config, **config)),
    )


REACHING = {
    "network_mode": NetworkMode.FULL,
    "port_forwards": (PortForward(8080, 80),),
    "extra_qemu_args": ("-s",),
    "agent_http": True,
}


def test_of_a_save_of_ones_own_all_is_taken_over() -> None:
    save = save_with(**REACHING)
    found = inherit(save, {}, trusted=True)
    assert (found.config, found.left_out) == (save.require().config, ())
    found = inherit(save, {"memory": "2G", "network_mode": "mounts_only"}, trusted=True)
    assert (found.config.memory, found.config.network_mode) == ("2G", NetworkMode.MOUNTS_ONLY)
    assert found.config.image == "debian"


def test_what_is_given_is_not_left_out() -> None:
    save = save_with(**REACHING)
    found = inherit(save, {"network_mode": "full", "port_forwards": []}, trusted=False)
    assert found.config.network_mode is NetworkMode.FULL
    assert found.config.port_forwards == ()
    assert [said.split()[0] for said in found.left_out] == ["the", "QEMU"]


def test_a_narrower_network_stays_so() -> None:
    save = save_with(network_mode=NetworkMode.NONE, port_forwards=(), agent_http=False)
    assert inherit(save, {}, trusted=False).config.network_mode is NetworkMode.NONE
    assert inherit(save, {}, trusted=False).left_out == ()
    with pytest.raises(ConfigError, match="NONE"):
        inherit(save, {"agent_http": True}, trusted=False)


def test_mounts_of_a_save_are_told_and_never_made() -> None:
    manifest = replace(OURS, other_config={"mounts": [{"host": "/etc", "guest": "/mnt"}]})
    save = Save(name="env", root=Path("/nowhere/env"), manifest=manifest)
    (told,) = (said for said in inherit(save, {}, trusted=False).left_out if "mounts" in said)
    assert "/etc" in told


def test_mounts_of_an_own_save_are_not_made_either_and_told() -> None:
    save = save_with(mounts=(Mount("/data", "/mnt/data"),))
    inherited = inherit(save, {}, trusted=True)
    assert inherited.config.mounts == ()
    (notice,) = explain(Meaning(save=save), inherited.left_out)
    assert "/data:/mnt/data" in notice and "-v" in notice
    asked = inherit(save, {"mounts": ["/other:/mnt"]}, trusted=True)
    assert (asked.config.mounts, asked.left_out) == ((Mount("/other", "/mnt"),), ())


def test_mounts_of_an_unknown_kind_do_not_keep_a_save_from_being_used() -> None:
    plain = {**OURS.to_json()}
    plain["config"]["mounts"] = [{"host": "/etc", "guest": "/mnt", "type": "virtiofs"}]
    manifest = SaveManifest.from_json(plain)
    assert manifest.config.mounts == ()
    save = Save(name="env", root=Path("/nowhere/env"), manifest=manifest)
    (told,) = inherit(save, {}, trusted=True).left_out
    assert "virtiofs" in told
    assert manifest.to_json()["config"]["mounts"] == plain["config"]["mounts"]


def test_nothing_that_reaches_out_is_left_when_it_is_confined() -> None:
    config = save_with(**REACHING).require().config
    usual = {f: getattr(confine(config), f) for f in REACHING}
    assert usual == {
        "network_mode": NetworkMode.MOUNTS_ONLY,
        "port_forwards": (),
        "extra_qemu_args": (),
        "agent_http": False,
    }


@pytest.mark.parametrize("image", ["/home/somebody/disk.qcow2", "../disk", "disk.qcow2"])
@pytest.mark.parametrize("how", ["image", "base", "beside"])
async def test_a_file_of_this_host_is_not_its_image(
    places: Paths, offered: Path, image: str, how: str
) -> None:
    """Its guest would read that disk."""
    root = make_published(offered / "env", b"1", image=image)
    manifest = json.loads((root / MANIFEST).read_text())
    if how == "base":
        manifest |= {"id": "0123456789ab", "base": {"name": image}}
        manifest["config"]["image"] = "debian"
        (root / MANIFEST).write_text(json.dumps(manifest))
    if how == "beside":
        root.rename(offered / "lower")
        make_published(offered / "env", b"2", image="lower")
    with pytest.raises(SaveError, match=f"is based on a file of this host: '{image}'"):
        await Sandbox(image="env").start()
    with pytest.raises(SaveError, match="not here"):
        await Sandbox(image="env", trust=True).start()


def test_with_trust_it_gets_what_it_asks_for(places: Paths, offered: Path) -> None:
    greedy(make_published(offered / "env", b"1"))
    # No warning, which tests take for an error: somebody has said that it may.
    sandbox = Sandbox(image="./env", trust=True, cpus=3)
    config = sandbox.config
    assert (config.network_mode, config.cpus) == (NetworkMode.FULL, 3)
    assert config.port_forwards == (PortForward(8080, 80),)
    (notice,) = sandbox.notices
    assert notice.endswith("which was not made here")


def test_a_long_wish_is_cut(places: Paths, offered: Path) -> None:
    greedy(make_published(offered / "env", b"1"), extra_qemu_args=["x" * 100_000])
    with pytest.warns(SaveWarning):
        (notice,) = Sandbox(image="env").notices
    assert len(notice) < 1000


def test_what_was_imported_brings_nothing_with_it(places: Paths, cwd: Path) -> None:
    from quicksand.saves.ownership import mark_imported

    save = make_save(SaveStore(places.saves), "env", b"1")
    greedy(save.root)
    assert Sandbox(image="env").config.network_mode is NetworkMode.FULL
    mark_imported(save.root)
    with pytest.warns(SaveWarning, match="not made here"):
        assert Sandbox(image="env").config.network_mode is NetworkMode.MOUNTS_ONLY
