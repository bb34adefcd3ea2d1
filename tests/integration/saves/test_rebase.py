"""A save whose image got a new version, on a real VM."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from quicksand import Sandbox
from quicksand.base.errors import SaveError
from quicksand.base.paths import Paths
from quicksand.disks.images.image_store import ImageStore
from quicksand.saves.finding import store_at
from quicksand.saves.rebasing import rebase

from tests.integration.saves.test_saves import say


@pytest.fixture
def store(places: Paths) -> ImageStore:
    """An image store of the test's own, with the user's image in it."""
    images = places.data / "images"
    users = ImageStore(images.readlink()).get("debian")
    assert users is not None
    images.unlink()
    shutil.copytree(users.root.parent, images / "debian", copy_function=_link)
    return ImageStore(images)


def _link(source: str, target: str) -> None:
    Path(target).hardlink_to(Path(source).resolve())


def publish_anew(store: ImageStore) -> str:
    """A new version of the image; its digest."""
    old = store.get("debian")
    assert old is not None
    staging = store.root / ".new"
    shutil.copytree(old.root, staging, copy_function=_link)
    manifest = json.loads((staging / "manifest.json").read_text())
    (staging / "manifest.json").unlink()
    return store.publish(staging, {**manifest, "recipe": "0" * 64, "version": "14"}).digest


async def test_a_save_is_rebased_on_a_new_version_of_its_image(
    store: ImageStore, places: Paths, workspace: Path
) -> None:
    async with Sandbox(image="debian") as sb:
        await say(sb, "echo kept > /root/n; rm -r /etc/apt")
        before = await say(sb, "find /etc -type f | sort | sha256sum")
        old = (await sb.save("env", workspace=workspace)).base
    saves = store_at(workspace, places)
    assert old is not None
    new = publish_anew(store)
    assert new != old.digest
    made = rebase(saves.find("env"), "debian", places).require()
    assert made.base is not None
    assert (made.base.digest, made.base.version) == (new, "14")
    assert [t.save.name for t in saves.trash()] == ["env"]
    shutil.rmtree(store.root / "debian" / old.digest[:12])
    async with Sandbox(image="env", workspace=workspace) as sb:
        assert sb._parts.life.require_record().image_digest == new
        assert await say(sb, "cat /root/n") == "kept"
        assert await say(sb, "find /etc -type f | sort | sha256sum") == before
    with pytest.raises(SaveError, match="already"):
        rebase(saves.find("env"), "debian", places)
    saves.remove("env")
    saves.restore(saves.trash()[0].id)
    with pytest.raises(SaveError, match=old.digest[:12]) as caught:
        await Sandbox(image="env", workspace=workspace).start()
    assert new[:12] in str(caught.value)
